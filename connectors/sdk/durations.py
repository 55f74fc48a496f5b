"""Lengths of time as ISO 8601 writes them."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

Day = TypeVar("Day", date, datetime)

_DURATION = re.compile(
    r"(?P<sign>[+-])?P(?!\b)"
    r"(?:(?P<years>\d+(?:[,.]\d+)?)Y)?(?:(?P<months>\d+(?:[,.]\d+)?)M)?"
    r"(?:(?P<weeks>\d+(?:[,.]\d+)?)W)?(?:(?P<days>\d+(?:[,.]\d+)?)D)?"
    r"(?:T(?:(?P<hours>\d+(?:[,.]\d+)?)H)?(?:(?P<minutes>\d+(?:[,.]\d+)?)M)?"
    r"(?:(?P<seconds>\d+(?:[,.]\d+)?)S)?)?",
    re.ASCII,
)
_LENGTHS = ("weeks", "days", "hours", "minutes", "seconds")


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
