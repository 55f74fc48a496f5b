"""Model of the attributes of a connection in `defs.yaml`.

`files` loads it; `pipeline`, `orchestration` and `elt` read it. `can_refresh` is for the schedules.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from elt_assets.connection.automation import (
    Automation,
    Drift,
    Duration,
    Follow,
    Freshness,
    NewData,
    OnCron,
    Retry,
    RunControls,
)
from elt_assets.connection.checks import Checks
from elt_assets.connection.config_model import ConfigModel, FieldName, refuse
from elt_assets.connection.connector import Destination, Source
from elt_assets.connection.partitions import SourcePartitions
from elt_assets.connection.stream import (
    Conditions,
    DeadLetter,
    DeleteSettings,
    PartitionColumns,
    Renaming,
    Stream,
    Unchanged,
)
from elt_assets.protocol.catalog import StreamId, find_modes
from elt_assets.runner.kinds import KINDS

_OF_THE_OP = ("pool", "op_tags", "run_tags", "full_refresh")
"""Controls that streams which are read together have in common, since one op reads them in one run."""
_NAME = re.compile(r"[A-Za-z0-9_]+")


def check_plain_name(name: str) -> str:
    """Return a name unchanged, if it is valid for a folder, a namespace of tables and an asset group.

    Raises:
        ValueError: the name has characters other than letters, digits and underscores.
    """
    if _NAME.fullmatch(name):
        return name
    better = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
    hint = f"; write {better!r}" if better else ""
    raise ValueError(
        f"{name!r} may hold only letters (A to Z, a to z), digits and underscores{hint}"
    )


PlainName = Annotated[
    str,
    AfterValidator(check_plain_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"}),
]


class Deadlines(ConfigModel):
    """Time limits of a connector's short commands. A command that takes longer is ended."""

    spec: Duration = dt.timedelta(minutes=15)
    """Time in which the connector must print its specification."""
    check: Duration = dt.timedelta(minutes=15)
    """Time in which the connector must have checked its config."""
    discover: Duration = dt.timedelta(hours=1)
    """Time in which the connector must have listed its streams."""
    partitions: Duration = dt.timedelta(hours=1)
    """Time in which the connector must have listed the partitions of a stream."""

    def seconds(self) -> dict[str, float]:
        """Return the time limits in seconds, by the name of the command."""
        return {name: value.total_seconds() for name, value in self}


class Checkpoint(ConfigModel):
    """Thresholds of a commit, which is due at the first state after any of them is reached."""

    rows: int = Field(default=1_000_000, gt=0)
    """Number of records."""
    megabytes: int = Field(default=256, gt=0)
    """Size of the staged records, in megabytes."""
    seconds: float = Field(default=300, gt=0)
    """Time since the last commit, in seconds."""


class Connection(RunControls):
    """The attributes of a `ConnectionComponent`."""

    name: PlainName
    """Name of the connection, the first part of the keys of its assets."""
    namespace: PlainName | None = None
    """First level of its tables under the lake; default: the name."""
    prefix: FieldName | None = None
    """Text before the name of each stream's table."""
    rename: Renaming | None = None
    """New names of fields, in each stream that has the field."""
    filter: Conditions | None = None
    """Conditions that the records of each stream with the field must meet to be stored."""
    partition_by: PartitionColumns | None = None
    """Fields whose values are Delta's partition columns of each table, up to 4."""
    source: Source
    """Connector that is read, and its config."""
    destination: Destination | None = None
    """Connector that gets the records instead of the lake."""
    streams: list[Stream] = Field(min_length=1)
    """Streams that are synced; each is an asset."""
    schedule: str | None = None
    """Cron schedule of the syncs, as `0 6 * * *`."""
    automation: Automation = None
    """Condition by which Dagster syncs the streams: `eager`, or `on_cron` with a cron schedule."""
    deletes: DeleteSettings | None = None
    """What happens to rows that the source has deleted, in each stream."""
    checks: Checks = Checks()
    """Checks of each stream after each sync."""
    unchanged: Unchanged = "skip"
    """What a row does that comes again with the values that its deduplicated table has: nothing, or it
    replaces the former one."""
    dead_letter: DeadLetter = "table"
    """Whether the dead letter of each stream is only a table, or an asset too."""
    iceberg: bool | None = None
    """Whether the tables are published in Iceberg; default: as the project's settings."""
    freshness: Freshness | None = None
    """When a stream counts as out of date."""
    drift: Drift | None = None
    """Regular comparison of the source with `catalog.json`."""
    new_data: NewData | None = None
    """Sensor that syncs the streams for which the source has new data."""
    follow: Follow | None = None
    """How a run follows the log of the source, in place of reading it up to its present end."""
    group: PlainName | None = None
    """Asset group; default: the name of the connection."""
    owners: list[str] = Field(default_factory=list)
    """Owners of the assets, as `team:data` or an e-mail address."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Tags of the assets."""
    translation: dict[str, Any] | str | None = None
    """Changes of the assets, with the keys of Dagster's integrations: `key`, `group_name` …"""
    retry: Retry = Retry()
    """Retries of a sync that failed with a transient error."""
    heartbeat: Duration = dt.timedelta(hours=1)
    """Time after which a connector that sends nothing is ended."""
    deadlines: Deadlines = Deadlines()
    """Time limits of the connector's short commands."""
    read_together: bool = False
    """One process reads all streams, because the source keeps one state for them."""
    checkpoint: Checkpoint = Checkpoint()
    """When a commit is due: at the first state after one of the limits."""

    @model_validator(mode="after")
    def _check_keys_together(self) -> Connection:
        """Refuse keys that do not go with others. What they need of the catalog is checked with it."""
        refuse(type(self), _find_problems(self))
        return self

    @cached_property
    def settings_by_stream(self) -> Mapping[StreamId, Stream]:
        """The settings of the connection's streams, of which there may be thousands."""
        return {settings.id: settings for settings in reversed(self.streams)}

    @cached_property
    def table_settings(self) -> tuple[tuple[str, str | None, bool, str | None], ...]:
        """What decides the tables' names: of each stream its name, namespace, `history` and `table`."""
        return tuple(
            (stream.name, stream.namespace, stream.history, stream.table) for stream in self.streams
        )

    def settings_of(self, stream: StreamId) -> Stream:
        """Return the settings of one of the connection's streams."""
        return self.settings_by_stream[stream]

    def controls_of(self, stream: StreamId) -> RunControls:
        """Return the run controls of one of the connection's streams, with those of the connection."""
        return self.settings_of(stream).over(self)

    def partition_fields(self, stream: Stream) -> Sequence[Sequence[str]]:
        """Return the fields that the table of a stream is partitioned by."""
        own = stream.partition_by
        return (self.partition_by if own is None else own) or []

    @property
    def lake_namespace(self) -> str:
        """First level of the table paths under the lake's root."""
        return self.namespace or self.name


def can_refresh(connection: Connection, stream: Stream) -> bool:
    """Return whether a stream can have a refresh on a schedule, and is not replaced by each sync anyway.

    Streams that are read together are refreshed together.
    """
    if connection.read_together:
        return any(not _is_replaced(other) for other in connection.streams)
    return stream.partitions is None and not _is_replaced(stream)


def _find_problems(connection: Connection) -> Iterator[str]:
    """Yield the keys of a connection that do not go with others."""
    new_data, kind = connection.new_data, KINDS[connection.source.kind]
    if new_data is not None and not (kind.reports_new_data or new_data.read):
        yield (
            "new_data: only a built-in connector (`source.connector`) can be asked for new data; "
            f"`source.{kind.key}` cannot; write `read: true`, or a `schedule` instead"
        )
    elif new_data is not None and new_data.read and connection.read_together:
        yield (
            "new_data: `read` starts a separate read of each stream, and the streams of this connection "
            "are read together; leave out `read`, or write a `schedule` instead"
        )
    asked = [connection.dead_letter, *(stream.dead_letter for stream in connection.streams)]
    if connection.destination is not None and "asset" in asked:
        yield "dead_letter: with another `destination` there is no dead letter; leave it out"
    count = Counter(stream.id for stream in connection.streams)
    for stream_id, number in count.items():
        if number > 1:
            yield f"stream {str(stream_id)!r} is configured twice; remove one"
    for stream in connection.streams:
        texts = chain(
            _find_unsupported(connection, stream), _find_control_problems(connection, stream)
        )
        yield from (f"stream {str(stream.id)!r}: {text}" for text in texts)
    is_refreshed = connection.full_refresh is not None
    if is_refreshed and not any(can_refresh(connection, stream) for stream in connection.streams):
        yield (
            "full_refresh: no stream of the connection needs it: each has `partitions`, or is replaced by "
            "every sync; leave it out"
        )


def _find_unsupported(connection: Connection, stream: Stream) -> Iterator[str]:
    """Yield the settings of a stream that its connection does not support."""
    for key in ("partitions", "window") if connection.read_together else ():
        if getattr(stream, key) is not None:
            yield (
                f"{key}: not supported for streams that are read together; leave it out, or move the stream "
                "to a separate connection"
            )
    kind = KINDS[connection.source.kind]
    if isinstance(stream.partitions, SourcePartitions) and not kind.lists_partitions:
        yield (
            f"partitions: `source.{kind.key}` cannot list its partitions; write `type: static` or `type: "
            "dynamic`, or use an Airbyte connector that has the command `partitions`"
        )
    if stream.history and not stream.deduplicates:
        yield (
            "history: versions need a key; write `destination_sync_mode: append_dedup` or `overwrite_dedup`"
        )
    if connection.destination is None:
        return
    of_the_lake = {
        "history": stream.history,
        "partitions": stream.partitions,
        "window": stream.window,
        "cluster_by": stream.cluster_by,
        "partition_by": connection.partition_fields(stream),
        "iceberg": connection.iceberg or stream.iceberg,
        "on_undeclared": stream.on_undeclared in ("keep", "add", "stop"),
    }
    for key, is_set in of_the_lake.items():
        if is_set:
            yield (
                f"{key}: only tables of the lake support this, and the connection has another "
                "`destination`; leave it out"
            )


def _find_control_problems(connection: Connection, stream: Stream) -> Iterator[str]:
    """Yield the run controls of a stream that would have no effect, or that it cannot have."""
    own = stream.model_fields_set
    if connection.read_together:
        for key in _OF_THE_OP:
            if key in own:
                yield (
                    f"{key}: streams that are read together have it in common; write it at the connection"
                )
    elif stream.full_refresh is not None and stream.partitions is not None:
        yield (
            "full_refresh: a stream with `partitions` is read again by a backfill of its partitions; leave "
            "it out"
        )
    elif stream.full_refresh is not None and _is_replaced(stream):
        yield (
            f"full_refresh: with `destination_sync_mode: {stream.destination_sync_mode}` every sync replaces "
            "the rows; write a `schedule` instead"
        )
    if stream.timezone is not None and not _has_cron(connection, stream):
        yield (
            "timezone: the stream has no cron expression of its own; add a `schedule`, or write `timezone` "
            "at the connection"
        )


def _is_replaced(stream: Stream) -> bool:
    return find_modes()[stream.destination_sync_mode].overwrites


def _has_cron(connection: Connection, stream: Stream) -> bool:
    has_own = "automation" in stream.model_fields_set
    automation = stream.automation if has_own else connection.automation
    freshness = stream.freshness or connection.freshness
    return (
        stream.schedule is not None
        or stream.full_refresh is not None
        or isinstance(automation, OnCron)
        or (freshness is not None and freshness.cron is not None)
    )
