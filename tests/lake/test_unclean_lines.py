"""The lines of several segments that are not clean are parsed in one job, with the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elt_assets.failpoints import Failpoint
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write import writer as writers
from elt_assets.lake.write.write_spec import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.protocol.airbyte.sync_modes import APPEND_DEDUP
from elt_assets.sync.events import Committed
from elt_assets.sync.selection.fields import UNDECLARED
from tests.lake.crashing import killed_at
from tests.lake.harness import USERS, Lake, user
from tests.lake.staging import INTEGER, checkpoint, data_files, rows, stage, stream

PEOPLE = {**USERS, "age": INTEGER}
KEPT = {**PEOPLE, UNDECLARED: {"type": "object"}}
DATA: Sequence[Any] = [
    user(1),
    user(2, age="x"),
    b"[5]",
    user(3, more=1),
    user("x"),
    user(4, age=[1], more=2, other={}),
    user(None),
    b'{"id":5,"age":5.5}',
    user(6),
]
"""Clean records, records with values that do not fit, and rejected records, with undeclared fields."""


@dataclass(frozen=True)
class Outcome:
    """The result of a commit, and the contents for readers after it."""

    committed: tuple[Any, ...]
    rows: list[tuple[Any, ...]]
    dead: list[tuple[Any, ...]]


def writer_of(lake: Lake, *, keeps: bool = False) -> TableWriter:
    configured = stream(KEPT if keeps else PEOPLE, APPEND_DEDUP, key=["id"])
    spec = WriteSpec(configured, "run-1", keeps_undeclared=keeps)
    return TableWriter(lake.provider, lake.tables(), spec, locate=True)


def write(lake: Lake, writer: TableWriter, parts: int) -> None:
    """Write the records in so many segments."""
    size = len(DATA) // parts
    for first in range(0, len(DATA), size):
        writer.write(stage(lake.folder / "staging", DATA[first : first + size], first=first))


def outcome(lake: Lake, done: Committed, *more: str) -> Outcome:
    committed = (
        done.records,
        done.rejected,
        done.changed,
        list(done.places),
        dict(done.undeclared),
    )
    columns = ("_airbyte_raw_id", "id", "name", "age", "_airbyte_meta.changes", *more)
    found = rows(lake.spark, lake.table, *columns)
    dead = rows(lake.spark, lake.dead_letter, "record", "reason", "place", "extracted_at")
    return Outcome(committed, [(name[24:], *rest) for name, *rest in found], dead)


def synced(provider: SparkProvider, folder: Path, parts: int, *, keeps: bool) -> Outcome:
    lake = Lake(provider, folder)
    writer = writer_of(lake, keeps=keeps)
    write(lake, writer, parts)
    done = writer.commit(checkpoint(1, final=True))
    assert list((folder / "staging").glob("*rows")) == []
    return outcome(lake, done, *([UNDECLARED] if keeps else []))


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("limit", [writers.MAX_WAITING, 1])
def test_several_segments_give_what_one_gives(
    spark_provider: SparkProvider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keeps: bool,
    limit: int,
) -> None:
    monkeypatch.setattr(writers, "MAX_WAITING", limit)
    one = synced(spark_provider, tmp_path / "one", 1, keeps=keeps)
    assert one.committed == (6, 3, 3, [2, 4, 6], {"more": 2, "other": 1})
    assert synced(spark_provider, tmp_path / "three", 3, keeps=keeps) == one


def test_lines_of_several_segments_become_one_file(lake: Lake) -> None:
    writer = writer_of(lake)
    for number in range(3):
        writer.write(stage(lake.folder / "staging", [user(number, age="x")], first=number))
    assert data_files(lake.uri) == []
    assert writer.commit(checkpoint(1)).changed == 3
    assert len(data_files(lake.uri)) == 1


@pytest.mark.parametrize("parts", [1, 3])
def test_a_kill_after_the_first_lines_are_parsed_loses_nothing(lake: Lake, parts: int) -> None:
    killed = writer_of(lake)
    write(lake, killed, parts)
    killed_at(Failpoint.FILES_WRITTEN, 1, lambda: killed.commit(checkpoint(1, final=True)))
    assert lake.table.metadata.state is None
    writer = writer_of(lake)
    write(lake, writer, parts)
    done = writer.commit(checkpoint(1, final=True))
    assert (done.records, done.rejected, list(done.places)) == (6, 3, [2, 4, 6])
    assert lake.ids() == [1, 2, 3, 4, 5, 6]
    assert lake.dead_letter.records == 3


def test_close_removes_lines_that_wait(lake: Lake) -> None:
    writer = writer_of(lake)
    write(lake, writer, 3)
    staging = lake.folder / "staging"
    assert len(list(staging.glob("*.rows"))) == 1
    writer.close()
    assert list(staging.glob("*.rows")) == []
    assert data_files(lake.uri) == []
    assert writer.commit(checkpoint()).records == 0


def test_a_failure_of_their_parse_commits_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(lake)
    write(lake, writer, 3)
    with monkeypatch.context() as patched:
        patched.setattr("elt_assets.lake.write.writer.conform", None)
        with pytest.raises(TypeError):
            writer.commit(checkpoint(1))
    writer.close()
    assert not lake.table.exists
    assert data_files(lake.uri) == []
    assert list((lake.folder / "staging").glob("*rows")) == []
