"""The logical types of fields. They are finer than column types: several are stored as strings.

Spec: Airbyte supported data types, v0 semantics; the well-known types of v1 where a schema names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from pyspark.sql import types as t

SOURCE = "elt.source"
"""Key in a column's metadata: the source's name of the field, if the column has another name."""
JSON_TEXT = "elt.json"
"""Key in a column's metadata: its strings, or its elements if it is an array, are JSON, not plain text."""


class Scalar(Enum):
    """A type of values that are not divided into fields or elements."""

    TEXT = auto()
    TIME = auto()
    TIME_WITH_TIMEZONE = auto()
    TIME_WITHOUT_TIMEZONE = auto()
    JSON = auto()
    """Any value, as JSON text."""
    JSON_OBJECT = auto()
    JSON_ARRAY = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    INTEGER_TEXT = auto()
    """An integer of the v1 types: a number, or a string that contains one."""
    BIG_INTEGER = auto()
    NUMBER = auto()
    NUMBER_TEXT = auto()
    """A number of the v1 types: `"1.5"`, `1.5`, `"NaN"`, `"Infinity"`, `"-Infinity"`."""
    INTEGER_IN_DOUBLE = auto()
    """An integer field in a column of doubles. A double stores integers exactly up to 2^53."""
    BIG_NUMBER = auto()
    DATE = auto()
    TIMESTAMP = auto()
    TIMESTAMP_NTZ = auto()
    BINARY = auto()


@dataclass(frozen=True)
class Array:
    items: LogicalType


@dataclass(frozen=True)
class Struct:
    fields: tuple[Column, ...]


@dataclass(frozen=True)
class Unread:
    """The type of a column that no field of the stream fills: it is null in every new row."""

    type: t.DataType


LogicalType: TypeAlias = Scalar | Array | Struct | Unread


@dataclass(frozen=True)
class Column:
    """A field of the stream, or of an object in it, and its column.

    `source` is the name of the field, `name` the name of the column.
    """

    source: str
    name: str
    kind: LogicalType
    # A value that does not fit rejects its record; otherwise it becomes null and is recorded as a change. On
    # a top-level column, `strict` also applies to nested fields.
    strict: bool = False

    @property
    def type(self) -> t.DataType:
        """The type of the column in the table."""
        return column_type(self.kind)

    @property
    def field(self) -> t.StructField:
        """The column in the table's schema. Its metadata contains the source's name and the JSON flag."""
        metadata: dict[str, object] = {} if self.source == self.name else {SOURCE: self.source}
        if core(self.kind) in JSONS:
            metadata[JSON_TEXT] = True
        return t.StructField(self.name, self.type, metadata=metadata)


JSONS = frozenset({Scalar.JSON, Scalar.JSON_OBJECT, Scalar.JSON_ARRAY})
TIMES = frozenset({Scalar.TIME, Scalar.TIME_WITH_TIMEZONE, Scalar.TIME_WITHOUT_TIMEZONE})

_TYPES: Mapping[Scalar, t.DataType] = {
    Scalar.BOOLEAN: t.BooleanType(),
    Scalar.INTEGER: t.LongType(),
    Scalar.INTEGER_TEXT: t.LongType(),
    Scalar.BIG_INTEGER: t.DecimalType(38, 0),
    Scalar.NUMBER: t.DoubleType(),
    Scalar.NUMBER_TEXT: t.DoubleType(),
    Scalar.INTEGER_IN_DOUBLE: t.DoubleType(),
    Scalar.BIG_NUMBER: t.DecimalType(38, 9),
    Scalar.DATE: t.DateType(),
    Scalar.TIMESTAMP: t.TimestampType(),
    Scalar.TIMESTAMP_NTZ: t.TimestampNTZType(),
    Scalar.BINARY: t.BinaryType(),
}
"""Column types; a scalar that is not listed is stored as a string."""

_STORED: Mapping[t.DataType, Scalar] = {
    type_: kind for kind, type_ in reversed([*_TYPES.items(), (Scalar.TEXT, t.StringType())])
}
"""The scalar that a column type stands for: the first of the scalars that are stored in it."""


def column_type(kind: LogicalType) -> t.DataType:
    """Return the column type of a logical type, nested types included."""
    if isinstance(kind, Array):
        return t.ArrayType(column_type(kind.items))
    if isinstance(kind, Struct):
        return t.StructType([column.field for column in kind.fields])
    if isinstance(kind, Unread):
        return kind.type
    return _TYPES.get(kind, t.StringType())


def column_of(field: t.StructField) -> Column:
    """Return the column that a table's schema describes. A type that no stream writes becomes `Unread`."""
    source = field.metadata.get(SOURCE, field.name)
    return Column(source, field.name, _kind(field.dataType, bool(field.metadata.get(JSON_TEXT))))


def to_stored(kind: LogicalType) -> LogicalType:
    """Return the logical type that the table's schema keeps: that of `column_of` for its column."""
    return map_scalars(kind, lambda s: Scalar.JSON if s in JSONS else _STORED[column_type(s)])


def _kind(type_: t.DataType, is_json: bool) -> LogicalType:
    if isinstance(type_, t.ArrayType):
        return Array(_kind(type_.elementType, is_json))
    if isinstance(type_, t.StructType):
        return Struct(tuple(map(column_of, type_.fields)))
    if isinstance(type_, t.StringType) and is_json:
        return Scalar.JSON
    return _STORED.get(type_, Unread(type_))


def core(kind: LogicalType) -> LogicalType:
    """Return the innermost element type of an array, and any other type itself."""
    return core(kind.items) if isinstance(kind, Array) else kind


def scalars(kind: LogicalType) -> Iterator[Scalar]:
    """Yield the scalars that a type contains."""
    if isinstance(kind, Array):
        yield from scalars(kind.items)
    elif isinstance(kind, Struct):
        for column in kind.fields:
            yield from scalars(column.kind)
    elif isinstance(kind, Scalar):
        yield kind


def map_scalars(kind: LogicalType, change: Callable[[Scalar], Scalar]) -> LogicalType:
    """Return the type with each scalar replaced by `change(scalar)`."""
    if isinstance(kind, Array):
        return Array(map_scalars(kind.items, change))
    if isinstance(kind, Struct):
        fields = (
            Column(c.source, c.name, map_scalars(c.kind, change), c.strict) for c in kind.fields
        )
        return Struct(tuple(fields))
    return change(kind) if isinstance(kind, Scalar) else kind


def describe_type(kind: LogicalType) -> str:
    """Return the name of the type for messages: Spark's notation, and `JSON text` for JSON."""
    if core(kind) in JSONS:
        return "array<" * _depth(kind) + "JSON text" + ">" * _depth(kind)
    return column_type(kind).simpleString()


def _depth(kind: LogicalType) -> int:
    return 1 + _depth(kind.items) if isinstance(kind, Array) else 0
