"""Conversion of Python's values, as drivers give them, to the type of their column.

Python's own conversions are lenient in ways that change values (a time as a date, a fraction as an integer).
So a value is either the same one in the column's type, or it is null and reported.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.sdk.columns import types as t
from connectors.sdk.columns.conversion import Converted, arrow_type_of
from connectors.sdk.encoding import encode
from connectors.sdk.times import parse_moment

Converter = Callable[[Any], Any]
_UTC = dt.timezone.utc
_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")


def convert_values(values: Any, kind: t.ColumnType) -> Converted:
    """Return values of a column in its type.

    Args:
        values: Python's values, or an array of Arrow.
    """
    arrow_type = arrow_type_of(kind)
    if isinstance(values, pa.Array):
        if values.type == arrow_type and kind not in _CHECKED:
            return values, None
        values = values.to_pylist()
    array = _take_over(kind, values, arrow_type)
    if array is not None:
        return array, None
    converter = partial(_decimal, kind) if kind.digits else _CONVERTERS[kind]
    converted = [None if value is None else converter(value) for value in values]
    array = pa.array(converted, arrow_type)
    if array.null_count == values.count(None):
        return array, None
    return array, pc.and_(array.is_null(), pa.array([value is not None for value in values]))


def _take_over(
    kind: t.ColumnType, values: Sequence[Any], arrow_type: pa.DataType
) -> pa.Array | None:
    """Return values as they are; None if one is not of the type of Python that the column has."""
    types = {type(value) for value in values} - {type(None)}
    if types and types != {_PLAIN.get(kind)}:
        return None
    try:
        array = pa.array(values, arrow_type)
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    return None if kind == t.DOUBLE and pc.all(pc.is_finite(array)).as_py() is False else array


_PLAIN = {
    t.INT64: int,
    t.DOUBLE: float,
    t.BOOL: bool,
    t.STRING: str,
    t.BINARY: bytes,
    t.DATE32: dt.date,
}
"""The type of Python whose values Arrow takes over as they are."""
_CHECKED = (t.DOUBLE, t.FLOAT, t.JSON)
"""Types of which Arrow's own type has values that the column does not have."""


def _integer(value: Any) -> int | None:
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


def _decimal(kind: t.ColumnType, value: Any) -> Decimal | None:
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


def _number(value: Any) -> float | None:
    """Return the double whose shortest text is the number; None if it has other digits."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    exact = _decimal_of(value)
    if exact is None:
        return None
    number = float(exact)
    return number if math.isfinite(number) and Decimal(repr(number)) == exact else None


def _single(value: Any) -> float | None:
    number = _number(value)
    if number is None:
        return None
    with np.errstate(over="ignore"):
        single = np.float32(number)
    shortest = float(str(single))
    return shortest if number in (shortest, float(single)) and math.isfinite(shortest) else None


def _boolean(value: Any) -> bool | None:
    if isinstance(value, (bool, int)) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        text = value.strip().lower()
        return True if text in _TRUE else False if text in _FALSE else None
    return None


def _text(value: Any) -> str | None:
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


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else None


def _date(value: Any) -> dt.date | None:
    if isinstance(value, str):
        moment = parse_moment(value)
        value = value if moment is None else moment
    if isinstance(value, dt.datetime):
        is_midnight = value.time() == dt.time() and value.tzinfo is None
        return value.date() if is_midnight else None
    return value if isinstance(value, dt.date) else None


def _timestamp(value: Any) -> dt.datetime | None:
    moment = _moment_of(value)
    if moment is None or moment.tzinfo is None:
        return moment
    return _to_utc(moment, None)


def _timestamp_tz(value: Any) -> dt.datetime | None:
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


def _json(value: Any) -> str | None:
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
        return encode(value).decode()
    except (TypeError, ValueError):
        return None


_CONVERTERS: dict[t.ColumnType, Converter] = {
    t.INT64: _integer,
    t.DOUBLE: _number,
    t.FLOAT: _single,
    t.BOOL: _boolean,
    t.STRING: _text,
    t.BINARY: _bytes,
    t.DATE32: _date,
    t.TIMESTAMP: _timestamp,
    t.TIMESTAMP_UTC: _timestamp_tz,
    t.JSON: _json,
}
