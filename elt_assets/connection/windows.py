"""A window of time, and its start and end as values of a source's config.

A window is two instants: the start is part of it, the end is not. The end of a window is the start of the
next one, so windows leave no gap and do not overlap. All arithmetic is done in UTC, because the difference of
two local times is wrong where the clock changes between them. Only the results are written in a zone.

A format without an offset writes local times. Where the clock is set back, two instants have the same local
time. A window whose start and end would be the same text (the first of two repeated hours) is then written
with all local times that it has: the source returns both hours, and nothing is lost.
"""

from __future__ import annotations

import datetime as dt
import re

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_SECOND = dt.timedelta(seconds=1)
_SMALLEST = dt.timedelta(microseconds=1)
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)\Z", re.ASCII)
"""An offset that is written out at the end of a format."""
_SECONDS = re.compile(r"(?<!%)((?:%%)*)%s")
_UNITS = (_SECOND, dt.timedelta(minutes=1), dt.timedelta(hours=1), dt.timedelta(days=1))

INSTANT_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
DATE_FORMAT = "%Y-%m-%d"

Value = str | int


def format_window(
    start: dt.datetime, end: dt.datetime, style: str, *, inclusive: bool
) -> tuple[Value, Value]:
    """Return the values for the start and the end of a window.

    Args:
        start: start, with a zone.
        end: end (exclusive), with a zone.
        style: format, as `Bind.format`. A format without an offset is written in the zones of the arguments.
        inclusive: whether the source takes the end as part of the window. It then gets the last value of the
            format before the end.
    """
    last = _shift(end, -_SMALLEST) if inclusive else end
    if not _is_local(style):
        return format_instant(start, style), format_instant(last, style)
    local_start, local_last = _local(start), _local(last)
    is_empty = local_last < local_start or (local_last == local_start and not inclusive)
    if is_empty and _length(start, end):
        local_start, local_last = _local_range(start, end)
        local_last -= _SMALLEST if inclusive else dt.timedelta(0)
    return format_instant(local_start, style), format_instant(local_last, style)


def format_instant(instant: dt.datetime, style: str) -> Value:
    """Return an instant in a format of `strftime`; `%s` and `%ms` are seconds and milliseconds since 1970.

    The zone is that of the format if it ends with `Z` or with an offset, otherwise that of the instant.
    """
    if style == "%ms":
        return (instant - _EPOCH) // dt.timedelta(milliseconds=1)
    if style == "%s":
        return (instant - _EPOCH) // _SECOND
    if (zone := _find_zone(style)) is not None:
        instant = instant.astimezone(zone)
    if _SECONDS.search(style):
        style = _SECONDS.sub(rf"\g<1>{(instant - _EPOCH) // _SECOND}", style)
    return instant.strftime(style)


def align_end(end: dt.datetime, style: str) -> dt.datetime:
    """Return the first time at or after an exclusive end that a format writes exactly.

    A format that cuts off a part of the end, as a date cuts off the hours, would shorten the window.
    """
    text = format_instant(end, style)
    if format_instant(_shift(end, -_SMALLEST), style) != text:
        return end
    midnight = end.replace(hour=0, minute=0, second=0, microsecond=0)
    longer = (midnight + ((end - midnight) // unit + 1) * unit for unit in _UNITS)
    return next((later for later in longer if format_instant(later, style) != text), end)


def _is_local(style: str) -> bool:
    """Return whether a format writes local times without an offset."""
    is_absolute = style == "%ms" or "%z" in style or _SECONDS.search(style) is not None
    return not is_absolute and _find_zone(style) is None


def _find_zone(style: str) -> dt.timezone | None:
    """Return the zone at the end of a format, `Z` or an offset; None if there is none."""
    if style.endswith("Z"):
        return dt.timezone.utc
    is_timed = any(mark in style for mark in ("%H", "%I", "%T", "%X", "%R"))
    offset = _OFFSET.search(style) if is_timed else None
    if offset is None:
        return None
    ahead = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
    return dt.timezone(-ahead if offset[1] == "-" else ahead)


def _shift(instant: dt.datetime, by: dt.timedelta) -> dt.datetime:
    """Return the time that is so much later, in the same zone."""
    return (instant.astimezone(dt.timezone.utc) + by).astimezone(instant.tzinfo)


def _local(instant: dt.datetime) -> dt.datetime:
    """Return the local time, without its zone."""
    return instant.replace(tzinfo=None, fold=0)


def _length(start: dt.datetime, end: dt.datetime) -> dt.timedelta:
    """Return the time between two instants, whatever the clock shows."""
    return end.astimezone(dt.timezone.utc) - start.astimezone(dt.timezone.utc)


def _local_range(start: dt.datetime, end: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    """Return the first local time of a window in which the clock is set back, and the end of its last one."""
    before, after = start, end
    while (length := _length(before, after)) > _SMALLEST:
        middle = _shift(before, length / 2)
        if middle.utcoffset() == start.utcoffset():
            before = middle
        else:
            after = middle
    return min(_local(start), _local(after)), max(_local(end), _local(before) + _SMALLEST)
