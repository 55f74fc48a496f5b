"""Times: durations of ISO 8601, instants in the texts and numbers of an API, and lengths between them.

An instant is compared by what it means, with twelve decimals of a second. A value that is a length before or
after another one is written as that one is, in its zone and with its decimals, so an API gets it in the form
of its own values. `parse_moment` is for values of databases, which become a timestamp of microseconds or are
no time.
"""

from __future__ import annotations

import calendar
import math
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from elt_assets.errors import SystemFailure

Day = TypeVar("Day", date, datetime)

_DURATION = re.compile(
    r"(?P<sign>[+-])?P(?!\b)"
    r"(?:(?P<years>\d+(?:[,.]\d+)?)Y)?(?:(?P<months>\d+(?:[,.]\d+)?)M)?"
    r"(?:(?P<weeks>\d+(?:[,.]\d+)?)W)?(?:(?P<days>\d+(?:[,.]\d+)?)D)?"
    r"(?:T(?:(?P<hours>\d+(?:[,.]\d+)?)H)?(?:(?P<minutes>\d+(?:[,.]\d+)?)M)?"
    r"(?:(?P<seconds>\d+(?:[,.]\d+)?)S)?)?",
    re.ASCII,
)
_PARTS = ("weeks", "days", "hours", "minutes", "seconds")
_ISO = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)"
    r"(?:[Tt ](\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?"
    r"\s*(?:(Z|z|UTC)|([+-])(\d\d):?(\d\d)?)?",
    re.ASCII,
)
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_SECOND, _LAST_SECOND = 946_684_800, 4_102_444_800
_PRECISION = 12
"""Decimals of a second that are compared."""
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?(\.\d{1,6})?0*\s*(Z|[+-]\d\d:?\d\d)?)?",
    re.IGNORECASE,
)
_REFERENCE = datetime(2001, 1, 1)  # noqa: DTZ001 - only compared with others
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_DAY = timedelta(days=1)
_PICOSECONDS: int = 10**_PRECISION
_MICROSECONDS = 10**6


@dataclass(frozen=True)
class Duration:
    """A duration with years or months, whose length depends on the date to which it is added."""

    months: int
    rest: timedelta = timedelta(0)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, date):
            return _add_months(other, self.months) + self.rest
        if isinstance(other, timedelta):
            return Duration(self.months, self.rest + other)
        if isinstance(other, Duration):
            return Duration(self.months + other.months, self.rest + other.rest)
        return NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other if isinstance(other, (timedelta, Duration)) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> Duration:
        return Duration(-self.months, -self.rest)

    def __mul__(self, factor: Any) -> Any:
        if isinstance(factor, int):
            return Duration(self.months * factor, self.rest * factor)
        return NotImplemented

    __rmul__ = __mul__

    def __str__(self) -> str:
        years, months = divmod(abs(self.months), 12)
        sign = "-" if self.months < 0 else ""
        parts = [f"{sign}{years} years"] if years else []
        parts += [f"{sign}{months} month{'s' if months > 1 else ''}"] if months else []
        return ", ".join([*parts, str(self.rest)])


def parse_duration(text: str) -> timedelta | Duration:
    """Return an ISO 8601 duration; a `timedelta` if it has neither years nor months.

    Raises:
        ValueError: the text is not a duration, or it has a fraction of a year or a month.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("the text is not an ISO 8601 duration, such as P1D or PT30M")
    parts = {name: Decimal((match[name] or "0").replace(",", ".")) for name in ("years", "months")}
    months = parts["years"] * 12 + parts["months"]
    if months != int(months):
        raise ValueError("a duration with a fraction of a month has no length")
    rest = timedelta(**{name: float((match[name] or "0").replace(",", ".")) for name in _PARTS})
    sign = -1 if match["sign"] == "-" else 1
    return Duration(int(months) * sign, rest * sign) if months else rest * sign


def _add_months(start: Day, months: int) -> Day:
    """Return the same day of another month, or that month's last day."""
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    day = min(start.day, calendar.monthrange(year, month + 1)[1])
    return start.replace(year=year, month=month + 1, day=day)


Length = timedelta | Duration | int | Decimal
"""A length of time, or a number for a key whose values are numbers."""


def parse_length(text_or_number: Any, name: str, *, of_days: bool = False) -> Length | None:
    """Return a length that an author or a config wrote; None if there is none.

    Args:
        text_or_number: an ISO 8601 duration such as "P1D", a `timedelta`, or a number.
        name: what it is the length of, for an error.
        of_days: whether a duration must be of whole days, because values have no time of day.

    Raises:
        SystemFailure: it is not a length, not a positive one, or not of whole days.
    """
    if text_or_number is None:
        return None
    try:
        length = _parse(text_or_number)
    except (ValueError, OverflowError):
        length = 0
    if not _is_positive(length):
        raise SystemFailure(
            f"`{name}` is {text_or_number!r}, which is no length of more than 0",
            guidance='write an ISO 8601 duration, such as "P1D" or "PT30M"; for a key of numbers, a number',
        )
    rest = length.rest if isinstance(length, Duration) else length
    if of_days and isinstance(rest, timedelta) and rest % _DAY:
        raise SystemFailure(
            f"`{name}` is {text_or_number!r}, and the values of the replication key are dates",
            guidance='write a duration of whole days, such as "P1D"',
        )
    return length


def is_within(length: timedelta | Duration, other: timedelta | Duration) -> bool:
    """Return whether a length of time is not longer than another one, from 2001-01-01 on. One that ends after
    the calendar is longer than any that does not."""
    try:
        end = _REFERENCE + length
    except (OverflowError, ValueError):
        return False
    try:
        return bool(end <= _REFERENCE + other)
    except (OverflowError, ValueError):
        return True


def add_length(value: Any, length: Length, times: int = 1) -> Any:
    """Return the value that is some times a length after another one, or before it; None if the calendar has
    no such value. A month later is the same day of the next month, or the last one of a shorter month.

    Raises:
        SystemFailure: the value is no time, or no number, as the length is.
    """
    if is_number(value):
        return _add_to_number(value, length, times)
    if isinstance(value, str) and isinstance(length, int | Decimal) and _NUMBER.fullmatch(value):
        return str(_add_to_number(Decimal(value), length, times))
    match = match_instant(value) if isinstance(value, str) else None
    if match is None or isinstance(length, int | Decimal):
        raise _mismatch(value, length)
    try:
        return _add_to_text(value, match, length * times)
    except (OverflowError, ValueError):
        return None


def _parse(text_or_number: Any) -> Length:
    if isinstance(text_or_number, str):
        return parse_duration(text_or_number)
    if isinstance(text_or_number, float):
        return Decimal(repr(text_or_number))
    if isinstance(text_or_number, timedelta | Duration | Decimal) or is_number(text_or_number):
        return text_or_number  # type: ignore[no-any-return]
    raise ValueError(text_or_number)


def _is_positive(length: Length) -> bool:
    if isinstance(length, int | Decimal):
        return Decimal(length).is_finite() and length > 0
    return not is_within(length, timedelta(0))


def _add_to_number(value: Any, length: Length, times: int) -> Any:
    """Add to a number as the decimal number that it is written as. Of a time in seconds or milliseconds, a
    duration is a number of these."""
    if isinstance(length, Duration):
        raise _mismatch(value, length)
    if isinstance(length, timedelta):
        time = moment(value)
        if time is None:
            raise _mismatch(value, length)
        unit = 1 if time == int(value * _PICOSECONDS) else 1_000
        length = Decimal(length // timedelta(microseconds=1)) * unit / _MICROSECONDS
    exact = Decimal(repr(value)) if isinstance(value, float) else value
    result = exact + length * times
    if isinstance(value, float):
        return float(result)
    return int(result) if result == int(result) else result


def _add_to_text(text: str, match: re.Match[str], length: timedelta | Duration) -> str:
    """Add to a date-time in its own notation. Its zone is an offset, so every day of it has 24 hours."""
    year, month, day, hour, minute, second, fraction = match.groups()[:7]
    begin = datetime(int(year), int(month), int(day))  # noqa: DTZ001 - its zone is kept as written
    # Of a leap second or the end of a day (24:00), the time may be on the next day.
    of_day = timedelta(hours=int(hour or 0), minutes=int(minute or 0), seconds=int(second or 0))
    result = begin + length + of_day
    decimals = int((fraction or "")[:12].ljust(12, "0")) + result.microsecond * _MICROSECONDS
    result += timedelta(seconds=decimals // _PICOSECONDS)
    padded = f"{decimals % _PICOSECONDS:012}"
    fraction_digits = padded[: max(len(fraction or ""), len(padded.rstrip("0")))]
    day_text = f"{result.year:04}-{result.month:02}-{result.day:02}"
    zone = text[max(match.end(group) for group in range(3, 8)) :]
    if hour is None and not (result.hour or result.minute or result.second or fraction_digits):
        return day_text + zone
    separator = "T" if hour is None else text[match.end(3) : match.start(4)]
    time = f"{result.hour:02}:{result.minute:02}"
    if hour is None or second is not None or result.second or fraction_digits:
        time += f":{result.second:02}"
    if fraction_digits:
        time += ("," if fraction and text[match.start(7) - 1] == "," else ".") + fraction_digits
    return day_text + separator + time + (zone or ("" if hour else "Z"))


def _mismatch(value: Any, length: Length) -> SystemFailure:
    kind = "number" if isinstance(length, int | Decimal) else "duration"
    return SystemFailure(
        f"the replication key has the value {value!r}, to which the {kind} {length} cannot be added",
        guidance="write a duration for a key whose values are times, and a number for one of numbers",
    )


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
    days = date(int(year), int(month), int(day)).toordinal() - _EPOCH
    if int(hour or 0) > 24 or int(minute or 0) > 59 or int(second or 0) > 60:
        raise ValueError(f"{text!r} is not a date-time")
    seconds = days * 86_400 + int(hour or 0) * 3_600 + int(minute or 0) * 60 + int(second or 0)
    if sign is not None:
        offset = int(hours) * 3_600 + int(minutes or 0) * 60
        seconds += -offset if sign == "+" else offset
    parts = (fraction or "")[:_PRECISION].ljust(_PRECISION, "0")
    return seconds * _PICOSECONDS + int(parts)


def match_instant(text: str) -> re.Match[str] | None:
    """Return the parts of a date or date-time: year, month, day, hour, minute, second, its decimals, and the
    zone; None if it is none."""
    return _ISO.fullmatch(text)


def is_instant(value: Any) -> bool:
    """Return whether a value is a date or date-time."""
    try:
        instant(iso(value))
    except (ValueError, TypeError):
        return False
    return True


def moment(value: Any) -> int | None:
    """Return the time that a value is, as `instant`; None if it is none.

    A number is a time if it is one of 2000 to 2099 in seconds or milliseconds since 1970. Smaller numbers are
    identifiers, and larger ones may be.
    """
    if not is_number(value):
        return instant(iso(value)) if is_instant(value) else None
    try:
        number = finite_number(value)
    except ValueError:
        return None
    for unit in (1, 1_000):
        if _FIRST_SECOND * unit <= number < _LAST_SECOND * unit:
            return int(number * _PICOSECONDS) // unit
    return None


def iso(value: Any) -> Any:
    """Return a date or date-time object as text; any other value unchanged."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(timezone.utc)
    return value.isoformat() if isinstance(value, datetime | date) else value


def is_number(value: Any) -> bool:
    """Return whether a value is a number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def finite_number(value: Any) -> Any:
    """Return a number that has a place among the others. A float is the decimal number that it is written as,
    since a decimal number of a record is a float in the state.

    Raises:
        ValueError: it is not a number, or infinite.
    """
    is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    if not is_finite:
        raise ValueError(value)
    return Decimal(repr(value)) if isinstance(value, float) else value


def parse_moment(text: str) -> datetime | None:
    """Return the moment of a text in a form of ISO 8601, with up to six digits of a second."""
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        return None
    day, clock, seconds, fraction, zone = match.groups()
    text = f"{day}T{clock or '00:00'}{seconds or ':00'}{fraction or ''}{zone or ''}"
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
