"""Settings for the partitions and windows of a stream, and the values of a window in a source's config.

`orchestration` makes Dagster's partitions and sensors of the settings, and uses the arithmetic of windows;
`pipeline.stream` asks which partitions are windows.

First `format_window`, the arithmetic of windows; then the models of `partitions` and `window` in `defs.yaml`.

A window is two instants: the start is part of it, the end is not. The end of a window is the start of the
next one, so windows leave no gap and do not overlap. All arithmetic is done in UTC, because the difference of
two local times is wrong where the clock changes between them. Only the results are written in a zone.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from elt_assets.connection.automation import Duration, TimeZone
from elt_assets.connection.config_model import ConfigModel, DottedPath, FieldName, OtherForm

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

    A format without an offset writes local times. Where the clock is set back, two instants have the same
    local time. A window whose start and end would be the same text (the first of two repeated hours) is then
    written with all local times that it has: the source returns both hours, and nothing is lost.

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


TIMED = ("hourly", "daily", "weekly", "monthly")
_LENGTHS = {"hourly": dt.timedelta(hours=1), "daily": dt.timedelta(days=1)}
KINDS = (*TIMED, "static", "dynamic", "source", "multi")


def _instant(value: Any) -> Any:
    """Parse an ISO 8601 date or date-time. Return any other type unchanged."""
    if isinstance(value, str):
        try:
            return moment(value)
        except ValueError:
            raise ValueError('write a date, as "2026-01-01", or a date and time') from None
    return value


def moment(text: str) -> dt.datetime:
    """Parse an ISO 8601 date or date-time. It may end in `Z`, which Python before 3.11 does not parse.

    Raises:
        ValueError: the text is neither.
    """
    return dt.datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))


Instant = Annotated[dt.datetime, BeforeValidator(_instant)]


class Bind(ConfigModel):
    """The fields of the source's config that a window sets, and the format of their values."""

    start: DottedPath | None = None
    """Path of the config field that gets the start of the window."""
    end: DottedPath | None = None
    """Path of the config field that gets the end of the window."""
    format: str | None = None
    """Format of the values, as for `strftime`; `%s` and `%ms` are seconds and milliseconds since 1970.
    Default: a date; for hourly windows a date and time."""
    inclusive: bool = False
    """The end is the last value of the format within the window; otherwise the first time after it."""

    @model_validator(mode="after")
    def _check_fields(self) -> Bind:
        if self.start is None and self.end is None:
            raise ValueError("name the config fields: `bind: {start: start_date, end: end_date}`")
        return self


class Window(ConfigModel):
    """The binding of the run config `window`, which reads a past period of an unpartitioned stream again."""

    bind: Bind
    """Config fields that the window sets."""


class TimePartitions(ConfigModel):
    """One partition per hour, day, week or month. `bind` writes its window into the source's config."""

    type: Literal["hourly", "daily", "weekly", "monthly"]
    """Length of a window."""
    start: Instant
    """Start of the first window: a date, or a date and time."""
    end: Instant | None = None
    """End of the last window; default: there is always a next one."""
    timezone: TimeZone = "UTC"
    """Time zone of the windows."""
    bind: Bind
    """Config fields that a window sets."""
    partitions_per_run: int | None = Field(default=None, gt=0)
    """Number of partitions in each run that a schedule, a sensor or a backfill requests."""

    @model_validator(mode="after")
    def _check_end_and_format(self) -> TimePartitions:
        if self.end is not None and self._aware(self.end) <= self._aware(self.start):
            raise ValueError(
                f"`end` ({self.end.isoformat()}) must be after `start` ({self.start.isoformat()}): it is the "
                "end of the last partition"
            )
        first = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
        second = first + _LENGTHS.get(self.type, dt.timedelta(days=31))
        value = format_instant(first, self.format)
        if value == format_instant(second, self.format):
            raise ValueError(
                f"`bind.format` {self.format!r} writes the same value, {value!r}, for the start and the end "
                f"of a window of `type: {self.type}`; write a format with a smaller unit"
            )
        return self

    @property
    def format(self) -> str:
        """Format of the start and the end of a window."""
        return self.bind.format or (INSTANT_FORMAT if self.type == "hourly" else DATE_FORMAT)

    def _aware(self, value: dt.datetime) -> dt.datetime:
        """Return a time with a time zone: by default that of the partitions."""
        return value if value.tzinfo is not None else value.replace(tzinfo=ZoneInfo(self.timezone))


class KeyBind(ConfigModel):
    """The field of the source's config that a partition key sets, and the type of its value."""

    field: DottedPath
    """Path of the config field that gets the key."""
    type: Literal["string", "integer", "number", "boolean"] = "string"
    """Type of the value."""


BoundKey = Annotated[
    KeyBind,  # a path alone is that of a string field
    BeforeValidator(lambda value: {"field": value} if isinstance(value, str | list) else value),
    OtherForm(type="string"),
    OtherForm(type="array"),
]


class StaticPartitions(ConfigModel):
    """One partition for each listed value of a config field."""

    type: Literal["static"]
    """Listed keys."""
    keys: Annotated[list[FieldName], Field(min_length=1)]
    """Keys of the partitions."""
    bind: BoundKey
    """Config field that a key sets, or its path alone."""
    partitions_per_run: int | None = Field(default=None, gt=0)
    """Number of partitions in each run that a schedule, a sensor or a backfill requests."""

    @field_validator("keys")
    @classmethod
    def _check_unique(cls, value: list[str]) -> list[str]:
        if repeated := sorted({key for key in value if value.count(key) > 1}):
            raise ValueError(
                f"{', '.join(map(repr, repeated))} is listed more than once; remove what is repeated"
            )
        return value


class Discovery(ConfigModel):
    """The origin of new partition keys: a field of another stream of the connection, read from its table."""

    stream: str
    """Name of the other stream."""
    field: DottedPath
    """Path of the field whose values are the keys."""
    materialize: bool = True
    """Whether the sensor requests runs of new partitions."""


class DynamicPartitions(ConfigModel):
    """One partition for each key. Keys can be added and removed at any time; `discover` adds them."""

    type: Literal["dynamic"]
    """Keys that are added and removed in Dagster."""
    name: str | None = None
    """Name of the partitions in Dagster; default: made from connection and stream."""
    bind: BoundKey
    """Config field that a key sets, or its path alone."""
    discover: Discovery | None = None
    """Where a sensor finds new keys: a field of another stream."""
    partitions_per_run: int | None = Field(default=None, gt=0)
    """Number of partitions in each run that a schedule, a sensor or a backfill requests."""


class SourcePartitions(ConfigModel):
    """One partition for each partition that the source itself lists; a sensor adds them."""

    type: Literal["source"]
    """Partitions that the source lists."""
    name: str | None = None
    """Name of the partitions in Dagster; default: made from connection and stream."""
    materialize: bool = True
    """Whether the sensor requests runs of new partitions."""
    every: Duration = dt.timedelta(minutes=5)
    """Time between two lists."""
    partitions_per_run: int | None = Field(default=None, gt=0)
    """Number of partitions in each run that a schedule, a sensor or a backfill requests."""


KeyPartitions = Annotated[StaticPartitions | DynamicPartitions, Field(discriminator="type")]


class MultiPartitions(ConfigModel):
    """One partition for each pair of a window and a key."""

    type: Literal["multi"]
    """Pairs of a window and a key."""
    window: TimePartitions
    """Windows of the pairs."""
    key: KeyPartitions
    """Keys of the pairs."""

    @model_validator(mode="after")
    def _check_partitions_per_run(self) -> MultiPartitions:
        if self.window.partitions_per_run:
            raise ValueError(
                "`partitions_per_run` is not supported in `window`; in `key` it applies to the runs that "
                "schedules and sensors request. A backfill makes each pair of a window and a key a run"
            )
        return self


def _kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "time" if kind in TIMED else str(kind)


Partitions = Annotated[
    Annotated[TimePartitions, Tag("time")]
    | Annotated[StaticPartitions, Tag("static")]
    | Annotated[DynamicPartitions, Tag("dynamic")]
    | Annotated[SourcePartitions, Tag("source")]
    | Annotated[MultiPartitions, Tag("multi")],
    Discriminator(
        _kind,
        custom_error_type="partitions",
        custom_error_message=f"`type` must be one of {', '.join(KINDS)}",
    ),
]


def dynamic_partitions(partitions: Partitions | None) -> DynamicPartitions | None:
    """Return the dynamic partitions, or the dynamic keys of multi-partitions; None if there are none."""
    inner = partitions.key if isinstance(partitions, MultiPartitions) else partitions
    return inner if isinstance(inner, DynamicPartitions) else None


def has_window(partitions: Partitions | None) -> bool:
    """Return whether each partition is or includes a time window."""
    return isinstance(partitions, TimePartitions | MultiPartitions)
