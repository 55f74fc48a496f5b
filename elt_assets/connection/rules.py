"""Rules that people write for the rows of a stream: each becomes a check of its asset."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

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
    def check_name(self) -> str:
        """The name of the check in Dagster."""
        if self.name is not None:
            return self.name
        parts = [self.kind, *(name for path in self.paths for name in path)]
        return _UNSAFE.sub("_", "_".join(parts))

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


class NotNull(Rule):
    """The columns are never null. Each of them is a check of its own."""

    kind = "not_null"

    column: DottedPath
    """Field, as `email` or `address.city`."""

    @property
    def paths(self) -> Sequence[Sequence[str]]:
        return [self.column]


class Unique(Rule):
    """No two rows have the same values in the columns. Rows with a null in one of them do not count."""

    kind = "unique"

    columns: DottedPaths
    """Fields that are unique together."""
    over: Scope = "table"
    """As for the other rules; default: `table`."""

    @property
    def paths(self) -> Sequence[Sequence[str]]:
        return self.columns


class AcceptedValues(Rule):
    """The values of a column are among these, or null."""

    kind = "accepted_values"

    column: DottedPath
    """Field, as `status` or `address.country`."""
    values: list[Any] = Field(min_length=1)
    """The values, of the type of the column."""

    @model_validator(mode="after")
    def _check_values(self) -> AcceptedValues:
        if None in self.values:
            raise ValueError(
                "values: null is accepted in any case; leave it out (`not_null` refuses it)"
            )
        return self

    @property
    def paths(self) -> Sequence[Sequence[str]]:
        return [self.column]


class Range(Rule):
    """The values of a column are within bounds, or null. NaN is within none."""

    kind = "range"

    column: DottedPath
    """Field that is a number, a date, a time or a text."""
    min: Any = None
    """Smallest value that passes."""
    max: Any = None
    """Largest value that passes."""

    @property
    def paths(self) -> Sequence[Sequence[str]]:
        return [self.column]

    @model_validator(mode="after")
    def _check_bounds(self) -> Range:
        if self.min is None and self.max is None:
            raise ValueError("write `min`, `max` or both")
        return self


class RowCount(Rule):
    """The number of rows is within bounds."""

    kind = "row_count"

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
