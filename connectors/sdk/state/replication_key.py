"""The replication key of a stream, and the order of its values: by what they mean, not by their text.

Spec: SDK Implementation Details - Stream State, "Replication Key is Singular".
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from elt_assets.errors import SystemFailure

DATE_TIME = "date-time"
DATE = "date"
NUMBER = "number"
TEXT = "text"

_ISO = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)"
    r"(?:[Tt ](\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?"
    r"\s*(?:(Z|z|UTC)|([+-])(\d\d):?(\d\d)?)?",
    re.ASCII,
)
_EPOCH = dt.date(1970, 1, 1).toordinal()
_FIRST_SECOND, _LAST_SECOND = 946_684_800, 4_102_444_800
_PRECISION = 12
"""Decimals of a second that are compared."""


class ReplicationKey:
    """The top-level field by which a stream is read incrementally.

    Values are compared as instants if the schema declares a date or a date-time, as numbers if it declares a
    number, and as text otherwise. The first value decides for a text without a declared format, which may be
    an instant, and for a declared date-time, which may be a number. An empty text is no value.

    Args:
        field: the name of the field.
        schema: the JSON schema of the field; an empty one if it is not declared.
    """

    def __init__(self, field: str, schema: Mapping[str, Any]):
        self.field = field
        self.kind = _kind(schema)
        self.declares_number = self.kind == NUMBER
        self._is_known = False

    def order(self, value: Any) -> Any:
        """Return an object that compares as the value does. Values of one stream are comparable.

        Raises:
            SystemFailure: the value is not of the key's kind. The message names the field and the value.
        """
        try:
            if not self._is_known and value != "":
                self.kind = self._kind_of_first(value)
                self._is_known = True
            if self.kind == NUMBER:
                return _finite(value if is_number(value) else Decimal(value))
            if self.kind in (DATE_TIME, DATE):
                return instant(iso(value))
            return _text(value)
        except (ValueError, TypeError, InvalidOperation):
            raise SystemFailure(
                f"the replication key {self.field!r} has the value {value!r}, which cannot be compared as a "
                f"{self.kind}",
                guidance="correct the type of the field in the stream's schema, or choose another key",
            ) from None

    def is_larger(self, value: Any, than: Any) -> bool:
        """Return whether a value is after another one."""
        return bool(self.order(value) > self.order(than))

    def compare(self, value: Any, other: Any) -> int | None:
        """Return -1, 0 or 1: a value is before another one, the same, or after it; None if the two cannot be
        compared, or one of them is missing."""
        if value is None or other is None:
            return None
        try:
            if is_number(value) == is_number(other):
                first, second = self.order(value), self.order(other)
                return int(first > second) - int(first < second)
        except SystemFailure:
            return None
        times = moment(value), moment(other)
        if times[0] is None or times[1] is None:
            return None
        return int(times[0] > times[1]) - int(times[0] < times[1])

    def is_before(self, value: Any, start: Any) -> bool:
        """Return whether a value is before the start of a read. What cannot be compared with it is not."""
        return self.compare(value, start) == -1

    def _kind_of_first(self, value: Any) -> str:
        """Return the kind of all values, which the first one decides where the schema does not."""
        if is_number(value):
            return NUMBER
        return DATE_TIME if self.kind == TEXT and is_instant(value) else self.kind


def find_declared_key(field: str | None, schema: Mapping[str, Any]) -> ReplicationKey | None:
    """Return the replication key of records with a JSON schema; None if there is none."""
    if field is None:
        return None
    declared = (schema.get("properties") or {}).get(field)
    return ReplicationKey(field, declared if isinstance(declared, Mapping) else {})


def iso(value: Any) -> Any:
    """Return a date or date-time object as text; any other value unchanged."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.timezone.utc)
    return value.isoformat() if isinstance(value, dt.datetime | dt.date) else value


def moment(value: Any) -> int | None:
    """Return the time that a value is, as `instant`; None if it is none.

    A number is a time if it is one of 2000 to 2099 in seconds or milliseconds since 1970. Smaller numbers are
    identifiers, and larger ones may be.
    """
    if not is_number(value):
        return instant(iso(value)) if is_instant(value) else None
    try:
        number = _finite(value)
    except ValueError:
        return None
    for unit in (1, 1_000):
        if _FIRST_SECOND * unit <= number < _LAST_SECOND * unit:
            return int(number * 10**_PRECISION) // unit
    return None


def is_instant(value: Any) -> bool:
    """Return whether a value is a date or date-time."""
    try:
        instant(iso(value))
    except (ValueError, TypeError):
        return False
    return True


def instant(text: str) -> int:
    """Return a date or date-time as picoseconds since 1970 in UTC; a text without a zone is in UTC.

    Raises:
        ValueError: it is not a date or date-time.
        TypeError: it is not a text.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a date-time")
    year, month, day, hour, minute, second, fraction, _, sign, hours, minutes = match.groups()
    days = dt.date(int(year), int(month), int(day)).toordinal() - _EPOCH
    if int(hour or 0) > 24 or int(minute or 0) > 59 or int(second or 0) > 60:
        raise ValueError(f"{text!r} is not a date-time")
    seconds = days * 86_400 + int(hour or 0) * 3_600 + int(minute or 0) * 60 + int(second or 0)
    if sign is not None:
        offset = int(hours) * 3_600 + int(minutes or 0) * 60
        seconds += -offset if sign == "+" else offset
    parts = (fraction or "")[:_PRECISION].ljust(_PRECISION, "0")
    picoseconds: int = 10**_PRECISION
    return seconds * picoseconds + int(parts)


def match_instant(text: str) -> re.Match[str] | None:
    """Return the parts of a date or date-time: year, month, day, hour, minute, second, its decimals, and the
    zone; None if it is none."""
    return _ISO.fullmatch(text)


def _finite(value: Any) -> Any:
    """Return a number that has a place among the others. A float is the decimal number that it is written as,
    since a decimal number of a record is a float in the state.

    Raises:
        ValueError: it is not a number, or infinite.
    """
    is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    if not is_finite:
        raise ValueError(value)
    return Decimal(repr(value)) if isinstance(value, float) else value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(value)
    return value


def is_number(value: Any) -> bool:
    """Return whether a value is a number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the kind of values that a field's schema declares; TEXT if it declares none of the others."""
    declared = schema.get("type")
    types = set(declared) if isinstance(declared, list) else {declared}
    choices = schema.get("anyOf") or schema.get("oneOf") or []
    kinds = {_kind(choice) for choice in choices if isinstance(choice, Mapping)}
    if schema.get("format") in (DATE_TIME, DATE):
        return str(schema["format"])
    if types & {"integer", NUMBER}:
        return NUMBER
    return next((kind for kind in (DATE_TIME, DATE, NUMBER) if kind in kinds), TEXT)
