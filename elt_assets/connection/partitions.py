"""Partitions and windows of a stream, as people write them."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from elt_assets.connection.config_model import ConfigModel, DottedPath, FieldName

TIMED = ("hourly", "daily", "weekly", "monthly")
KINDS = (*TIMED, "static", "dynamic", "multi")


def _instant(value: Any) -> Any:
    """A date or a date and time, as ISO 8601 writes it."""
    if isinstance(value, str):
        try:
            return moment(value)
        except ValueError:
            raise ValueError('write a date, as "2026-01-01", or a date and time') from None
    return value


def moment(text: str) -> dt.datetime:
    """A date, or a date and time, of ISO 8601; Python knows `Z` since 3.11 alone.

    Raises:
        ValueError: it is neither.
    """
    return dt.datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))


Instant = Annotated[dt.datetime, BeforeValidator(_instant)]


class Bind(ConfigModel):
    """Which fields of the source's config a window sets, and how it writes them.

    `format`: as of `strftime`; `%s` and `%ms` are seconds and milliseconds since 1970. `inclusive`: the
    end is the last moment, or day, that is wanted; else the first that is not.
    """

    start: DottedPath | None = None
    end: DottedPath | None = None
    format: str | None = None
    inclusive: bool = False

    @model_validator(mode="after")
    def _binds(self) -> Bind:
        if self.start is None and self.end is None:
            raise ValueError("name the config fields: `bind: {start: start_date, end: end_date}`")
        return self


class Window(ConfigModel):
    """How a stream without partitions is read anew for a while of its past (run config `window`)."""

    bind: Bind


class TimePartitions(ConfigModel):
    """One partition for each hour, day, week or month; its window is bound to the source's config."""

    type: Literal["hourly", "daily", "weekly", "monthly"]
    start: Instant
    end: Instant | None = None
    timezone: str = "UTC"
    bind: Bind
    partitions_per_run: int | None = Field(default=None, gt=0)

    @field_validator("timezone")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in available_timezones():
            raise ValueError(f"{value!r} is no time zone; write one as 'Europe/Berlin'")
        return value

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> TimePartitions:
        if self.end is not None and self._aware(self.end) <= self._aware(self.start):
            raise ValueError("`end` is not after `start`")
        return self

    def _aware(self, value: dt.datetime) -> dt.datetime:
        return value if value.tzinfo is not None else value.replace(tzinfo=ZoneInfo(self.timezone))


class KeyBind(ConfigModel):
    """Which config field a key sets, and of which type it is there."""

    field: DottedPath
    type: Literal["string", "integer", "number", "boolean"] = "string"


def _key_bind(value: Any) -> Any:
    """A path alone is that of a text."""
    return {"field": value} if isinstance(value, str | list) else value


BoundKey = Annotated[KeyBind, BeforeValidator(_key_bind)]


class StaticPartitions(ConfigModel):
    """One partition for each of some values of a config field."""

    type: Literal["static"]
    keys: Annotated[list[FieldName], Field(min_length=1)]
    bind: BoundKey
    partitions_per_run: int | None = Field(default=None, gt=0)

    @field_validator("keys")
    @classmethod
    def _once(cls, value: list[str]) -> list[str]:
        if repeated := sorted({key for key in value if value.count(key) > 1}):
            raise ValueError(f"{', '.join(map(repr, repeated))} is there twice")
        return value


class Discovery(ConfigModel):
    """Where new keys come from: a field of another stream of the connection, as it stands in the lake."""

    stream: str
    field: DottedPath
    materialize: bool = True


class DynamicPartitions(ConfigModel):
    """As static ones, but keys come and go: from the UI, the command line, or a sensor."""

    type: Literal["dynamic"]
    name: str | None = None
    bind: BoundKey
    discover: Discovery | None = None
    partitions_per_run: int | None = Field(default=None, gt=0)


KeyPartitions = Annotated[StaticPartitions | DynamicPartitions, Field(discriminator="type")]


class MultiPartitions(ConfigModel):
    """Two dimensions: a window and a key."""

    type: Literal["multi"]
    window: TimePartitions
    key: KeyPartitions

    @model_validator(mode="after")
    def _run_alone(self) -> MultiPartitions:
        if self.window.partitions_per_run or self.key.partitions_per_run:
            raise ValueError(
                "`partitions_per_run`: each pair of a window and a key is a run of its own"
            )
        return self


def _kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return "time" if kind in TIMED else str(kind)


Partitions = Annotated[
    Annotated[TimePartitions, Tag("time")]
    | Annotated[StaticPartitions, Tag("static")]
    | Annotated[DynamicPartitions, Tag("dynamic")]
    | Annotated[MultiPartitions, Tag("multi")],
    Discriminator(
        _kind,
        custom_error_type="partitions",
        custom_error_message=f"`type` must be one of {', '.join(KINDS)}",
    ),
]


def dynamic_partitions(written: Partitions | None) -> DynamicPartitions | None:
    """The dynamic dimension, if there is one."""
    inner = written.key if isinstance(written, MultiPartitions) else written
    return inner if isinstance(inner, DynamicPartitions) else None


def has_window(written: Partitions | None) -> bool:
    return isinstance(written, TimePartitions | MultiPartitions)
