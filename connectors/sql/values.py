"""Values of a driver, as columns of Arrow: those of the column's kind, or null with a change.

Python's own conversions are lenient in ways that change values (a time as a date, a fraction as an integer).
So a value is either the same one in the column's kind, or it is null and reported.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.sdk.arrow_records import list_changes, report_changes
from connectors.sdk.times import parse_moment
from connectors.sql import kinds
from connectors.sql.kinds import Kind
from connectors.sql.tables import Column
from elt_assets.protocol.airbyte.messages import INVALID

Converter = Callable[[Any], Any]
_MICROSECONDS = pa.timestamp("us")
_JSON_ENCODER = msgspec.json.Encoder(decimal_format="number")
_UTC = dt.timezone.utc
_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")


def make_batch(columns: Sequence[Column], values: Sequence[Any]) -> pa.RecordBatch:
    """Return a batch.

    Args:
        values: of each column: a list of Python's values, or an array of Arrow.
    """
    arrays = []
    nulled: dict[tuple[str, str], pa.Array] = {}
    for column, raw in zip(columns, values, strict=True):
        array, invalid = convert(column.kind, raw)
        arrays.append(array)
        if invalid is not None:
            nulled[column.name, INVALID] = invalid
    batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
    if not nulled:
        return batch
    return report_changes(batch, list_changes(nulled, len(batch)))


def convert(kind: Kind, values: Any) -> tuple[pa.Array, pa.Array | None]:
    """Return values in the type of a kind, and which were made null; None if none was.

    Args:
        values: Python's values, or an array of Arrow.
    """
    arrow_type = arrow_type_of(kind)
    if isinstance(values, pa.Array):
        if values.type == arrow_type and kind.form not in _CHECKED:
            return values, None
        values = values.to_pylist()
    array = _take_over(kind, values, arrow_type)
    if array is not None:
        return array, None
    converter = _CONVERTERS[kind.form]
    converted = [None if value is None else converter(kind, value) for value in values]
    array = pa.array(converted, arrow_type)
    is_invalid = [
        new is None and old is not None for new, old in zip(converted, values, strict=True)
    ]
    return array, pa.array(is_invalid) if any(is_invalid) else None


def _take_over(kind: Kind, values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array | None:
    """Return values as they are; None if one is not of the type of Python that the kind has."""
    types = {type(value) for value in values} - {type(None)}
    if types and types != {_PLAIN.get(kind.form)}:
        return None
    try:
        array = pa.array(values, arrow_type)
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    if kind is kinds.NUMBER and not pc.all(pc.is_finite(array)).as_py() and types:
        return None
    return array


def arrow_type_of(kind: Kind) -> pa.DataType:
    """Return the type of a kind's values."""
    if kind.form == "decimal":
        return pa.decimal128(kind.digits, kind.places)
    return _ARROW_TYPES[kind.form]


_ARROW_TYPES = {
    kinds.INTEGER.form: pa.int64(),
    kinds.NUMBER.form: pa.float64(),
    kinds.SINGLE.form: pa.float64(),
    kinds.BOOLEAN.form: pa.bool_(),
    kinds.TEXT.form: pa.string(),
    kinds.BYTES.form: pa.binary(),
    kinds.DATE.form: pa.date32(),
    kinds.TIMESTAMP.form: _MICROSECONDS,
    kinds.TIMESTAMP_TZ.form: pa.timestamp("us", "UTC"),
    kinds.JSON.form: pa.string(),
}
_PLAIN = {
    kinds.INTEGER.form: int,
    kinds.NUMBER.form: float,
    kinds.BOOLEAN.form: bool,
    kinds.TEXT.form: str,
    kinds.BYTES.form: bytes,
    kinds.DATE.form: dt.date,
}
"""The type of Python whose values Arrow takes over as they are."""
_CHECKED = (kinds.NUMBER.form, kinds.SINGLE.form, kinds.JSON.form)
"""Forms of which Arrow's own type has values that the kind does not have."""


def _integer(_: Kind, value: Any) -> int | None:
    if type(value) is not int:
        number = _decimal_of(value)
        if number is None or number != number.to_integral_value():
            return None
        value = int(number)
    return value if -(1 << 63) <= value < 1 << 63 else None


def _decimal_of(value: Any) -> Decimal | None:
    """Return a number as the decimal with the same digits."""
    if isinstance(value, (bool, int, Decimal)):
        number = Decimal(value)
    elif isinstance(value, float):
        number = Decimal(repr(value))
    elif isinstance(value, str):
        try:
            number = Decimal(value.strip())
        except InvalidOperation:
            return None
    else:
        return None
    return number if number.is_finite() else None


def _decimal(kind: Kind, value: Any) -> Decimal | None:
    number = _decimal_of(value)
    if number is None:
        return None
    with localcontext() as context:
        context.prec = kind.digits
        try:
            exact = number.quantize(Decimal(1).scaleb(-kind.places))
        except InvalidOperation:  # it has more digits
            return None
    return exact if exact == number else None


def _number(_: Kind, value: Any) -> float | None:
    """Return the double whose shortest text is the number; None if it has other digits."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    exact = _decimal_of(value)
    if exact is None:
        return None
    number = float(exact)
    return number if math.isfinite(number) and Decimal(repr(number)) == exact else None


def _single(kind: Kind, value: Any) -> float | None:
    number = _number(kind, value)
    if number is None:
        return None
    with np.errstate(over="ignore"):
        single = np.float32(number)
    shortest = float(str(single))
    return shortest if number in (shortest, float(single)) and math.isfinite(shortest) else None


def _boolean(_: Kind, value: Any) -> bool | None:
    if isinstance(value, (bool, int)) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        text = value.strip().lower()
        return True if text in _TRUE else False if text in _FALSE else None
    return None


def _text(_: Kind, value: Any) -> str | None:
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        value = _json_text(value)
    text = value if isinstance(value, str) else str(value)
    return text if _is_valid(text) else None


def _is_valid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair
        return False
    return True


def _bytes(_: Kind, value: Any) -> bytes | None:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else None


def _date(_: Kind, value: Any) -> dt.date | None:
    if isinstance(value, str):
        moment = parse_moment(value)
        value = value if moment is None else moment
    if isinstance(value, dt.datetime):
        is_midnight = value.time() == dt.time() and value.tzinfo is None
        return value.date() if is_midnight else None
    return value if isinstance(value, dt.date) else None


def _timestamp(_: Kind, value: Any) -> dt.datetime | None:
    moment = _moment_of(value)
    if moment is None or moment.tzinfo is None:
        return moment
    return _to_utc(moment, None)


def _timestamp_tz(_: Kind, value: Any) -> dt.datetime | None:
    moment = _moment_of(value)
    if moment is None:
        return None
    return moment.replace(tzinfo=_UTC) if moment.tzinfo is None else _to_utc(moment, _UTC)


def _to_utc(moment: dt.datetime, zone: dt.tzinfo | None) -> dt.datetime | None:
    try:
        return moment.astimezone(_UTC).replace(tzinfo=zone)
    except OverflowError:  # before the year 1, or after 9999
        return None


def _moment_of(value: Any) -> dt.datetime | None:
    if isinstance(value, str):
        return parse_moment(value)
    if isinstance(value, dt.datetime):
        return value
    return dt.datetime.combine(value, dt.time()) if isinstance(value, dt.date) else None


def _json(_: Kind, value: Any) -> str | None:
    if not isinstance(value, (str, bytes)):
        return _json_text(value)
    try:
        text = value if isinstance(value, str) else value.decode()
        json.loads(text, parse_constant=_refuse)
    except ValueError:
        return None
    return text if _is_valid(text) else None


def _refuse(text: str) -> None:
    raise ValueError(text)


def _json_text(value: Any) -> str | None:
    try:
        return _JSON_ENCODER.encode(value).decode()
    except (TypeError, ValueError):
        return None


_CONVERTERS: dict[str, Callable[[Kind, Any], Any]] = {
    kinds.INTEGER.form: _integer,
    "decimal": _decimal,
    kinds.NUMBER.form: _number,
    kinds.SINGLE.form: _single,
    kinds.BOOLEAN.form: _boolean,
    kinds.TEXT.form: _text,
    kinds.BYTES.form: _bytes,
    kinds.DATE.form: _date,
    kinds.TIMESTAMP.form: _timestamp,
    kinds.TIMESTAMP_TZ.form: _timestamp_tz,
    kinds.JSON.form: _json,
}
