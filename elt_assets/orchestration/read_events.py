"""Events of committed reads: of a stream's table, its companion tables (history, dead letter) and its source.

`step` logs them as streams are committed, and `recovery` those that a killed run owes.

Dagster creates the events of an output when the op yields it. A run that reads several partitions, or several
streams, would then report all of them at its end, and none if it is killed before. So the event of each read
is logged as soon as its commit is acknowledged, and the output itself is yielded with `REPORTED`, for which
Dagster creates no second event. Only the event of a stream that is read alone and whole is left to Dagster.
The event of the stream's table is the last one of a read: if it is there, so are the others.

Dagster calls an asset unsynced if its event does not name the versions of what it was made of, or if these
have changed since. So each event has the tags that Dagster gives its own. The version of a stream is its
commit, not one of the event: a companion can name it before the stream's event is there.
Test: `tests/orchestration/test_stale.py`

A kill at EVENT_RECOVERED leaves the event that an earlier run owed. A kill before it leaves the table ahead
of the events, so the next run reports it.
`tests/orchestration/test_partition_events.py::test_a_killed_run_has_reported_what_it_committed`
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import dagster as dg
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import partition_files
from elt_assets.lake.write.companions import SUFFIXES, StreamTables
from elt_assets.orchestration.metadata import (
    RECORDS_READ,
    companion_metadata,
    recovery_metadata,
    remove_figures,
    table_metadata,
)
from elt_assets.orchestration.resources import spark_provider
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.translator import companion_key, companion_specs
from elt_assets.pipeline.publication import show_name_of

REPORTED: Mapping[str, Any] = MappingProxyType({SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})
"""Metadata of an output whose events are logged already. Dagster uses the key for the same purpose, for
observations that an op logs itself; it has no public name for it."""

_DATA_VERSION, _CODE_VERSION = "dagster/data_version", "dagster/code_version"
_INPUT_VERSION, _INPUT_EVENT = "dagster/input_data_version/", "dagster/input_event_pointer/"
"""Prefixes of the tags that name the version of an input, and the storage id of the event with it."""
_NO_VERSION, _NO_EVENT = "INITIAL", "NULL"
"""What Dagster writes into these tags if there is none. Without an event, an input with partitions counts as
unchanged: right for a companion, which gets an event of its own with each one of its stream."""
_DIMENSION = "dagster/partition/"
"""Prefix of the tags with which Dagster stores the dimensions of a partition key."""


@dataclass(frozen=True)
class CommittedRead:
    """A committed read: its partition, and the metadata of its event."""

    partition: str | None
    metadata: Mapping[str, Any]


class ReadReporter:
    """Logs the events of the committed reads of one stream.

    `logs_stream`: whether it logs the event of the stream's table too; otherwise Dagster creates it.

    Args:
        source: the asset of the source.
    """

    def __init__(self, asset: StreamAsset, source: dg.AssetKey, context: dg.AssetExecutionContext):
        self.logs_stream = asset.connection.read_together or asset.partitions is not None
        self._asset = asset
        self._source = source
        self._context = context

    def report(self, read: CommittedRead, tables: StreamTables) -> None:
        """Log the events of a read; `tables`: at the snapshot after its last commit."""
        count = {RECORDS_READ: read.metadata[RECORDS_READ]}
        metadata = {"elt/stream": self._asset.key.to_user_string(), **count}
        self._context.log_event(dg.AssetObservation(self._source, metadata=metadata))
        self._report_tables(read, tables)

    def report_recovered(self, partition: str, tables: StreamTables) -> None:
        """Log the events that a killed run owed for a committed read, without its figures."""
        of_table: Mapping[str, Any] = {}
        if self._asset.connection.destination is None:
            spark = spark_provider(self._context.resources.elt_spark)
            stream = self._asset.make_stored_stream()
            rows = partition_files.count(spark, tables.main, partition)
            name = self._asset.name_of(tables.main)
            display_name = show_name_of(self._asset, tables.main)
            of_table = table_metadata(
                tables.main, name, stream, partition_rows=rows, display_name=display_name
            )
        read = CommittedRead(partition, {**recovery_metadata(tables.main), **of_table})
        self._report_tables(read, tables)
        reach(Failpoint.EVENT_RECOVERED)

    def report_again(self, read: CommittedRead, tables: StreamTables) -> None:
        """Log the events of a read of an earlier run, without its figures, which count once."""
        metadata = remove_figures(read.metadata)
        self._report_tables(CommittedRead(read.partition, metadata), tables)

    def _report_tables(self, read: CommittedRead, tables: StreamTables) -> None:
        version, run_id = get_data_version(tables), self._context.run.run_id
        stream = self._asset.key.to_user_string()
        inputs = {f"{_INPUT_VERSION}{stream}": version, f"{_INPUT_EVENT}{stream}": _NO_EVENT}
        for key, (kind, table) in self._companions(tables).items():
            name, display_name = self._asset.name_of(table), show_name_of(self._asset, table, kind)
            spark, partition = spark_provider(self._context.resources.elt_spark), read.partition
            rows = None if partition is None else partition_files.count(spark, table, partition)
            tags = {_CODE_VERSION: run_id, _DATA_VERSION: table.metadata.stands_for or _NO_VERSION}
            metadata = companion_metadata(
                table, name, partition_rows=rows, display_name=display_name
            )
            self._log(key, metadata, partition, {**tags, **inputs})
        if self.logs_stream:
            # Dagster adds these tags to the events that it creates.
            tags = {_CODE_VERSION: self._asset.spec.code_version or run_id, _DATA_VERSION: version}
            self._log(self._asset.key, read.metadata, read.partition, {**tags, **self._inputs})

    @cached_property
    def _inputs(self) -> Mapping[str, str]:
        """The tags of what the stream is made of: its source, and what a translator has added."""
        tags = {}
        for dep in self._asset.spec.deps:
            record = self._context.instance.get_latest_data_version_record(dep.asset_key)
            event = {} if record is None else record.event_log_entry.tags or {}
            key = dep.asset_key.to_user_string()
            tags[f"{_INPUT_VERSION}{key}"] = event.get(_DATA_VERSION, _NO_VERSION)
            tags[f"{_INPUT_EVENT}{key}"] = str(record.storage_id) if record else _NO_EVENT
        return tags

    def _log(
        self,
        key: dg.AssetKey,
        metadata: Mapping[str, Any],
        partition: str | None,
        tags: Mapping[str, str],
    ) -> None:
        all_tags = {**tags, **self._dimensions(partition)}
        event = dg.AssetMaterialization(
            key, metadata=dict(metadata), partition=partition, tags=all_tags
        )
        self._context.log_event(event)

    def _dimensions(self, partition: str | None) -> dict[str, str]:
        """Return the tags of a partition key that combines a window and a key."""
        definition = self._asset.partitions
        if partition is None or not isinstance(definition, dg.MultiPartitionsDefinition):
            return {}
        keys = definition.get_partition_key_from_str(partition).keys_by_dimension
        return {f"{_DIMENSION}{name}": key for name, key in keys.items()}

    def _companions(self, tables: StreamTables) -> dict[dg.AssetKey, tuple[str, Table]]:
        """Return the companion tables that are assets, with their kinds, by asset key."""
        asset = self._asset
        keys = {spec.key for spec in companion_specs(asset)}
        return {
            key: (kind, table)
            for kind, table in tables.companions.items()
            if (key := companion_key(asset, SUFFIXES[kind])) in keys
        }


def get_data_version(tables: StreamTables) -> str:
    """Return the data version of a stream in Dagster: that of the commit which its rows are from."""
    return tables.metadata.stands_for or _NO_VERSION


def companion_results(
    asset: StreamAsset, context: dg.AssetExecutionContext
) -> Iterator[dg.MaterializeResult[Any]]:
    """Yield the outputs of a stream's companion tables that the run selected; their events are logged."""
    for spec in companion_specs(asset):
        if spec.key in context.selected_asset_keys:
            yield dg.MaterializeResult(asset_key=spec.key, metadata=REPORTED)


def log_unread(assets: Iterable[StreamAsset], context: dg.AssetExecutionContext) -> None:
    """Log that companion tables that are selected without their stream need no work."""
    for asset in assets:
        for spec in companion_specs(asset):
            if spec.key in context.selected_asset_keys:
                context.log.info(
                    f"{spec.key.to_user_string()} is skipped: it is written when "
                    f"{asset.key.to_user_string()} is materialised"
                )
