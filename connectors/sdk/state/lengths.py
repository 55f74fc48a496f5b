"""Lengths between values of a replication key: how far a read looks back, and how long an interval is.

A value that is a length before or after another one is written as that one is, in its zone and with its
decimals. So an API gets it in the form of its own values.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from connectors.sdk.durations import Duration, parse_duration
from connectors.sdk.state.replication_key import is_number, match_instant, moment
from elt_assets.errors import SystemFailure

Length = timedelta | Duration | int | Decimal
"""A length of time, or a number for a key whose values are numbers."""

_REFERENCE = datetime(2001, 1, 1)  # noqa: DTZ001 - only compared with others
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_DAY = timedelta(days=1)
_PICOSECONDS = 10**12
_MICROSECONDS = 10**6


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
    try:
        return bool(_REFERENCE + length > _REFERENCE)
    except (OverflowError, ValueError):
        return True


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
    date = f"{result.year:04}-{result.month:02}-{result.day:02}"
    zone = text[max(match.end(group) for group in range(3, 8)) :]
    if hour is None and not (result.hour or result.minute or result.second or fraction_digits):
        return date + zone
    separator = "T" if hour is None else text[match.end(3) : match.start(4)]
    time = f"{result.hour:02}:{result.minute:02}"
    if hour is None or second is not None or result.second or fraction_digits:
        time += f":{result.second:02}"
    if fraction_digits:
        time += ("," if fraction and text[match.start(7) - 1] == "," else ".") + fraction_digits
    return date + separator + time + (zone or ("" if hour else "Z"))


def _mismatch(value: Any, length: Length) -> SystemFailure:
    kind = "number" if isinstance(length, int | Decimal) else "duration"
    return SystemFailure(
        f"the replication key has the value {value!r}, to which the {kind} {length} cannot be added",
        guidance="write a duration for a key whose values are times, and a number for one of numbers",
    )
