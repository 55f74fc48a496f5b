"""Formats of date-times, as manifests write them, and the values of cursor fields that have them.

Spec: Incremental sync, "Datetime format".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from connectors.declarative.manifest import dates
from connectors.sdk.times import instant

_EPOCH_FORMATS = frozenset({"%s", "%s_as_float", "%ms", "%epoch_microseconds"})
"""The formats that count from 1970."""

_DIRECTIVES = {
    "%Y": r"(\d{4})",
    "%m": r"(\d\d)",
    "%d": r"(\d\d)",
    "%H": r"(\d\d)",
    "%M": r"(\d\d)",
    "%S": r"(\d\d)",
    "%f": r"(\d{1,6})",
    "%_ms": r"(\d{1,6})",
    "%z": r"(Z|[+-]\d\d:?\d\d)",
}
"""Patterns of the directives that are parsed here, in their usual form; `strptime` parses all others."""
_DEFAULTS = {"%Y": 1900, "%m": 1, "%d": 1, "%H": 0, "%M": 0, "%S": 0}
_ORDER = ("%Y", "%m", "%d", "%H", "%M", "%S", "%f")
"""Directives from the largest unit to the smallest."""
_TOKEN = re.compile(r"%_ms|%.|[^%]+", re.DOTALL)
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)\D*$", re.ASCII)
_FIXED_ZONE = re.compile(r" ?([+-](?:[01]\d|2[0-3]):?[0-5]\d)", re.ASCII)
"""A zone that is written out at the end of a format, after a time."""
_TIMES = ("%H", "%M", "%S", "%f", "%_ms")
_DAY_START = datetime(2001, 1, 1, tzinfo=timezone.utc)
_DAY_END = _DAY_START.replace(hour=23, minute=59, second=59, microsecond=999_999)
_YEAR_OF_FOUR_DIGITS = 1000
"""First year that `strftime` writes with four digits on every platform."""
_PICOSECONDS = 1_000_000
"""Picoseconds in a microsecond."""


class DatetimeFormat:
    """One format of date-times: `%s`, `%s_as_float`, `%ms`, `%epoch_microseconds`, or a text with the
    directives of `strftime` and `%_ms`, milliseconds. A text without `%z` is in UTC, unless a zone is written
    out after the time, as in `%Y-%m-%dT%H:%M:%S-08:00`.

    Args:
        text: the format.
        zone: the zone of texts without `%z`; None for the one that is written out.

    Attributes:
        text: the format.
        is_epoch: whether it counts from 1970.
        is_sortable: whether texts of the same length, and with the same zone, sort as the date-times do.
    """

    def __init__(self, text: str, zone: timezone | None = None):
        self.text = text
        self.is_epoch = text in _EPOCH_FORMATS
        self._tokens = [] if self.is_epoch else _TOKEN.findall(text)
        self._has_zone = "%z" in self._tokens
        self._zone = zone or _find_fixed_zone(self._tokens)
        self._shape = None if self.is_epoch else _shape(self._tokens, self._zone)
        self.is_sortable = self.is_epoch or (self._shape is not None and _is_sorted(self._tokens))

    def __repr__(self) -> str:
        return f"DatetimeFormat({self.text!r})"

    def make_state_format(self) -> DatetimeFormat:
        """Return the format of states.

        The Airbyte CDK takes a zone that is written out for text, and the time before it for UTC. A state has
        the earlier one of both meanings, so that nothing is left out after a state of the CDK.
        """
        is_behind = self._zone.utcoffset(None) < timedelta(0)
        return DatetimeFormat(self.text, timezone.utc) if is_behind else self

    @property
    def has_time(self) -> bool:
        """True if the format writes a time of the day."""
        return self.format(_DAY_END) != self.format(_DAY_START)

    def parse(self, value: Any) -> datetime:
        """Return a value as a date-time; one without a zone has the zone of the format.

        Raises:
            ValueError: the value has another format.
        """
        match = self._shape.pattern.fullmatch(str(value)) if self._shape else None
        if self._shape is not None and match is not None:
            return self._shape.moment(match)
        try:
            parsed = dates.parse_datetime(value, self.text)
            return parsed if self._zone is timezone.utc else parsed.replace(tzinfo=self._zone)
        except (OverflowError, TypeError, OSError, re.error):
            raise ValueError(f"{value!r} does not have the format {self.text!r}") from None

    def moment(self, value: Any) -> datetime | None:
        """Return a value as a date-time; None if it has another format."""
        try:
            return self.parse(value)
        except ValueError:
            return None

    def format(self, moment: datetime) -> str:
        """Return a date-time as text, in the zone of the format; in the date-time's own where the format has
        `%z`. What is smaller than the smallest unit of the format is cut off."""
        if self.is_epoch or self._has_zone:
            return self._format_text(moment)
        return self._format_text(moment.astimezone(self._zone))

    def zone_of(self, text: str) -> str:
        """Return the zone at the end of a text of this format; an empty one if it has none."""
        match = _ZONE.search(text) if self._has_zone else None
        return match[0] if match else ""

    def _format_text(self, moment: datetime) -> str:
        if self.text == "%s":
            return str((moment - dates.EPOCH) // timedelta(seconds=1))
        if moment.year >= _YEAR_OF_FOUR_DIGITS:
            return dates.format_datetime(moment, self.text)
        padded = (f"{moment.year:04d}" if part == "%Y" else part for part in self._tokens)
        return dates.format_datetime(moment, "".join(padded) or self.text)


@dataclass(frozen=True)
class _Shape:
    """Pattern of the texts of a format, and the places of its directives among the groups."""

    pattern: re.Pattern[str]
    groups: tuple[tuple[int | None, int], ...]
    """Group of each directive from the year to the second, and its default."""
    fraction: int | None
    zone: int | None
    fixed_zone: timezone

    def moment(self, match: re.Match[str]) -> datetime:
        """Return the date-time of a text that has this shape.

        Raises:
            ValueError: there is no such day or time.
        """
        texts = match.groups()
        year, month, day, hour, minute, second = (
            default if group is None else int(texts[group]) for group, default in self.groups
        )
        fraction = 0 if self.fraction is None else int(texts[self.fraction].ljust(6, "0"))
        zone = self.fixed_zone if self.zone is None else _zone(texts[self.zone])
        return datetime(year, month, day, hour, minute, second, fraction, zone)


def _names(tokens: Sequence[str]) -> list[str]:
    """Return the directives among the tokens of a format."""
    return [part for part in tokens if part.startswith("%") and part != "%%"]


def _is_sorted(tokens: Sequence[str]) -> bool:
    """Return whether a format has its units from the largest to a smaller one, and then at most a zone."""
    names = ["%f" if name == "%_ms" else name for name in _names(tokens)]
    if names[-1:] == ["%z"]:
        names.pop()
    return bool(names) and tuple(names) == _ORDER[: len(names)]


def _find_fixed_zone(tokens: Sequence[str]) -> timezone:
    """Return the zone that is written out at the end of a format, after a time; UTC if there is none."""
    is_after_time = len(tokens) > 1 and tokens[-2] in _TIMES and "%z" not in tokens
    match = _FIXED_ZONE.fullmatch(tokens[-1]) if is_after_time else None
    return timezone.utc if match is None else _zone(match[1])


def _shape(tokens: Sequence[str], zone: timezone) -> _Shape | None:
    """Return the shape of a format; None if it needs `strptime`.

    Args:
        tokens: the format.
        zone: the zone of texts without one.
    """
    names = _names(tokens)
    is_known = all(name in _DIRECTIVES for name in names)
    if not is_known or len(set(names)) != len(names) or {"%f", "%_ms"} <= set(names):
        return None
    pattern = "".join(
        _DIRECTIVES.get(part) or re.escape("%" if part == "%%" else part) for part in tokens
    )
    place = {name: number for number, name in enumerate(names)}
    return _Shape(
        re.compile(pattern, re.ASCII),
        tuple((place.get(name), default) for name, default in _DEFAULTS.items()),
        place.get("%f", place.get("%_ms")),
        place.get("%z"),
        zone,
    )


def _zone(text: str) -> timezone:
    if text in ("Z", "+00:00", "+0000"):
        return timezone.utc
    hours, minutes = int(text[1:3]), int(text[-2:])
    if minutes > 59:
        raise ValueError(f"{text!r} is not a zone")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


@dataclass(frozen=True)
class Extremes:
    """The earliest and the latest of some values, and how many of them are not date-times."""

    earliest: datetime | None
    latest: datetime | None
    missing: int


class DatetimeFormats:
    """The formats that the values of a cursor field may have. The first one that fits a value is its format.

    A text in none of these formats is parsed as ISO 8601, if one of the formats is a form of ISO 8601.

    Args:
        formats: the formats; one that is repeated counts once.
    """

    def __init__(self, formats: Iterable[str | DatetimeFormat]):
        self._formats = [
            DatetimeFormat(text) if isinstance(text, str) else text
            for text in dict.fromkeys(formats)
        ]
        self._takes_iso = any(
            datetime_format.text.startswith("%Y-%m-%d") for datetime_format in self._formats
        )

    def __str__(self) -> str:
        return " or ".join(repr(datetime_format.text) for datetime_format in self._formats)

    def parse(self, value: Any) -> datetime:
        """Return a value as a date-time.

        Raises:
            ValueError: the value has none of the formats.
        """
        return self._parse(value)[1]

    def moment(self, value: Any) -> datetime | None:
        """Return a value as a date-time; None if it has none of the formats."""
        try:
            return self._parse(value)[1]
        except ValueError:
            return None

    def extremes(self, values: Sequence[Any]) -> Extremes:
        """Return the earliest and the latest of some values. Only two values are parsed where they sort as
        their date-times do."""
        present_values = [value for value in values if value is not None]
        missing = len(values) - len(present_values)
        if not present_values:
            return Extremes(None, None, missing)
        ends = self._find_sorted_ends(present_values)
        if ends is not None:
            return Extremes(*ends, missing)
        moments = [moment for moment in map(self.moment, present_values) if moment is not None]
        missing += len(present_values) - len(moments)
        return Extremes(min(moments, default=None), max(moments, default=None), missing)

    def _parse(self, value: Any) -> tuple[DatetimeFormat | None, datetime]:
        is_scalar = isinstance(value, str | int | float | Decimal)
        is_scalar = is_scalar and not isinstance(value, bool)
        for datetime_format in self._formats if is_scalar else ():
            moment = datetime_format.moment(value)
            if moment is not None:
                return datetime_format, moment
        if self._takes_iso and isinstance(value, str):
            return None, _iso(value)
        raise ValueError(f"{value!r} does not have the format {self}")

    def _find_sorted_ends(self, values: list[Any]) -> tuple[datetime, datetime] | None:
        """Return the earliest and the latest of values that sort as their date-times do; None if they may
        not."""
        kinds = set(map(type, values))
        if kinds == {str}:
            if len(set(map(len, values))) > 1:
                return None
        elif kinds != {int}:
            return None
        ends = min(values), max(values)
        try:
            (low_format, low), (high_format, high) = map(self._parse, ends)
        except ValueError:
            return None
        if low_format is None or low_format is not high_format or not low_format.is_sortable:
            return None
        return (low, high) if _are_sorted(values, ends, low_format) else None


def _are_sorted(values: list[Any], ends: tuple[Any, Any], of: DatetimeFormat) -> bool:
    """Return whether values of one type and a sortable format sort as their date-times do."""
    low, high = ends
    if isinstance(low, int):
        return of.is_epoch or len(str(low)) == len(str(high))
    if of.is_epoch:
        return bool(low.isdigit() and high.isdigit())
    zone = of.zone_of(high)
    return not zone or all(value.endswith(zone) for value in values)


def _iso(text: str) -> datetime:
    """Parse an ISO 8601 date or date-time; digits after the microseconds are cut off.

    Raises:
        ValueError: it is neither.
    """
    try:
        return dates.EPOCH + timedelta(microseconds=instant(text) // _PICOSECONDS)
    except OverflowError:
        raise ValueError(f"{text!r} is not a date-time") from None
