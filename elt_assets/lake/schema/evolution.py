"""What a sync's columns mean for a table that has others already.

Types are ordered: one is below another if the other holds its values, which is so for

- long below decimal(38,0) below decimal(38,9), and long below double;
- date below timestamp_ntz below timestamp, a time without zone being in UTC;
- every scalar below string: as JSON would write it, without quotes;
- everything below JSON text, a string column whose metadata says `elt.json`. All its strings are JSON,
  whenever they came: plain text that was there before gets quotes.

Objects are compared field by field, arrays by their elements. A table's type may be the wider one: then
it stays, and values are read as what it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.schema import logical_types
from elt_assets.lake.schema.logical_types import (
    Array,
    Column,
    LogicalType,
    Scalar,
    Struct,
    Unread,
    column_of,
    described,
)
from elt_assets.lake.schema.names import RESERVED_COLUMNS
from elt_assets.lake.schema.widening import Widening, is_below, rewritten, unchanged
from elt_assets.sync.selection.schema_changes import OnSchemaChange

_GUIDANCE = (
    "correct the catalog; or read the stream anew (a refresh, or a policy that overwrites); or set "
    "`on_schema_change: freeze`, which keeps the table's columns as they are"
)
_FAIL_GUIDANCE = "correct the catalog, or set `on_schema_change: evolve` or `freeze`"


@dataclass(frozen=True)
class Plan:
    """How records are read, and the table that takes them.

    `columns`: to conform with, one for each of the table's; `schema`: the stream's part of what the
    table must have; `added`: the paths of columns and nested fields it lacks; `widened`: types that
    change; `told`: all differences, for people; `before`: the table's columns as they are.
    """

    columns: list[Column]
    schema: t.StructType
    added: list[str] = field(default_factory=list)
    widened: list[Widening] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    before: list[Column] = field(default_factory=list)

    @property
    def rewrites(self) -> bool:
        """Whether the table's files must be written anew, so that every engine can read them."""
        return bool(self.widened)


def plan(
    table: t.StructType, declared: Sequence[Column], mode: OnSchemaChange, where: str = "the table"
) -> Plan:
    """What a stream's declared columns mean for a table that exists.

    A column that is declared no more stays, and is null in new rows. `evolve` adds what is new and widens
    types; `freeze` changes nothing, and rejects the records that do not fit; `fail` allows no difference.

    Args:
        table: its columns; this project's own are left aside.
        where: names the table in errors.

    Raises:
        ConfigError: two types are not comparable; with `fail`, anything differs.
    """
    before = [column_of(each) for each in table.fields if not _is_ours(each.name)]
    found = _Comparison(frozen=mode == "freeze")
    pairs = found.fields(before, declared, ())
    if mode == "fail" and found.told:
        message = f"the catalog is not what {where} has: " + "; ".join(found.told)
        raise ConfigError(message, guidance=_FAIL_GUIDANCE)
    if found.clashes and mode != "freeze":
        message = f"{where} cannot take the catalog's types: " + "; ".join(found.clashes)
        raise ConfigError(message, guidance=_GUIDANCE)
    return Plan(
        columns=[read for _, read in pairs],
        schema=t.StructType([stored.field for stored, _ in pairs]),
        added=found.added,
        widened=found.widened,
        told=found.told,
        before=before,
    )


def replacing(table: t.StructType, declared: Sequence[Column]) -> Plan:
    """What they mean where no row of the table stays, or there is no table: it gets those columns.

    A column that is declared no more stays here too: its readers go on, and its history.
    """
    before = [column_of(each) for each in table.fields if not _is_ours(each.name)]
    present = {column.source: column for column in before}
    told = []
    for column in declared if before else ():
        old = present.pop(column.source, None)
        if old is None:
            told.append(_new(column, column.source))
        elif old.type != column.type:
            told.append(
                f"{column.source!r}, {described(old.kind)}, becomes {described(column.kind)}"
            )
    kept = [Column(c.source, c.name, Unread(c.type)) for c in present.values()]
    told += [_gone(column.source) for column in kept]
    columns = [*declared, *kept]
    return Plan(columns, t.StructType([column.field for column in columns]), told=told)


def rewrite(rows: DataFrame, plan: Plan) -> DataFrame:
    """Rows of the table as it is → as it must be; columns that are not the stream's stay."""
    old = {column.name: column.kind for column in plan.before}
    new = [column_of(each) for each in plan.schema.fields]
    names = {column.name for column in new}
    made = [
        rewritten(f.col(_quoted(c.name)), old[c.name], c.kind).alias(c.name)
        if c.name in old
        else f.lit(None).cast(c.type).alias(c.name)
        for c in new
    ]
    return rows.select(*made, *(_quoted(name) for name in rows.columns if name not in names))


def lossless(plan: Plan) -> Expression | None:
    """Over the table's rows: false where `rewrite` would change a value. None if it never would."""
    new = {each.name: column_of(each).kind for each in plan.schema.fields}
    conditions = [
        condition
        for column in plan.before
        for condition in [unchanged(f.col(_quoted(column.name)), column.kind, new[column.name])]
        if condition is not None
    ]
    return reduce(lambda a, b: a & b, conditions) if conditions else None


@dataclass
class _Comparison:
    """Compares two sides, and gathers what it finds. A column is a pair: as the table must have it, and
    as it is read."""

    frozen: bool
    added: list[str] = field(default_factory=list)
    widened: list[Widening] = field(default_factory=list)
    clashes: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def fields(
        self, table: Sequence[Column], declared: Sequence[Column], path: tuple[str, ...]
    ) -> list[tuple[Column, Column]]:
        wanted: Mapping[str, Column] = {column.source: column for column in declared}
        present = {column.source for column in table}
        pairs = []
        for column in table:
            here = (*path, column.source)
            if column.source in wanted:
                pairs.append(self._column(column, wanted[column.source], here))
            else:
                pairs.append(self._absent(column, here))
        new = [column for column in declared if column.source not in present]
        for column in new:
            self._added(column, ".".join((*path, column.source)))
        return pairs if self.frozen else pairs + [(column, column) for column in new]

    def _column(
        self, table: Column, declared: Column, path: tuple[str, ...]
    ) -> tuple[Column, Column]:
        misfits = len(self.clashes)
        stored, read = self._kinds(table.kind, declared.kind, path)
        strict = len(self.clashes) > misfits
        return (
            Column(table.source, table.name, stored),
            Column(table.source, table.name, read, strict and self.frozen),
        )

    def _absent(self, column: Column, path: tuple[str, ...]) -> tuple[Column, Column]:
        self.told.append(
            f"{'.'.join(path)!r} is in the catalog no more: it stays, null in new rows"
        )
        return column, Column(column.source, column.name, Unread(column.type))

    def _added(self, column: Column, path: str) -> None:
        if self.frozen:
            self.told.append(f"{_new(column, path)}, and left out")
        else:
            self.added.append(path)
            self.told.append(_new(column, path))

    def _kinds(
        self, table: LogicalType, declared: LogicalType, path: tuple[str, ...]
    ) -> tuple[LogicalType, LogicalType]:
        """How a value is stored, and how it is read."""
        if isinstance(table, Struct) and isinstance(declared, Struct):
            pairs = self.fields(table.fields, declared.fields, path)
            return Struct(tuple(a for a, _ in pairs)), Struct(tuple(b for _, b in pairs))
        if isinstance(table, Array) and isinstance(declared, Array):
            items = (*path[:-1], f"{path[-1]}[]")
            stored, read = self._kinds(table.items, declared.items, items)
            return Array(stored), Array(read)
        if isinstance(table, Unread):
            raise ConfigError(
                f"column {'.'.join(path)!r} is {described(table)} in the table, which no stream writes",
                guidance=_GUIDANCE,
            )
        wanted = logical_types.stored(declared)
        if wanted == table:
            return table, declared
        if is_below(wanted, table):
            self._tell(path, f"stays {described(table)}, which holds {described(declared)} as well")
            return table, _read_into(declared, table)
        if is_below(table, wanted) and not self.frozen:
            self.widened.append(Widening(".".join(path), table, wanted))
            self._tell(path, f"becomes {described(wanted)}; it was {described(table)}")
            return wanted, declared
        self.clashes.append(
            f"{'.'.join(path)!r} is {described(table)} there, {described(declared)} in the catalog"
        )
        self.told.append(self.clashes[-1])
        return table, _read_into(declared, table)

    def _tell(self, path: tuple[str, ...], what: str) -> None:
        self.told.append(f"{'.'.join(path)!r} {what}")


def _read_into(declared: LogicalType, table: LogicalType) -> LogicalType:
    """How values that the source declares as one kind are read for a column of another."""
    if declared is Scalar.INTEGER and table is Scalar.NUMBER:
        return Scalar.INTEGER_IN_DOUBLE
    if declared in (Scalar.INTEGER_TEXT, Scalar.NUMBER_TEXT):
        if table is Scalar.NUMBER:
            return Scalar.NUMBER_TEXT
        return Scalar.INTEGER_TEXT if table is Scalar.INTEGER else table
    return table


def _new(column: Column, path: str) -> str:
    return f"{path!r} ({described(column.kind)}) is new"


def _gone(path: str) -> str:
    return f"{path!r} is in the catalog no more: it stays, null in new rows"


def _is_ours(name: str) -> bool:
    return name.startswith(RESERVED_COLUMNS)


def _quoted(name: str) -> str:
    return f"`{name}`"
