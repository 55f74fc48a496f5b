"""Tests that the answers of a history for past moments stay, except since the place of a later record.

The rule is that of `lake.merge.history`. After each commit, the answers for all moments are compared with
those from before it, and only those may differ that the records of the commit may change.
"""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from elt_assets.failpoints import Failpoint
from elt_assets.lake.merge import key_order
from elt_assets.lake.read.snapshots import snapshot
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.stored_stream import RefreshMode
from elt_assets.protocol.catalog import APPEND_DEDUP, DELETED_AT, OVERWRITE_DEDUP, ConfiguredStream
from tests.lake.crashing import killed_at
from tests.lake.harness import Lake
from tests.lake.staging import (
    APP,
    INTEGER,
    STRING,
    TIMESTAMP,
    checkpoint,
    stage,
    stream,
    take_generations,
)

BEGIN = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)
HOURS = range(8)
CURSORS = {"time": ["at"], "number": ["number"], "none": []}
PROPERTIES = {"id": INTEGER, "at": TIMESTAMP, "number": INTEGER, "text": STRING, DELETED_AT: STRING}


class Record(NamedTuple):
    """A record of a key; `hour`: its cursor, in hours after BEGIN; None for a null."""

    id: int
    hour: int | None
    text: str = "a"
    deleted: bool = False

    @property
    def at(self) -> dt.datetime | None:
        return None if self.hour is None else BEGIN + dt.timedelta(hours=self.hour)

    @property
    def data(self) -> dict[str, Any]:
        marker = "2024-01-01T00:00:00Z" if self.deleted else None
        at = None if self.at is None else self.at.isoformat()
        fields = {"id": self.id, "at": at, "number": self.hour, "text": self.text}
        return {**fields, DELETED_AT: marker}


class Step(NamedTuple):
    """A sync: `sync`, `overwrite`, or a refresh that is to `truncate` or `retain`; `off`: one without the
    history. `dies`: it is killed between the commits of the history and the table first."""

    kind: str
    records: Sequence[Record]
    dies: bool = False


class Version(NamedTuple):
    key: int
    content: tuple[Any, ...]
    since: dt.datetime
    until: dt.datetime | None
    is_current: bool
    raw_id: str

    def holds_at(self, moment: dt.datetime) -> bool:
        return self.since <= moment and (self.until is None or moment < self.until)


@dataclass
class Timeline:
    """A stream with a history, and what the history has answered."""

    lake: Lake
    cursor: str
    moments: list[dt.datetime] = field(default_factory=list)
    epochs: dict[int, dt.datetime] = field(default_factory=dict)
    has_null: set[int] = field(default_factory=set)
    is_behind: bool = False

    def __post_init__(self) -> None:
        half = dt.timedelta(minutes=30)
        self.moments += [BEGIN + dt.timedelta(hours=hour) - half for hour in (*HOURS, len(HOURS))]

    def take(self, step: Step) -> None:
        """Sync once; compare the answers with those before."""
        before, moment = self.versions(), now()
        self.moments.append(moment)
        if step.dies:
            self._die(step)
            assert self.versions() == before
        self._sync(step)
        self.check(step, before, moment)

    def _die(self, step: Step) -> None:
        try:
            killed_at(Failpoint.COMPANION_COMMITTED, 1, lambda: self._sync(step))
        except AssertionError:  # the history has no commit, and the sync is complete
            return

    def _sync(self, step: Step) -> None:
        self.lake.history = step.kind != "off"
        wanted = self._configured(step.kind)
        writer = self.lake.writer(wanted)
        data = [record.data for record in step.records]
        if data:
            writer.write(stage(self.lake.folder / "staging", data, at=milliseconds()))
        writer.commit(checkpoint(next(COUNT), final=True))
        writer.close()

    def _configured(self, kind: str) -> ConfiguredStream:
        policy = OVERWRITE_DEDUP if kind == "overwrite" else APPEND_DEDUP
        wanted = stream(PROPERTIES, policy, key=["id"], cursor=CURSORS[self.cursor])
        mode: RefreshMode = kind if kind in ("truncate", "retain") else "none"  # type: ignore[assignment]
        head = self.lake.tables().metadata
        take_generations(wanted, head, mode)
        wanted.sync_id = max(milliseconds(), head.sync_id + 1)
        return wanted

    def check(self, step: Step, before: list[Version], moment: dt.datetime) -> None:
        after = self.versions()
        is_refresh = step.kind in ("overwrite", "truncate") or self.is_behind
        self.is_behind = step.kind == "off"
        if step.kind == "off":
            assert after == before
            return
        assert_sound(after)
        current = sorted(version.content for version in after if version.is_current)
        assert current == self.rows(), "the current versions are not the rows of the table"
        for key in {version.key for version in (*before, *after)}:
            records = [record for record in step.records if record.id == key]
            old, new = of_key(before, key), of_key(after, key)
            if not before:
                continue
            if is_refresh:
                assert answers(old, self.past(moment)) == answers(new, self.past(moment)), (
                    key,
                    old,
                    new,
                )
                if old != new:
                    self.epochs[key] = moment
            else:
                self._check_records(key, records, old, new, moment)

    def _check_records(
        self,
        key: int,
        records: Sequence[Record],
        old: list[Version],
        new: list[Version],
        moment: dt.datetime,
    ) -> None:
        """Compare the answers of a sync that is no refresh."""
        self.has_null |= {record.id for record in records if record.hour is None}
        places = [self._place(record, moment) for record in records]
        for past in self.past(moment):
            if answers(old, [past]) == answers(new, [past]):
                continue
            ordered = key not in self.has_null and key not in self.epochs
            since = [version.since for version in old if version.holds_at(past)] if ordered else []
            start = since[0] if since else dt.datetime.min.replace(tzinfo=dt.timezone.utc)
            assert any(start <= place <= past for place in places), (key, past, old, new)

    def _place(self, record: Record, moment: dt.datetime) -> dt.datetime:
        """Return the time since which a record may change answers; `moment`: before it was extracted."""
        is_time = self.cursor == "time" and record.at is not None
        begin = self.epochs.get(record.id)
        if not is_time or (begin is not None and record.at < begin):  # type: ignore[operator]
            return moment
        assert record.at is not None
        return record.at

    def past(self, until: dt.datetime) -> list[dt.datetime]:
        return [moment for moment in self.moments if moment <= until]

    def versions(self) -> list[Version]:
        """The history as readers see it."""
        if not (self.lake.folder / "users_history").exists():
            return []
        rows = snapshot(self.lake.spark, f"{self.lake.uri}_history", f"{APP}_history").collect()
        found = [
            Version(
                row.id,
                (row.id, row.number or 0, row.text),
                row._valid_from.astimezone(dt.timezone.utc),
                row._valid_to and row._valid_to.astimezone(dt.timezone.utc),
                row._is_current,
                row._airbyte_raw_id,
            )
            for row in rows
        ]
        return sorted(found, key=lambda version: (version.key, version.since, version.raw_id))

    def rows(self) -> list[tuple[Any, ...]]:
        rows = self.lake.table.dataframe(self.lake.spark).collect()
        return sorted((row.id, row.number or 0, row.text) for row in rows)


COUNT = itertools.count(1)


def now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)


def milliseconds() -> int:
    """The present time, rounded up."""
    return int(now().timestamp() * 1000) + 1


def of_key(versions: Sequence[Version], key: int) -> list[Version]:
    return [version for version in versions if version.key == key]


def answers(versions: Sequence[Version], moments: Sequence[dt.datetime]) -> list[Any]:
    """The result of a query for each moment."""
    return [
        [version.raw_id for version in versions if version.holds_at(moment)] for moment in moments
    ]


def assert_sound(versions: Sequence[Version]) -> None:
    """Each record is one version, and a key has one version at a time."""
    ids = [version.raw_id for version in versions]
    assert len(ids) == len(set(ids)), "a record is two versions"
    for version in versions:
        assert version.until is None or version.since <= version.until
        assert version.is_current == (version.until is None)
    for _, of_one in itertools.groupby(versions, lambda version: version.key):
        lasting = [version for version in of_one if version.since != version.until]
        for former, later in itertools.pairwise(lasting):
            assert former.until is not None
            assert former.until <= later.since


@pytest.fixture(params=["one task", pytest.param("ranges", marks=pytest.mark.long)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of merging."""
    if request.param == "ranges":
        monkeypatch.setattr(key_order, "MAX_TASKS", 0)
    return str(request.param)


A, B = Record(1, 1, "a"), Record(1, 5, "b")
OTHER = Record(2, 1)
GONE = Record(1, None, "", True)
BEGINNING = Step("sync", [A, B, OTHER])
SCENARIOS = {
    "a truncating refresh with an older cursor": [
        *(BEGINNING, Step("truncate", [Record(1, 2, "c"), OTHER])),
        *(Step("sync", [Record(1, 3, "late")]), Step("sync", [Record(1, 2, "later still")])),
    ],
    "an overwritten row with an equal cursor, or a later one": [
        *(Step("overwrite", [A, OTHER]), Step("overwrite", [Record(1, 1, "c"), Record(2, 4)])),
        *(Step("overwrite", [Record(1, 2, "x"), Record(1, 7, "d")]), Step("overwrite", [A])),
    ],
    "a key that is gone, and comes back unchanged or with a later cursor": [
        *(Step("overwrite", [A, OTHER]), Step("overwrite", [Record(3, 1)])),
        *(Step("overwrite", [A, Record(2, 7)]), Step("sync", [Record(3, 1)])),
    ],
    "deletes, and what is inserted again": [
        *(BEGINNING, Step("sync", [Record(1, 6, "b", True)]), Step("truncate", [OTHER])),
        *(Step("sync", [Record(1, 5, "b")]), Step("truncate", [A, OTHER])),
    ],
    "late records and deletes": [
        *(BEGINNING, Step("sync", [Record(1, 3, "late")]), Step("sync", [Record(1, 2, "", True)])),
        *(Step("sync", [Record(1, 5, "b again")]), Step("retain", [A, B, Record(1, 5, "c")])),
    ],
    "records without a cursor": [
        *(Step("sync", [Record(1, None), OTHER]), Step("sync", [Record(1, None, "b")])),
        *(Step("sync", [Record(1, 3)]), Step("truncate", [Record(1, None, "c")])),
    ],
    "deletes without a cursor": [
        *(BEGINNING, Step("sync", [GONE]), Step("sync", [Record(1, 3, "old"), Record(1, 6, "c")])),
        *(Step("off", [GONE, Record(1, 2, "d")]), Step("sync", [Record(1, 1, "e")])),
        *(Step("overwrite", [Record(1, 7, "x"), GONE, Record(1, 4, "f")]), Step("sync", [A])),
    ],
    "a history that was off": [
        *(BEGINNING, Step("off", [Record(1, 7, "meanwhile"), Record(3, 1)])),
        *(Step("sync", [Record(1, 6, "late"), Record(2, 3, "c")], True), Step("sync", [B])),
    ],
}


SHORT = (
    "a truncating refresh with an older cursor",
    "deletes without a cursor",
    "a history that was off",
)


@pytest.mark.parametrize(
    "name",
    [*SHORT, *(pytest.param(n, marks=pytest.mark.long) for n in SCENARIOS if n not in SHORT)],
)
@pytest.mark.parametrize("cursor", ["time", pytest.param("number", marks=pytest.mark.long)])
def test_answers_stay(
    spark_provider: SparkProvider, tmp_path: Path, way: str, cursor: str, name: str
) -> None:
    timeline = Timeline(Lake(spark_provider, tmp_path, history=True), cursor)
    for step in SCENARIOS[name]:
        timeline.take(step)


RECORDS = st.lists(
    st.builds(
        Record,
        id=st.integers(1, 2),
        hour=st.sampled_from([None, *HOURS, *HOURS]),
        text=st.sampled_from("ab"),
        deleted=st.sampled_from([False, False, False, True]),
    ),
    max_size=3,
)
STEPS = st.builds(
    Step,
    kind=st.sampled_from(["sync", "sync", "sync", "overwrite", "truncate", "retain", "off"]),
    records=RECORDS,
    dies=st.booleans(),
)


@pytest.mark.parametrize(
    "cursor", ["time", *(pytest.param(n, marks=pytest.mark.long) for n in ("number", "none"))]
)
def test_answers_stay_in_any_order_of_syncs(
    spark_provider: SparkProvider, tmp_path: Path, way: str, cursor: str
) -> None:
    check_any_order(spark_provider, tmp_path, cursor, examples=3)  # the first is trivial


@pytest.mark.long
@pytest.mark.parametrize("cursor", CURSORS)
def test_answers_stay_in_any_order_of_many_syncs(
    spark_provider: SparkProvider, tmp_path: Path, way: str, cursor: str
) -> None:
    check_any_order(spark_provider, tmp_path, cursor, examples=30)


def check_any_order(provider: SparkProvider, folder: Path, cursor: str, *, examples: int) -> None:
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(STEPS, min_size=3, max_size=6))
    def holds(steps: list[Step]) -> None:
        home = folder / str(next(COUNT))
        timeline = Timeline(Lake(provider, home, history=True), cursor)
        for step in steps:
            timeline.take(step)
        shutil.rmtree(home)

    holds()
