"""The status of each stream of a connection: its last sync and its table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from elt_assets.errors import EltError
from elt_assets.lake.delta.table import Table
from elt_assets.machine_faults import translated
from elt_assets.orchestration.events.metadata import figures_of
from elt_assets.orchestration.events.table_events import TableEvents
from elt_assets.orchestration.last_sync import (
    LastSync,
    Result,
    StoredCheck,
    count_partitions,
    find_failed_checks,
    find_last_sync,
)
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.stream_plan import source_state
from elt_assets.protocol.catalog import stream_names
from elt_assets.storage.location import Location


@dataclass(frozen=True)
class TableStatus:
    """The table of a stream."""

    # Their number; with another destination than the lake (`is_elsewhere`), the number of records that it
    # committed in all syncs.
    rows: int
    state: str | None  # the state in the table, without the protocol envelope, as JSON
    path: str  # the URI
    exists: bool  # whether there is a table
    is_elsewhere: bool
    committed: dt.datetime | None  # the time of the stream's newest commit


@dataclass(frozen=True)
class StreamStatus:
    """The status of one stream."""

    stream: str
    policy: str
    sync: LastSync
    # Of the last sync, and the time of the last complete one; if Dagster has no event of a table, `unknown`,
    # and the time of its last commit.
    result: Result
    complete: dt.datetime | None
    failed_checks: Sequence[StoredCheck]
    partitions: Mapping[str, int] | None  # how many there are, by their state
    table: TableStatus | None  # None if it cannot be read; `error` says why
    error: EltError | None = None


def stream_statuses(
    assets: Sequence[StreamAsset], lake: Location | str, instance: dg.DagsterInstance
) -> list[StreamStatus]:
    """Return the status of each stream of a connection, in the given order."""
    names = stream_names([asset.stream.id for asset in assets])
    return [_status(asset, names[asset.stream.id], lake, instance) for asset in assets]


def _status(
    asset: StreamAsset, name: str, lake: Location | str, instance: dg.DagsterInstance
) -> StreamStatus:
    main: Table | None = None
    table: TableStatus | None = None
    error: EltError | None = None
    try:
        with translated():
            main = asset.tables(lake).main
            table = _read_table(asset, main, instance)
    except EltError as failure:
        error = failure
    sync = find_last_sync(asset, main, str(lake), instance)
    result, complete = sync.result, sync.complete
    if result == "never" and table is not None and table.exists:
        result, complete = "unknown", table.committed
    return StreamStatus(
        stream=name,
        policy=f"{asset.stream.sync_mode} → {asset.stream.destination_sync_mode}",
        sync=sync,
        result=result,
        complete=complete,
        failed_checks=find_failed_checks(asset, str(lake), instance),
        partitions=count_partitions(asset, instance),
        table=table,
        error=error,
    )


def _read_table(asset: StreamAsset, table: Table, instance: dg.DagsterInstance) -> TableStatus:
    destination = asset.connection.destination
    events = TableEvents(instance, asset.key, table)
    return TableStatus(
        rows=table.records
        if destination is None
        else sum(figures_of(event.metadata).committed for event in events.all_materializations()),
        state=source_state(table.metadata.state),
        path=table.uri,
        exists=table.exists,
        is_elsewhere=destination is not None,
        committed=next((commit.time for commit in table.past_commits()), None),
    )
