"""The status of each stream: its last sync, its table, what needs a person, and the next step.

`elt status` shows it, and the alerts are made of it.

Many streams are read together: what Dagster knows of them in a few queries (`last_syncs`), and of each table
its log alone. Its rows are those that the event of its last sync names, if that is of the table's version;
else the table's files are counted.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorStatus

from elt_assets.errors import EltError
from elt_assets.lake.delta.table import Table
from elt_assets.machine_faults import translated
from elt_assets.orchestration.attention import (
    NO_NEED,
    Concern,
    Kind,
    StreamFacts,
    find_concerns,
    is_stale,
)
from elt_assets.orchestration.days import Days, summarize_sync
from elt_assets.orchestration.due import DueRule, find_rule
from elt_assets.orchestration.last_syncs import (
    LastSync,
    PartitionCounts,
    Result,
    StoredCheck,
    StoredEvents,
    count_partitions,
)
from elt_assets.orchestration.metadata import (
    ROW_COUNT,
    TABLE,
    TABLE_ROWS,
    TABLE_VERSION,
    figures_of,
    table_identity,
    unwrap,
)
from elt_assets.orchestration.streams import StreamAsset, connection_name
from elt_assets.orchestration.table_events import TableEvents
from elt_assets.pipeline.publication import CatalogLook, PublishedState
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
    # What is published of it in Iceberg; None if it is not to be published.
    published: PublishedState | None = None


@dataclass(frozen=True)
class StreamStatus:
    """The status of one stream."""

    stream: str  # its name in the connection
    connection: str
    policy: str
    sync: LastSync
    # Of the last sync, and the time of the last complete one; if Dagster has no event of a table, `unknown`,
    # and the time of its last commit.
    result: Result
    complete: dt.datetime | None
    failed_checks: Sequence[StoredCheck]
    partitions: PartitionCounts | None
    table: TableStatus | None  # None if it cannot be read; `error` says why
    error: EltError | None
    rule: DueRule | None  # when it is to be synced; None if that is not said, or it is not enabled
    stale: bool | None  # None if `rule` is, or the stream was never synced
    concerns: Sequence[Concern] = field(default=())  # the most pressing first

    @property
    def state(self) -> Kind | None:
        """The most pressing concern; None if there is none."""
        return self.concerns[0].kind if self.concerns else None

    @property
    def needs_person(self) -> bool:
        return self.state not in (None, NO_NEED)

    @property
    def days(self) -> Days:
        return self.sync.days

    @property
    def lag(self) -> float | None:
        """Seconds from the source's commit to the lake's, of the last sync that brought changes of a log."""
        lags = [day.lag for day in self.days.values() if day.lag is not None]
        last = summarize_sync(self.sync.metadata).lag if self.sync.metadata else None
        return last if last is not None or not lags else lags[-1]


def stream_statuses(
    assets: Sequence[StreamAsset], lake: Location | str, instance: dg.DagsterInstance
) -> list[StreamStatus]:
    """Return the status of each stream, of one connection or of many, in the given order."""
    by_connection = defaultdict(list)
    for asset in assets:
        by_connection[asset.connection.name].append(asset.stream.id)
    names = {name: stream_names(streams) for name, streams in by_connection.items()}
    reader = _StatusReader(assets, lake, instance)
    return [reader.read(asset, names[asset.connection.name][asset.stream.id]) for asset in assets]


class _StatusReader:
    """Reads the status of streams one after the other; what they have in common is read once."""

    def __init__(
        self, assets: Sequence[StreamAsset], lake: Location | str, instance: dg.DagsterInstance
    ):
        self._lake, self._instance, self._catalog = lake, instance, CatalogLook()
        self._events = StoredEvents(assets, str(lake), instance)
        self._time = dt.datetime.now(dt.timezone.utc)
        self._running_schedules = {
            state.name
            for state in instance.all_instigator_state(instigator_type=InstigatorType.SCHEDULE)
            if state.status is not InstigatorStatus.STOPPED
        }

    def read(self, asset: StreamAsset, name: str) -> StreamStatus:
        main: Table | None = None
        table: TableStatus | None = None
        error: EltError | None = None
        try:
            with translated():
                tables = asset.tables(self._lake)
                main = tables.main
                sync = self._events.find_last_sync(asset, main)
                table = self._read_table(asset, main, sync)
                table = replace(table, published=self._catalog.look(asset, tables))
        except EltError as failure:
            error, main, table = failure, None, None
            sync = self._events.find_last_sync(asset, None)
        result, complete = sync.result, sync.complete
        if result == "never" and main is not None and main.exists:
            result = "unknown"
            complete = next((commit.time for commit in main.past_commits()), None)
        partitions = count_partitions(asset, self._instance)
        facts = StreamFacts(
            (asset.connection.name, name),
            sync,
            asset.controls.enabled,
            find_rule(asset),
            failed_checks=self._events.list_failed_checks(asset),
            failed_partition=None if partitions is None else partitions.failed_key,
            is_unknown=result == "unknown",
            published=None if table is None else table.published,
            error=error,
            schedule_off=self._find_stopped_schedule(asset),
        )
        return StreamStatus(
            stream=name,
            connection=asset.connection.name,
            policy=f"{asset.stream.sync_mode} → {asset.stream.destination_sync_mode}",
            sync=sync,
            result=result,
            complete=complete,
            failed_checks=facts.failed_checks,
            partitions=partitions,
            table=table,
            error=error,
            rule=facts.rule,
            stale=is_stale(facts, self._time),
            concerns=find_concerns(facts, self._time),
        )

    def _read_table(self, asset: StreamAsset, table: Table, sync: LastSync) -> TableStatus:
        if asset.connection.destination is not None:
            events = TableEvents(self._instance, asset.key, table).all_materializations()
            rows = sum(figures_of(event.metadata).committed for event in events)
        else:
            rows = _find_rows(table, sync.metadata)
        return TableStatus(
            rows=rows,
            state=source_state(table.metadata.state),
            path=table.uri,
            exists=table.exists,
            is_elsewhere=asset.connection.destination is not None,
        )

    def _find_stopped_schedule(self, asset: StreamAsset) -> str | None:
        """Return the name of a stream's schedule if it is off.

        Streams with partitions may be in another schedule of the connection, so nothing is said of them.
        """
        own, general = asset.settings.schedule, asset.connection.schedule
        if not asset.controls.enabled or (own is None and (general is None or asset.partitions)):
            return None
        base = connection_name(asset.connection) if own is None else asset.op_name
        name = f"{base}_schedule"
        return None if name in self._running_schedules else name


def _find_rows(table: Table, metadata: Mapping[str, object]) -> int:
    """Return the rows of a table: as its last event has them, if that is of the same version."""
    rows = unwrap(metadata.get(TABLE_ROWS, metadata.get(ROW_COUNT)))
    is_same = unwrap(metadata.get(TABLE)) == table_identity(table)
    if is_same and unwrap(metadata.get(TABLE_VERSION)) == table.version and rows is not None:
        return int(rows)
    return table.records
