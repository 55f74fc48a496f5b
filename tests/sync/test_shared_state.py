"""GLOBAL and LEGACY states: they move for all streams, or for none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.errors import ConfigError, SystemFailure, TransientError
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredCatalog, StreamId
from elt_assets.protocol.messages import COMPLETE, INCOMPLETE
from elt_assets.sync.session import Threshold
from tests.support.examples import examples
from tests.sync.doubles import (
    EAGER,
    MemorySink,
    Sent,
    Sync,
    catalog,
    error,
    failing,
    message,
    record,
    shared,
    state,
    status,
)


def together(folder: Path, threshold: Threshold = EAGER, **sinks: MemorySink) -> Sync:
    sinks = sinks or {"a": MemorySink(), "b": MemorySink()}
    return Sync(folder, sinks, threshold, shares_state=True)


@pytest.mark.spec("protocol.113")
def test_rows_of_all_streams_are_committed_before_the_shared_state(tmp_path: Path) -> None:
    order: list[tuple[str, bool]] = []

    class Noting(MemorySink):
        def __init__(self, name: str):
            super().__init__()
            self.name = name

        def commit(self, checkpoint: Any) -> Any:
            order.append((self.name, bool(checkpoint.states)))
            return super().commit(checkpoint)

    sync = together(tmp_path, Threshold(), a=Noting("a"), b=Noting("b"))
    sync.run([record(0), record(0, "b"), shared(1)])
    assert sorted(order[:2]) == [("a", False), ("b", False)]
    assert sorted(order[2:]) == [("a", True), ("b", True)]
    assert (sync.shared(), sync.acknowledged("a"), sync.acknowledged("b")) == ([1], [1], [1])
    assert all(sink.commits[-1].final for sink in sync.sinks.values())


def test_a_stream_without_rows_gets_the_shared_state(tmp_path: Path) -> None:
    sync = together(tmp_path).run([record(0), shared(1), record(1), shared(2)])
    assert (sync.sinks["a"].state, sync.sinks["b"].state) == (2, 2)
    assert sync.shared() == [1, 2]


@pytest.mark.spec("protocol.129")
def test_a_legacy_state_is_shared_by_all_streams(tmp_path: Path) -> None:
    sync = together(tmp_path).run([record(0), message("STATE", {"data": {"at": 5}})])
    assert [sink.state for sink in sync.sinks.values()] == [{"at": 5}] * 2


def test_streams_with_their_own_states_advance_independently(tmp_path: Path) -> None:
    sync = together(tmp_path).run([record(0), state(1), record(0, "b"), state(7, "b")])
    assert (sync.sinks["a"].state, sync.sinks["b"].state, sync.shared()) == (1, 7, [])


@pytest.mark.parametrize("failed", [status(INCOMPLETE, "b"), error("no such table", "b")])
@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("dies", [True, False])
def test_a_failed_stream_stops_the_shared_state(
    tmp_path: Path, failed: Sent, is_before: bool, dies: bool
) -> None:
    messages = [failed, shared(9)] if is_before else [shared(9), failed]
    lines = [record(0), record(0, "b"), *messages, record(1), status(COMPLETE)]
    sync = together(tmp_path, Threshold()).run(failing(lines) if dies else lines)
    a, b = sync.sinks["a"], sync.sinks["b"]
    last = None if is_before else 9  # what came before the failure advances for all streams
    assert (a.state, b.state, sync.shared()) == (last, last, [] if is_before else [9])
    assert b.numbers == ([] if is_before else [0])
    assert (a.numbers, a.commits[-1].final) == ([0, 1], True)  # the other stream is whole
    assert not any(commit.final for commit in b.commits)
    assert sync.failure is not None


def test_records_before_the_last_state_are_kept_if_the_source_fails(tmp_path: Path) -> None:
    lines = [record(0), record(0, "b"), shared(1), record(1), record(1, "b")]
    sync = together(tmp_path, Threshold()).run(failing(lines))
    assert [sink.numbers for sink in sync.sinks.values()] == [[0], [0]]
    assert [sink.state for sink in sync.sinks.values()] == [1, 1]
    assert sync.shared() == [1]
    assert isinstance(sync.failure, TransientError)


@pytest.mark.spec("protocol.115")
@pytest.mark.parametrize("failed", [error("gone"), error("no such table", "b")])
def test_states_before_an_error_trace_are_kept(tmp_path: Path, failed: Sent) -> None:
    lines = [record(0), record(0, "b"), shared(1), record(1), failed]
    sync = together(tmp_path, Threshold()).run(failing(lines))
    assert [sink.numbers for sink in sync.sinks.values()] == [[0], [0]]
    assert [sink.state for sink in sync.sinks.values()] == [1, 1]
    assert sync.shared() == [1]


def test_a_state_before_a_failure_is_kept_although_a_later_segment_overflows(
    tmp_path: Path,
) -> None:
    lines = [record(0), record(0, "b"), shared(1), error("no such table", "b"), record(1, "b")]
    more = [record(number) for number in range(1, 8)]
    sync = together(tmp_path, Threshold(rows=4)).run(failing([*lines, *more]))
    a, b = sync.sinks["a"], sync.sinks["b"]
    assert (a.state, b.state, b.numbers) == (1, 1, [0])
    assert a.numbers[0] == 0


def test_a_failed_full_refresh_does_not_stop_the_shared_state(tmp_path: Path) -> None:
    sync = together(tmp_path)
    streams = [*catalog(["a"]).streams, *catalog(["b"], FULL_REFRESH).streams]
    sync.configured = ConfiguredCatalog(streams=streams)
    sync.run([record(0), record(0, "b"), error("no such table", "b"), record(1), shared(2)])
    assert (sync.sinks["a"].state, sync.sinks["a"].numbers) == (2, [0, 1])
    assert (sync.sinks["b"].commits, sync.failure is None) == ([], False)


# States of single streams beside shared ones


@pytest.mark.parametrize("named", [["a"], []])
@pytest.mark.parametrize("rows", [1, 100])
def test_a_stream_keeps_its_own_state_beside_a_shared_one(
    tmp_path: Path, named: list[str], rows: int
) -> None:
    lines = [record(0), record(0, "b"), state("own 1", "b"), shared(1, named), record(1, "b")]
    sync = together(tmp_path, Threshold(rows)).run(failing([*lines, record(1), shared(2, named)]))
    a, b = sync.sinks["a"], sync.sinks["b"]
    assert (a.state, a.numbers) == (2, [0, 1])
    assert (b.state, b.numbers) == ("own 1", [0])  # no row of it that its state does not cover


def test_the_newest_state_of_a_stream_is_stored(tmp_path: Path) -> None:
    sync = together(tmp_path, Threshold())
    sync.run([record(0), state(1), record(1), shared(2, ["a", "b"]), record(0, "b"), state(7, "b")])
    assert (sync.sinks["a"].state, sync.sinks["b"].state) == (2, 7)
    assert (sync.acknowledged("a"), sync.acknowledged("b"), sync.shared()) == ([1, 2], [7], [2])


def test_a_stream_that_starts_from_its_own_state_keeps_it(tmp_path: Path) -> None:
    sync = together(tmp_path)
    sync.own_states = [StreamId("b")]
    sync.run([record(0), shared(1), record(0, "b"), shared(2)])
    assert (sync.sinks["a"].state, sync.sinks["b"].state) == (2, None)
    assert sync.sinks["b"].numbers == [0]


@pytest.mark.parametrize("failed", [error("no such table", "b"), status(INCOMPLETE, "b")])
def test_a_failed_stream_with_its_own_states_stops_no_shared_state(
    tmp_path: Path, failed: Sent
) -> None:
    lines = [record(0), record(0, "b"), state(1, "b"), record(1, "b"), failed, record(1)]
    sync = together(tmp_path, Threshold()).run([*lines, shared(5, ["a"]), status(COMPLETE)])
    assert (sync.sinks["a"].state, sync.sinks["a"].numbers) == (5, [0, 1])
    assert (sync.sinks["b"].state, sync.sinks["b"].numbers) == (1, [0])
    assert "no such table" in str(sync.failure) or "INCOMPLETE" in str(sync.failure)


@pytest.mark.parametrize("count", [1.0, 2.0])
def test_a_shared_state_may_count_the_records_of_named_streams_alone(
    tmp_path: Path, count: float
) -> None:
    sync = together(tmp_path).run([record(0), record(0, "b"), shared(1, ["a"], count)])
    assert (sync.failure, sync.shared()) == (None, [1])


def test_a_shared_state_that_could_be_stored_with_no_stream_is_refused(tmp_path: Path) -> None:
    sync = together(tmp_path).run([record(0), state(1), record(0, "b"), state(1, "b"), shared(9)])
    assert "names no stream" in str(sync.failure)
    assert (sync.sinks["a"].state, sync.sinks["b"].state) == (1, 1)


def test_a_failed_sink_stops_the_shared_state(tmp_path: Path) -> None:
    broken = MemorySink(fail_at=1)  # its first commit
    sync = together(tmp_path, a=MemorySink(), b=broken)
    sync.run([record(0), record(0, "b"), shared(1)])
    assert (sync.sinks["a"].state, sync.shared()) == (None, [])


def test_a_full_refresh_beside_a_shared_state_is_published_at_its_end(tmp_path: Path) -> None:
    streams = [*catalog(["a"]).streams, *catalog(["b"], FULL_REFRESH).streams]
    sync = together(tmp_path)
    sync.configured = ConfiguredCatalog(streams=streams)
    sync.run([record(0), record(0, "b"), shared(1), record(1, "b"), shared(2)])
    assert [commit.final for commit in sync.sinks["b"].commits] == [True]
    assert (sync.sinks["b"].numbers, sync.sinks["a"].state) == ([0, 1], 2)


def test_the_count_of_a_shared_state_includes_all_streams(tmp_path: Path) -> None:
    sync = together(tmp_path).run(
        [record(0), record(0, "b"), shared(1, records=2.0), record(1), shared(2, records=1.0)]
    )
    assert (sync.failure, sync.shared()) == (None, [1, 2])


def test_a_wrong_record_count_advances_no_stream(tmp_path: Path) -> None:
    lines = [record(0), record(0, "b"), shared(1, records=3.0), record(1), shared(2, records=1.0)]
    sync = together(tmp_path).run(lines)
    assert (sync.shared(), sync.sinks["a"].state) == ([], None)
    assert isinstance(sync.failure, SystemFailure)
    assert "reports 3 records before its state, but 2 were received" in str(sync.failure)


@pytest.mark.spec("protocol.130")
def test_a_global_state_without_its_contents_is_refused(tmp_path: Path) -> None:
    sync = together(tmp_path).run([record(0), message("STATE", {"type": "GLOBAL"})])
    assert isinstance(sync.failure, SystemFailure)


def test_a_shared_state_is_refused_for_a_stream_that_is_read_alone(sync: Sync) -> None:
    sync.run([record(0), shared(1)])
    assert isinstance(sync.failure, ConfigError)
    assert "read_together: true" in str(sync.failure)


# Any order of messages, any failure

STREAMS = ("a", "b", "c")
steps = st.lists(st.sampled_from(["state", *STREAMS, *STREAMS]), max_size=40)


def play(script: list[str]) -> Iterator[Sent]:
    """A state says how many records of each stream came before it."""
    counts = dict.fromkeys(STREAMS, 0)
    for what in script:
        if what == "state":
            yield shared(dict(counts))
        else:
            yield record(counts[what], what)
            counts[what] += 1


@settings(max_examples=examples(300), deadline=None)
@given(
    steps,
    st.none() | st.integers(0, 40),
    st.none() | st.tuples(st.integers(0, 40), st.sampled_from(STREAMS)),
    st.fixed_dictionaries({name: st.none() | st.integers(0, 10) for name in STREAMS}),
    st.integers(1, 6),
    st.sets(st.sampled_from(STREAMS), max_size=2),
)
def test_no_shared_state_is_ahead_of_committed_rows(
    script: list[str],
    source_fails_at: int | None,
    stream_fails: tuple[int, str] | None,
    sinks_fail_at: dict[str, int | None],
    rows: int,
    refreshed: set[str],
) -> None:
    sinks = {name: MemorySink(fail_at) for name, fail_at in sinks_fail_at.items()}

    def messages() -> Iterator[Sent]:
        for number, sent in enumerate(play(script[:source_fails_at])):
            if stream_fails is not None and stream_fails[0] == number:
                yield status(INCOMPLETE, stream_fails[1])
            yield sent
        if source_fails_at is not None:
            raise TransientError("the source failed")

    modes = {name: FULL_REFRESH if name in refreshed else INCREMENTAL for name in STREAMS}
    streams = [catalog([name], mode).streams[0] for name, mode in modes.items()]
    with TemporaryDirectory() as folder:
        configured = ConfiguredCatalog(streams=streams)
        sync = Sync(Path(folder), sinks, Threshold(rows=rows), configured, shares_state=True)
        sync.run(messages())
        assert sync.left_behind() == []
    incremental = [name for name in STREAMS if name not in refreshed]
    for known in [*(sinks[name].state for name in incremental), *sync.shared()]:
        for name in incremental:
            assert known is None or known[name] <= len(sinks[name].rows)
    for name, sink in sinks.items():
        assert sink.numbers == list(range(len(sink.rows)))
        if sync.failure is None:
            assert len(sink.rows) == script.count(name)
            assert len({str(sinks[each].state) for each in incremental}) <= 1
