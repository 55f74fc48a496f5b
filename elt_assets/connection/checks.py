"""The checks of a stream, as people write them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from elt_assets.connection.config_model import ConfigModel

Severity = Literal["error", "warn"]


class Check(ConfigModel):
    """Whether a check is made, and how bad it is if it fails."""

    enabled: bool = True
    severity: Severity = "error"


class Share(Check):
    """A check of how large a part of the records something befell."""

    max: float = Field(default=0.0, ge=0, le=1)


def _switched(value: Any) -> Any:
    """`false` for a check that is not wanted."""
    return {"enabled": value} if isinstance(value, bool) else value


_Check = Annotated[Check, BeforeValidator(_switched)]
_Share = Annotated[Share, BeforeValidator(_switched)]


class Checks(ConfigModel):
    """What is looked at after each sync. A share is a fraction of the records read: 0.01 is 1 %."""

    counts: _Check = Check()
    completed: _Check = Check()
    primary_key: _Check = Check()
    changed: _Share = Share(severity="warn", max=0.01)
    rejected: _Share = Share(severity="warn", max=0.0)
    columns: _Check = Check(severity="warn")
    cursor: _Check = Check(severity="warn")

    def over(self, general: Checks) -> Checks:
        """These; what they leave unsaid as the connection says it, or else by default."""
        default = Checks()
        found = {}
        for name in type(self).model_fields:
            said: dict[str, Any] = {}
            for written in (general, self):
                if name in written.model_fields_set:
                    said |= getattr(written, name).model_dump(exclude_unset=True)
            found[name] = getattr(default, name).model_copy(update=said)
        return Checks.model_construct(**found)
