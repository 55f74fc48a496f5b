"""Settings for the partitions and windows of a stream."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from elt_assets.connection.automation import Duration, TimeZone
from elt_assets.connection.config_model import ConfigModel, DottedPath, FieldName, OtherForm
from elt_assets.connection.windows import DATE_FORMAT, INSTANT_FORMAT, format_instant

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
