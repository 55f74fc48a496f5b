"""Types in order, and values from one type to a wider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
)

_WIDER: Mapping[Scalar, frozenset[Scalar]] = {
    Scalar.INTEGER: frozenset({Scalar.BIG_INTEGER, Scalar.NUMBER, Scalar.BIG_NUMBER}),
    Scalar.BIG_INTEGER: frozenset({Scalar.BIG_NUMBER}),
    Scalar.DATE: frozenset({Scalar.TIMESTAMP_NTZ, Scalar.TIMESTAMP}),
    Scalar.TIMESTAMP_NTZ: frozenset({Scalar.TIMESTAMP}),
}
"""Beside text, which is wider than any other scalar, and JSON, which is wider than anything."""
_JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def is_below(narrow: LogicalType, wide: LogicalType) -> bool:
    """Whether `wide` holds the values of `narrow`, and is another kind. Kinds as tables know them."""
    if narrow == wide or isinstance(narrow, Unread):
        return False
    if wide is Scalar.JSON:
        return True
    if not isinstance(narrow, Scalar) or narrow is Scalar.JSON:
        return False
    return wide is Scalar.TEXT or wide in _WIDER.get(narrow, ())


@dataclass(frozen=True)
class Widening:
    """A column, or a field nested in one (`path`, in the source's names), that gets a wider type."""

    path: str
    before: LogicalType
    after: LogicalType

    def __str__(self) -> str:
        return f"{self.path}: {described(self.before)} → {described(self.after)}"

    def convert(self, value: Expression) -> Expression:
        """A value of the one type as the other's."""
        return rewritten(value, self.before, self.after)

    def lossless(self, value: Expression) -> Expression:
        """Whether `convert` keeps it as it is."""
        condition = unchanged(value, self.before, self.after)
        return f.lit(True) if condition is None else condition


def rewritten(value: Expression, before: LogicalType, after: LogicalType) -> Expression:
    """A value → of a kind that is the same, or wider somewhere in it, or has more fields."""
    if before == after:
        return value
    if isinstance(before, Array) and isinstance(after, Array):
        one, other = before.items, after.items
        return f.transform(value, lambda item: rewritten(item, one, other))
    if isinstance(before, Struct) and isinstance(after, Struct):
        old = {column.name: column.kind for column in before.fields}
        inner = [
            rewritten(value.getField(c.name), old[c.name], c.kind).alias(c.name)
            if c.name in old
            else f.lit(None).cast(c.type).alias(c.name)
            for c in after.fields
        ]
        return f.when(value.isNotNull(), f.struct(*inner))
    if after is Scalar.JSON:
        return _json(value, before)
    return _text(value, before) if after is Scalar.TEXT else value.cast(column_type(after))


def unchanged(value: Expression, before: LogicalType, after: LogicalType) -> Expression | None:
    """Whether `rewritten` keeps a value as it is; None where it always does."""
    if not _is_checked(before, after):
        return None
    if isinstance(before, Array) and isinstance(after, Array):
        one, other = before.items, after.items
        every = f.forall(value, lambda item: _or_true(unchanged(item, one, other)))
        return f.coalesce(every, f.lit(True))
    if isinstance(before, Struct) and isinstance(after, Struct):
        new = {column.name: column.kind for column in after.fields}
        inner = (
            _or_true(unchanged(value.getField(c.name), c.kind, new[c.name])) for c in before.fields
        )
        return reduce(lambda a, b: a & b, inner)
    if after is Scalar.NUMBER:
        # Back from 2^63, the cast gives the greatest long, which was not it.
        is_same = (value.cast("double").cast("long") == value) & (value != f.lit(2**63 - 1))
        return value.isNull() | is_same
    return value.isNull() | value.cast(column_type(after)).isNotNull()


def _is_checked(before: LogicalType, after: LogicalType) -> bool:
    if isinstance(before, Array) and isinstance(after, Array):
        return _is_checked(before.items, after.items)
    if isinstance(before, Struct) and isinstance(after, Struct):
        new = {column.name: column.kind for column in after.fields}
        return any(_is_checked(column.kind, new[column.name]) for column in before.fields)
    return before != after and after in (Scalar.NUMBER, Scalar.BIG_NUMBER)


def _or_true(condition: Expression | None) -> Expression:
    return f.lit(True) if condition is None else condition


def _text(value: Expression, kind: LogicalType) -> Expression:
    """A scalar as JSON would write it, without quotes."""
    if kind is Scalar.BINARY:
        return f.translate(f.base64(value), "\r\n", "")  # Spark breaks it into lines
    text = value.cast("string")
    if kind in (Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ):
        text = f.translate(text, " ", "T")
    return f.concat(text, f.lit("Z")) if kind is Scalar.TIMESTAMP else text


def _json(value: Expression, kind: LogicalType) -> Expression:
    """A value as JSON text, objects with the source's names."""
    in_array = f.to_json(f.array(_sourced(value, kind)), _JSON_OPTIONS)
    text = f.substring(in_array, f.lit(2), f.length(in_array) - 2)
    return f.when(value.isNotNull(), text)


def _sourced(value: Expression, kind: LogicalType) -> Expression:
    """A value whose JSON is what the source would have sent."""
    if isinstance(kind, Array):
        return f.transform(value, lambda item: _sourced(item, kind.items))
    if isinstance(kind, Struct):
        inner = [_sourced(value.getField(c.name), c.kind).alias(c.source) for c in kind.fields]
        return f.when(value.isNotNull(), f.struct(*inner))
    return f.try_parse_json(value) if kind is Scalar.JSON else value
