"""Date-times and durations as the functions of templates read and write them.

Spec: the interpolation macros of the Airbyte CDK.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from importlib import import_module
from typing import Any, TypeVar

UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Day = TypeVar("Day", date, datetime)

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:(Z)|([+-])(\d\d):(\d\d))?)?",
    re.ASCII,
)
_DURATION = re.compile(
    r"(?P<sign>[+-])?P(?!\b)"
    r"(?:(?P<years>\d+(?:[,.]\d+)?)Y)?(?:(?P<months>\d+(?:[,.]\d+)?)M)?"
    r"(?:(?P<weeks>\d+(?:[,.]\d+)?)W)?(?:(?P<days>\d+(?:[,.]\d+)?)D)?"
    r"(?:T(?:(?P<hours>\d+(?:[,.]\d+)?)H)?(?:(?P<minutes>\d+(?:[,.]\d+)?)M)?"
    r"(?:(?P<seconds>\d+(?:[,.]\d+)?)S)?)?",
    re.ASCII,
)
_LENGTHS = ("weeks", "days", "hours", "minutes", "seconds")


def parse_iso(text: str) -> datetime:
    """Return an ISO 8601 date or date-time in UTC; a text without a zone is in UTC.

    Raises:
        ValueError: the text is not ISO 8601.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        return _parse_other_iso(text)
    year, month, day, hour, minute, second, fraction, _, sign, hours, minutes = match.groups()
    micro = int((fraction or "0").ljust(6, "0"))
    parsed = datetime(  # the other fields are None together
        *(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0)),
        micro,
        tzinfo=UTC,
    )
    if sign is None:
        return parsed
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return parsed - offset if sign == "+" else parsed + offset


def _parse_other_iso(text: str) -> datetime:
    parser = import_module("dateutil.parser")  # few manifests need the other forms
    parsed: datetime = parser.isoparse(text)
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def parse_datetime(value: str | float, format: str) -> datetime:  # noqa: A002 - the word of manifests
    """Return a date-time that has a format of the CDK; one without a zone is in UTC.

    Args:
        value: the text or the number.
        format: a format of `strptime`, or `%s`, `%s_as_float`, `%ms`, `%epoch_microseconds`; `%_ms` is a
            fraction of a second.

    Raises:
        ValueError: the value does not have the format.
    """
    if format == "%s":
        return EPOCH + timedelta(seconds=int(value))
    if format == "%s_as_float":
        return datetime.fromtimestamp(float(value), tz=UTC)
    if format == "%ms":
        return EPOCH + timedelta(milliseconds=int(value))
    if format == "%epoch_microseconds":
        return EPOCH + timedelta(microseconds=int(value))
    parsed = datetime.strptime(str(value), format.replace("%_ms", "%f"))  # noqa: DTZ007 - next line
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def format_datetime(moment: datetime, format: str) -> str:  # noqa: A002 - the word of manifests
    """Return a date-time in a format of `parse_datetime`. Epoch formats do not depend on the local zone."""
    since_epoch = moment - EPOCH
    seconds = str(since_epoch // timedelta(seconds=1))
    if format == "%s":
        return seconds
    if format == "%s_as_float":
        return str(moment.timestamp())
    if format == "%ms":
        return str(since_epoch // timedelta(milliseconds=1))
    if format == "%epoch_microseconds":
        return str(since_epoch // timedelta(microseconds=1))
    if "%_ms" in format:
        format = format.replace("%_ms", f"{moment.microsecond // 1000:03}")  # noqa: A001
    if "%s" in format:
        format = re.sub(r"(?<!%)((?:%%)*)%s", rf"\g<1>{seconds}", format)  # noqa: A001
    return moment.strftime(format)


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
    rest = timedelta(**{name: float((match[name] or "0").replace(",", ".")) for name in _LENGTHS})
    sign = -1 if match["sign"] == "-" else 1
    return Duration(int(months) * sign, rest * sign) if months else rest * sign


def _add_months(start: Day, months: int) -> Day:
    """Return the same day of another month, or that month's last day."""
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    day = min(start.day, calendar.monthrange(year, month + 1)[1])
    return start.replace(year=year, month=month + 1, day=day)
