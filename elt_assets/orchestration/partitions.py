"""Partitions of a stream: their Dagster definition, and the source config of each partition.

`streams` takes the definition, `build` the policy of backfills, `planning` the config of what is read, and
`schedules` new keys.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from elt_assets.connection.partitions import (
    INSTANT_FORMAT,
    Bind,
    DynamicPartitions,
    MultiPartitions,
    Partitions,
    SourcePartitions,
    StaticPartitions,
    TimePartitions,
    align_end,
    format_window,
    moment,
)
from elt_assets.errors import ConfigError
from elt_assets.runner.references import is_reference

WINDOW, KEY = "window", "key"
"""Names of the dimensions of a stream with windows and keys."""

_FORBIDDEN = ("...", "\a", "\b", "\f", "\n", "\r", "\t", "\v", "\0")
"""Texts that Dagster does not allow in a partition key."""

_FIRST_YEAR = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
HOUR_FORMAT = "%Y-%m-%d-%H:%M"
"""Format of hourly partition keys, as Dagster has it."""
_EVERY_HOUR = "0 * 1-31 * 0-6"
"""Every full hour of local time. Dagster counts `0 * * * *` in steps of an hour, so that in a zone where the
clock is set by half an hour, the hours of a list and those of single keys differ, and half an hour is in none
of them. It looks up each hour of a schedule that it does not recognise as hourly; this is one."""

_TIMED: Mapping[str, Callable[..., dg.TimeWindowPartitionsDefinition]] = {
    "hourly": dg.HourlyPartitionsDefinition,
    "daily": dg.DailyPartitionsDefinition,
    "weekly": dg.WeeklyPartitionsDefinition,
    "monthly": dg.MonthlyPartitionsDefinition,
}


def definition(configured: Partitions, name: str) -> dg.PartitionsDefinition[Any]:
    """Return the Dagster definition of configured partitions.

    Args:
        name: default name of dynamic partitions.
    """
    if isinstance(configured, MultiPartitions):
        window, key = definition(configured.window, name), definition(configured.key, name)
        return dg.MultiPartitionsDefinition({WINDOW: window, KEY: key})
    if isinstance(configured, StaticPartitions):
        return dg.StaticPartitionsDefinition(configured.keys)
    if isinstance(configured, DynamicPartitions | SourcePartitions):
        return dg.DynamicPartitionsDefinition(name=configured.name or name)
    if configured.type == "hourly" and _shifts_by_part_of_hour(configured.timezone):
        return dg.TimeWindowPartitionsDefinition(
            start=configured.start,
            end=configured.end,
            fmt=HOUR_FORMAT,
            timezone=configured.timezone,
            cron_schedule=_EVERY_HOUR,
        )
    return _TIMED[configured.type](
        start_date=configured.start, end_date=configured.end, timezone=configured.timezone
    )


def _shifts_by_part_of_hour(timezone: str) -> bool:
    """Return whether the clock of a zone is ever set by a part of an hour, as on Lord Howe Island."""
    moments = (_FIRST_YEAR + quarter * dt.timedelta(days=91) for quarter in range(300))
    zone = ZoneInfo(timezone)
    hour = dt.timedelta(hours=1)
    offsets = (moment.astimezone(zone).utcoffset() or dt.timedelta(0) for moment in moments)
    return len({offset % hour for offset in offsets}) > 1


def dynamic_definition(
    definition: dg.PartitionsDefinition[Any] | None,
) -> dg.DynamicPartitionsDefinition:
    """Return the definition of dynamic partitions, or of the dynamic keys of multi-partitions."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        definition = definition.get_partitions_def_for_dimension(KEY)
    assert isinstance(definition, dg.DynamicPartitionsDefinition)
    return definition


def is_valid_key(value: str, configured: Partitions | None) -> bool:
    """Return whether Dagster accepts a value as a partition key; if there are windows too, as part of one."""
    if not value or any(text in value for text in _FORBIDDEN):
        return False
    return not (isinstance(configured, MultiPartitions) and "|" in value)


def backfill_policy(configured: Partitions) -> dg.BackfillPolicy:
    """Return the backfill policy: one run for all partitions, or runs of `partitions_per_run` partitions.

    Each pair of a window and a key is a separate run, because Dagster has no ranges of pairs.
    """
    if isinstance(configured, MultiPartitions):
        return dg.BackfillPolicy.multi_run(1)
    if configured.partitions_per_run is None:
        return dg.BackfillPolicy.single_run()
    return dg.BackfillPolicy.multi_run(configured.partitions_per_run)


def config_for_partition(
    config: Mapping[str, Any],
    configured: Partitions,
    partitions: dg.PartitionsDefinition[Any],
    key: str,
) -> dict[str, Any]:
    """Return the source config for one partition.

    Raises:
        ConfigError: a config field cannot be set.
    """
    if isinstance(configured, MultiPartitions):
        assert isinstance(partitions, dg.MultiPartitionsDefinition)
        pair = partitions.get_partition_key_from_str(key).keys_by_dimension
        inner = {
            dimension.name: dimension.partitions_def for dimension in partitions.partitions_defs
        }
        key_config = config_for_partition(config, configured.window, inner[WINDOW], pair[WINDOW])
        return config_for_partition(key_config, configured.key, inner[KEY], pair[KEY])
    if isinstance(configured, TimePartitions):
        assert isinstance(partitions, dg.TimeWindowPartitionsDefinition)
        start, end = partition_window(configured, partitions, key)
        return _config_for_window(config, configured.bind, start, end, configured.format)
    if isinstance(configured, SourcePartitions):
        return dict(config)  # the configured stream names the partition
    return _set_field(config, configured.bind.field, _cast(key, configured.bind.type))


def _cast(key: str, kind: str) -> Any:
    """Return a partition key as a value of the type that the source config needs."""
    try:
        if kind == "boolean":
            return {"true": True, "false": False}[key]
        return int(key) if kind == "integer" else float(key) if kind == "number" else key
    except (KeyError, ValueError):
        raise ConfigError(
            f"the partition {key!r} cannot be used in the source config: it is not a valid {kind}",
            guidance="remove the partition, or change `type` in `bind`",
        ) from None


def partition_window(
    configured: TimePartitions, partitions: dg.TimeWindowPartitionsDefinition, key: str
) -> tuple[dt.datetime, dt.datetime]:
    """Return the start and the end (exclusive) of a partition, in its zone.

    The windows of consecutive partitions leave no gap and do not overlap. The window of a day that a zone
    left out, as Samoa 2011-12-30, is empty.
    """
    window = partitions.time_window_for_partition_key(key)
    zone = ZoneInfo(configured.timezone)
    # Dagster may name a midnight that the clock skips.
    start, end = (
        instant.astimezone(dt.timezone.utc).astimezone(zone)
        for instant in (window.start, window.end)
    )
    is_left_out = configured.type == "daily" and start.strftime(partitions.fmt) != key
    return (start, start) if is_left_out else (start, end)


def config_for_window(
    config: Mapping[str, Any], bind: Bind, start: dt.datetime, end: dt.datetime
) -> dict[str, Any]:
    """Return the source config for the window of a run, from `start` to `end` (exclusive).

    An end that the format cannot write exactly is replaced by the next one that it can.
    """
    style = bind.format or INSTANT_FORMAT
    last = end if bind.inclusive else align_end(end, style)
    return _config_for_window(config, bind, start, last, style)


def _config_for_window(
    config: Mapping[str, Any], bind: Bind, start: dt.datetime, end: dt.datetime, style: str
) -> dict[str, Any]:
    values = format_window(start, end, style, inclusive=bind.inclusive)
    changed = dict(config)
    for path, value in zip((bind.start, bind.end), values, strict=True):
        if path is not None:
            changed = _set_field(changed, path, value)
    return changed


def _set_field(config: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of a config with one field set; missing parent objects are created."""
    changed = copy.deepcopy(dict(config))
    inner: Any = changed
    for number, name in enumerate(path):
        if not isinstance(inner, dict) or is_reference(inner):
            place = ".".join(["config", *path[:number]])
            reason = "is a reference" if isinstance(inner, dict) else "is not an object"
            raise ConfigError(
                f"bind: {'.'.join(path)!r} cannot be set in the source config: {place} {reason}",
                guidance="correct the path in `bind`, or write an object there in `source.config`",
            )
        if number == len(path) - 1:
            inner[name] = value
        else:
            inner = inner.setdefault(name, {})
    return changed


def parse_window(start: str, end: str) -> tuple[dt.datetime, dt.datetime]:
    """Parse a window of the run config. Times without a zone are in UTC.

    Raises:
        ConfigError: a time is not valid, or the window does not end after its start.
    """
    try:
        moments = [moment(text) for text in (start, end)]
    except ValueError as error:
        raise ConfigError(
            f"window: {start!r} to {end!r}: {error}",
            guidance='write a date, "2026-01-31", or a date and a time, "2026-01-31T06:00:00Z"',
        ) from error
    first, last = (
        local if local.tzinfo else local.replace(tzinfo=dt.timezone.utc) for local in moments
    )
    if last <= first:
        raise ConfigError(
            f"window: `end` ({end}) is not after `start` ({start})",
            guidance="`end` is exclusive: write a time after `start`",
        )
    return first, last
