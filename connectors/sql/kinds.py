"""Kinds of columns: what their values are in the lake, whatever the database calls their type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MAX_DIGITS = 38
_WHOLE, _PLACES = 29, 9
"""The digits before and after the point of the lake's decimals: decimal(38, 9)."""


@dataclass(frozen=True)
class Kind:
    """A kind of columns.

    `form`: how values are converted. `schema`: their JSON schema, but for null. `digits`, `places`: of a
    decimal. `is_ordered`: whether a column can be a cursor, and a key of it divides a table.
    """

    form: str
    schema: Mapping[str, Any] = field(default_factory=dict, hash=False)
    digits: int = 0
    places: int = 0
    is_ordered: bool = False

    @property
    def is_timed(self) -> bool:
        """Whether the values are dates or times, which have a present."""
        return self.form in (DATE.form, TIMESTAMP.form, TIMESTAMP_TZ.form)


def _make_moment(zone: str) -> Kind:
    airbyte_type = f"timestamp_{zone}_timezone"
    schema = {"type": "string", "format": "date-time", "airbyte_type": airbyte_type}
    return Kind(airbyte_type, schema, is_ordered=True)


INTEGER = Kind("integer", {"type": "integer"}, is_ordered=True)
NUMBER = Kind("number", {"type": "number"})
"""Numbers of double precision."""
SINGLE = Kind("single", {"type": "number"})
"""Numbers of single precision: each is the double with the fewest digits that is the same single (0.1)."""
BOOLEAN = Kind("boolean", {"type": "boolean"})
TEXT = Kind("text", {"type": "string"}, is_ordered=True)
OTHER = Kind("text", {"type": "string"})
"""Values of types that have no kind of their own, as texts of Python."""
BYTES = Kind("bytes", {"type": "string", "contentEncoding": "base64"})
DATE = Kind("date", {"type": "string", "format": "date"}, is_ordered=True)
TIMESTAMP = _make_moment("without")
TIMESTAMP_TZ = _make_moment("with")
JSON = Kind("json")
"""Texts of JSON, and values of Python that JSON has."""


def decimal(digits: int | None, places: int | None = 0) -> Kind:
    """Return the kind of decimals: numbers if the lake's decimals have room for all of them, else texts.

    Args:
        digits: all digits; None if any number is allowed.
        places: those after the point.
    """
    places = places or 0
    if digits is None or not 0 <= places <= digits <= _MAX_DIGITS:
        return OTHER
    if places == 0:
        schema = {"type": "integer", "airbyte_type": "big_integer"}
        return Kind("decimal", schema, digits, 0, is_ordered=True)
    if places <= _PLACES and digits - places <= _WHOLE:
        schema = {"type": "number", "airbyte_type": "big_number"}
        return Kind("decimal", schema, digits, places, is_ordered=True)
    return OTHER
