"""Settings for the checks of a stream."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from elt_assets.connection.config_model import ConfigModel

Severity = Literal["error", "warn"]


class Check(ConfigModel):
    """One check: whether it is enabled, and the severity of its failure."""

    enabled: bool = True
    severity: Severity = "error"


class Share(Check):
    """A check that limits the share of records which are changed or rejected."""

    max: float = Field(default=0.0, ge=0, le=1)


def _from_bool(value: Any) -> Any:
    """Convert `true` or `false` to the mapping that enables or disables a check."""
    return {"enabled": value} if isinstance(value, bool) else value


_Check = Annotated[Check, BeforeValidator(_from_bool)]
_Share = Annotated[Share, BeforeValidator(_from_bool)]


class Checks(ConfigModel):
    """Checks made after each sync. A share is a fraction of the records read: 0.01 is 1 %."""

    counts: _Check = Check()
    completed: _Check = Check()
    primary_key: _Check = Check()
    changed: _Share = Share(severity="warn", max=0.01)
    rejected: _Share = Share(severity="warn", max=0.0)
    columns: _Check = Check(severity="warn")
    cursor: _Check = Check(severity="warn")

    def over(self, general: Checks) -> Checks:
        """Return these checks; a value that they do not set comes from `general`, or else is the default."""
        default = Checks()
        merged_checks = {}
        for name in type(self).model_fields:
            settings: dict[str, Any] = {}
            for checks in (general, self):
                if name in checks.model_fields_set:
                    settings |= getattr(checks, name).model_dump(exclude_unset=True)
            merged_checks[name] = getattr(default, name).model_copy(update=settings)
        return Checks.model_construct(**merged_checks)
