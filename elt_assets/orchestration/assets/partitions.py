"""Partitions of a stream: Dagster's definition of them, and what each sets in the source's config."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from elt_assets.connection.partitions import (
    Bind,
    DynamicPartitions,
    MultiPartitions,
    Partitions,
    StaticPartitions,
    TimePartitions,
    moment,
)
from elt_assets.errors import ConfigError

WINDOW, KEY = "window", "key"
"""The dimensions of a stream that has both."""

_TIMED: Mapping[str, Callable[..., dg.TimeWindowPartitionsDefinition]] = {
    "hourly": dg.HourlyPartitionsDefinition,
    "daily": dg.DailyPartitionsDefinition,
    "weekly": dg.WeeklyPartitionsDefinition,
    "monthly": dg.MonthlyPartitionsDefinition,
}


def definition(written: Partitions, name: str) -> dg.PartitionsDefinition[Any]:
    """Args:
    name: of dynamic partitions that were given none.
    """
    if isinstance(written, MultiPartitions):
        window, key = definition(written.window, name), definition(written.key, name)
        return dg.MultiPartitionsDefinition({WINDOW: window, KEY: key})
    if isinstance(written, StaticPartitions):
        return dg.StaticPartitionsDefinition(written.keys)
    if isinstance(written, DynamicPartitions):
        return dg.DynamicPartitionsDefinition(name=written.name or name)
    return _TIMED[written.type](
        start_date=written.start, end_date=written.end, timezone=written.timezone
    )


def backfill_policy(written: Partitions) -> dg.BackfillPolicy:
    """All partitions of a backfill in one run, one after the other, unless another number is written.
    Pairs of a window and a key are runs of their own: a range of pairs is none of Dagster's."""
    if isinstance(written, MultiPartitions):
        return dg.BackfillPolicy.multi_run(1)
    if written.partitions_per_run is None:
        return dg.BackfillPolicy.single_run()
    return dg.BackfillPolicy.multi_run(written.partitions_per_run)


def bound(
    config: Mapping[str, Any],
    written: Partitions,
    partitions: dg.PartitionsDefinition[Any],
    key: str,
) -> dict[str, Any]:
    """The source's config for one partition.

    Raises:
        ConfigError: a field cannot be set.
    """
    if isinstance(written, MultiPartitions):
        assert isinstance(partitions, dg.MultiPartitionsDefinition)
        pair = partitions.get_partition_key_from_str(key).keys_by_dimension
        inner = {each.name: each.partitions_def for each in partitions.partitions_defs}
        found = bound(config, written.window, inner[WINDOW], pair[WINDOW])
        return bound(found, written.key, inner[KEY], pair[KEY])
    if isinstance(written, TimePartitions):
        assert isinstance(partitions, dg.TimeWindowPartitionsDefinition)
        window = partitions.time_window_for_partition_key(key)
        default = "%Y-%m-%dT%H:%M:%SZ" if written.type == "hourly" else "%Y-%m-%d"
        return windowed(config, written.bind, window.start, window.end, default)
    return _set(config, written.bind.field, _typed(key, written.bind.type))


def _typed(key: str, kind: str) -> Any:
    """A key as the source's config has it."""
    try:
        if kind == "boolean":
            return {"true": True, "false": False}[key]
        return int(key) if kind == "integer" else float(key) if kind == "number" else key
    except (KeyError, ValueError):
        raise ConfigError(
            f"the partition {key!r} cannot be bound: it is no {kind}",
            guidance="remove it, or write another `type` in `bind`",
        ) from None


def windowed(
    config: Mapping[str, Any],
    bind: Bind,
    start: dt.datetime,
    end: dt.datetime,
    default: str = "%Y-%m-%dT%H:%M:%SZ",
) -> dict[str, Any]:
    """The source's config for a while of its past, from `start` on, and before `end`."""
    style = bind.format or default
    last = end - _granularity(style) if bind.inclusive else end
    found = dict(config)
    for path, value in ((bind.start, start), (bind.end, last)):
        if path is not None:
            found = _set(found, path, _written(value, style))
    return found


def _granularity(style: str) -> dt.timedelta:
    """What a format tells apart."""
    if "%f" in style:
        return dt.timedelta(microseconds=1)
    if style == "%ms":
        return dt.timedelta(milliseconds=1)
    timed = any(mark in style for mark in ("%H", "%I", "%s", "%X", "%T"))
    return dt.timedelta(seconds=1) if timed else dt.timedelta(days=1)


def _written(value: dt.datetime, style: str) -> str | int:
    if style == "%s":
        return int(value.timestamp())
    if style == "%ms":
        return int(value.timestamp() * 1000)
    if style.endswith("Z"):
        value = value.astimezone(dt.timezone.utc)
    return value.strftime(style)


def _set(config: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy of a config with one field set, objects above it made where there are none."""
    found = copy.deepcopy(dict(config))
    at: Any = found
    for name in path[:-1]:
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            raise ConfigError(
                f"bind: {'.'.join(path)!r} cannot be set in the source's config: {name!r} is no object"
            )
    at[path[-1]] = value
    return found


def parse_window(start: str, end: str) -> tuple[dt.datetime, dt.datetime]:
    """A window as run config writes it; what says no zone is in UTC.

    Raises:
        ConfigError: it is none, or ends before it starts.
    """
    try:
        found = [moment(each) for each in (start, end)]
    except ValueError as error:
        raise ConfigError(
            f"window: {start!r} to {end!r}: {error}",
            guidance='write dates, as "2026-01-31", or dates and times, as "2026-01-31T06:00:00Z"',
        ) from error
    first, last = (each if each.tzinfo else each.replace(tzinfo=dt.timezone.utc) for each in found)
    if last <= first:
        raise ConfigError(
            f"window: it ends ({end}) before it starts ({start})",
            guidance="`end` is the first moment that is not wanted: later than `start`",
        )
    return first, last
