"""The order of types: which are wider than others, and which of these compare alike in keys and cursors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from elt_assets.lake.schema.logical_types import (
    Array,
    Column,
    LogicalType,
    Scalar,
    Struct,
    Unread,
    describe_type,
    to_stored,
)

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
    change is not widened (see `lake.spark.wider_values`).
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
