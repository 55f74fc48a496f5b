"""What a field may hold: finer than its column's type, for many kinds of value land as text.

spec: Airbyte supported data types, v0 semantics; the well-known types of v1 where a schema names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from pyspark.sql import types as t

SOURCE = "elt.source"
"""Key in a column's metadata: what the source calls the field, where the column has another name."""
JSON_TEXT = "elt.json"
"""Key in a column's metadata: its strings (its elements', in an array) are JSON, not plain text."""


class Scalar(Enum):
    """A value that lands in one piece."""

    TEXT = auto()
    TIME = auto()
    TIME_WITH_TIMEZONE = auto()
    TIME_WITHOUT_TIMEZONE = auto()
    JSON = auto()
    """Any value at all, as JSON."""
    JSON_OBJECT = auto()
    JSON_ARRAY = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    INTEGER_TEXT = auto()
    """As v1 sends it: a number, or a string that holds one."""
    BIG_INTEGER = auto()
    NUMBER = auto()
    NUMBER_TEXT = auto()
    """As v1 sends it: `"1.5"`, `1.5`, `"NaN"`, `"Infinity"`, `"-Infinity"`."""
    INTEGER_IN_DOUBLE = auto()
    """A field of integers in a column of doubles, which holds them exactly up to 2^53."""
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
    """A column that no field of the source fills: null in every new row."""

    type: t.DataType


LogicalType: TypeAlias = Scalar | Array | Struct | Unread


@dataclass(frozen=True)
class Column:
    """A field of the stream, or of an object in it, and its column.

    `source`: the field's name, `name`: the column's. `strict`: a value that does not fit rejects its
    record, instead of being null and recorded; of a whole top-level column, what is nested included.
    """

    source: str
    name: str
    kind: LogicalType
    strict: bool = False

    @property
    def type(self) -> t.DataType:
        """The column's type in the table."""
        return column_type(self.kind)

    @property
    def field(self) -> t.StructField:
        """The column as the table has it; its metadata says what its name and type do not."""
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
"""All others are strings."""

_STORED: Mapping[t.DataType, Scalar] = {
    type_: kind for kind, type_ in reversed([*_TYPES.items(), (Scalar.TEXT, t.StringType())])
}
"""Of the kinds that have one type, the first: what a table's column says of its values."""


def column_type(kind: LogicalType) -> t.DataType:
    """The type of a column, all the way down."""
    if isinstance(kind, Array):
        return t.ArrayType(column_type(kind.items))
    if isinstance(kind, Struct):
        return t.StructType([column.field for column in kind.fields])
    if isinstance(kind, Unread):
        return kind.type
    return _TYPES.get(kind, t.StringType())


def column_of(field: t.StructField) -> Column:
    """A table's column, as far as the table tells. A type that no field of a stream has is `Unread`."""
    source = field.metadata.get(SOURCE, field.name)
    return Column(source, field.name, _kind(field.dataType, bool(field.metadata.get(JSON_TEXT))))


def stored(kind: LogicalType) -> LogicalType:
    """What is left of a kind in the table: `column_of` its column."""
    return mapped(kind, lambda one: Scalar.JSON if one in JSONS else _STORED[column_type(one)])


def _kind(type_: t.DataType, is_json: bool) -> LogicalType:
    if isinstance(type_, t.ArrayType):
        return Array(_kind(type_.elementType, is_json))
    if isinstance(type_, t.StructType):
        return Struct(tuple(map(column_of, type_.fields)))
    if isinstance(type_, t.StringType) and is_json:
        return Scalar.JSON
    return _STORED.get(type_, Unread(type_))


def core(kind: LogicalType) -> LogicalType:
    """What an array's elements are, however deep it nests; of anything else, itself."""
    return core(kind.items) if isinstance(kind, Array) else kind


def scalars(kind: LogicalType) -> Iterator[Scalar]:
    """The kinds of all values in a value."""
    if isinstance(kind, Array):
        yield from scalars(kind.items)
    elif isinstance(kind, Struct):
        for column in kind.fields:
            yield from scalars(column.kind)
    elif isinstance(kind, Scalar):
        yield kind


def mapped(kind: LogicalType, change: Callable[[Scalar], Scalar]) -> LogicalType:
    """The same shape with other scalars."""
    if isinstance(kind, Array):
        return Array(mapped(kind.items, change))
    if isinstance(kind, Struct):
        fields = (Column(c.source, c.name, mapped(c.kind, change), c.strict) for c in kind.fields)
        return Struct(tuple(fields))
    return change(kind) if isinstance(kind, Scalar) else kind


def described(kind: LogicalType) -> str:
    """The type in Spark's notation; JSON text is called so."""
    if core(kind) in JSONS:
        return "array<" * _depth(kind) + "JSON text" + ">" * _depth(kind)
    return column_type(kind).simpleString()


def _depth(kind: LogicalType) -> int:
    return 1 + _depth(kind.items) if isinstance(kind, Array) else 0
