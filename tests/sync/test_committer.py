"""Several streams are written and committed at the same time, each in its own order."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import StreamId
from elt_assets.sync.committer import MAX_WAITING, Committer
from elt_assets.sync.events import Acknowledged, Checkpoint, Committed, SharedAcknowledged
from elt_assets.sync.segments import Segment
from elt_assets.sync.shared_state import SharedState
from elt_assets.sync.streams import StreamRun
from tests.support.examples import examples
from tests.sync.doubles import MemorySink, Sent, catalog, record, shared, state

PATIENCE = 30
"""Seconds after which a thread that waits for another one gives up."""


class Meeting(MemorySink):
    """A sink whose writes wait for those of another sink: alone, they fail."""

    def __init__(self, met: threading.Barrier):
        super().__init__()
        self._met = met

    def write(self, segment: Segment) -> None:
        self._met.wait(PATIENCE)
        super().write(segment)


class Held(MemorySink):
    """A sink whose commits wait until they may."""

    def __init__(self, fail_at: int | None = None) -> None:
        super().__init__(fail_at)
        self.may, self.entered = threading.Event(), threading.Event()

    def commit(self, checkpoint: Checkpoint) -> Committed:
        self.entered.set()
        assert self.may.wait(PATIENCE)
        return super().commit(checkpoint)


class Lanes:
    """A committer and its streams."""

    def __init__(self, folder: Path, threads: int = 2, **sinks: MemorySink):
        self.committer = Committer(len(sinks), threads)
        self.runs = {
            stream.id.name: StreamRun(stream, sinks[stream.id.name], folder / stream.id.name)
            for stream in catalog(list(sinks)).streams
        }
        for run in self.runs.values():
            run.staging.mkdir()
        self._numbers = dict.fromkeys(sinks, 0)

    def write(self, name: str) -> None:
        run, number = self.runs[name], self._numbers[name]
        sent = record(number, name)
        run.open_segment().append(sent)  # type: ignore[arg-type]
        segment = run.close_segment()
        assert segment is not None
        self.committer.write(run, segment)
        self._numbers[name] += 1

    def commit(self, name: str) -> None:
        run = self.runs[name]
        run.add_state(_state(state(self._numbers[name], name)))
        self.committer.commit(run, final=False)

    def commit_shared(self) -> None:
        """Write a record of every stream, and commit them with a state that they share."""
        runs = list(self.runs.values())
        for name in self.runs:
            self.write(name)
        together = SharedState(self.committer)
        together.add(_state(shared(1)), runs)
        together.commit([], runs)

    def events(self) -> list[object]:
        try:
            return list(self.committer.take_events(wait=True))
        finally:
            self.close()

    def close(self) -> None:
        self.committer.stop()
        self.committer.shut_down()


def _state(sent: Sent):  # type: ignore[no-untyped-def]
    found = sent.state  # type: ignore[union-attr]
    assert found is not None
    return found


def streams(events: Sequence[object]) -> list[str]:
    return [event.stream.name for event in events if isinstance(event, Acknowledged)]


def test_two_streams_are_written_at_the_same_time(tmp_path: Path) -> None:
    met = threading.Barrier(2)
    lanes = Lanes(tmp_path, a=Meeting(met), b=Meeting(met))
    for name in ("a", "b"):
        lanes.write(name)
        lanes.commit(name)
    assert streams(lanes.events()) == ["a", "b"]


def test_events_keep_their_order_if_a_later_stream_is_faster(tmp_path: Path) -> None:
    slow, fast = Held(), MemorySink()
    lanes = Lanes(tmp_path, a=slow, b=fast)
    for name in ("a", "b", "b"):
        lanes.write(name)
        lanes.commit(name)
    assert slow.entered.wait(PATIENCE)
    while len(fast.commits) < 2:
        threading.Event().wait(0.001)
    assert list(lanes.committer.take_events()) == []
    slow.may.set()
    assert streams(lanes.events()) == ["a", "b", "b"]


def test_no_table_gets_a_shared_state_before_the_rows_of_all(tmp_path: Path) -> None:
    slow, fast = Held(), MemorySink()
    lanes = Lanes(tmp_path, a=slow, b=fast)
    lanes.commit_shared()
    assert slow.entered.wait(PATIENCE)
    while not fast.commits:
        threading.Event().wait(0.001)
    assert [bool(each.states) for each in fast.commits] == [False]
    slow.may.set()
    events = lanes.events()
    assert [bool(each.states) for each in fast.commits] == [False, True]
    assert isinstance(events[-1], SharedAcknowledged)


def test_no_table_gets_a_shared_state_if_the_rows_of_another_fail(tmp_path: Path) -> None:
    slow, fast = Held(fail_at=1), MemorySink()
    lanes = Lanes(tmp_path, a=slow, b=fast)
    lanes.commit_shared()
    slow.may.set()
    with pytest.raises(SystemFailure, match="the sink failed"):
        lanes.events()
    assert (fast.state, slow.state) == (None, None)


def test_no_table_gets_a_shared_state_after_a_stop(tmp_path: Path) -> None:
    slow, fast = Held(), MemorySink()
    lanes = Lanes(tmp_path, a=slow, b=fast)
    lanes.commit_shared()
    assert slow.entered.wait(PATIENCE)
    lanes.committer.stop()
    slow.may.set()
    lanes.committer.shut_down()
    assert (fast.state, slow.state) == (None, None)


def test_the_error_of_the_sink_that_failed_is_raised(tmp_path: Path) -> None:
    """The error is raised also if queued tasks of another stream fail because of it."""
    slow, failing = Held(), MemorySink(fail_at=0)
    lanes = Lanes(tmp_path, a=slow, b=failing)
    for name in ("a", "a", "b"):
        lanes.write(name)
        lanes.commit(name)
    while not lanes.committer.has_failed:
        threading.Event().wait(0.001)
    slow.may.set()
    with pytest.raises(SystemFailure, match="the sink failed"):
        lanes.events()
    assert slow.numbers in ([], [0])


def test_a_stream_that_is_behind_pauses_reading(tmp_path: Path) -> None:
    met = threading.Barrier(2)
    lanes = Lanes(tmp_path, threads=4, a=Meeting(met), b=MemorySink())
    for _ in range(MAX_WAITING + 1):
        lanes.write("a")
    releases = threading.Thread(target=met.wait)
    releases.start()
    assert list(lanes.committer.take_events()) == []
    releases.join()
    met.abort()
    lanes.close()
    assert list(tmp_path.glob("*/*")) == []


tasks = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30)


@settings(max_examples=examples(100), deadline=None)
@given(tasks, st.integers(1, 3), st.none() | st.integers(0, 6))
def test_each_stream_keeps_its_order(
    script: list[tuple[str, bool]], threads: int, fails_at: int | None
) -> None:
    sinks = {"a": MemorySink(), "b": MemorySink(fails_at), "c": MemorySink()}
    with TemporaryDirectory() as folder:
        lanes = Lanes(Path(folder), threads, **sinks)
        events: list[object] = []
        try:
            for name, is_write in script:
                lanes.write(name) if is_write else lanes.commit(name)
                events += lanes.committer.take_events()
            events += lanes.committer.take_events(wait=True)
        except SystemFailure:
            assert fails_at is not None
        finally:
            lanes.close()
        assert list(Path(folder).glob("*/*")) == []
    for name, sink in sinks.items():
        assert sink.numbers == list(range(len(sink.numbers)))
        known = [event for event in events if isinstance(event, Acknowledged)]
        own = [each.commit.sequence for each in known if each.stream == StreamId(name)]
        assert own == list(range(1, len(own) + 1))
        assert len(own) <= len(sink.commits)
