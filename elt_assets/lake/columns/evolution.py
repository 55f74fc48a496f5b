"""Schema evolution: the comparison of a stream's columns with the columns that its table has already.

Used by `lake.write`: `sync_columns` plans the columns of a sync with it, and `rewrite` widens the tables by
the plan.

Types are ordered from narrower to wider. Values of a narrower type can be converted to a wider type:

- long < decimal(38,0) < decimal(38,9), and long < double;
- date < timestamp_ntz < timestamp; a time without zone is in UTC;
- every scalar < string: the text that a record's value gets (see `lake.worker.widening`);
- every type < JSON text, a string column with `elt.json` in its metadata. All its strings are JSON: plain
  text that the column had before gets quotes.

A number may not fit exactly: a double does not hold every long, and decimal(38,9) does not hold every
decimal(38,0). If the conversion would change a value in the table, the table is not widened (see
`lake.worker.widening`).

Objects are compared field by field, arrays by their elements. If the table's type is the wider one, it
stays, and values are read as that type.

A declared field and a column belong together if they have the same column name: `from_json_schema.columns`
gives a field the name of the column that it has. So a field that was renamed in case only is no difference:
the table's column keeps its name, also that of its field, and records are read by the declared name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.columns import logical_types
from elt_assets.lake.columns.logical_types import (
    Array,
    Column,
    LogicalType,
    Scalar,
    Struct,
    Unread,
    Widening,
    column_of,
    describe_type,
    is_narrower,
    wider_columns,
)
from elt_assets.lake.columns.names import RESERVED_COLUMNS
from elt_assets.sync.field_selection import OnSchemaChange

_FREEZE = "set `on_schema_change: freeze`, which does not change the table's columns"
_FAIL_GUIDANCE = "correct the catalog, or set `on_schema_change: evolve` or `freeze`"


class TypeConflict(ConfigError):
    """The types of a column in the table and in the catalog are not comparable."""


@dataclass(frozen=True)
class SchemaPlan:
    """The columns that records are read with, and the schema that the table needs for them.

    Reserved columns, whose names begin with a prefix of `RESERVED_COLUMNS`, are in none of these attributes.
    In a plan of `plan_replacement`, `added`, `widened` and `table_columns` are empty: nothing has to be
    converted.
    """

    # For each column of `schema`, the type that its values in records are parsed as.
    columns: list[Column]
    schema: t.StructType  # the columns that the table must have
    # Paths of columns and nested fields that the table lacks.
    added: list[str] = field(default_factory=list)
    # Changes of the table's types to wider types.
    widened: list[Widening] = field(default_factory=list)
    # Descriptions of all differences between the table and the catalog.
    differences: list[str] = field(default_factory=list)
    # The columns that the table has now.
    table_columns: list[Column] = field(default_factory=list)
    # The table has no rows, and takes other columns in a commit of its own.
    replaces_columns: bool = False

    @property
    def rewrites(self) -> bool:
        """Return whether the table's files must be rewritten because a type changes.

        Not every engine can read a file that still has the narrower type.
        """
        return bool(self.widened) or self.replaces_columns


def plan(
    table: t.StructType,
    declared: Sequence[Column],
    mode: OnSchemaChange,
    where: str = "the table",
    history: Sequence[Column] = (),
    restart: str = "read the stream from the beginning",
) -> SchemaPlan:
    """Plan how a table that exists takes a stream's declared columns.

    A column that is no longer declared stays, and is null in new rows. `evolve` adds new columns and widens
    types. `freeze` does not change the table: new fields are not stored, and a record is rejected if a value
    does not fit the type of its column. `fail` allows no difference.

    Args:
        table: the table's schema; reserved columns are ignored.
        where: the table's name for error messages.
        history: the columns of its history. A column gets the type that it has there, if that is wider than
            the table's or the declared type: rows of the table must fit into the history.
        restart: how a user gets a table with the declared columns alone, for the guidance.

    Raises:
        TypeConflict: two types are not comparable (not with `freeze`).
        ConfigError: with `fail`, there is a difference; or the table has a column of a type that no stream
            writes.
    """
    table_columns = _own_columns(table)
    comparison = _Comparison(mode == "freeze")
    wide_columns = wider_columns(table_columns, history)
    pairs = comparison.fields(table_columns, wider_columns(declared, history), wide_columns, ())
    if mode == "fail" and comparison.differences:
        message = f"the catalog differs from {where}: " + "; ".join(comparison.differences)
        guidance = _FAIL_GUIDANCE
        if comparison.conflicts:  # then `evolve` alone does not help
            guidance = f"correct the catalog; or {_FREEZE}; or set `evolve`, and {restart}"
        raise ConfigError(message, guidance=guidance)
    if comparison.conflicts and mode != "freeze":
        message = f"{where} cannot take the catalog's types: " + "; ".join(comparison.conflicts)
        raise TypeConflict(message, guidance=f"correct the catalog; or {_FREEZE}; or {restart}")
    return SchemaPlan(
        columns=[read for _, read in pairs],
        schema=t.StructType([stored.field for stored, _ in pairs]),
        added=comparison.added,
        widened=comparison.widened,
        differences=comparison.differences,
        table_columns=table_columns,
    )


def plan_replacement(table: t.StructType, declared: Sequence[Column]) -> SchemaPlan:
    """Plan the columns of a table that is created, or whose rows are all replaced.

    The plan has the declared columns with their declared types. A column that the table has, but that is no
    longer declared, stays after them: readers and the history may use it. It is null in new rows.
    """
    table_columns = _own_columns(table)
    columns_left = {column.name: column for column in table_columns}
    differences = []
    for column in declared if table_columns else ():
        old = columns_left.pop(column.name, None)
        if old is None:
            differences.append(_describe_addition(column, column.source))
        elif old.type != column.type:
            differences.append(_describe_change(column.source, old.kind, column.kind))
    undeclared = [Column(c.source, c.name, Unread(c.type)) for c in columns_left.values()]
    differences += [_describe_removal(column.source) for column in undeclared]
    columns = [*declared, *undeclared]
    return SchemaPlan(
        columns, t.StructType([column.field for column in columns]), differences=differences
    )


@dataclass
class _Comparison:
    """A comparison of a table's columns with declared ones, and the differences found.

    Each compared column is a pair: the column as the table must store it, and as records are read.

    `wide` is the table's column, or columns, with the types of the history where these are wider. The
    declared types are at least as wide as the history's, so that only undeclared columns need them.
    """

    frozen: bool
    added: list[str] = field(default_factory=list)
    widened: list[Widening] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def fields(
        self,
        table: Sequence[Column],
        declared: Sequence[Column],
        wide: Sequence[Column],
        path: tuple[str, ...],
    ) -> list[tuple[Column, Column]]:
        declared_by_name: Mapping[str, Column] = {column.name: column for column in declared}
        names = {column.name for column in table}
        pairs = []
        for column, wide_column in zip(table, wide, strict=True):
            here = (*path, column.source)
            if column.name in declared_by_name:
                same_name = declared_by_name[column.name]
                pairs.append(self._column(column, same_name, wide_column, here))
            else:
                pairs.append(self._absent(column, wide_column, here))
        new = [column for column in declared if column.name not in names]
        for column in new:
            self._add(column, ".".join((*path, column.source)))
        return pairs if self.frozen else pairs + [(column, column) for column in new]

    def _column(
        self, table: Column, declared: Column, wide: Column, path: tuple[str, ...]
    ) -> tuple[Column, Column]:
        conflicts_before = len(self.conflicts)
        stored, read = self._kinds(table.kind, declared.kind, wide.kind, path)
        has_conflict = len(self.conflicts) > conflicts_before
        return (
            replace(table, kind=stored),
            replace(declared, name=table.name, kind=read, strict=has_conflict and self.frozen),
        )

    def _absent(self, column: Column, wide: Column, path: tuple[str, ...]) -> tuple[Column, Column]:
        self.differences.append(_describe_removal(".".join(path)))
        if not self.frozen and wide != column:
            self.widened.append(Widening(".".join(path), column.kind, wide.kind))
            column = wide
        return column, Column(column.source, column.name, Unread(column.type))

    def _add(self, column: Column, path: str) -> None:
        if self.frozen:
            self.differences.append(f"{_describe_addition(column, path)}; it is left out")
        else:
            self.added.append(path)
            self.differences.append(_describe_addition(column, path))

    def _kinds(
        self, table: LogicalType, declared: LogicalType, wide: LogicalType, path: tuple[str, ...]
    ) -> tuple[LogicalType, LogicalType]:
        """Return the type that values are stored as, and the type that they are read as."""
        if isinstance(table, Struct) and isinstance(declared, Struct) and isinstance(wide, Struct):
            pairs = self.fields(table.fields, declared.fields, wide.fields, path)
            return Struct(tuple(a for a, _ in pairs)), Struct(tuple(b for _, b in pairs))
        if isinstance(table, Array) and isinstance(declared, Array) and isinstance(wide, Array):
            items = (*path[:-1], f"{path[-1]}[]")
            stored, read = self._kinds(table.items, declared.items, wide.items, items)
            return Array(stored), Array(read)
        if isinstance(table, Unread):
            raise ConfigError(
                f"the table's column {'.'.join(path)!r} is {describe_type(table)}, a type that no stream "
                "writes",
                guidance="remove the field from the catalog, change the column's type, or move the table "
                "away to read the stream from the beginning",
            )
        needed = logical_types.to_stored(declared)
        if needed == table:
            return table, declared
        if is_narrower(needed, table):
            note = f"{describe_type(declared)} in the catalog; it stays {describe_type(table)}"
            self.differences.append(f"{'.'.join(path)!r} is {note}")
            return table, _read_into(declared, table)
        if is_narrower(table, needed) and not self.frozen:
            self.widened.append(Widening(".".join(path), table, needed))
            self.differences.append(_describe_change(".".join(path), table, needed))
            return needed, declared
        conflict = f"{describe_type(table)} in the table, {describe_type(declared)} in the catalog"
        self.conflicts.append(f"{'.'.join(path)!r} is {conflict}")
        self.differences.append(self.conflicts[-1])
        return table, _read_into(declared, table)


def _read_into(declared: LogicalType, table: LogicalType) -> LogicalType:
    """Return the type that values of a declared type are read as, for a column of a different type."""
    if declared is Scalar.INTEGER and table is Scalar.NUMBER:
        return Scalar.INTEGER_IN_DOUBLE
    if declared in (Scalar.INTEGER_TEXT, Scalar.NUMBER_TEXT):
        if table is Scalar.NUMBER:
            return Scalar.NUMBER_TEXT
        return Scalar.INTEGER_TEXT if table is Scalar.INTEGER else table
    return table


def _describe_addition(column: Column, path: str) -> str:
    return f"{path!r} ({describe_type(column.kind)}) is new"


def _describe_change(path: str, before: LogicalType, after: LogicalType) -> str:
    return f"{path!r} changes from {describe_type(before)} to {describe_type(after)}"


def _describe_removal(path: str) -> str:
    return f"{path!r} is no longer in the catalog; the column stays and is null in new rows"


def _own_columns(table: t.StructType) -> list[Column]:
    """Return the columns of a table that are not reserved."""
    return [column_of(f) for f in table.fields if not f.name.startswith(RESERVED_COLUMNS)]
