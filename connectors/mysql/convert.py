"""Columns of the server's texts as columns of Arrow.

A text that its type does not hold is null, and `_elt_changes` says so: a date with a zero year, month or day,
a day that does not exist (31 February), bytes that are no UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connectors.mysql import kinds
from connectors.mysql.kinds import Kind
from connectors.sdk.arrow_records import list_changes
from elt_assets.protocol.airbyte.messages import CHANGES_COLUMN, INVALID

Cast = Callable[[pa.Array], pa.Array]

_ZERO = r"^0000|-00"
"""A zero in the date of a text: `0000-00-00`, `2024-00-10`, `0000-05-01`."""


def make_batch(
    names: Sequence[str], types: Sequence[Kind], columns: Sequence[pa.Array]
) -> pa.RecordBatch:
    """Return a batch of the server's texts, cast to the types of the columns."""
    arrays = []
    nulled: dict[tuple[str, str], pa.Array] = {}
    for name, kind, texts in zip(names, types, columns, strict=True):
        values = _convert(kind, texts)
        arrays.append(values)
        if values.null_count != texts.null_count:
            nulled[name, INVALID] = pc.and_(values.is_null(), texts.is_valid())
    batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
    return (
        batch.append_column(CHANGES_COLUMN, list_changes(nulled, len(batch))) if nulled else batch
    )


def _convert(kind: Kind, texts: pa.Array) -> pa.Array:
    if kind.form == kinds.BYTES:
        return texts
    if kind.is_timed:
        is_zero = pc.match_substring_regex(texts, _ZERO)
        if pc.any(is_zero).as_py():
            texts = pc.if_else(is_zero, pa.scalar(None, texts.type), texts)
    return _cast_or_null(_cast_of(kind), texts)


def _cast_or_null(cast: Cast, texts: pa.Array) -> pa.Array:
    """Return the values of texts; null where the cast refuses a text."""
    try:
        return cast(texts)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return cast(pa.nulls(1, texts.type))
    middle = len(texts) // 2
    halves = [_cast_or_null(cast, part) for part in (texts.slice(0, middle), texts.slice(middle))]
    return pa.concat_arrays(halves)


def _cast_of(kind: Kind) -> Cast:
    if kind.form == kinds.DECIMAL:
        return _cast_to(pa.decimal128(kind.digits, kind.places))
    return _CASTS[kind.form]


def _cast_to(value: pa.DataType) -> Cast:
    return lambda texts: texts.cast(pa.string()).cast(value)


def _cast_to_utc(texts: pa.Array) -> pa.Array:
    return _cast_to(pa.timestamp("us"))(texts).view(pa.timestamp("us", "UTC"))


def _cast_single(texts: pa.Array) -> pa.Array:
    """Return the numbers that have the fewest digits of those that are the same FLOAT: 0.1, not 0.1000000015.

    Such a number is the same FLOAT again if it is written back.
    """
    singles = _cast_to(pa.float64())(texts).cast(pa.float32(), safe=False)
    return singles.cast(pa.string()).cast(pa.float64())


_CASTS: dict[str, Cast] = {
    kinds.TEXT: lambda texts: texts.cast(pa.string()),
    kinds.INTEGER: _cast_to(pa.int64()),
    kinds.BOOLEAN: _cast_to(pa.bool_()),
    kinds.DOUBLE: _cast_to(pa.float64()),
    kinds.SINGLE: _cast_single,
    kinds.DATE: _cast_to(pa.date32()),
    kinds.MOMENT: _cast_to(pa.timestamp("us")),
    kinds.UTC_MOMENT: _cast_to_utc,
}
