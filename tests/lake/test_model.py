"""Each policy, history included, equals a few lines over dicts: whatever the order of arrival, wherever the
batches are cut, with late arrivals, re-deliveries, deletes, and restarts in between."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from pyspark.sql import SparkSession

from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.protocol.messages import RawRecord
from elt_assets.sync.segments import Segment, SegmentWriter
from tests.lake.staging import (
    APP,
    EMITTED_AT,
    INTEGER,
    STRING,
    TIMESTAMP,
    checkpoint,
    stream,
    take_generations,
)

START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
SCHEMA = {
    "id": INTEGER,
    "part": {"type": "object", "properties": {"of": STRING}},
    "text": STRING,
    "at": TIMESTAMP,
    "_ab_cdc_deleted_at": STRING,
}
KEY = [["id"], ["part", "of"]]
COUNTER = itertools.count()


class Event(NamedTuple):
    """A record; `at`: hours after START, or None."""

    id: int
    part: str
    text: str
    at: int | None
    deleted: bool

    @property
    def key(self) -> tuple[int, str]:
        return self.id, self.part

    @property
    def data(self) -> dict[str, Any]:
        at = None if self.at is None else (START + dt.timedelta(hours=self.at)).isoformat()
        deleted = "yes" if self.deleted else None
        part = {"of": self.part}
        return {
            "id": self.id,
            "part": part,
            "text": self.text,
            "at": at,
            "_ab_cdc_deleted_at": deleted,
        }


class Step(NamedTuple):
    """A batch: its events, and what happens: committed as one segment or two; or first lost by a crash."""

    events: list[Event]
    segments: int
    crashes: bool
    restarts: bool


EVENTS = st.builds(
    Event,
    id=st.integers(0, 2),
    part=st.sampled_from(["a", "b"]),
    text=st.sampled_from(["x", "y"]),
    at=st.none() | st.integers(0, 5),
    deleted=st.sampled_from([False, False, False, True]),
)
STEPS = st.lists(
    st.builds(
        Step,
        events=st.lists(EVENTS, min_size=1, max_size=8),
        segments=st.integers(1, 2),
        crashes=st.booleans(),
        restarts=st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


Place = tuple[int, bool, int, int]
"""The place of a record among those of its key: era, whether it has a cursor, the cursor, arrival."""


def chains(events: list[Event]) -> Iterator[list[tuple[Place, Event]]]:
    """The records of each key in their order. A delete without a cursor ends what arrived before it."""
    for key in {event.key for event in events}:
        era, chain = 0, []
        for number, event in enumerate(event for event in events if event.key == key):
            era += is_reset(event)
            chain.append(((era, event.at is not None, event.at or 0, number), event))
        yield sorted(chain)


def is_reset(event: Event) -> bool:
    return event.deleted and event.at is None


def current(events: list[Event]) -> dict[tuple[int, str], Event]:
    """The few lines: of each key the latest; nothing where that is a delete."""
    latest = (chain[-1][1] for chain in chains(events))
    return {event.key: event for event in latest if not event.deleted}


def versions(events: list[Event]) -> Iterator[tuple[Event, int | None, int | None]]:
    """Each version with its validity, in hours after START; None: since it was extracted, or until now.

    Every record was extracted before START.
    """
    for chain in chains(events):
        distinct = [
            (place, event)
            for (place, event), before in zip(chain, [(None, None), *chain], strict=False)
            if event != before[1]
        ]
        # Of equal cursors, the last one; without a cursor, each has its own time of extraction.
        last = {
            place if event.at is None else place[:3]: event for place, event in distinct
        }.values()
        starts = [-1 if event.at is None else event.at for event in last]
        starts = [min(starts[number:]) for number in range(len(starts))]
        for event, since, until in zip(last, starts, [*starts[1:], None], strict=True):
            if not event.deleted:
                yield event, _or_none(since), _or_none(until)


def _or_none(hour: int | None) -> int | None:
    return None if hour == -1 else hour


@pytest.mark.spec("protocol.74", "protocol.83", "protocol.84", "protocol.93")
@pytest.mark.parametrize("cursor", [["at"], []], ids=["cursor", "no cursor"])
def test_append_dedup_with_history_equals_the_model(
    spark: SparkSession,
    spark_provider: SparkProvider,
    tmp_path: Path,
    engine: str,
    cursor: list[str],
) -> None:
    @settings(
        max_examples=3 if engine == "whole" else 2,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(STEPS)
    def holds(steps: list[Step]) -> None:
        run = Run(spark, spark_provider, tmp_path / str(next(COUNTER)), cursor)
        for step in steps:
            run.take(step)
        events = run.events if cursor else [event._replace(at=None) for event in run.events]
        assert run.current() == {key: e.text for key, e in current(events).items()}
        if cursor:
            expected = ((e.key, e.text, since, until) for e, since, until in versions(events))
            assert run.versions() == sorted(expected, key=repr)
        assert run.is_current() == run.current()
        shutil.rmtree(run.folder)

    holds()


class Run:
    """Syncs of one stream into tables of its own."""

    def __init__(
        self, spark: SparkSession, provider: SparkProvider, folder: Path, cursor: list[str]
    ):
        self.spark, self.provider, self.folder, self.cursor = spark, provider, folder, cursor
        self.events: list[Event] = []
        self._writer: TableWriter | None = None
        self._staged_so_far = 0

    def take(self, step: Step) -> None:
        if step.crashes:
            for segment in self._staged(step):
                self._open().write(segment)
            self._writer = None
        for segment in self._staged(step):
            self._open().write(segment)
        self.events += step.events
        self._open().commit(checkpoint({"seen": len(self.events)}))
        if step.restarts:
            self._writer = None

    def _staged(self, step: Step) -> list[Segment]:
        self._open()
        folder = self.folder / "staging"
        folder.mkdir(parents=True, exist_ok=True)
        cut = len(step.events) // step.segments
        parts = [step.events] if step.segments == 1 else [step.events[:cut], step.events[cut:]]
        found = []
        for part in filter(None, parts):
            writer = SegmentWriter(folder / f"{next(COUNTER)}.jsonl", self._staged_so_far)
            for event in part:
                data = Raw(json.dumps(event.data).encode())
                writer.append(RawRecord("users", data, EMITTED_AT + next(COUNTER)))
            self._staged_so_far = writer.next_sequence
            found.append(writer.close())
        return found

    def _open(self) -> TableWriter:
        if self._writer is None:
            self._staged_so_far = 0
            tables = self._tables()
            tables.roll_back_companions("run")
            wanted = stream(SCHEMA, "append_dedup", cursor=self.cursor or ["at"])
            wanted.primary_key, wanted.cursor_field = KEY, self.cursor
            wanted.sync_mode = "incremental" if self.cursor else "full_refresh"
            take_generations(wanted, tables.metadata)
            wanted.sync_id = tables.metadata.sync_id + 1
            self._writer = TableWriter(
                self.provider, tables, WriteSpec(wanted, "run", history=True)
            )
        return self._writer

    def _tables(self) -> StreamTables:
        return StreamTables(str(self.folder / "users"), APP, history=True)

    def current(self) -> dict[tuple[int, str], str]:
        rows = self._tables().main.dataframe(self.spark).collect()
        found = {(row.id, row.part.of): row.text for row in rows}
        assert len(found) == len(rows)
        return found

    def is_current(self) -> dict[tuple[int, str], str]:
        history = self._tables().history
        assert history is not None
        rows = history.dataframe(self.spark).where("_is_current").collect()
        assert all(row._valid_to is None for row in rows)
        return {(row.id, row.part.of): row.text for row in rows}

    def versions(self) -> list[tuple[Any, ...]]:
        history = self._tables().history
        assert history is not None
        rows = history.dataframe(self.spark).collect()
        return sorted(
            (
                ((row.id, row.part.of), row.text, _hours(row._valid_from), _hours(row._valid_to))
                for row in rows
            ),
            key=repr,
        )


def _hours(time: dt.datetime | None) -> int | None:
    """Hours after START; None for no time, and for the time of an extraction."""
    if time is None or time.astimezone(dt.timezone.utc) < START:
        return None
    return int((time.astimezone(dt.timezone.utc) - START).total_seconds() // 3600)
