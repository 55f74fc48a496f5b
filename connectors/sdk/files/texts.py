"""Conversion of the texts of a CSV file to the types of their columns.

A column is cast at once. A text that is no value of its type, or that has more digits than the type holds, is
a misfit: its row becomes a record in JSON, in which a number has the digits of the file, and any other misfit
is the text as it stands. The lake treats it as any value that does not fit, and records the change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from connectors.sdk.columns.conversion import Converted, convert, find_nulled
from connectors.sdk.files.schema import TYPES

_NUMBERS = frozenset(("integer", "big_integer", "number", "decimal"))
_CAST = _NUMBERS | {name for name, column_type in TYPES.items() if column_type.is_time}
"""The types to which texts are cast, without those of booleans."""
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_BOOLEANS = pa.array([*_TRUE, *_FALSE])
_EXACT = 15
"""A double keeps the digits of a text of this length."""
_MAX_CASTS = 400
"""Casts of parts of a column in search of its misfits. The rows of parts that are left are misfits too, which
is slower, and gives the same values."""
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")


def cast_texts(texts: pa.Array, kind: str, nulls: Sequence[str]) -> Converted:
    """Return texts in the type of a column, and which of them do not fit.

    Args:
        kind: the name of the type, of those in `schema.TYPES`.
        nulls: the texts that are null, also in quotes, unless the column is one of texts.
    """
    if kind not in _CAST and kind != "boolean":
        return texts, None
    for null in nulls:
        is_null = pc.equal(texts, null)
        if pc.any(is_null).as_py():
            texts = pc.if_else(is_null, pa.scalar(None, pa.string()), texts)
    if kind == "boolean":
        numbers = pc.index_in(pc.utf8_lower(texts), _BOOLEANS)
        values = pc.less(numbers, len(_TRUE))
        return values, find_nulled(texts, values)
    values, misfits = convert(texts, TYPES[kind], max_casts=_MAX_CASTS)
    inexact = _find_inexact(texts, values) if kind == "number" else None
    if inexact is not None:
        misfits = inexact if misfits is None else pc.or_(misfits, inexact)
    return values, misfits


def _find_inexact(texts: pa.Array, values: pa.Array) -> pa.Array | None:
    """Return which numbers have more digits than a double holds; None if none has.

    The shortest text of a double is compared with a text that is long enough to have more.
    """
    is_long = pc.greater(pc.binary_length(texts), _EXACT).fill_null(False)
    if not pc.any(is_long).as_py():
        return None
    rows = np.flatnonzero(is_long.to_numpy(zero_copy_only=False))
    some, doubles = texts.take(pa.array(rows)), values.take(pa.array(rows))
    differs = pc.not_equal(some, doubles.cast(pa.string())).fill_null(False)
    suspects = rows[differs.to_numpy(zero_copy_only=False)].tolist()
    wrong = [row for row in suspects if not _is_exact(texts[row].as_py(), values[row].as_py())]
    return pa.array(np.isin(np.arange(len(texts)), wrong)) if wrong else None


def _is_exact(text: str, number: float) -> bool:
    return math.isfinite(number) and Decimal(text) == Decimal(repr(number))


def json_value(text: str | None, kind: str, nulls: Sequence[str]) -> Any:
    """Return a text as a value of JSON, as `cast_texts` does where it fits; otherwise the text itself."""
    if text is None or (text in nulls and (kind in _CAST or kind == "boolean")):
        return None
    if kind == "boolean":
        lower = text.lower()
        return lower in _TRUE if lower in _TRUE or lower in _FALSE else text
    return _json_number(text) if kind in _NUMBERS else text


def _json_number(text: str) -> Any:
    plain = text.strip()
    if _JSON_NUMBER.fullmatch(plain):
        return Raw(plain.encode())
    try:
        number = Decimal(plain) if re.fullmatch(r"[-+.\deE]+", plain) else None
    except InvalidOperation:
        number = None
    return text if number is None or number.adjusted() > 400 else Raw(f"{number:f}".encode())


_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?")
_ZONE = re.compile(rf"(?:{_TIME.pattern})(?:Z|[+-]\d\d(?::?\d\d)?)")


def infer_kinds(texts: Sequence[str]) -> set[str]:
    """Return the types that texts of a sample have, which are not null; `string` alone if one is a text."""
    kinds = set()
    for text in texts:
        kind = _infer_kind(text)
        if kind == "string":
            return {"string"}
        kinds.add(kind)
    return kinds


def _infer_kind(text: str) -> str:
    if _INTEGER.fullmatch(text):  # not `007`: it is a code
        return "integer" if len(text) < 19 else "big_integer" if len(text) < 38 else "string"
    if _JSON_NUMBER.fullmatch(text):
        return _infer_number(text)
    if text.lower() in ("true", "false"):
        return "boolean"
    forms = (("date", _DATE), ("timestamp_without_timezone", _TIME), ("timestamp", _ZONE))
    for kind, pattern in forms:
        if pattern.fullmatch(text):
            _, misfits = cast_texts(pa.array([text]), kind, ())
            return kind if misfits is None else "string"
    return "string"


def _infer_number(text: str) -> str:
    if len(text) <= _EXACT or _is_exact(text, float(text)):
        return "number"
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    is_decimal = isinstance(exponent, int) and exponent >= -9 and number.adjusted() < 28
    return "decimal" if is_decimal else "number"
