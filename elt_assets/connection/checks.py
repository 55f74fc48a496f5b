"""Settings for the checks of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from elt_assets.connection.config_model import ConfigModel, OtherForm
from elt_assets.connection.rules import (
    AcceptedValuesRules,
    NotNulls,
    Queries,
    Ranges,
    RowCounts,
    Rule,
    Severity,
    Uniques,
)

RULES = ("not_null", "unique", "accepted_values", "range", "row_count", "sql")
"""The keys with rules that people write."""
FAIL_RUN = "fail_run"
CONTRACT = "contract"
"""Name of the check of a stream's contract."""


class Check(ConfigModel):
    """One check: whether it is enabled, and the severity of its failure."""

    model_config = ConfigDict(frozen=True)  # pydantic would copy the defaults for each stream

    enabled: bool = True
    """Whether the check is made."""
    severity: Severity = "error"
    """Severity of its failure."""


class Share(Check):
    """A check that limits the share of records which are changed or rejected."""

    max: float = Field(default=0.0, ge=0, le=1)
    """Largest share of the records that passes; 0.01 is 1 %."""


_BOOLEAN = OtherForm(type="boolean")


# `true` and `false` enable and disable a check
_FROM_BOOL = BeforeValidator(lambda value: {"enabled": value} if isinstance(value, bool) else value)
_Check = Annotated[Check, _FROM_BOOL, _BOOLEAN]
_Share = Annotated[Share, _FROM_BOOL, _BOOLEAN]


class Checks(ConfigModel):
    """Checks made after each sync. A share is a fraction of the records read: 0.01 is 1 %."""

    expected_keys = {"freshness": "write it beside `checks`"}  # noqa: RUF012 - a constant

    counts: _Check = Check()
    """The records read are committed or rejected, and as many as the source reports."""
    completed: _Check = Check()
    """The source has completed the stream."""
    primary_key: _Check = Check()
    """No two rows have the same primary key."""
    changed: _Share = Share(severity="warn", max=0.01)
    """Few records had a value that did not fit and became null."""
    rejected: _Share = Share(severity="warn", max=0.0)
    """Few records went to the dead letter."""
    columns: _Check = Check(severity="warn")
    """The columns of the table are those of the catalog."""
    cursor: _Check = Check(severity="warn")
    """The cursor of the state did not go back."""

    fail_run: bool = False
    """`true`: a check that fails with severity `error` fails the run, after everything is committed."""

    not_null: NotNulls = Field(default_factory=list)
    """Columns that are never null."""
    unique: Uniques = Field(default_factory=list)
    """Columns whose values no two rows have in common."""
    accepted_values: AcceptedValuesRules = Field(default_factory=list)
    """The values that a column may have."""
    range: Ranges = Field(default_factory=list)
    """Bounds of the values of a column."""
    row_count: RowCounts = Field(default_factory=list)
    """Bounds of the number of rows."""
    sql: Queries = Field(default_factory=list)
    """Queries that return no row."""

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules that people wrote, in the order of `RULES`."""
        return [rule for key in RULES for rule in getattr(self, key)]

    @model_validator(mode="after")
    def _check_names(self) -> Checks:
        names = {*type(self).model_fields, CONTRACT} - set(RULES)
        for rule in self.rules:
            if rule.check_name in names:
                raise ValueError(
                    f"{rule.kind}: there is another check of the name {rule.check_name!r}; give it "
                    "another `name`"
                )
            names.add(rule.check_name)
        return self

    def over(self, general: Checks) -> Checks:
        """Return these checks; a value that they do not set comes from `general`, or else is the default.

        The rules under a key replace those of `general` under the same key.
        """
        if not (self.model_fields_set or general.model_fields_set):
            return self
        default = Checks()
        merged_checks: dict[str, Any] = {}
        for name in type(self).model_fields:
            if name in (*RULES, FAIL_RUN):
                merged_checks[name] = getattr(
                    self if name in self.model_fields_set else general, name
                )
                continue
            settings: dict[str, Any] = {}
            for checks in (general, self):
                if name in checks.model_fields_set:
                    settings |= getattr(checks, name).model_dump(exclude_unset=True)
            merged_checks[name] = getattr(default, name).model_copy(update=settings)
        return Checks.model_construct(**merged_checks)
