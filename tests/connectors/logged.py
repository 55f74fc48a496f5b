"""Reads of the log as the lake reads them, and what the tables then have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from random import Random
from typing import Any, Protocol

import msgspec

from connectors.sdk import Slice, SlicedStream, Wait
from connectors.sdk.arrow_records import page_of
from connectors.sdk.groups import GroupCheckpoint, GroupState, StreamFailure, StreamPart
from connectors.sdk.items import Estimate, Measure, Warn
from connectors.sdk.slices import SliceReader
from connectors.sdk.source import Source
from elt_assets.errors import EltError
from elt_assets.failpoints import Failpoint
from elt_assets.protocol.catalog import DELETED_AT, ConfiguredStream, StreamId
from elt_assets.protocol.messages import TRUNCATED, UNCHANGED

Json = dict[str, Any]
DEDUP: Json = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}


class Killed(Exception):
    """The read ends where a test wants it to."""


class Failing:
    """Fails at one of the next failpoints that a sync reaches."""

    def __init__(self, number: int):
        self._left = number

    def __call__(self, point: Failpoint) -> None:
        self._left -= 1
        if self._left == 0:
            raise RuntimeError(f"the test ends the sync at {point.name}")


@dataclass
class Table:
    """What a table of the lake has: the latest row of each key, deletes included, and all rows in order.

    `cursor`: the column that tells which row is the latest. `reasons`: those of the nulls of each row.
    """

    key: Sequence[str]
    cursor: str
    latest: dict[Any, Json] = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    reasons: list[Mapping[str, str]] = field(default_factory=list)

    def add(self, row: Json, reasons: Mapping[str, str]) -> None:
        """Merge a row as a table that deduplicates does.

        Args:
            reasons: those of its nulls that the source reports, by field.
        """
        row = dict(row)
        self.events.append(row)
        self.reasons.append(reasons)
        if TRUNCATED in reasons.values():
            for former in list(self.latest.values()):
                if former[DELETED_AT] is None and former[self.cursor] <= row[self.cursor]:
                    self._merge({**row, **{name: former[name] for name in self.key}})
            return
        before = self.latest.get(tuple(row[name] for name in self.key))
        for name, reason in reasons.items():
            if reason == UNCHANGED and before is not None and before[DELETED_AT] is None:
                row[name] = before[name]
        self._merge(row)

    def _merge(self, row: Json) -> None:
        key = tuple(row[name] for name in self.key)
        before = self.latest.get(key)
        if before is None or row[self.cursor] >= before[self.cursor]:
            self.latest[key] = row

    def rows(self) -> list[Json]:
        """The rows that are there, without the fields of the log."""
        return [
            {name: value for name, value in row.items() if not name.startswith("_ab_cdc")}
            for row in self.latest.values()
            if row[DELETED_AT] is None
        ]


@dataclass
class Lake:
    """Tables of a group of streams, and the last state of each.

    Attributes:
        source: its module and class.
        schemas: the JSON schemas of streams that were discovered before; the others have their present one.
        told: the streams of which a warning or an error has said that a reset may be needed.
    """

    source: str
    config: Json
    names: Sequence[str]
    mode: Json = field(default_factory=lambda: DEDUP)
    schemas: dict[str, Json] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    shared: Json | None = None
    states: dict[StreamId, Json] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    failures: dict[str, EltError] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)

    def sync(self, on_item: Callable[[Any], Any] = lambda _: None) -> None:
        """Read what is new, and commit it at each state.

        Args:
            on_item: called with each item before it is used.

        Raises:
            EltError: that of the first stream that fails, when the others are read.
        """
        self.failures = {}
        source = self.open_source()
        source.selected = list(self.names)
        streams = [
            stream
            for stream in source.open(self.config)
            if isinstance(stream, SlicedStream) and stream.name in self.names
        ]
        configured = {
            stream.id: configure(stream, self.mode, self.schemas.get(stream.name))
            for stream in streams
        }
        group = streams[0].group
        assert group is not None and all(stream.group is group for stream in streams)
        state = None if self.shared is None else GroupState(self.shared, self.states)
        items = group.read(list(configured.values()), state, is_acknowledged=True)
        waiting: list[tuple[SlicedStream, Json, dict[str, str]]] = []
        by_id = {stream.id: stream for stream in streams}
        module = self.source.partition(":")[0].removesuffix(".source")
        config = msgspec.json.encode(self.config)
        readers = {
            name: SliceReader(module, config, member.to_json())
            for name, member in configured.items()
        }
        try:
            for item in items:
                on_item(item)
                if isinstance(item, StreamPart) and isinstance(item.item, Slice):
                    self.slices.append(item.item)
                    stream = by_id[item.stream]
                    for row, reasons in _read(readers[item.stream], stream, item.item):
                        waiting.append((stream, row, reasons))
                elif isinstance(item, StreamPart):
                    if isinstance(item.item, Warn):
                        self.warnings.append(item.item.text)
                        self._tell(item.stream.name, item.item.text)
                    else:
                        assert isinstance(item.item, Estimate | Measure)
                elif isinstance(item, StreamFailure):
                    self.failures[item.stream.name] = item.error
                    self._tell(item.stream.name, str(item.error))
                elif isinstance(item, GroupCheckpoint):
                    self._commit(waiting, item.state)
                    waiting = []
                else:
                    assert isinstance(item, Wait)
        finally:
            items.close()  # type: ignore[attr-defined]
        for error in self.failures.values():
            raise error

    def _tell(self, name: str, text: str) -> None:
        if "elt reset" in text:
            self.told.add(name)

    def reset(self, name: str) -> None:
        """Let the next sync read a stream from the beginning; its rows stay."""
        self.told.discard(name)
        self.states = {stream: part for stream, part in self.states.items() if stream.name != name}

    def open_source(self) -> Source:
        module, _, name = self.source.partition(":")
        source: Source = getattr(import_module(module), name)()
        return source

    def _commit(
        self, rows: Sequence[tuple[SlicedStream, Json, dict[str, str]]], state: GroupState
    ) -> None:
        for stream, row, reasons in rows:
            table = self.tables.setdefault(
                stream.name,
                Table(configure(stream, self.mode).key_columns, stream.cursor_field[0]),
            )
            table.add(row, reasons)
        self.shared = msgspec.json.decode(msgspec.json.encode(state.shared))
        self.states = {
            name: msgspec.json.decode(msgspec.json.encode(part))
            for name, part in state.streams.items()
        }

    def catalog(self, name: str) -> Json:
        """A stream as the source describes it now."""
        source = self.open_source()
        (stream,) = [stream for stream in source.open(self.config) if stream.name == name]
        described: Json = msgspec.json.decode(stream.describe().to_json())
        return described

    def rows(self, name: str) -> list[Json]:
        table = self.tables.get(name)
        return [] if table is None else table.rows()


def _read(
    reader: SliceReader, stream: SlicedStream, part: Slice
) -> Iterator[tuple[Json, dict[str, str]]]:
    """Yield the rows of a slice, and the reasons of their nulls, as a task reads them."""
    batches = (
        reader.read(msgspec.json.encode(part.data))
        if part.file is None
        else reader.read_file(part.file, has_changes=part.file_has_changes)
    )
    for batch in batches:
        page = page_of(batch, stream.json_schema)
        for number, row in enumerate(page.records):
            changes = page.changes.get(number, ())
            plain = msgspec.json.decode(msgspec.json.encode(row))
            yield plain, {change["field"]: change["reason"] for change in changes}


def configure(stream: SlicedStream, mode: Json, schema: Json | None = None) -> ConfiguredStream:
    described = msgspec.json.decode(stream.describe().to_json())
    described["json_schema"] = schema or described["json_schema"]
    body = {"stream": described, "cursor_field": list(stream.cursor_field), **mode}
    body.setdefault("primary_key", [[name] for name in stream.primary_key])
    return ConfiguredStream.from_json(msgspec.json.encode(body))


class Workload(Protocol):
    """A random workload of a database."""

    random: Random

    def run(self, server: Any, count: int, *, truncates: bool = False) -> None:
        """Run some transactions, one after another. `truncates`: also some that remove all rows of a table,
        which wait for the end of other reads."""


class Killer:
    """Ends a read at a random item, and lets the workload go on between items."""

    def __init__(self, server: Any, work: Workload, chance: float):
        self._server, self._work, self._chance = server, work, chance

    def __call__(self, item: Any) -> None:
        if self._work.random.random() < 0.3:
            self._work.run(self._server, 2)
        if self._work.random.random() < self._chance:
            raise Killed
        del item


def run_workload(
    lake: Lake, server: Any, work: Workload, seed: int, run_large: Callable[[int, int], object]
) -> None:
    """Let a server work, and syncs be killed at any item, with resets between; the last one is complete.

    Args:
        run_large: runs a transaction with many rows. Its arguments are the first key, and the number of rows.
    """
    work.run(server, 30)
    if seed % 3 == 0:
        run_large(1000, 30_000)
    for _ in range(12):
        work.run(server, work.random.randrange(8), truncates=True)
        if work.random.random() < 0.2:
            lake.reset(work.random.choice(lake.names))
        try:
            lake.sync(Killer(server, work, chance=0.15))
        except Killed:
            continue
        if work.random.random() < 0.2:
            run_large(work.random.randrange(1000, 5000), 3000)
    lake.sync()
