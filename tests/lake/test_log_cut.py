"""Versions that an erasure removes from the log while others commit: no acknowledged commit is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from elt_assets.errors import ConcurrentSync, SystemFailure
from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.delta import log, opening
from elt_assets.lake.delta.outcome import Superseded
from elt_assets.lake.delta.storage import TableChange
from elt_assets.lake.delta.table import Table
from tests.lake.arrow import IDS, LONG, STRING, columns, commit, put, values
from tests.lake.crashing import done_at

A, B, NEW = (f"elt:orders|{name}" for name in ("a", "b", "new"))


def fill(uri: str, writers: Sequence[str] = (A, A, B)) -> None:
    """A table with a commit of a row for each of some writers."""
    for number, writer in enumerate(writers):
        table = Table(uri, writer)
        table.prepare(IDS)
        commit(table, put(table, IDS, [{"id": number}]), state=f'{{"c":{number}}}')


def erase(uri: str, publications: int = 0) -> None:
    """Commit for each writer as an erasure does, and again when it publishes; then remove older versions."""
    writers = sorted(Table(uri, A).writers)
    for writer in [*writers, *writers[:1] * publications]:
        table = Table(uri, writer)
        before = table.metadata
        after = replace(
            before.begin_next("erasure"), same_as=before.stands_for or "", erasure="erasure"
        )
        table.commit(TableChange(), after, 0)
    table.forget_versions()


def list_versions(uri: str, suffix: str = ".json") -> list[int]:
    paths = Path(uri, "_delta_log").glob(f"*{suffix}")
    return sorted(int(path.name.removesuffix(suffix)) for path in paths)


def assert_continues(uri: str, writer: str, *ids: int) -> None:
    """The log has no entry besides its versions, and the next run commits to it."""
    versions = list_versions(uri)
    assert versions == list(range(versions[0], Table(uri, A).version + 1))
    assert values(uri) == sorted(ids)
    run = Table(uri, writer)
    commit(run, put(run, IDS, [{"id": 100}]), state='{"c":100}')
    assert values(uri) == sorted([*ids, 100])
    assert Table(uri, writer).metadata.state == '{"c":100}'


@pytest.fixture(params=["100", "1"])
def checkpoint_interval(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an interval of 1, each commit writes a checkpoint."""
    monkeypatch.setitem(opening.CONFIGURATION, "delta.checkpointInterval", request.param)


@pytest.mark.usefixtures("checkpoint_interval")
@pytest.mark.parametrize("publications", [0, 1, 3])
@pytest.mark.parametrize("writers", [(A,), (A, A, B)])
@pytest.mark.parametrize("writer", [A, B, NEW])
def test_a_commit_to_a_version_that_an_erasure_removes_is_refused(
    uri: str, writer: str, writers: Sequence[str], publications: int
) -> None:
    """All of the erasure happens between the last look at the log and the commit."""
    fill(uri, writers)
    run = Table(uri, writer)
    before = run.metadata.state
    new = put(run, IDS, [{"id": 9}])
    with (
        done_at(Failpoint.COMMIT_READY, lambda: erase(uri, publications)),
        pytest.raises(ConcurrentSync),
    ):
        commit(run, new, state='{"c":9}')
    assert Table(uri, writer).metadata.state == before
    assert_continues(uri, writer, *range(len(writers)))


@pytest.mark.parametrize("publications", [0, 1, 3])
def test_a_commit_to_a_removed_version_does_not_count_if_its_answer_is_lost(
    uri: str, publications: int
) -> None:
    fill(uri, [A])
    run = Table(uri, A)
    new = put(run, IDS, [{"id": 9}])
    steps = iter(("erase", "lose"))
    due = [next(steps)]

    def interrupt(point: Failpoint) -> None:
        if (point, due) == (Failpoint.COMMIT_READY, ["erase"]):
            due.clear()
            erase(uri, publications)
            due.append(next(steps))
        elif (point, due) == (Failpoint.COMMIT_PUBLISHED, ["lose"]):
            due.clear()
            raise OSError("the answer is lost")

    with armed(interrupt), pytest.raises((ConcurrentSync, SystemFailure)):
        commit(run, new, state='{"c":9}')
    assert values(uri) == [0]
    assert Table(uri, A).metadata.state == '{"c":0}'


@pytest.mark.usefixtures("checkpoint_interval")
@pytest.mark.parametrize("publications", [0, 1, 3])
@pytest.mark.parametrize("writer", [A, NEW])
def test_a_commit_before_an_erasure_counts_although_the_log_begins_after_it(
    uri: str, writer: str, publications: int
) -> None:
    fill(uri)
    run = Table(uri, writer)
    new = put(run, IDS, [{"id": 9}])
    with done_at(Failpoint.COMMIT_PUBLISHED, lambda: erase(uri, publications)):
        commit(run, new, state='{"c":9}')
    assert Table(uri, writer).metadata.state == '{"c":9}'
    with pytest.raises(ConcurrentSync):
        commit(run, put(run, IDS, [{"id": 10}]), state='{"c":10}')
    assert_continues(uri, writer, 0, 1, 2, 9)


@pytest.mark.parametrize("publications", [0, 1, 3])
def test_a_compaction_in_a_version_that_an_erasure_removes_is_given_up(
    uri: str, publications: int
) -> None:
    fill(uri)
    run = Table(uri, A)
    new = put(run, IDS, [{"id": 0}, {"id": 1}, {"id": 2}])
    with (
        done_at(Failpoint.COMMIT_READY, lambda: erase(uri, publications)),
        pytest.raises(Superseded),
    ):
        run.reorganise(TableChange(new, run.files))
    assert_continues(uri, A, 0, 1, 2)


@pytest.mark.parametrize("point", [Failpoint.COMMIT_PUBLISHED, Failpoint.COMPACTION_PUBLISHED])
def test_a_commit_counts_if_another_run_has_just_written_a_checkpoint(
    uri: str, monkeypatch: pytest.MonkeyPatch, point: Failpoint
) -> None:
    monkeypatch.setitem(opening.CONFIGURATION, "delta.checkpointInterval", "1")
    fill(uri)
    run, files = Table(uri, A), Table(uri, A).files
    with done_at(point, lambda: fill(uri, [B])):
        if point is Failpoint.COMMIT_PUBLISHED:
            commit(run, put(run, IDS, [{"id": 9}]))
        else:
            run.reorganise(TableChange(put(run, IDS, [{"id": 9}]), files))
    rows = [0, 0, 1, 2, 9] if point is Failpoint.COMMIT_PUBLISHED else [0, 9]
    assert_continues(uri, A, *rows)


def test_a_new_column_counts_if_another_run_has_just_written_a_checkpoint(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(opening.CONFIGURATION, "delta.checkpointInterval", "1")
    fill(uri)
    run = Table(uri, A)
    with done_at(Failpoint.TABLE_ALTERED, lambda: fill(uri, [B])):
        run.prepare(columns(id=LONG, name=STRING))
    assert run.schema.names == ["id", "name"]
    assert_continues(uri, A, 0, 0, 1, 2)


def test_a_version_that_an_erasure_has_removed_gets_no_checkpoint(uri: str) -> None:
    """It would have the bounds of erased rows, and be the one that tables are opened with."""
    fill(uri)
    maintained = Table(uri, A)
    assert maintained.files
    erase(uri)
    maintained.write_checkpoint()
    first = min(list_versions(uri))
    assert first > maintained.version
    assert list_versions(uri, ".checkpoint.parquet") == [first]
    assert log.find_checkpoint_version(maintained.storage) == first
    assert_continues(uri, A, 0, 1, 2)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_restore_undoes_all_commits_of_a_writer_that_began_after_an_erasure(
    uri: str, is_gone: bool
) -> None:
    """It begins anew. One whose commits may have been removed from the log does not."""
    fill(uri, [A])
    erase(uri)
    version = Table(uri, A).version
    fill(uri, [B, B])
    DeltaTable(uri).restore(version)
    if is_gone:
        removed = DeltaTable(uri, version=version + 1)
        removed.create_checkpoint()
        for number in range(version + 1):
            Path(uri, "_delta_log", f"{number:020}.json").unlink(missing_ok=True)
        with pytest.raises(SystemFailure, match="no longer contains the commit"):
            Table(uri, B)
        return
    assert Table(uri, B).metadata.state is None
    assert Table(uri, A).metadata.state == '{"c":0}'
    assert_continues(uri, B, 0)
