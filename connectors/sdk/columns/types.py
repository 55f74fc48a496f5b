"""Types of columns, with Arrow's names: what they are in the lake, whatever a source calls them.

The module does not import Arrow, because a source lists its streams without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_MAX_DIGITS, _PLACES = 38, 9
"""All digits of the lake's decimals, and those after the point: decimal(38, 0) and decimal(38, 9)."""


@dataclass(frozen=True)
class ColumnType:
    """A type of columns. `name`: that of Arrow's type, or of what a text has (`json`, `array`, `object`)."""

    name: str
    schema: Mapping[str, Any] = field(hash=False)
    """The JSON schema of the values, but for null."""
    digits: int = 0
    places: int = 0
    """All digits of a decimal, and those after its point."""

    @property
    def is_time(self) -> bool:
        """Whether the values are dates or times, which have a present."""
        return self in (DATE32, TIMESTAMP, TIMESTAMP_UTC)

    def describe(self, comment: str | None = None) -> dict[str, Any]:
        """Return the JSON schema of a column, which may be null in any case: a value that its type does not
        hold is."""
        schema = dict(self.schema)
        if "type" in schema:
            schema["type"] = [schema["type"], "null"]
        return {**schema, "description": comment} if comment else schema


def _make_text(name: str, **more: str) -> ColumnType:
    return ColumnType(name, {"type": "string", **more})


INT64 = ColumnType("int64", {"type": "integer"})
DOUBLE = ColumnType("double", {"type": "number"})
FLOAT = ColumnType("float", {"type": "number"})
"""Numbers of single precision: each is the double with the fewest digits that is the same single (0.1)."""
BOOL = ColumnType("bool", {"type": "boolean"})
STRING = _make_text("string")
BINARY = _make_text("binary", contentEncoding="base64")
DATE32 = _make_text("date32", format="date")
TIME64 = _make_text("time64", format="time", airbyte_type="time_without_timezone")
TIMESTAMP = _make_text(
    "timestamp[us]", format="date-time", airbyte_type="timestamp_without_timezone"
)
TIMESTAMP_UTC = _make_text(
    "timestamp[us, tz=UTC]", format="date-time", airbyte_type="timestamp_with_timezone"
)
JSON = ColumnType("json", {})
"""Texts of JSON, and values of Python that JSON has."""
ARRAY = ColumnType("array", {"type": "array"})
OBJECT = ColumnType("object", {"type": "object"})


BIG_INTEGER = ColumnType(
    "decimal128", {"type": "integer", "airbyte_type": "big_integer"}, _MAX_DIGITS
)
BIG_DECIMAL = ColumnType(
    "decimal128", {"type": "number", "airbyte_type": "big_number"}, _MAX_DIGITS, _PLACES
)
"""The lake's own decimals."""


def decimal128(digits: int | None, places: int | None = 0) -> ColumnType | None:
    """Return a type of decimals; None if the lake's decimals have no room for all of them, so that they are
    texts.

    Args:
        digits: all digits; None if any number is allowed.
        places: those after the point. It may be negative (thousands), and more than all digits (0.00123).
    """
    places = places or 0
    whole = 0 if digits is None else digits - places
    if digits is None or digits < 1:
        return None
    if places <= 0 and whole <= _MAX_DIGITS:
        return replace(BIG_INTEGER, digits=whole)
    if 0 < places <= _PLACES and whole <= _MAX_DIGITS - _PLACES:
        return replace(BIG_DECIMAL, digits=max(digits, places), places=places)
    return None
