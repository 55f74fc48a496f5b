"""The logical types of fields, and their order: which are wider than others, and which of them compare alike.

Used by `lake` (`columns`, `merge`, `read`, `write`), by `pipeline`, which checks rules, contracts and
conditions by these types, and by `orchestration` (`metadata`, `table_jobs`).

Logical types are finer than column types: several are stored as strings. First the types and their columns;
then the order, by which `evolution` plans changes of a table's columns and `write.rewrite` refuses some.

Spec: Airbyte supported data types, v0 semantics; the well-known types of v1 where a schema names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TypeAlias

from pyspark.sql import types as t

SOURCE = "elt.source"
"""Key in a column's metadata: the source's name of the field, if the column has another name."""
ADDED = "elt.added"
"""Key in a column's metadata: no catalog declared the field when its column was added (`on_undeclared: add`).
It is read from then on, whatever the catalog says."""
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
    """The type of arrays whose elements have one type."""

    items: LogicalType


@dataclass(frozen=True)
class Struct:
    """The type of objects whose fields have columns of their own."""

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
    is_added: bool = field(default=False, compare=False)  # as `ADDED`

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
        if self.is_added:
            metadata[ADDED] = True
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
    kind = _kind(field.dataType, bool(field.metadata.get(JSON_TEXT)))
    return Column(source, field.name, kind, is_added=bool(field.metadata.get(ADDED)))


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
        fields = (replace(column, kind=map_scalars(column.kind, change)) for column in kind.fields)
        return Struct(tuple(fields))
    return change(kind) if isinstance(kind, Scalar) else kind


def describe_type(kind: LogicalType) -> str:
    """Return the name of the type for messages: Spark's notation, and `JSON text` for JSON."""
    if core(kind) in JSONS:
        return "array<" * _depth(kind) + "JSON text" + ">" * _depth(kind)
    return column_type(kind).simpleString()


def _depth(kind: LogicalType) -> int:
    return 1 + _depth(kind.items) if isinstance(kind, Array) else 0


_WIDER: Mapping[Scalar, frozenset[Scalar]] = {
    Scalar.INTEGER: frozenset({Scalar.BIG_INTEGER, Scalar.NUMBER, Scalar.BIG_NUMBER}),
    Scalar.BIG_INTEGER: frozenset({Scalar.BIG_NUMBER}),
    Scalar.DATE: frozenset({Scalar.TIMESTAMP_NTZ, Scalar.TIMESTAMP}),
    Scalar.TIMESTAMP_NTZ: frozenset({Scalar.TIMESTAMP}),
}
"""Wider types of each scalar. Text is also wider than any other scalar, and JSON wider than any type."""


def is_narrower(narrow: LogicalType, wide: LogicalType) -> bool:
    """Return whether `wide` comes after `narrow` in the order of types. Both are `stored` types.

    A wider type need not hold every value: a double does not hold every long. A table with a value that would
    change is not widened (see `lake.worker.widening`).
    """
    if narrow == wide or isinstance(narrow, Unread):
        return False
    if wide is Scalar.JSON:
        return True
    if not isinstance(narrow, Scalar) or narrow is Scalar.JSON:
        return False
    return wide is Scalar.TEXT or wide in _WIDER.get(narrow, ())


def keeps_equality(narrow: LogicalType, wide: LogicalType) -> bool:
    """Return whether records find the rows of their key after its column has become wider.

    So it is between numbers and between times, whose values are converted exactly; and from integers to text,
    because an integer is written in one way. Other values have several texts that a source may send from then
    on: `5`, `5.0` and `5e0` for a number, a day with and without midnight, base64 with and without padding.
    In JSON text, `5` and `"5"` differ.
    """
    is_integer = narrow in (Scalar.INTEGER, Scalar.BIG_INTEGER)
    return _is_same_family(narrow, wide) or (is_integer and wide is Scalar.TEXT)


def keeps_order(narrow: LogicalType, wide: LogicalType) -> bool:
    """Return whether a cursor orders rows as before after its column has become wider.

    So it is between numbers and between times; and from dates to text, because years have four digits, and
    what may follow the day in a text is a midnight. As texts, `10` is before `9`, and
    `2024-01-01T00:00:00.5Z` before `2024-01-01T00:00:00Z`.
    """
    return _is_same_family(narrow, wide) or (narrow is Scalar.DATE and wide is Scalar.TEXT)


def _is_same_family(narrow: LogicalType, wide: LogicalType) -> bool:
    return narrow == wide or (isinstance(narrow, Scalar) and wide in _WIDER.get(narrow, ()))


def wider_columns(columns: Sequence[Column], stored: Sequence[Column]) -> list[Column]:
    """Return columns, with the types of stored columns of the same names where these are wider.

    Fields of objects and elements of arrays are compared in the same way.
    """
    kinds = {column.name: column.kind for column in stored}
    return [
        replace(column, kind=_wider(column.kind, kinds.get(column.name, column.kind)))
        for column in columns
    ]


def _wider(kind: LogicalType, stored: LogicalType) -> LogicalType:
    if isinstance(kind, Struct) and isinstance(stored, Struct):
        return Struct(tuple(wider_columns(kind.fields, stored.fields)))
    if isinstance(kind, Array) and isinstance(stored, Array):
        return Array(_wider(kind.items, stored.items))
    return stored if is_narrower(to_stored(kind), stored) else kind


def union(declared: LogicalType, stored: LogicalType) -> LogicalType:
    """Return the narrowest type that holds the values of both types; JSON text if there is no other.

    Args:
        stored: a type of `to_stored`.
    """
    if isinstance(declared, Struct) and isinstance(stored, Struct):
        kinds = {column.name: column.kind for column in stored.fields}
        fields = [
            replace(column, kind=union(column.kind, kinds.pop(column.name, to_stored(column.kind))))
            for column in declared.fields
        ]
        return Struct((*fields, *(column for column in stored.fields if column.name in kinds)))
    if isinstance(declared, Array) and isinstance(stored, Array):
        return Array(union(declared.items, stored.items))
    own = to_stored(declared)
    if own == stored or is_narrower(stored, own):
        return declared
    candidates = (stored, Scalar.BIG_NUMBER, Scalar.TEXT)
    return next(
        (
            kind
            for kind in candidates
            if is_narrower(own, kind) and (kind == stored or is_narrower(stored, kind))
        ),
        Scalar.JSON,
    )


@dataclass(frozen=True)
class Widening:
    """A change of a column or nested field to a wider type; `path` has the source's field names."""

    path: str
    before: LogicalType
    after: LogicalType

    def __str__(self) -> str:
        return f"{self.path}: {describe_type(self.before)} → {describe_type(self.after)}"
