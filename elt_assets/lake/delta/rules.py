"""The refusal of Delta tables that this project must not read or write: unsupported features, and moves.

The other modules of `lake.delta` ask, most `opening` before a table is read, and `commits` before each
commit. `admin.moving` begins and ends a `Move`, which `orchestration.renaming` plans.

A feature that a writer does not know is a rule that it breaks: a constraint, a computed column, a log of
changes. So a table is written to only if each commit of this project keeps every rule that it has, and read
only if no feature changes what its files mean. A feature shows in three places, and all are searched:

- the protocol: the names of table features, and the writer versions that imply them;
- the properties of the table;
- the schema: NOT NULL, and the rules in the metadata of fields, at every depth. Under the writer versions 2
  to 6, only the schema shows a generated column, an invariant or an identity column.

A feature that the protocol permits is no rule while no property or field uses it. The upgrade of a table's
protocol lists several of these.

A table that is being moved (`Move`) says so in a property, and no writer commits to it.

Spec: Delta Transaction Log Protocol, Table Features; Valid Feature Names in Table Features.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Protocol

from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.snapshot import Snapshot, TableMetadata

PROPERTY = "elt.moving"


class Described(Protocol):
    """A snapshot of a table, with its properties."""

    @property
    def table_uri(self) -> str: ...

    def metadata(self) -> Any: ...


@dataclass(frozen=True)
class Move:
    """A move of a stream's tables, which each of them says in a property.

    The property is part of the log. So a run that opened the table before meets it when it commits, and a
    copy of the log has it.
    """

    # `source`, `target`: the levels of the table below the root of the lake, with slashes between them. Of
    # tables that are being removed, the URI of the table, and an empty text; of a lake that is moved, both
    # URIs.
    source: str
    target: str
    # `former`, `writer`: ids of the table's writer in transactions, before and after; empty if the lake is
    # moved.
    former: str
    writer: str
    command: str  # what a user runs to make or to finish the move
    has_new_writer: bool = False  # the writers are those after the move already

    @property
    def is_removal(self) -> bool:
        """Return whether the tables are being removed, and not moved."""
        return not self.target

    @property
    def is_of_lake(self) -> bool:
        """Return whether the table is moved with the whole lake, and so keeps its writers."""
        return not (self.writer or self.is_removal)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class MovingTable(ConfigError):
    """A table is being moved, and no writer commits to it meanwhile."""


def find_move(delta: Described) -> Move | None:
    """Return the move that a table is in; None if it is in none."""
    configuration: Mapping[str, str] = delta.metadata().configuration
    text = configuration.get(PROPERTY)
    return Move(**json.loads(text)) if text else None


def refuse_moving(delta: Described) -> None:
    """Refuse to write to a table that is being moved.

    Raises:
        MovingTable: names the move.
    """
    move = find_move(delta)
    if move is not None:
        action = f"moved from {move.source} to {move.target}"
        raise MovingTable(
            f"the table {delta.table_uri} is being {'removed' if move.is_removal else action}, and that has "
            "not ended",
            guidance=f"run `{move.command}`, which finishes it; until then no sync writes to the table",
        )


PARTITIONED = "elt.partition_by"
"""Property of a table that this project has partitioned: the columns, which the files contain too."""
NTZ = "timestampNtz"
"""The feature of timestamps without zone."""
_IDLE = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "generatedColumns",
    "invariants",
}
"""Features that the protocol may permit: a table that uses one of them has a property or a field for it."""
_PERMITTED = {NTZ, *_IDLE}
_IDENTITY_VERSION = 6
"""The writer version that implies identity columns; delta-rs does not write to it, even if there are none."""
_READER_VERSION, _WRITER_VERSION = 3, 7
"""The newest versions of the protocol: a greater one stands for rules that are not known yet."""
_COPY = "copy it to a table without that"
_DROP = "remove it with the engine that added it"
_COLUMN_RULES = {
    "delta.generationExpression": ("generated column", "replace it by a plain column"),
    "delta.invariants": ("invariant of column", _DROP),
    "delta.identity": ("identity column", "replace it by a plain column"),
    "CURRENT_DEFAULT": ("default of column", "ALTER TABLE … ALTER COLUMN … DROP DEFAULT"),
    "EXISTS_DEFAULT": ("default of column", "ALTER TABLE … ALTER COLUMN … DROP DEFAULT"),
}
"""The rules in a field's metadata, by the key or the first part of it: their names and remedies."""
_NOT_NULL = "ALTER TABLE … ALTER COLUMN … DROP NOT NULL"
_DROP_CONSTRAINT = "ALTER TABLE … DROP CONSTRAINT …"
_DROP_FEATURE = "ALTER TABLE … DROP FEATURE …"
_CONSTRAINT, _MAPPING = "delta.constraints.", "delta.columnMapping.mode"
_PROPERTIES = {
    "delta.appendOnly",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableRowTracking",
}
"""Properties that enable a feature if they are true."""


class UnsupportedTable(ConfigError):
    """A table has features or a format that this version of the project does not support."""


@dataclass(frozen=True, order=True)
class Rule:
    """A feature in use."""

    name: str  # as a message shows it
    remedy: str  # the action that ends it


def refuse_unreadable(delta: Snapshot) -> None:
    """Refuse a table whose files mean something else than what this project reads in them.

    Raises:
        UnsupportedTable: names each feature and the remedies.
    """
    _refuse(delta, _reader_rules(delta))


def refuse_unwritable(delta: Snapshot, *, replaces: bool = False, moves: bool = False) -> None:
    """Refuse a table with a rule for writers that commits of this project do not keep, or one that is being
    moved. It can be read.

    Args:
        replaces: the commit replaces all rows and all columns, and so ends the rules of the columns.
        moves: the commit is part of the move.

    Raises:
        UnsupportedTable: names each feature, its column, and the remedies.
        MovingTable: the table is being moved.
    """
    if not moves:
        refuse_moving(delta)
    rules = _writer_rules(delta)
    _refuse(delta, rules if replaces else chain(rules, _column_rules(spark_schema(delta))))


def _refuse(delta: Snapshot, rules: Iterable[Rule]) -> None:
    unsupported = sorted(set(rules))
    if unsupported:
        remedies = dict.fromkeys(rule.remedy for rule in unsupported)
        raise UnsupportedTable(
            f"the table {delta.table_uri} uses Delta features that this project does not support: "
            + ", ".join(rule.name for rule in unsupported),
            guidance=f"end their use ({'; '.join(remedies)}), or move the table away; it is unchanged",
        )


def _reader_rules(delta: Snapshot) -> Iterator[Rule]:
    """Yield what changes how a table's files are read."""
    metadata, version = delta.metadata(), delta.protocol().min_reader_version
    if version > _READER_VERSION:
        yield Rule(f"reader version {version}", _COPY)
    for name in set(delta.protocol().reader_features or ()) - _PERMITTED:
        yield Rule(name, _DROP_FEATURE)
    if metadata.configuration.get(_MAPPING, "none") != "none":
        yield Rule("columnMapping", _DROP_FEATURE)
    if not is_partitioned_here(metadata):
        columns = ", ".join(metadata.partition_columns)
        yield Rule(f"partitioning by {columns}", _COPY)


def is_partitioned_here(metadata: TableMetadata) -> bool:
    """Return whether a table has no partition columns, or those that this project gave it."""
    marker = metadata.configuration.get(PARTITIONED)
    columns = metadata.partition_columns
    return not columns or marker == format_partitioning(columns)


def format_partitioning(columns: Sequence[str]) -> str:
    """Return the value of the property `PARTITIONED`."""
    return json.dumps(list(columns))


def _writer_rules(delta: Snapshot) -> Iterator[Rule]:
    """Yield what a commit must obey."""
    protocol = delta.protocol()
    if protocol.min_writer_version > _WRITER_VERSION:
        yield Rule(f"writer version {protocol.min_writer_version}", _COPY)
    for name in set(protocol.writer_features or ()) - _PERMITTED:
        yield Rule(name, _DROP_FEATURE)
    if protocol.min_writer_version == _IDENTITY_VERSION:
        yield Rule(f"writer version {_IDENTITY_VERSION} (identity columns)", _COPY)
    for name, value in delta.metadata().configuration.items():
        if name.startswith(_CONSTRAINT):
            yield Rule(f"CHECK constraint {name.removeprefix(_CONSTRAINT)}", _DROP_CONSTRAINT)
        elif name in _PROPERTIES and value.lower() == "true":
            yield Rule(name, f"ALTER TABLE … SET TBLPROPERTIES ('{name}' = 'false')")


def spark_schema(delta: Snapshot) -> t.StructType:
    """Return the columns of a table, as Spark has them."""
    return t.StructType.fromJson(json.loads(delta.schema().to_json()))


def _column_rules(kind: t.DataType, path: str = "") -> Iterator[Rule]:
    """Yield the rules of a type's fields, elements and values, at every depth."""
    if isinstance(kind, t.StructType):
        for field in kind.fields:
            name = f"{path}.{field.name}".lstrip(".")
            yield from _field_rules(field, name)
            yield from _column_rules(field.dataType, name)
    elif isinstance(kind, t.ArrayType):
        if not kind.containsNull:
            yield Rule(f"NOT NULL element of {path}", _COPY)
        yield from _column_rules(kind.elementType, f"{path}[]")
    elif isinstance(kind, t.MapType):
        if not kind.valueContainsNull:
            yield Rule(f"NOT NULL value of {path}", _COPY)
        yield from _column_rules(kind.keyType, f"{path}{{key}}")
        yield from _column_rules(kind.valueType, f"{path}{{value}}")


def _field_rules(field: t.StructField, name: str) -> Iterator[Rule]:
    if not field.nullable:
        yield Rule(f"NOT NULL column {name}", _NOT_NULL)
    for key in field.metadata:
        for prefix, (rule, remedy) in _COLUMN_RULES.items():
            if key == prefix or key.startswith(f"{prefix}."):
                yield Rule(f"{rule} {name}", remedy)
