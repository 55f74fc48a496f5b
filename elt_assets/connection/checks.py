"""Settings for the checks of a stream: rules that people write for its rows, and the checks of every stream.

`pipeline.rules` evaluates the rules, and `orchestration.checks` makes the checks.

First `Rule` and its kinds, each of which becomes a check of the stream's asset; then `Checks`, the settings
of the checks that every stream has.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from elt_assets.connection.automation import Pause
from elt_assets.connection.config_model import ConfigModel, DottedPath, DottedPaths, OtherForm
from elt_assets.connection.read_only_query import check_query

Severity = Literal["error", "warn"]
"""Severity of a failed check."""
Scope = Literal["new", "table"]
_NAME = re.compile(r"[A-Za-z0-9_]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")


class Rule(ConfigModel):
    """A rule for the rows of a table: its name as a check, its scope, and what a failure does."""

    kind: ClassVar[str]
    demand: ClassVar[str]
    """What the rule demands, with `{columns}`, `{bounds}` and `{values}` of the rule."""
    failure: ClassVar[str]
    """How it failed, with `{failed}` rows of `{rows}` too."""

    name: str | None = None
    """Name of the check: letters, digits and underscores; default: kind and columns."""
    over: Scope = "new"
    """`new`: the rows in the files that the run has committed; of a stream with partitions, the rows of
    the run's partitions. `table`: all rows of the table."""
    severity: Severity = "error"
    """Severity of its failure."""
    blocking: bool = False
    """`true`: a failure fails the run, and assets downstream in it are not materialised."""

    @property
    def paths(self) -> Sequence[Sequence[str]]:
        """The paths of the fields that the rule is about."""
        return ()

    @property
    def compared_values(self) -> Sequence[Any]:
        """The values that the rule compares with."""
        return ()

    @property
    def check_name(self) -> str:
        """The name of the check in Dagster."""
        if self.name is not None:
            return self.name
        parts = [self.kind, *(name for path in self.paths for name in path)]
        return _UNSAFE.sub("_", "_".join(parts))

    @property
    def description(self) -> str:
        """What the rule demands, as a sentence."""
        return (
            f"In {'the new rows' if self.over == 'new' else 'the table'}, {self.fill(self.demand)}."
        )

    def fill(self, template: str, *, failed: int = 0, rows: int = 0) -> str:
        """Return a text about the rule, with its columns, bounds and number of values."""
        columns = ", ".join(f"`{'.'.join(path)}`" for path in self.paths)
        limits = {"at least": getattr(self, "min", None), "at most": getattr(self, "max", None)}
        bounds = [f"{name} {limit}" for name, limit in limits.items() if limit is not None]
        return template.format(
            columns=columns,
            bounds=" and ".join(bounds),
            values=len(self.compared_values),
            failed=f"{failed:,}",
            rows=f"{rows:,}",
        )

    @model_validator(mode="after")
    def _check_common_keys(self) -> Rule:
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise ValueError(f"name: {self.name!r} may hold only letters, digits and underscores")
        if self.blocking and self.severity == "warn":
            raise ValueError("a warning cannot block; leave out `blocking` or `severity: warn`")
        return self

    @classmethod
    def label(cls) -> str:
        return cls.kind


class ColumnRule(Rule):
    """A rule about the values of one column."""

    column: DottedPath
    """Field, as `email` or `address.city`."""

    @property
    def paths(self) -> Sequence[Sequence[str]]:
        return [self.column]


class NotNull(ColumnRule):
    """The columns are never null. Each of them is a check of its own."""

    kind = "not_null"
    demand = "{columns} is never null"
    failure = "{failed} of {rows} rows have no {columns}"


class Unique(Rule):
    """No two rows have the same values in the columns. Rows with a null in one of them do not count."""

    kind = "unique"
    demand = "no two rows have the same {columns}"
    failure = "{failed} values in {rows} rows are not unique: {columns}"

    columns: DottedPaths
    """Fields that are unique together."""
    over: Scope = "table"
    """As for the other rules; default: `table`."""

    @property
    def paths(self) -> Sequence[Sequence[str]]:
        return self.columns


class AcceptedValues(ColumnRule):
    """The values of a column are among these, or null."""

    kind = "accepted_values"
    demand = "{columns} is one of {values} values"
    failure = "{failed} of {rows} rows have a {columns} that is not accepted"

    values: list[Any] = Field(min_length=1)
    """The values, of the type of the column."""

    @property
    def compared_values(self) -> Sequence[Any]:
        return self.values

    @model_validator(mode="after")
    def _check_values(self) -> AcceptedValues:
        if None in self.values:
            raise ValueError(
                "values: null is accepted in any case; leave it out (`not_null` refuses it)"
            )
        return self


class Range(ColumnRule):
    """The values of a column are within bounds, or null. NaN is within none."""

    kind = "range"
    demand = "{columns} is {bounds}"
    failure = "{failed} of {rows} rows have a {columns} that is not {bounds}"

    min: Any = None
    """Smallest value that passes."""
    max: Any = None
    """Largest value that passes."""

    @property
    def compared_values(self) -> Sequence[Any]:
        return [bound for bound in (self.min, self.max) if bound is not None]

    @model_validator(mode="after")
    def _check_bounds(self) -> Range:
        if not self.compared_values:
            raise ValueError("write `min`, `max` or both")
        return self


class RowCount(Rule):
    """The number of rows is within bounds."""

    kind = "row_count"
    demand = "there are {bounds} rows"
    failure = "{rows} rows; there must be {bounds}"

    min: int = Field(default=0, ge=0)
    """Smallest number of rows that passes."""
    max: int | None = Field(default=None, ge=0)
    """Largest number of rows that passes."""
    over: Scope = "table"
    """As for the other rules; default: `table`."""

    @model_validator(mode="after")
    def _check_bounds(self) -> RowCount:
        if not self.min and self.max is None:
            raise ValueError("write `min`, `max` or both")
        if self.max is not None and self.min > self.max:
            raise ValueError("`min` is greater than `max`")
        return self


class Query(Rule):
    """A query in Spark SQL returns no row. It reads from `{table}` alone."""

    kind = "sql"
    demand = "the query returns no row"
    failure = "the query returns {failed} rows"

    name: str
    """Name of the check: letters, digits and underscores."""
    query: str
    """Query in Spark SQL, which must return no row: `… from {table} …`."""
    over: Scope = "table"
    """As for the other rules; default: `table`."""

    @field_validator("query")
    @classmethod
    def _check_query(cls, query: str) -> str:
        return check_query(query)


def _list_rules(value: Any) -> Any:
    """Return the rules under a key as a list; `false` is none."""
    if value is False:
        return []
    return value if isinstance(value, list) else [value]


def _list_not_null(value: Any) -> Any:
    """Return a mapping for each column of `email`, `[email, phone]` or `{columns: [email, phone]}`."""
    rules: list[Any] = []
    for item in _list_rules(value):
        if isinstance(item, Mapping) and "columns" in item and "column" not in item:
            common = {key: content for key, content in item.items() if key != "columns"}
            rules += [{"column": column, **common} for column in _list_rules(item["columns"])]
        else:
            rules.append(item if isinstance(item, Mapping) else {"column": item})
    return rules


def _list_unique(value: Any) -> Any:
    """Return a mapping for each rule: `email` is unique, and `{columns: [country, number]}` together."""
    rules: list[Any] = []
    for item in _list_rules(value):
        columns = item.get("columns") if isinstance(item, Mapping) else item
        is_single = isinstance(columns, str) or not isinstance(item, Mapping)
        common = item if isinstance(item, Mapping) else {}
        rules.append({**common, "columns": [columns]} if is_single else item)
    return rules


_TEXT, _OBJECT, _NONE = OtherForm(type="string"), OtherForm(type="object"), OtherForm(const=False)

NotNulls = Annotated[
    list[Annotated[NotNull, _TEXT]], BeforeValidator(_list_not_null), _TEXT, _OBJECT, _NONE
]
Uniques = Annotated[
    list[Annotated[Unique, _TEXT]], BeforeValidator(_list_unique), _TEXT, _OBJECT, _NONE
]
AcceptedValuesRules = Annotated[list[AcceptedValues], BeforeValidator(_list_rules), _OBJECT, _NONE]
Ranges = Annotated[list[Range], BeforeValidator(_list_rules), _OBJECT, _NONE]
RowCounts = Annotated[list[RowCount], BeforeValidator(_list_rules), _OBJECT, _NONE]
Queries = Annotated[list[Query], BeforeValidator(_list_rules), _OBJECT, _NONE]


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
    """A check that limits the share of records which are changed or rejected, or of rows."""

    max: float = Field(default=0.0, ge=0, le=1)
    """Largest share that passes; 0.01 is 1 %."""


class Limit(Check):
    """A check that limits a number."""

    max: float = Field(default=0.0, ge=0)
    """Largest number that passes."""


class LogLength(Limit):
    """A limit of entries of a log; maintenance leaves up to 100."""

    max: float = Field(default=1_100, ge=100)
    """Largest number that passes."""


class SourceCheck(Check):
    """A check that compares the table with the source, range by range of the key."""

    cron: str | None = None
    """Cron schedule of the check; default: none, so that it runs when somebody starts it."""
    columns: Annotated[list[str], Field(min_length=1)] | None = None
    """Fields that are compared besides the key; default: all that can be."""
    settled: Pause = dt.timedelta()
    """Rows whose cursor is a time, and younger than this, are left out."""
    sample: float = Field(default=1, gt=0, le=1)
    """Share of the rows that is looked at, in ranges of the key that are chosen anew for each check."""
    repair: bool = False
    """`true`: rows that differ are corrected, in one commit."""

    @property
    def is_configured(self) -> bool:
        """Whether somebody asked for the check."""
        return bool(self.model_fields_set) and self.enabled


_BOOLEAN = OtherForm(type="boolean")


# `true` and `false` enable and disable a check
_FROM_BOOL = BeforeValidator(lambda value: {"enabled": value} if isinstance(value, bool) else value)
_Check = Annotated[Check, _FROM_BOOL, _BOOLEAN]
_Share = Annotated[Share, _FROM_BOOL, _BOOLEAN]
_Limit = Annotated[Limit, _FROM_BOOL, _BOOLEAN]


class Checks(ConfigModel):
    """Checks made after each sync. A share is a fraction of the records read, or of the rows: 0.01 is 1 %."""

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
    published: _Check = Check(severity="warn")
    """What is published of the table, in Iceberg for example, is its newest version."""
    small_files: _Limit = Limit(severity="warn", max=500)
    """Few files are so small that maintenance would combine them: 500 are a second of requests to a store."""
    unsorted: _Share = Share(severity="warn", max=0.5)
    """Most rows are sorted by `cluster_by`."""
    vacuum_debt: _Limit = Limit(severity="warn", max=1.0)
    """Files that no version within the retention needs have at most so many bytes for each one of the table;
    less than a gigabyte passes."""
    log_length: Annotated[LogLength, _FROM_BOOL, _BOOLEAN] = LogLength(severity="warn")
    """So many entries are in the log after its newest checkpoint: a sync writes one before."""

    source: Annotated[SourceCheck, _FROM_BOOL, _BOOLEAN] = SourceCheck()
    """The table has what the source has. It is made only where it is configured, and not with each sync."""

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
