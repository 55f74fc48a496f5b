"""Dates, times and instants in text: their forms, and what a column keeps of them.

What a column does not keep of a text is recorded as rounded.

A clean form is one that pyarrow casts exactly; a pattern says which texts have it, so that a column of them
is cast at once. Any other form is read alone.

Spec: ISO 8601 (extended and basic), RFC 3339; zones by the names of the time zone database.
"""

from __future__ import annotations

import re
from datetime import date as day
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.spark.types.changes import MISFIT, ROUNDED, BecomesNull, Report

_CLEAN_DAY = r"[1-9]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_CLEAN_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_CLEAN_OFFSET = r"[+-](?:0\d|1[0-7]):[0-5]\d"
_CLEAN_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?"
CLEAN = {
    "DATE": rf"^{_CLEAN_DAY}(?:[T ]00:00:00(?:\.0+)?(?:Z|{_CLEAN_OFFSET})?)?$",
    "TIMESTAMP": rf"^{_CLEAN_DAY}[T ]{_CLEAN_CLOCK}(?:Z|{_CLEAN_OFFSET})?$",
    "TIMESTAMP_NTZ": rf"^{_CLEAN_DAY}[T ]{_CLEAN_CLOCK}$",
    "TIME": rf"^{_CLEAN_TIME}(?:Z|{_CLEAN_OFFSET})?$",
    "TIME_WITH_TIMEZONE": rf"^{_CLEAN_TIME}(?:Z|{_CLEAN_OFFSET})$",
    "TIME_WITHOUT_TIMEZONE": rf"^{_CLEAN_TIME}$",
}
"""Patterns of the clean forms (of RE2, where `$` is the end of the text)."""
_WITH_ZONE = rf"(?:Z|{_CLEAN_OFFSET})$"

_INSTANT = re.compile(
    r"(\d{4})(?:-(\d\d)-(\d\d)|(\d\d)(\d\d)(?=[Tt]))"
    r"(?:[Tt ](\d\d?)(?::(\d\d?)(?::(\d\d?))?|(\d\d)(\d\d)?)?(?:(?<=\d)[.,](\d*))?)?"
    r"\s*(?:([^\s\[]+)(?:\[[\w/+-]+\])?)?\s*",
    re.ASCII,
).fullmatch
"""A day, a time, and a zone. Its name in brackets after it (RFC 9557) adds nothing to an instant."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?(\d\d)(?::?(\d\d))?)?", re.ASCII).fullmatch
_ZONES = {"Z": 0, "z": 0, "UTC": 0, "GMT": 0, "UT": 0, "EDT": -4, "EST": -5, "CDT": -5, "CST": -6}
_ZONES |= {"MDT": -6, "MST": -7, "PDT": -7, "PST": -8}
"""Hours ahead of UTC of the zones that RFC 5322 names. Other abbreviations have several meanings."""
_REGION = re.compile(r"[A-Z][A-Za-z_]+(?:/[A-Za-z0-9_+-]+)+", re.ASCII).fullmatch
_HOUR = r"(?:[01]?\d|2[0-3])"
_CLOCK = (
    rf"(?:{_HOUR}:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?"
    rf"|{_HOUR}:59:60(?:[.,]\d+)?|24:00(?::00(?:[.,]0+)?)?)"
)
_ZONE = r"(?:[Zz]|[+-](?:0\d|1[0-8])(?::?[0-5]\d)?)"
_TIME = re.compile(rf"({_CLOCK})({_ZONE})?", re.ASCII).fullmatch
_DAY = 86_400_000_000
_EPOCH = day(1970, 1, 1).toordinal()
_YEARS = range((day.min.toordinal() - _EPOCH) * _DAY, (day.max.toordinal() - _EPOCH + 1) * _DAY)
"""The microseconds since 1970 of the years 1 to 9999. Other years are out of range for the types of Spark and
the dates of Python: a reader of the table would fail."""
_MAX_OFFSET = 18 * 3600


def read_date(text: str, report: Report) -> int:
    """Return the days since 1970 of a date, also of one with a time after it. A midnight carries no
    information: many sources append it. Any other time is left out, and so is a zone.

    The day is in the extended form, so that dates and their texts have the same order.
    """
    days, clock, zone, is_cut = _split_instant(text)
    _offset(zone, days * _DAY)
    if text[4] != "-":
        raise BecomesNull(*MISFIT)
    if clock or is_cut:
        report(*ROUNDED)
    return days


def read_instant(text: str, report: Report) -> int:
    """Return the microseconds since 1970 of a time; without a zone, it is in UTC."""
    days, clock, zone, is_cut = _split_instant(text)
    local = days * _DAY + clock
    micros = _require_years(local - _offset(zone, local) * 1_000_000)
    if is_cut:
        report(*ROUNDED)
    return micros


def read_local_time(text: str, report: Report) -> int:
    """Return the microseconds from 1970 to a time, both on the same clock; a zone is left out."""
    days, clock, zone, is_cut = _split_instant(text)
    micros = _require_years(days * _DAY + clock)
    _offset(zone, micros)
    if zone or is_cut:
        report(*ROUNDED)
    return micros


def read_time_of_day(text: str, _: Report) -> str:
    return "".join(_split_time(text))


def read_time_with_zone(text: str, _: Report) -> str:
    clock, zone = _split_time(text)
    if not zone:
        raise BecomesNull(*MISFIT)
    return clock + zone


def read_time_without_zone(text: str, report: Report) -> str:
    clock, zone = _split_time(text)
    if zone:
        report(*ROUNDED)
    return clock


def cast_times(kind: str, texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return a column from texts of the clean form.

    Raises:
        pa.ArrowInvalid: a text has a day that its month does not have, or an instant is out of range.
    """
    if kind.startswith("TIME") and pa.types.is_string(type_):
        return texts
    if kind == "DATE":
        texts = pc.utf8_slice_codeunits(texts, 0, 10)
    elif kind == "TIMESTAMP":
        zoned = pc.match_substring_regex(texts, _WITH_ZONE)
        if not pc.all(zoned, min_count=0).as_py():
            texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", ""))
    times = texts.cast(type_)
    if kind == "TIMESTAMP" and (pc.max(times.cast(pa.int64())).as_py() or 0) not in _YEARS:
        raise pa.ArrowInvalid("a time at the end of the year 9999 is later in UTC")
    return times


def _split_time(text: str) -> tuple[str, str]:
    """Return a time, with two digits of its hour, and its zone."""
    match = _TIME(text)
    if not match:
        raise BecomesNull(*MISFIT)
    clock, zone = match.groups("")
    return clock if clock[2] == ":" else f"0{clock}", zone


def _split_instant(text: str) -> tuple[int, int, str, bool]:
    """Return the day of a time in days since 1970, the microseconds of its clock since the day's beginning,
    the text of its zone, and whether these are not the whole time."""
    match = _INSTANT(text)
    if not match:
        raise BecomesNull(*MISFIT)
    year, month, day_, basic_month, basic_day = match.group(1, 2, 3, 4, 5)
    hour, minute, second, basic_minute, basic_second, fraction, zone = match.groups()[5:]
    if hour is None and zone:
        raise BecomesNull(*MISFIT)
    try:
        date_ = day(int(year), int(month or basic_month), int(day_ or basic_day))
    except ValueError:
        raise BecomesNull(*MISFIT) from None
    h, m = int(hour or 0), int(minute or basic_minute or 0)
    s = int(second or basic_second or 0)
    is_leap_second = m == 59 and s == 60
    is_end_of_day = h == 24 and not (m or s or int(fraction or 0))
    if m > 59 or (s > 59 and not is_leap_second) or (h > 23 and not is_end_of_day):
        raise BecomesNull(*MISFIT)
    if fraction and second is None and basic_second is None:
        raise BecomesNull(*MISFIT)
    fraction = fraction or ""
    clock = (h * 3600 + m * 60 + s) * 1_000_000 + int(fraction[:6].ljust(6, "0"))
    is_cut = is_leap_second or fraction[6:].strip("0") != ""
    return date_.toordinal() - _EPOCH, clock, zone or "", is_cut


def _require_years(micros: int) -> int:
    if micros not in _YEARS:
        raise BecomesNull(*MISFIT)
    return micros


def _offset(zone: str, local: int) -> int:
    """Return the seconds by which a zone is ahead of UTC at a time on its clock.

    A time that its clock skips, in spring, counts from before the change; of a repeated hour, the first one
    is meant.
    """
    if not zone or zone in _ZONES:
        return _ZONES.get(zone, 0) * 3600
    match = _OFFSET(zone)
    if match:
        hours, minutes, seconds = int(match[2]), int(match[3] or 0), int(match[4] or 0)
        offset = hours * 3600 + minutes * 60 + seconds
        if max(minutes, seconds) > 59 or offset > _MAX_OFFSET:
            raise BecomesNull(*MISFIT)
        return -offset if match[1] == "-" else offset
    if not _REGION(zone):
        raise BecomesNull(*MISFIT)
    try:
        region = ZoneInfo(zone)
        clock = datetime.fromtimestamp(local // 1_000_000, timezone.utc).replace(tzinfo=region)
    except (KeyError, ValueError, OSError, OverflowError):
        raise BecomesNull(*MISFIT) from None
    ahead = clock.utcoffset()
    assert ahead is not None
    return int(ahead.total_seconds())
