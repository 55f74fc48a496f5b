"""Columns of the server's values as columns of Arrow: of texts, and of the types in `connectors.mysql.rows`.

A value that its type does not hold is null, and the changes of the batch say so: a date with a zero year,
month or day, a day that does not exist (31 February), bytes that are no UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connectors.mysql import kinds
from connectors.mysql.dates import make_dates, make_moments
from connectors.mysql.kinds import Kind
from connectors.sdk.arrow_records import list_changes, report_changes
from elt_assets.protocol.airbyte.messages import INVALID

_ZERO = r"^0000|-00"
"""A zero in the date of a text: `0000-00-00`, `2024-00-10`, `0000-05-01`."""


def make_batch(
    names: Sequence[str], types: Sequence[Kind], columns: Sequence[pa.Array]
) -> pa.RecordBatch:
    """Return a batch of the server's values, cast to the types of the columns."""
    arrays = []
    nulled: dict[tuple[str, str], pa.Array] = {}
    for name, kind, column in zip(names, types, columns, strict=True):
        values = _convert(kind, column)
        arrays.append(values)
        if values.null_count != column.null_count:
            nulled[name, INVALID] = pc.and_(values.is_null(), column.is_valid())
    batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
    return report_changes(batch, list_changes(nulled, len(batch))) if nulled else batch


def _convert(kind: Kind, column: pa.Array) -> pa.Array:
    if kind.form == kinds.BYTES:
        return column
    if pa.types.is_binary(column.type):
        return _convert_texts(kind, column)
    if pa.types.is_struct(column.type):
        return make_moments(column).cast(_type_of(kind))
    if kind.form == kinds.DATE:
        return make_dates(column)
    return _shorten(column) if kind.form == kinds.SINGLE else column.cast(_type_of(kind))


def _convert_texts(kind: Kind, texts: pa.Array) -> pa.Array:
    if kind.is_timed:
        is_zero = pc.match_substring_regex(texts, _ZERO)
        if pc.any(is_zero).as_py():
            texts = pc.if_else(is_zero, pa.scalar(None, texts.type), texts)
    return _cast_or_null(kind, texts)


def _cast_or_null(kind: Kind, texts: pa.Array) -> pa.Array:
    """Return the values of texts; null where the cast refuses a text."""
    try:
        return _cast(kind, texts)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return _cast(kind, pa.nulls(1, texts.type))
    middle = len(texts) // 2
    halves = [_cast_or_null(kind, part) for part in (texts.slice(0, middle), texts.slice(middle))]
    return pa.concat_arrays(halves)


def _cast(kind: Kind, texts: pa.Array) -> pa.Array:
    values = texts.cast(pa.string()).cast(_TEXT_TYPES.get(kind.form) or _type_of(kind))
    return _shorten(values) if kind.form == kinds.SINGLE else values.cast(_type_of(kind))


def _shorten(values: pa.Array) -> pa.Array:
    """Return the numbers that have the fewest digits of those that are the same FLOAT: 0.1, not 0.1000000015.

    Such a number is the same FLOAT again if it is written back.
    """
    return values.cast(pa.float32(), safe=False).cast(pa.string()).cast(pa.float64())


def _type_of(kind: Kind) -> pa.DataType:
    if kind.form == kinds.DECIMAL:
        return pa.decimal128(kind.digits, kind.places)
    return _TYPES[kind.form]


_TYPES = {
    kinds.TEXT: pa.string(),
    kinds.INTEGER: pa.int64(),
    kinds.BOOLEAN: pa.bool_(),
    kinds.DOUBLE: pa.float64(),
    kinds.SINGLE: pa.float64(),
    kinds.DATE: pa.date32(),
    kinds.MOMENT: pa.timestamp("us"),
    kinds.UTC_MOMENT: pa.timestamp("us", "UTC"),
}
_TEXT_TYPES = {kinds.UTC_MOMENT: pa.timestamp("us")}
"""The types that texts are cast to first: those of times in UTC do not name their zone."""
