"""Conversion of a batch from the driver to the types of the stream's schema.

Some values have no place there: NaN and the infinities in numbers, dates and times that are infinite or not
between the years 1 and 9999. They become null, and the batch reports the changes. The driver adds
the days between 2000 and 1970 without a check, so infinite values wrap around; all of them, and those near
the ends of the server's range, come to lie outside of these years, where one comparison sees them.

The module is imported with the first batch: pyarrow is slow to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connectors.postgres.types import (
    DATE,
    DECIMAL,
    DOUBLE,
    INTEGER,
    REAL,
    TIMESTAMP,
    ColumnType,
)
from connectors.sdk.arrow_records import list_changes, report_changes
from elt_assets.protocol.airbyte.messages import INVALID

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The days since 1970 of 0001-01-01 and 9999-12-31."""
_DAY = 86_400_000_000
_SPECIAL = pa.array(["NaN", "Infinity", "-Infinity"])

Converted = tuple[pa.Array, "pa.Array | None"]
"""Values, and which of them were made null; None for none."""


def convert_batch(
    batch: pa.RecordBatch, names: Sequence[str], types: Sequence[ColumnType]
) -> pa.RecordBatch:
    """Return a batch with the stream's names and types, and a column of the changes if there are any."""
    arrays, changed = [], {}
    for name, kind, values in zip(names, types, batch.columns, strict=True):
        plain = values.storage if isinstance(values, pa.ExtensionArray) else values
        converted, mask = convert_values(plain, kind)
        arrays.append(converted)
        if mask is not None:
            changed[name, INVALID] = mask
    batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
    if changed:
        batch = report_changes(batch, list_changes(changed, len(batch)))
    return batch


def convert_values(values: pa.Array, kind: ColumnType) -> Converted:
    """Return the values of a column in the type of the stream, and which of them were made null."""
    convert = _CONVERSIONS.get(kind.conversion)
    return (values, None) if convert is None else convert(values, kind)


def null_where(values: pa.Array, mask: pa.Array) -> pa.Array:
    """Return values with nulls where a mask is true."""
    return pc.if_else(mask, pa.scalar(None, values.type), values)


def _convert_double(values: pa.Array, kind: ColumnType) -> Converted:
    del kind
    mask = pc.fill_null(pc.invert(pc.is_finite(values)), False)
    return (null_where(values, mask), mask) if pc.any(mask).as_py() else (values, None)


def _convert_real(values: pa.Array, kind: ColumnType) -> Converted:
    """Return the doubles with the shortest texts: 0.1 stays 0.1, as in the server's text."""
    finite, mask = _convert_double(values, kind)
    return finite.cast(pa.string()).cast(pa.float64()), mask


def _convert_digits(values: pa.Array, kind: ColumnType) -> Converted:
    is_integer = kind.conversion == INTEGER
    target = pa.int64() if is_integer else pa.decimal128(kind.precision, kind.scale)
    try:
        return values.cast(target), None
    except pa.ArrowInvalid:
        mask = pc.is_in(values, _SPECIAL)
        return null_where(values, mask).cast(target), mask


def _convert_date(values: pa.Array, kind: ColumnType) -> Converted:
    del kind
    return _limit(values, values.cast(pa.int32()), _FIRST_DAY, _LAST_DAY)


def _convert_timestamp(values: pa.Array, kind: ColumnType) -> Converted:
    del kind
    return _limit(values, values.cast(pa.int64()), _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1)


def _limit(values: pa.Array, numbers: pa.Array, least: int, most: int) -> Converted:
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None or (least <= bounds["min"] and bounds["max"] <= most):
        return values, None
    outside = pc.or_(pc.less(numbers, least), pc.greater(numbers, most))
    mask = pc.fill_null(outside, False)
    return null_where(values, mask), mask


_CONVERSIONS: Mapping[str, Callable[[pa.Array, ColumnType], Converted]] = {
    REAL: _convert_real,
    DOUBLE: _convert_double,
    DATE: _convert_date,
    TIMESTAMP: _convert_timestamp,
    INTEGER: _convert_digits,
    DECIMAL: _convert_digits,
}
