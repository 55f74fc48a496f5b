"""The events of one table, in a log that may have those of others.

`recovery`, `renaming`, `report`, `status` and `step` read them; `table_reading` takes the relation of two
tables from here.

Dagster knows an asset, and an asset has a table in each lake: of another environment (`ELT_ENV`), of a
branch, or of a copy. With one home, the events of all lakes are in one log. A state is of a table, so each
event says of which table it is (`TABLE`), and is compared with no other one:

- An event of the same place is of the table, whatever Delta's id says: a table that was deleted and created
  again has another id, and its events tell that it is behind.
- If there is none, the events of the same id at another place are: the lake was moved or copied. The two
  copies go on apart, because the first event at the new place takes precedence from then on.
- An event that names no table was reported by a person in the UI. It counts for every table.
- A run names its lake by a tag (`LAKE_TAG`) as soon as a step of it starts. One without the tag, which waits,
  counts for every table.

Test: `tests/orchestration/test_shared_home.py`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeVar

import dagster as dg

from elt_assets.lake.delta.table import Table
from elt_assets.orchestration.metadata import SEQUENCE, TABLE, unwrap
from elt_assets.storage.location import Location

LAKE_TAG = "elt/lake"
"""The tag of a run with the URI of the lake that it syncs into."""
MAX_EVENTS = 1000
"""Number of newest events of an asset, or of its partition, among which that of a table is looked for."""
MAX_RUNS = 100
"""Number of newest runs of an asset among which that of a lake is looked for."""
_PAGES = (1, 20, 200)
"""Sizes of the first pages: most logs have the events of one table, so that the first event is one of it."""

_PLANNED = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
"""A run has one for each stream, or for each of its partitions."""

T = TypeVar("T")
_Fetch = Callable[..., dg.EventRecordsResult]


class Relation(Enum):
    """The relation of a table that an event names to another table."""

    SAME_PLACE = auto()
    SAME_TABLE = auto()
    """The same table at another place: moved, or copied."""
    OTHER = auto()


@dataclass(frozen=True)
class TableEvent:
    """A materialisation or observation of an asset."""

    metadata: Mapping[str, Any]
    run_id: str
    timestamp: float
    storage_id: int
    place: str | None  # the URI of the table that it names; None if it names none
    relation: Relation  # to the table that was asked for


class TableEvents:
    """The events of the table of an asset, or of one partition of the asset.

    `table`: its lake if it cannot be opened; then the events of all tables of the asset in that lake.
    """

    def __init__(
        self,
        instance: dg.DagsterInstance,
        key: dg.AssetKey,
        table: Table | Location,
        partition: str | None = None,
    ):
        self._instance = instance
        self._key = key
        self._table = table
        self._partitions = None if partition is None else [partition]

    def newest_materialization(self, key: str | None = None) -> TableEvent | None:
        """Return the newest materialisation; None if there is none among the newest events of the asset.

        `key`: a key of metadata that it must have.
        """
        events = self._read(self._instance.fetch_materializations)
        return _choose(event for event in events if key is None or key in event.metadata)

    def newest_commit(self) -> TableEvent | None:
        """Return the newest event that names a commit. `elt state` and each commit of a sync observe one.

        The newest event is used and not the highest sequence: after a rollback the sequence restarts.
        """
        materialized = _choose(
            filter(_names_commit, self._read(self._instance.fetch_materializations))
        )
        is_here = materialized is not None and materialized.relation is Relation.SAME_PLACE
        after = materialized.storage_id if materialized is not None and is_here else None
        observed = _choose(
            filter(_names_commit, self._read(self._instance.fetch_observations, after))
        )
        events = [event for event in (materialized, observed) if event is not None]
        return _choose(sorted(events, key=lambda event: event.storage_id, reverse=True))

    def all_materializations(self) -> Iterator[TableEvent]:
        """Yield every materialisation in the log, the newest first."""
        return self._read(self._instance.fetch_materializations, maximum=None)

    def _read(
        self, fetch: _Fetch, after: int | None = None, maximum: int | None = MAX_EVENTS
    ) -> Iterator[TableEvent]:
        """Yield the events of the table, the newest first. `after`: the id of an event that they follow."""
        records = dg.AssetRecordsFilter(
            self._key, asset_partitions=self._partitions, after_storage_id=after
        )
        for record in _read_pages(fetch, records, maximum):
            event = relate(record, self._table)
            if event is not None:
                yield event


def relate(record: dg.EventLogRecord, table: Table | Location) -> TableEvent | None:
    """Return the materialisation or observation of a record, if it is of a table, or of a table in a lake."""
    event = record.asset_materialization or record.event_log_entry.asset_observation
    if event is None:
        return None
    named = unwrap(event.metadata.get(TABLE)) or {}
    if isinstance(table, Location):
        relation = Relation.SAME_PLACE if is_below(table, named) else Relation.OTHER
    else:
        relation = find_relation(named, table)
    if relation is Relation.OTHER:
        return None
    return TableEvent(
        event.metadata,
        record.run_id,
        record.timestamp,
        record.storage_id,
        named.get("uri"),
        relation,
    )


def read_newest_materializations(
    instance: dg.DagsterInstance, key: dg.AssetKey
) -> Iterator[Mapping[str, Any]]:
    """Yield the metadata of the newest materialisations of an asset, whatever their tables, newest first."""
    records = _read_pages(
        instance.fetch_materializations, dg.AssetRecordsFilter(key), maximum=MAX_EVENTS
    )
    for record in records:
        if record.asset_materialization is not None:
            yield record.asset_materialization.metadata


def is_below(lake: Location, named: Mapping[str, Any]) -> bool:
    """Return whether the table that an event names is in a lake. An event without one may be of any."""
    place = named.get("uri")
    return place is None or _plain(place).startswith(f"{_plain(lake.uri)}/")


def name_lake(run: dg.DagsterRun, lake: str, instance: dg.DagsterInstance) -> None:
    """Let a run that has started name its lake, once for all its steps. `lake`: a path or URI."""
    stored = instance.get_run_by_id(run.run_id)
    if stored is not None and LAKE_TAG not in stored.tags:
        instance.add_run_tags(run.run_id, {LAKE_TAG: lake})


def is_of_lake(run: dg.DagsterRun, lake: str) -> bool:
    """Return whether a run syncs into a lake, or does not say into which."""
    return _plain(run.tags.get(LAKE_TAG, lake)) == _plain(lake)


def find_newest_run(
    instance: dg.DagsterInstance, key: dg.AssetKey, lake: str
) -> dg.DagsterRun | None:
    """Return the newest run that was to materialise an asset in a lake; None if there is none."""
    seen: set[str] = set()
    before, sizes = None, iter(_PAGES)
    while len(seen) < MAX_RUNS:
        planned = dg.EventRecordsFilter(_PLANNED, key, before_cursor=before)
        size = next(sizes, MAX_EVENTS)
        records = instance.event_log_storage.get_event_records(planned, size)
        for run_id in dict.fromkeys(record.run_id for record in records):
            run = None if run_id in seen else instance.get_run_by_id(run_id)
            if run is not None and is_of_lake(run, lake):
                return run
            seen.add(run_id)
        if len(records) < size:
            break
        before = records[-1].storage_id
    return None


def find_relation(named: Mapping[str, Any], table: Table) -> Relation:
    """Return how the table that an event names is related to a table."""
    place, table_id = named.get("uri"), named.get("id")
    if place is None or _plain(place) == _plain(table.uri):
        return Relation.SAME_PLACE
    is_same = table_id is not None and table_id == table.id
    return Relation.SAME_TABLE if is_same else Relation.OTHER


def choose(items: Iterable[T], relation: Callable[[T], Relation]) -> T | None:
    """Return the first item of the table's own place, or else the first one of the table elsewhere."""
    elsewhere = None
    for item in items:
        if relation(item) is Relation.SAME_PLACE:
            return item
        if relation(item) is Relation.SAME_TABLE and elsewhere is None:
            elsewhere = item
    return elsewhere


def _plain(uri: str) -> str:
    """Return a URI in the form of a path, if it is one of this machine."""
    return str(Location(uri).path or uri)


def _choose(events: Iterable[TableEvent]) -> TableEvent | None:
    return choose(events, lambda event: event.relation)


def _names_commit(event: TableEvent) -> bool:
    return isinstance(unwrap(event.metadata.get(SEQUENCE)), int)


def _read_pages(
    fetch: _Fetch, records: dg.AssetRecordsFilter, maximum: int | None
) -> Iterator[dg.EventLogRecord]:
    """Yield up to `maximum` records, in pages that grow."""
    cursor, count, sizes = None, 0, iter(_PAGES)
    while maximum is None or count < maximum:
        size = next(sizes, MAX_EVENTS)
        page = fetch(
            records, limit=size if maximum is None else min(size, maximum - count), cursor=cursor
        )
        yield from page.records
        cursor, count = page.cursor, count + len(page.records)
        if not page.has_more:
            return
