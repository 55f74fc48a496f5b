"""Model of the attributes of a connection in `defs.yaml`."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from elt_assets.connection.automation import (
    Automation,
    Drift,
    Duration,
    Freshness,
    NewData,
    Retry,
)
from elt_assets.connection.checks import Checks
from elt_assets.connection.config_model import ConfigModel, FieldName
from elt_assets.connection.connector_model import Destination, Source
from elt_assets.connection.controls import RunControls
from elt_assets.connection.partitions import SourcePartitions
from elt_assets.connection.rows import Conditions, Renaming
from elt_assets.connection.stream_model import DeadLetter, PartitionColumns, Stream
from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.runner.kinds.registry import KINDS

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
    checks: Checks = Checks()
    """Checks of each stream after each sync."""
    dead_letter: DeadLetter = "table"
    """Whether the dead letter of each stream is only a table, or an asset too."""
    freshness: Freshness | None = None
    """When a stream counts as out of date."""
    drift: Drift | None = None
    """Regular comparison of the source with `catalog.json`."""
    new_data: NewData | None = None
    """Sensor that syncs the streams for which the source has new data."""
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
    def _check_new_data(self) -> Connection:
        if self.new_data is None:
            return self
        if not (KINDS[self.source.kind].reports_new_data or self.new_data.read):
            raise ValueError(
                "new_data: only a built-in connector (`source.connector`) can be asked for new data; "
                f"`source.{self.source.kind}` cannot; write `read: true`, or a `schedule` instead"
            )
        if self.new_data.read and self.read_together:
            raise ValueError(
                "new_data: `read` starts a separate read of each stream, and the streams of this connection "
                "are read together; leave out `read`, or write a `schedule` instead"
            )
        return self

    @model_validator(mode="after")
    def _check_dead_letter(self) -> Connection:
        asked = [self.dead_letter, *(stream.dead_letter for stream in self.streams)]
        if self.destination is not None and "asset" in asked:
            raise ValueError(
                "dead_letter: with another `destination` there is no dead letter; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _check_source_partitions(self) -> Connection:
        listed = [
            stream for stream in self.streams if isinstance(stream.partitions, SourcePartitions)
        ]
        if listed and not KINDS[self.source.kind].lists_partitions:
            raise ValueError(
                f"stream {str(listed[0].id)!r}: partitions: `source.{self.source.kind}` cannot list its "
                "partitions; write `type: static` or `type: dynamic`, or use an Airbyte connector that "
                "has the command `partitions`"
            )
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
