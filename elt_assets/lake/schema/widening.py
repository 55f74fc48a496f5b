"""The order of types, and the conversion of values to a wider type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import functions as f

from elt_assets.lake.schema.logical_types import (
    Array,
    LogicalType,
    Scalar,
    Struct,
    Unread,
    column_type,
    described,
    stored,
)

_WIDER: Mapping[Scalar, frozenset[Scalar]] = {
    Scalar.INTEGER: frozenset({Scalar.BIG_INTEGER, Scalar.NUMBER, Scalar.BIG_NUMBER}),
    Scalar.BIG_INTEGER: frozenset({Scalar.BIG_NUMBER}),
    Scalar.DATE: frozenset({Scalar.TIMESTAMP_NTZ, Scalar.TIMESTAMP}),
    Scalar.TIMESTAMP_NTZ: frozenset({Scalar.TIMESTAMP}),
}
"""Wider types of each scalar. Text is also wider than any other scalar, and JSON wider than any type."""
_JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def is_narrower(narrow: LogicalType, wide: LogicalType) -> bool:
    """Return whether `wide` comes after `narrow` in the order of types. Both are `stored` types.

    A wider type need not hold every value: a double does not hold every long. `lossless` and `is_unchanged`
    return the condition that a conversion changes no value; a table with a value that would change is not
    widened.
    """
    if narrow == wide or isinstance(narrow, Unread):
        return False
    if wide is Scalar.JSON:
        return True
    if not isinstance(narrow, Scalar) or narrow is Scalar.JSON:
        return False
    return wide is Scalar.TEXT or wide in _WIDER.get(narrow, ())


def wider(declared: LogicalType, stored_kind: LogicalType) -> LogicalType:
    """Return a declared type, with the stored type instead of it, or of parts of it, where that is wider."""
    if isinstance(declared, Struct) and isinstance(stored_kind, Struct):
        kinds = {column.name: column.kind for column in stored_kind.fields}
        return Struct(
            tuple(
                replace(each, kind=wider(each.kind, kinds.get(each.name, each.kind)))
                for each in declared.fields
            )
        )
    if isinstance(declared, Array) and isinstance(stored_kind, Array):
        return Array(wider(declared.items, stored_kind.items))
    return stored_kind if is_narrower(stored(declared), stored_kind) else declared


def union(declared: LogicalType, written: LogicalType) -> LogicalType:
    """Return the narrowest type that holds the values of both types; JSON text if there is no other.

    Args:
        written: a `stored` type.
    """
    if isinstance(declared, Struct) and isinstance(written, Struct):
        kinds = {column.name: column.kind for column in written.fields}
        fields = [
            replace(each, kind=union(each.kind, kinds.pop(each.name, stored(each.kind))))
            for each in declared.fields
        ]
        return Struct((*fields, *(each for each in written.fields if each.name in kinds)))
    if isinstance(declared, Array) and isinstance(written, Array):
        return Array(union(declared.items, written.items))
    own = stored(declared)
    if own == written or is_narrower(written, own):
        return declared
    candidates = (written, Scalar.BIG_NUMBER, Scalar.TEXT)
    return next(
        (kind for kind in candidates if is_narrower(own, kind) and _holds(kind, written)),
        Scalar.JSON,
    )


def _holds(wide: LogicalType, kind: LogicalType) -> bool:
    return wide == kind or is_narrower(kind, wide)


@dataclass(frozen=True)
class Widening:
    """A change of a column or nested field to a wider type; `path` has the source's field names."""

    path: str
    before: LogicalType
    after: LogicalType

    def __str__(self) -> str:
        return f"{self.path}: {described(self.before)} → {described(self.after)}"

    def convert(self, value: Expression) -> Expression:
        """Return a value of the old type converted to the new one."""
        return converted(value, self.before, self.after)

    def lossless(self, value: Expression) -> Expression:
        """Return the condition that `convert` does not change a value."""
        condition = is_unchanged(value, self.before, self.after)
        return f.lit(True) if condition is None else condition


def converted(value: Expression, before: LogicalType, after: LogicalType) -> Expression:
    """Return a value converted to `after`: the same type, a wider type, or one with more fields.

    Nested types may differ from `before` in the same ways.
    """
    if before == after:
        return value
    if isinstance(before, Array) and isinstance(after, Array):
        old_items, new_items = before.items, after.items
        return f.transform(value, lambda item: converted(item, old_items, new_items))
    if isinstance(before, Struct) and isinstance(after, Struct):
        old = {column.name: column.kind for column in before.fields}
        inner = [
            converted(value.getField(c.name), old[c.name], c.kind).alias(c.name)
            if c.name in old
            else f.lit(None).cast(c.type).alias(c.name)
            for c in after.fields
        ]
        return f.when(value.isNotNull(), f.struct(*inner))
    if after is Scalar.JSON:
        return _json_text(value, before)
    return _text(value, before) if after is Scalar.TEXT else value.cast(column_type(after))


def is_unchanged(value: Expression, before: LogicalType, after: LogicalType) -> Expression | None:
    """Return the condition that `converted` does not change a value; None if it never changes one."""
    if not _can_change(before, after):
        return None
    if isinstance(before, Array) and isinstance(after, Array):
        old_items, new_items = before.items, after.items
        every = f.forall(value, lambda item: _or_true(is_unchanged(item, old_items, new_items)))
        return f.coalesce(every, f.lit(True))
    if isinstance(before, Struct) and isinstance(after, Struct):
        new = {column.name: column.kind for column in after.fields}
        inner = (
            _or_true(is_unchanged(value.getField(c.name), c.kind, new[c.name]))
            for c in before.fields
        )
        return reduce(lambda a, b: a & b, inner)
    if after is Scalar.NUMBER:
        # The greatest long becomes 2^63 as a double. The cast back limits that to the greatest long again,
        # so the comparison alone would not show the change.
        is_same = (value.cast("double").cast("long") == value) & (value != f.lit(2**63 - 1))
        return value.isNull() | is_same
    return value.isNull() | value.cast(column_type(after)).isNotNull()


def _can_change(before: LogicalType, after: LogicalType) -> bool:
    """Return whether `converted` can change a value between these types."""
    if isinstance(before, Array) and isinstance(after, Array):
        return _can_change(before.items, after.items)
    if isinstance(before, Struct) and isinstance(after, Struct):
        new = {column.name: column.kind for column in after.fields}
        return any(_can_change(column.kind, new[column.name]) for column in before.fields)
    return before != after and after in (Scalar.NUMBER, Scalar.BIG_NUMBER)


def _or_true(condition: Expression | None) -> Expression:
    return f.lit(True) if condition is None else condition


def _text(value: Expression, kind: LogicalType) -> Expression:
    """Return a scalar as text: as in JSON, without quotes."""
    if kind is Scalar.BINARY:
        return f.translate(f.base64(value), "\r\n", "")  # Spark inserts line breaks
    text = value.cast("string")
    if kind in (Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ):
        text = f.translate(text, " ", "T")
    return f.concat(text, f.lit("Z")) if kind is Scalar.TIMESTAMP else text


def _json_text(value: Expression, kind: LogicalType) -> Expression:
    """Return a value as JSON text; objects have the source's field names."""
    in_array = f.to_json(f.array(_as_in_source(value, kind)), _JSON_OPTIONS)
    text = f.substring(in_array, f.lit(2), f.length(in_array) - 2)
    return f.when(value.isNotNull(), text)


def _as_in_source(value: Expression, kind: LogicalType) -> Expression:
    """Return a value whose JSON is the JSON that the source would have sent."""
    if isinstance(kind, Array):
        return f.transform(value, lambda item: _as_in_source(item, kind.items))
    if isinstance(kind, Struct):
        inner = [_as_in_source(value.getField(c.name), c.kind).alias(c.source) for c in kind.fields]
        return f.when(value.isNotNull(), f.struct(*inner))
    return f.try_parse_json(value) if kind is Scalar.JSON else value
