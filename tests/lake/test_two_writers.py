"""Two at once: of two runs of a stream one wins and the other changes nothing; partitions, compactions and
syncs lose nothing beside each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elt_assets.errors import ConcurrentSync
from elt_assets.failpoints import Failpoint
from elt_assets.lake.admin import maintenance
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, OVERWRITE
from tests.lake.crashing import EVENTS, configured, done_at, event, expected, read, sync, view
from tests.lake.harness import Lake
from tests.lake.readers import assert_all_readers_agree
from tests.lake.staging import APP, STRING, checkpoint, rows, stream

FIRST = [event(1, 10), event(2, 10), event(None, 1)]
SECOND = [event(1, 20), event(3, 20), event(None, 2)]
THIRD = [event(2, 30), event(None, 3)]


@pytest.fixture
def lake(spark_provider: SparkProvider, tmp_path: Path) -> Lake:
    return Lake(spark_provider, tmp_path, history=True)


def opened(lake: Lake, *batches: list[dict[str, Any]]) -> TableWriter:
    """A run that has written, and has not committed."""
    writer = lake.writer(configured(lake))
    for batch in batches:
        writer.write(lake.stage(*batch))
    return writer


# Two runs of one stream


@pytest.mark.parametrize("history", [True, False])
def test_the_second_of_two_runs_changes_nothing(lake: Lake, history: bool) -> None:
    lake.history = history
    sync(lake, [FIRST])
    loser = opened(lake, [event(9, 99), event(None, 9)])
    sync(lake, [FIRST, SECOND])
    before = view(lake)
    with pytest.raises(ConcurrentSync):
        loser.commit(checkpoint(2, final=True))
    loser.close()
    assert view(lake) == before
    sync(lake, [FIRST, SECOND, THIRD])
    wanted = expected([FIRST, SECOND, THIRD])
    assert view(lake) == (wanted if history else wanted._replace(history=[]))


def test_the_first_of_two_runs_can_continue(lake: Lake) -> None:
    """The first run commits, although the other, before it failed, had rejected records to publish."""
    sync(lake, [FIRST])
    winner, loser = opened(lake, SECOND[:2]), opened(lake, [event(9, 99), event(None, 9)])
    winner.commit(checkpoint(2))
    with pytest.raises(ConcurrentSync):
        loser.commit(checkpoint(2, final=True))
    loser.close()
    winner.write(lake.stage(*THIRD))
    winner.commit(checkpoint(3, final=True))
    assert view(lake) == expected([FIRST, SECOND[:2], THIRD])


def together(*runs: Callable[[], object]) -> list[BaseException | None]:
    """Run all at the same moment; what each raised."""
    found: list[BaseException | None] = [None] * len(runs)
    barrier = threading.Barrier(len(runs))

    def call(number: int) -> None:
        barrier.wait()
        try:
            runs[number]()
        except BaseException as error:  # noqa: BLE001 - the test asserts on it
            found[number] = error

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_only_one_of_two_simultaneous_runs_commits(lake: Lake) -> None:
    batches = [FIRST]
    sync(lake, batches)
    for number in range(2, 5):
        candidates = [[event(who, number * 10), event(None, number * 10 + who)] for who in (1, 2)]
        state = checkpoint(number, final=True)
        raised = together(*(partial(opened(lake, one).commit, state) for one in candidates))
        [winner] = [at for at, error in enumerate(raised) if error is None]
        assert isinstance(raised[1 - winner], ConcurrentSync), raised
        batches.append(candidates[winner])
        assert view(lake) == expected(batches)


# Partitions of one table


def test_simultaneous_runs_of_two_partitions_lose_no_rows(lake: Lake) -> None:
    lake.history, parts, rounds = False, ["2026-01-01", "2026-01-02"], 3
    for number in range(1, rounds + 1):
        writers = []
        for part in parts:
            wanted = stream(EVENTS, OVERWRITE, generation=number)
            writers.append(lake.writer(wanted, partition=part))
            writers[-1].write(lake.stage(event(number, 1, part), b"[5]"))
        state = checkpoint(number, final=True)
        assert together(*(partial(each.commit, state) for each in writers)) == [None, None]
    found = rows(lake.spark, lake.table, "_elt_partition", "text", "id")
    assert found == [(part, part, rounds) for part in parts]
    for part in parts:
        head = lake.tables(f"{APP}|{part}").metadata
        assert (head.generation, head.sequence) == (rounds, rounds + 1)
        assert head.state is not None and f'"stream_state":{rounds}' in head.state
    dead = rows(lake.spark, lake.dead_letter, "_elt_partition")
    assert dead == [(part,) for part in parts]  # of the generation that is there


@pytest.mark.parametrize("is_first_sync", [True, False])
def test_a_column_that_another_partition_adds_is_kept(lake: Lake, is_first_sync: bool) -> None:
    """A merge writes the rows of other partitions again, with columns that it did not know at its start."""
    lake.history = False
    how: dict[str, Any] = {"key": ["id"], "cursor": ["at"]}
    wider = stream({**EVENTS, "more": STRING}, APPEND_DEDUP, **how)
    if not is_first_sync:
        for part in ("p1", "p2"):
            filled = lake.writer(stream(EVENTS, APPEND_DEDUP, **how), partition=part)
            filled.write(lake.stage(event(1, 1, part)))
            filled.commit(checkpoint(1, final=True))
    slow = lake.writer(stream(EVENTS, APPEND_DEDUP, **how), partition="p1")
    slow.write(lake.stage(event(1, 2, "p1")))
    quick = lake.writer(wider, partition="p2")
    quick.write(lake.stage({**event(1, 2, "p2"), "more": "new"}))
    quick.commit(checkpoint(2, final=True))
    slow.commit(checkpoint(2, final=True))
    found = rows(lake.spark, lake.table, "_elt_partition", "text", "more")
    assert found == [("p1", "p1", None), ("p2", "p2", "new")]


# Beside a compaction


def compacted(lake: Lake) -> None:
    for table in (lake.tables().main, *lake.tables().companions.values()):
        if table.exists:
            maintenance.compact(lake.spark, table)


def small_files(lake: Lake) -> None:
    """A table and a dead letter of two files each."""
    sync(lake, [FIRST, SECOND], configured(lake, APPEND))
    assert len(lake.table.files) == len(lake.dead_letter.files) == 2


def once(call: Callable[[], object]) -> Callable[[], None]:
    calls = iter([call])

    def made() -> None:
        for each in calls:
            each()

    return made


AFTER = [event(1, 40), event(4, 40), b"[5]"]
APPENDED = [(1, 10), (1, 20), (2, 10), (3, 20)]


@pytest.mark.parametrize("first", ["compaction", "sync"])
@pytest.mark.parametrize(
    ("policy", "ids"),
    [
        (APPEND, sorted([*APPENDED, (1, 40), (4, 40)])),
        (APPEND_DEDUP, [(1, 40), (2, 10), (3, 20), (4, 40)]),
        (OVERWRITE, [(1, 40), (4, 40)]),
    ],
)
def test_a_sync_during_a_compaction_loses_no_rows(
    lake: Lake, policy: str, ids: list[tuple[int, int]], first: str
) -> None:
    small_files(lake)
    lake.history = policy == APPEND_DEDUP
    writer = lake.writer(configured(lake, policy))
    writer.write(lake.stage(*AFTER))
    commit = once(lambda: writer.commit(checkpoint(3, final=True)))
    if first == "compaction":
        compacted(lake)
    else:  # once the first compaction has read its files
        with done_at(Failpoint.FILES_COMBINED, commit):
            compacted(lake)
    commit()
    assert rows(lake.spark, lake.table, "id", "at") == ids
    assert lake.dead_letter.records == (1 if policy == OVERWRITE else 3)  # older generations' go
    assert (
        lake.tables().metadata.sequence == 4
    )  # the first sync began with where its companions stood
    assert_all_readers_agree(lake.spark, lake.folder)


def test_two_simultaneous_compactions_lose_no_rows(lake: Lake) -> None:
    small_files(lake)
    with done_at(Failpoint.FILES_COMBINED, lambda: compacted(lake)):
        compacted(lake)
    assert rows(lake.spark, lake.table, "id", "at") == APPENDED
    assert lake.dead_letter.records == 2


def test_a_replay_during_a_compaction_moves_each_record_once(lake: Lake) -> None:
    """The maintenance is of the dead letter itself: each record is then in one of the two tables, once."""
    small_files(lake)
    lake.history = False
    wanted = stream(EVENTS, APPEND)
    with done_at(Failpoint.REPLAY_STAGED, lambda: compacted(lake)):
        done = replay(lake.provider, lake.tables(), WriteSpec(wanted, "run-2"), lake.scratch)
    assert done is not None and (done.records, done.rejected) == (2, 0)
    texts = ["1 at 10", "1 at 20", "2 at 10", "3 at 20", "None at 1", "None at 2"]
    assert read(lake, "", "text") == [(text,) for text in texts]
    assert read(lake, "_dead_letter", "record") == []


def test_a_replay_after_a_concurrent_sync_is_refused(lake: Lake) -> None:
    sync(lake, [FIRST])
    late = StreamTables(lake.uri, APP, history=True)
    sync(lake, [FIRST, SECOND])
    wanted = configured(lake)
    wanted.primary_key = [["text"]]
    with pytest.raises(ConcurrentSync):
        replay(lake.provider, late, WriteSpec(wanted, "run-2", history=True), lake.scratch)
    assert view(lake) == expected([FIRST, SECOND])
