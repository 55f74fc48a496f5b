"""Messages in; segments written, commits made and states acknowledged."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.protocol.catalog import (
    FULL_REFRESH,
    INCREMENTAL,
    OVERWRITE,
    ConfiguredCatalog,
    StreamId,
)
from elt_assets.protocol.messages import COMPLETE, INCOMPLETE, STARTED, RawRecord
from elt_assets.sync import streams as module
from elt_assets.sync.events import (
    Acknowledged,
    Checkpoint,
    Committed,
    Estimated,
    Logged,
    SessionEvent,
)
from elt_assets.sync.segments import Segment
from elt_assets.sync.session import MAX_WAITING, Session, Threshold
from tests.sync.doubles import (
    MemorySink,
    Sent,
    catalog,
    cursor,
    error,
    message,
    record,
    state,
    status,
)

Messages = Iterable[Sent]
EAGER = Threshold(rows=1)


@dataclass
class Sync:
    """A sync run to its end, and what came of it."""

    folder: Path
    sinks: Mapping[str, MemorySink]
    threshold: Threshold = EAGER
    configured: ConfiguredCatalog | None = None
    events: list[SessionEvent] = field(default_factory=list)
    failure: EltError | None = None

    def run(self, messages: Messages) -> Sync:
        configured = self.configured or catalog(list(self.sinks))
        sinks = {StreamId(name): sink for name, sink in self.sinks.items()}
        session = Session(configured, sinks, self.folder, self.threshold)
        try:
            self.events.extend(session.run(messages))
        except EltError as failure:
            self.failure = failure
        return self

    def acknowledged(self, stream: str = "a") -> list[Any]:
        """The states acknowledged, by their value."""
        found = (event for event in self.events if isinstance(event, Acknowledged))
        states = [event.state for event in found if event.stream.name == stream]
        return [cursor(Checkpoint((each,), final=False)) for each in states if each is not None]

    def logs(self) -> str:
        return "\n".join(event.message for event in self.events if isinstance(event, Logged))

    def left_behind(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture
def sync(tmp_path: Path, sink: MemorySink) -> Sync:
    return Sync(tmp_path, {"a": sink})


def failing(messages: Messages, failure: Exception | None = None) -> Iterator[Sent]:
    yield from messages
    raise failure or TransientError("the source failed")


def numbered(count: int, start: int = 0) -> list[Sent]:
    return [record(number) for number in range(start, start + count)]


# What passes


def test_only_configured_streams_pass(sync: Sync, sink: MemorySink) -> None:
    others = [record(8, "b"), record(9, "b"), state(5, "b")]
    sync.run([record(0), *others, record(1), state(2)])
    assert sink.numbers == [0, 1]
    assert sync.acknowledged() == [2]
    assert "ignored 2 records of stream 'b'" in sync.logs()


def test_a_namespace_tells_streams_of_one_name_apart(sync: Sync, sink: MemorySink) -> None:
    elsewhere = RawRecord("a", Raw(b'{"n":5}'), namespace="other")
    sync.run([elsewhere, record(0)])
    assert sink.numbers == [0]


def test_logs_and_estimates_are_told(sync: Sync) -> None:
    estimate = {"name": "a", "type": "STREAM", "row_estimate": 12.0}
    sync.run(
        [
            message("LOG", {"level": "WARN", "message": "slow", "stack_trace": "at x"}),
            message("TRACE", {"type": "ESTIMATE", "estimate": estimate}),
            message("TRACE", {"type": "ESTIMATE", "estimate": {**estimate, "name": "b"}}),
        ]
    )
    assert sync.events[:2] == [Logged("WARN", "slow\nat x"), Estimated(StreamId("a"), 12, None)]
    assert sum(isinstance(event, Estimated) for event in sync.events) == 1


def test_progress_counts_what_was_staged(tmp_path: Path, sink: MemorySink) -> None:
    session = Session(catalog(), {StreamId("a"): sink}, tmp_path, EAGER)
    list(session.run([*numbered(3), status(COMPLETE)]))
    progress = session.progress(StreamId("a"))
    assert progress.records_read == 3
    assert progress.bytes_read == sum(segment.size for segment in sink.segments)
    assert progress.status == COMPLETE


# When a segment is sealed


@pytest.mark.parametrize(
    "threshold", [Threshold(rows=3), Threshold(bytes=3 * 60), Threshold(seconds=0.25)]
)
def test_a_segment_is_sealed_at_the_first_state_past_a_threshold(
    tmp_path: Path, sink: MemorySink, threshold: Threshold
) -> None:
    def messages() -> Iterator[Sent]:
        yield record(0)
        yield state(1)
        yield from numbered(2, 1)
        time.sleep(0.3 if threshold.seconds < 1 else 0)
        yield state(3)
        yield record(3)

    Sync(tmp_path, {"a": sink}, threshold).run(messages())
    assert [segment.records for segment in sink.segments] == [3, 1]
    assert [[cursor(c)] if c.states else [] for c in sink.commits] == [[3], []]


def test_a_checkpoint_holds_its_states_in_order(tmp_path: Path, sink: MemorySink) -> None:
    script = [state(0), record(0), state(1), state(1), record(1), state(2)]
    Sync(tmp_path, {"a": sink}, Threshold(rows=2)).run(script)
    assert [cursor(Checkpoint((s,), final=False)) for s in sink.commits[0].states] == [0, 1, 1, 2]


def test_without_states_a_segment_is_handed_on_when_it_overruns(
    tmp_path: Path, sink: MemorySink
) -> None:
    sync = Sync(tmp_path, {"a": sink}, Threshold(rows=8)).run(numbered(25))
    assert [segment.records for segment in sink.segments] == [10, 10, 5]
    assert [checkpoint.final for checkpoint in sink.commits] == [True]
    assert sync.acknowledged() == []


def test_the_first_state_after_an_overrun_is_committed(tmp_path: Path, sink: MemorySink) -> None:
    script = [*numbered(11), state(11), record(11), state(12)]
    sync = Sync(tmp_path, {"a": sink}, Threshold(rows=8)).run(script)
    assert sync.acknowledged() == [11, 12]
    assert [len(checkpoint.states) for checkpoint in sink.commits] == [1, 1]


def test_states_alone_are_committed_in_time(tmp_path: Path, sink: MemorySink) -> None:
    Sync(tmp_path, {"a": sink}, Threshold(seconds=0)).run([state(1), state(2)])
    assert [checkpoint.final for checkpoint in sink.commits] == [False, False, True]


def test_each_stream_has_its_own_segments(tmp_path: Path) -> None:
    sinks = {"a": MemorySink(), "b": MemorySink()}
    sync = Sync(tmp_path, sinks).run(
        [record(0, "a"), record(0, "b"), state(1, "b"), record(1, "b"), state(1, "a")]
    )
    assert (sync.acknowledged("a"), sync.acknowledged("b")) == ([1], [1])
    assert (sinks["a"].numbers, sinks["b"].numbers) == ([0], [0, 1])


# When a state is acknowledged


def test_a_state_is_acknowledged_once_its_sink_has_committed(
    tmp_path: Path, sink: MemorySink
) -> None:
    script = chain.from_iterable((record(n), state(n + 1)) for n in range(20))
    session = Session(catalog(), {StreamId("a"): sink}, tmp_path, EAGER)
    seen = []
    for event in session.run(script):
        if isinstance(event, Acknowledged) and not event.final:
            assert event.state is not None and event.state.stream is not None
            seen.append(int(bytes(event.state.stream.stream_state or b"-1")))
            assert sink.numbers[: seen[-1]] == list(range(seen[-1]))
    assert seen == list(range(1, 21))


def test_a_full_refresh_is_published_at_its_end_alone(sync: Sync, sink: MemorySink) -> None:
    sync.configured = catalog(sync_mode=FULL_REFRESH)
    sync.run([record(0), state(1), record(1), state(2), record(2)])
    [checkpoint] = sink.commits
    assert checkpoint.final and len(checkpoint.states) == 2
    assert sync.acknowledged() == [2]


@pytest.mark.parametrize(
    "configured",
    [catalog(sync_mode=FULL_REFRESH), catalog(sync_mode=INCREMENTAL, policy=OVERWRITE)],
    ids=["refresh", "overwrite"],
)
def test_a_refresh_or_overwrite_that_fails_publishes_nothing(
    sync: Sync, sink: MemorySink, configured: ConfiguredCatalog
) -> None:
    sync.configured = configured
    sync.run(failing([record(0), state(1), record(1), state(2)]))
    assert (sink.commits, sink.rows) == ([], [])
    assert isinstance(sync.failure, TransientError)


# What fails


def test_what_lies_before_the_last_state_outlives_the_source(sync: Sync, sink: MemorySink) -> None:
    sync.threshold = Threshold()
    sync.run(failing([record(0), state(1), record(1), state(2), record(2)]))
    assert sink.numbers == [0, 1]
    assert sync.acknowledged() == [2]
    assert isinstance(sync.failure, TransientError)
    assert sync.left_behind() == []


def test_a_failed_write_never_lets_a_queued_commit_publish(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()

    class Held(MemorySink):
        def write(self, segment: Segment) -> None:
            entered.set()
            leave.wait(10)
            super().write(segment)

    def messages() -> Iterator[Sent]:
        yield from (record(0), state(1), record(1), state(2))
        assert entered.wait(10)  # both commits are queued behind the write
        leave.set()

    sink = Held(fail_at=0)
    sync = Sync(tmp_path, {"a": sink}).run(messages())
    assert (sink.commits, sync.acknowledged()) == ([], [])
    assert str(sync.failure) == "the sink failed"
    assert sync.left_behind() == []


def test_what_was_committed_before_a_failure_is_acknowledged_first(tmp_path: Path) -> None:
    sink = MemorySink(fail_at=2)  # the second segment's write
    sync = Sync(tmp_path, {"a": sink}).run([record(0), state(1), record(1), state(2)])
    assert (sink.numbers, sync.acknowledged()) == ([0], [1])
    assert isinstance(sync.failure, SystemFailure)


@pytest.mark.parametrize("failed", [status(INCOMPLETE), error("no such table", "a")])
def test_a_failed_streams_later_states_are_ignored_and_others_complete(
    tmp_path: Path, failed: Sent
) -> None:
    sinks = {"a": MemorySink(), "b": MemorySink()}
    sync = Sync(tmp_path, sinks, Threshold()).run(
        [
            record(0),
            state(1),
            record(1),
            failed,
            state(2),
            record(0, "b"),
            state(1, "b"),
            status(COMPLETE, "b"),
        ]
    )
    assert (sinks["a"].numbers, sync.acknowledged("a")) == ([0], [1])
    assert (sinks["b"].numbers, sync.acknowledged("b")) == ([0], [1])
    assert sinks["b"].commits[-1].final
    assert sync.failure is not None and "'a'" in str(sync.failure)


def test_a_streams_error_keeps_its_kind_and_its_words(sync: Sync) -> None:
    sync.run([error("wrong password", "a", "config_error")])
    assert isinstance(sync.failure, ConfigError)
    assert "wrong password" in str(sync.failure)


def test_an_error_of_no_stream_is_every_streams(tmp_path: Path) -> None:
    sinks = {"a": MemorySink(), "b": MemorySink()}
    sync = Sync(tmp_path, sinks, Threshold()).run([record(0), error("gone"), record(0, "b")])
    assert (sinks["a"].commits, sinks["b"].commits) == ([], [])
    assert "'a', 'b'" in str(sync.failure)


def test_complete_does_not_heal_an_incomplete_stream(sync: Sync) -> None:
    sync.run([status(STARTED), record(0), status(INCOMPLETE), status(COMPLETE), state(1)])
    assert isinstance(sync.failure, SystemFailure)
    assert sync.acknowledged() == []


def test_a_stream_that_started_must_complete(sync: Sync, sink: MemorySink) -> None:
    sync.run([status(STARTED), record(0), state(1), record(1)])
    assert isinstance(sync.failure, SystemFailure)
    assert (sink.numbers, sync.acknowledged()) == ([0], [1])


def test_a_source_that_tells_no_status_is_judged_by_its_end(sync: Sync, sink: MemorySink) -> None:
    sync.run([record(0)])
    assert sync.failure is None
    assert sink.numbers == [0]


def test_a_shared_state_keeps_what_was_before_it_and_names_the_setting(
    sync: Sync, sink: MemorySink
) -> None:
    shared = {"type": "GLOBAL", "global": {"stream_states": []}}
    sync.run([record(0), state(1), record(1), message("STATE", shared)])
    assert isinstance(sync.failure, ConfigError)
    assert "read_together" in str(sync.failure)
    assert sink.numbers == [0]


def test_a_legacy_state_is_that_of_a_single_stream(sync: Sync) -> None:
    sync.run([record(0), message("STATE", {"data": {"n": 1}})])
    assert sync.acknowledged() == [{"n": 1}]


# What stays on disk and in memory


def test_segment_files_are_gone_after_a_sync(sync: Sync, sink: MemorySink) -> None:
    sync.run(chain.from_iterable((record(n), state(n + 1)) for n in range(9)))
    assert len(sink.segments) == 9
    assert sync.left_behind() == []


def test_segment_files_are_gone_when_the_caller_leaves(tmp_path: Path, sink: MemorySink) -> None:
    log = message("LOG", {"level": "INFO", "message": "x"})
    session = Session(catalog(), {StreamId("a"): sink}, tmp_path)
    events = session.run([record(0), log, record(1)])
    assert next(events) == Logged("INFO", "x")
    assert list(tmp_path.rglob("*.jsonl")) != []
    events.close()  # type: ignore[attr-defined]
    assert list(tmp_path.rglob("*.jsonl")) == []


class Counting:
    """A sink that keeps nothing but counts; slow if told so."""

    def __init__(self, seconds: float = 0):
        self.records = 0
        self.states = 0
        self._seconds = seconds

    def write(self, segment: Segment) -> None:
        self.records += segment.records

    def commit(self, checkpoint: Checkpoint) -> Committed:
        time.sleep(self._seconds)
        self.states += len(checkpoint.states)
        return Committed(1, 1, 1, 0, 0, 0)


def peak(session: Session, messages: Messages) -> int:
    """Bytes of Python objects at the highest point of a run."""
    tracemalloc.start()
    try:
        for _ in session.run(messages):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_records(tmp_path: Path) -> None:
    def messages() -> Iterator[Sent]:
        for number in range(300_000):
            yield RawRecord("a", Raw(b'{"n":%d,"text":"%b"}' % (number, b"x" * 1000)), 1.0)
            if number % 100 == 0:
                yield state(number)

    sink = Counting()
    session = Session(catalog(), {StreamId("a"): sink}, tmp_path, Threshold(rows=1000))
    assert peak(session, messages()) < 16 << 20
    assert sink.records == 300_000


@pytest.mark.parametrize("with_records", [True, False])
def test_reading_pauses_while_the_sink_is_behind(tmp_path: Path, with_records: bool) -> None:
    sink, leads = Counting(seconds=0.01), []

    def messages() -> Iterator[Sent]:
        for number in range(1, 31):
            if with_records:
                yield record(number)
            yield state(number)
            leads.append(number - sink.states)

    threshold = Threshold(rows=1, seconds=0)
    list(Session(catalog(), {StreamId("a"): sink}, tmp_path, threshold).run(messages()))
    assert max(leads) <= MAX_WAITING + 1


@pytest.mark.parametrize("sync_mode", [INCREMENTAL, FULL_REFRESH])
def test_a_flood_of_states_is_held_back(
    tmp_path: Path, sync_mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_STATES", 500)
    sink = Counting(seconds=0.01)
    configured = catalog(sync_mode=sync_mode)
    session = Session(configured, {StreamId("a"): sink}, tmp_path)
    flood = (state(number) for number in range(30_000))
    assert peak(session, flood) < 16 << 20
    assert sink.states == (30_000 if sync_mode == INCREMENTAL else 500)


def test_large_states_are_held_back_by_their_bytes(tmp_path: Path) -> None:
    session = Session(catalog(), {StreamId("a"): Counting()}, tmp_path)
    large = (state("x" * (1 << 20)) for _ in range(300))
    assert peak(session, large) < 4 * module.MAX_STATE_BYTES


# Any order of messages, any failure

STREAMS = ("a", "b")
steps = st.lists(
    st.tuples(st.sampled_from(["record", "record", "record", "state"]), st.sampled_from(STREAMS)),
    max_size=40,
)


def play(script: list[tuple[str, str]]) -> Iterator[Sent]:
    """A state says how many records of its stream came before it."""
    counts = dict.fromkeys(STREAMS, 0)
    for what, stream in script:
        if what == "record":
            yield record(counts[stream], stream)
            counts[stream] += 1
        else:
            yield state(counts[stream], stream)


@settings(max_examples=300, deadline=None)
@given(
    steps,
    st.none() | st.integers(0, 40),
    st.fixed_dictionaries({name: st.none() | st.integers(0, 10) for name in STREAMS}),
    st.integers(1, 6),
    st.sampled_from([INCREMENTAL, FULL_REFRESH]),
)
def test_no_interleaving_and_no_failure_acknowledges_what_is_not_committed(
    script: list[tuple[str, str]],
    source_fails_at: int | None,
    sinks_fail_at: dict[str, int | None],
    rows: int,
    sync_mode: str,
) -> None:
    sinks = {name: MemorySink(fail_at) for name, fail_at in sinks_fail_at.items()}
    ahead = []

    def messages() -> Iterator[Sent]:
        yield from play(script[:source_fails_at])
        if source_fails_at is not None:
            raise TransientError("the source failed")

    with TemporaryDirectory() as folder:
        configured = catalog(STREAMS, sync_mode)
        sync = Sync(Path(folder), sinks, Threshold(rows=rows), configured).run(messages())
        assert sync.left_behind() == []
    whole = {name: script.count(("record", name)) for name in STREAMS}
    for name, sink in sinks.items():
        acknowledged = sync.acknowledged(name)
        assert sink.numbers == list(range(len(sink.rows)))
        assert acknowledged == sorted(acknowledged)
        ahead += [value for value in acknowledged if value > len(sink.rows)]
        if sync.failure is None or (sink.commits and sink.commits[-1].final):
            assert len(sink.rows) == whole[name]
        else:
            assert len(sink.rows) == (sink.state or 0)
            assert set(acknowledged) <= {cursor(each) for each in sink.commits}
    assert ahead == []
    assert source_fails_at is None or sync.failure is not None
