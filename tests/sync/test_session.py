"""Messages in; segments written, commits made and states acknowledged."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from msgspec import Raw

from elt_assets.errors import SystemFailure, TransientError
from elt_assets.protocol.catalog import APPEND, FULL_REFRESH, INCREMENTAL, OVERWRITE, StreamId
from elt_assets.protocol.messages import COMPLETE, INCOMPLETE, RUNNING, RawRecord
from elt_assets.sync import pending
from elt_assets.sync.committer import MAX_WAITING
from elt_assets.sync.events import (
    NOT_AMONG_RECORDS,
    NOT_AMONG_STATUSES,
    QUIET,
    Acknowledged,
    Checkpoint,
    Committed,
    Estimated,
    Logged,
)
from elt_assets.sync.field_selection import FieldSelection
from elt_assets.sync.record_filter import WITHHELD, RecordFilter
from elt_assets.sync.segments import MAX_OPEN, Segment
from elt_assets.sync.session import Session, Threshold
from elt_assets.sync.streams import StreamRules
from tests.sync.doubles import (
    EAGER,
    MemorySink,
    Messages,
    Sent,
    Sync,
    catalog,
    cursor,
    failing,
    message,
    namespaced,
    numbered,
    record,
    shared,
    state,
    status,
)

# What passes


@pytest.mark.spec("protocol.28", "protocol.96", "airbyte.18")
def test_only_configured_streams_are_written(sync: Sync, sink: MemorySink) -> None:
    others = [record(8, "b"), record(9, "b"), state(5, "b")]
    sync.run([record(0), *others, record(1), state(2)])
    assert sink.numbers == [0, 1]
    assert sync.acknowledged() == [2]
    assert "ignored 2 records of stream 'b'" in sync.logs()


@pytest.mark.spec("protocol.56")
def test_streams_are_distinguished_by_namespace(sync: Sync, sink: MemorySink) -> None:
    elsewhere = RawRecord("a", Raw(b'{"n":5}'), namespace="other")
    sync.run([elsewhere, record(0)])
    assert sink.numbers == [0]


@pytest.mark.spec("protocol.29")
def test_records_without_a_namespace_belong_to_the_only_stream_of_that_name(
    tmp_path: Path, sink: MemorySink
) -> None:
    session = Session(namespaced(("a", "n")), {StreamId("a", "n"): sink}, tmp_path, EAGER)
    events = list(session.run([record(0), status(RUNNING), record(1), state(1), status(COMPLETE)]))
    assert (sink.numbers, sink.state) == ([0, 1], 1)
    assert session.progress(StreamId("a", "n")).status == COMPLETE
    assert not any(isinstance(event, Logged) for event in events)


@pytest.mark.spec("protocol.29")
def test_a_record_of_an_ambiguous_stream_fails_the_sync(tmp_path: Path) -> None:
    configured = namespaced(("a", "m"), ("a", "n"))
    sinks = {stream.id: MemorySink() for stream in configured.streams}
    session = Session(configured, sinks, tmp_path, EAGER)
    with pytest.raises(SystemFailure, match=r"'a' without a namespace.* 'm\.a', 'n\.a'"):
        list(session.run([record(0), state(1)]))
    assert all(sink.commits == [] for sink in sinks.values())


def test_unknown_stream_names_are_counted_in_limited_memory(sync: Sync, sink: MemorySink) -> None:
    def invented() -> Iterator[Sent]:
        tracemalloc.start()
        for number in range(20_000):
            yield RawRecord(f"{number} {'x' * 500}", Raw(b"{}"))
        yield RawRecord("y" * 1_000_000, Raw(b"{}"))
        yield record(0)

    sync.run(invented())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000 + 2_000_000  # the one name of a megabyte is there while it is read
    assert sink.numbers == [0]
    assert "ignored 19901 records of other streams" in sync.logs()


@pytest.mark.spec("protocol.28")
def test_streams_without_messages_are_described(tmp_path: Path) -> None:
    def unmentioned(sent: Messages) -> str | None:
        sinks = {StreamId(name): MemorySink() for name in ("a", "b")}
        session = Session(catalog(["a", "b"]), sinks, tmp_path, EAGER)
        list(session.run(sent))
        assert session.progress(StreamId("a")).unmentioned is None
        return session.progress(StreamId("b")).unmentioned

    assert unmentioned([state(1)]) == QUIET
    assert unmentioned([status(COMPLETE)]) == NOT_AMONG_STATUSES
    assert unmentioned([state(1), record(0, "c")]) == NOT_AMONG_RECORDS


def trace(kind: str, **body: object) -> Sent:
    return message("TRACE", {"type": kind, "emitted_at": 1, **body})


@pytest.mark.spec("protocol.152")
@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        ({"name": "a", "type": "STREAM", "byte_estimate": 10}, "the source estimates 10 bytes"),
        ({"type": "SYNC", "row_estimate": 1200.0}, "the source estimates 1,200 rows"),
        ({"name": "a", "type": "STREAM"}, None),
    ],
)
def test_estimates_are_shown_with_their_unit(
    sync: Sync, estimate: dict[str, object], text: str | None
) -> None:
    sync.run([trace("ESTIMATE", estimate=estimate)])
    found = [event.text for event in sync.events if isinstance(event, Estimated)]
    assert found == ([] if text is None else [text])


@pytest.mark.spec("protocol.151")
def test_an_estimate_of_several_streams_belongs_to_none_of_them(tmp_path: Path) -> None:
    sinks = {"a": MemorySink(), "b": MemorySink()}
    sync = Sync(tmp_path, sinks).run(
        [trace("ESTIMATE", estimate={"type": "SYNC", "row_estimate": 5})]
    )
    [found] = [event for event in sync.events if isinstance(event, Estimated)]
    assert found.text == "the source estimates 5 rows in all streams"


@pytest.mark.spec("protocol.144")
def test_a_trace_of_an_unknown_type_is_logged(sync: Sync) -> None:
    sync.run([trace("NEWER", newer={})])
    assert "ignored a trace of type 'NEWER'" in sync.logs()


@pytest.mark.spec("protocol.113")
def test_a_global_state_belongs_to_the_only_stream(tmp_path: Path, sink: MemorySink) -> None:
    session = Session(
        catalog(), {StreamId("a"): sink}, tmp_path, EAGER, StreamRules(is_only_stream=True)
    )
    list(session.run([record(0), shared(5, ["a"])]))
    assert (sink.numbers, sink.state) == ([0], 5)


@pytest.mark.spec(
    "protocol.11", "protocol.139", "protocol.140", "protocol.150", "airbyte.23", "airbyte.24"
)
def test_logs_and_estimates_are_logged(sync: Sync) -> None:
    estimate = {"name": "a", "type": "STREAM", "row_estimate": 12.0}
    sync.run(
        [
            message("LOG", {"level": "WARN", "message": "slow", "stack_trace": "at x"}),
            message("TRACE", {"type": "ESTIMATE", "estimate": estimate}),
            message("TRACE", {"type": "ESTIMATE", "estimate": {**estimate, "name": "b"}}),
        ]
    )
    assert sync.events[:2] == [Logged("WARN", "slow\n    at x"), Estimated(StreamId("a"), 12, None)]
    assert sum(isinstance(event, Estimated) for event in sync.events) == 1


def test_progress_counts_staged_records_and_bytes(tmp_path: Path, sink: MemorySink) -> None:
    session = Session(catalog(), {StreamId("a"): sink}, tmp_path, EAGER)
    list(session.run([*numbered(3), status(COMPLETE)]))
    progress = session.progress(StreamId("a"))
    assert progress.records_read == 3
    assert progress.bytes_read == sum(segment.size for segment in sink.segments)
    assert progress.status == COMPLETE


# When a segment is sealed


@pytest.mark.parametrize(
    "threshold", [Threshold(rows=3), Threshold(bytes=3 * 40), Threshold(seconds=0.25)]
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


def test_a_checkpoint_has_its_states_in_order(tmp_path: Path, sink: MemorySink) -> None:
    script = [state(0), record(0), state(1), state(1), record(1), state(2)]
    Sync(tmp_path, {"a": sink}, Threshold(rows=2)).run(script)
    assert [cursor(Checkpoint((s,), final=False)) for s in sink.commits[0].states] == [0, 1, 1, 2]


@pytest.mark.spec("airbyte.17")
def test_a_segment_without_states_is_written_when_it_exceeds_the_threshold(
    tmp_path: Path, sink: MemorySink
) -> None:
    sync = Sync(tmp_path, {"a": sink}, Threshold(rows=8)).run(numbered(25))
    assert [segment.records for segment in sink.segments] == [10, 10, 5]
    assert [checkpoint.final for checkpoint in sink.commits] == [True]
    assert sync.acknowledged() == []


def test_the_first_state_after_an_exceeded_threshold_is_committed(
    tmp_path: Path, sink: MemorySink
) -> None:
    script = [*numbered(11), state(11), record(11), state(12)]
    sync = Sync(tmp_path, {"a": sink}, Threshold(rows=8)).run(script)
    assert sync.acknowledged() == [11, 12]
    assert [len(checkpoint.states) for checkpoint in sink.commits] == [1, 1]


def test_states_without_records_are_committed(tmp_path: Path, sink: MemorySink) -> None:
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


def test_a_state_is_acknowledged_after_its_sink_has_committed(
    tmp_path: Path, sink: MemorySink
) -> None:
    script = chain.from_iterable((record(n), state(n + 1)) for n in range(20))
    session = Session(catalog(), {StreamId("a"): sink}, tmp_path, EAGER)
    seen = []
    for event in session.run(script):
        if isinstance(event, Acknowledged) and not event.completes:
            assert event.state is not None and event.state.stream is not None
            seen.append(int(bytes(event.state.stream.stream_state or b"-1")))
            assert sink.numbers[: seen[-1]] == list(range(seen[-1]))
    assert seen == list(range(1, 21))


def test_a_full_refresh_is_published_only_at_its_end(sync: Sync, sink: MemorySink) -> None:
    sync.configured = catalog(sync_mode=FULL_REFRESH)
    sync.run([record(0), state(1), record(1), state(2), record(2)])
    [checkpoint] = sink.commits
    assert checkpoint.final and len(checkpoint.states) == 2
    assert sync.acknowledged() == [2]


@pytest.mark.parametrize("policy", [APPEND, OVERWRITE])
def test_a_failed_refresh_publishes_nothing(sync: Sync, sink: MemorySink, policy: str) -> None:
    sync.configured = catalog(sync_mode=FULL_REFRESH, policy=policy)
    sync.run(failing([record(0), state(1), record(1), state(2)]))
    assert (sink.commits, sink.rows) == ([], [])
    assert isinstance(sync.failure, TransientError)


@pytest.mark.spec("protocol.76")
@pytest.mark.parametrize("policy", [APPEND, OVERWRITE])
def test_a_resumable_refresh_is_committed_at_its_states(
    sync: Sync, sink: MemorySink, policy: str
) -> None:
    sync.configured = catalog(sync_mode=FULL_REFRESH, policy=policy, is_resumable=True)
    sync.run([record(0), state(1), record(1), state(2), record(2)])
    assert [(checkpoint.final, len(checkpoint.states)) for checkpoint in sink.commits] == [
        (False, 1),
        (False, 1),
        (True, 0),
    ]
    assert sync.acknowledged() == [1, 2]


@pytest.mark.parametrize("policy", [APPEND, OVERWRITE])
def test_a_failed_resumable_refresh_keeps_records_before_its_last_state(
    sync: Sync, sink: MemorySink, policy: str
) -> None:
    sync.threshold = Threshold()
    sync.configured = catalog(sync_mode=FULL_REFRESH, policy=policy, is_resumable=True)
    sync.run(failing([record(0), state(1), record(1)]))
    assert (sink.numbers, sync.acknowledged()) == ([0], [1])
    assert not any(checkpoint.final for checkpoint in sink.commits)


# Fields that must not be stored


def test_excluded_values_are_never_staged(sync: Sync, sink: MemorySink) -> None:
    rules = FieldSelection(exclude=(("ssn",),), hashed=(("email",),))
    sync.filters = {StreamId("a"): RecordFilter(rules, b"salt")}
    torn = RawRecord("a", Raw(b'{"ssn": "S3CRET'), meta=Raw(b'{"S3CRET": 1}'))
    text = RawRecord("a", Raw(b'"S3CRET"'))
    sync.run([record(0, ssn="S3CRET", email="S3CRET@x", name="n"), torn, text, state(1)])
    kept, *rejected = sink.rows
    assert "S3CRET" not in repr((sink.rows, sync.logs()))
    assert (kept["n"], kept["name"], len(kept["email"])) == (0, "n", 64)
    assert rejected == [json.loads(bytes(WITHHELD))] * 2


def test_a_filter_applies_only_to_its_stream(tmp_path: Path) -> None:
    sinks = {"a": MemorySink(), "b": MemorySink()}
    filters = {StreamId("a"): RecordFilter(FieldSelection(exclude=(("x",),)))}
    Sync(tmp_path, sinks, filters=filters).run([record(0, "a", x=1), record(0, "b", x=1)])
    assert ("x" in sinks["a"].rows[0], "x" in sinks["b"].rows[0]) == (False, True)


# What stays on disk and in memory


def test_segment_files_are_removed_after_a_sync(sync: Sync, sink: MemorySink) -> None:
    sync.run(chain.from_iterable((record(n), state(n + 1)) for n in range(9)))
    assert len(sink.segments) == 9
    assert sync.left_behind() == []


def test_segment_files_are_removed_when_the_iterator_is_closed(
    tmp_path: Path, sink: MemorySink
) -> None:
    log = message("LOG", {"level": "INFO", "message": "x"})
    session = Session(catalog(), {StreamId("a"): sink}, tmp_path)
    events = session.run([record(0), log, record(1)])
    assert next(events) == Logged("INFO", "x")
    assert list(tmp_path.rglob("*.jsonl")) != []
    events.close()
    assert list(tmp_path.rglob("*.jsonl")) == []


class Counting:
    """A sink that keeps nothing but counts; slow on request."""

    def __init__(self, seconds: float = 0):
        self.records = 0
        self.states = 0
        self._written = 0
        self._seconds = seconds

    def write(self, segment: Segment) -> None:
        self.records += segment.records
        self._written += segment.records

    def commit(self, checkpoint: Checkpoint) -> Committed:
        time.sleep(self._seconds)
        self.states += len(checkpoint.states)
        written, self._written = self._written, 0
        return Committed(1, 1, 1, written, 0, 0)


def peak(session: Session, messages: Messages) -> int:
    """Bytes of Python objects at the highest point of a run."""
    tracemalloc.start()
    try:
        for _ in session.run(messages):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_number_of_records(tmp_path: Path) -> None:
    def messages() -> Iterator[Sent]:
        for number in range(60_000):
            yield RawRecord("a", Raw(b'{"n":%d,"text":"%b"}' % (number, b"x" * 1000)), 1.0)
            if number % 100 == 0:
                yield state(number)

    sink = Counting()
    session = Session(catalog(), {StreamId("a"): sink}, tmp_path, Threshold(rows=1000))
    assert peak(session, messages()) < 16 << 20
    assert sink.records == 60_000


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


@pytest.mark.spec("protocol.102")
@pytest.mark.parametrize("sync_mode", [INCREMENTAL, FULL_REFRESH])
def test_many_states_are_kept_in_limited_memory(
    tmp_path: Path, sync_mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "MAX_STATES", 500)
    sink = Counting(seconds=0.01)
    configured = catalog(sync_mode=sync_mode)
    session = Session(configured, {StreamId("a"): sink}, tmp_path)
    flood = (state(number) for number in range(10_000))
    assert peak(session, flood) < 16 << 20
    assert sink.states == (10_000 if sync_mode == INCREMENTAL else 500)


def test_large_states_are_kept_in_limited_memory(tmp_path: Path) -> None:
    session = Session(catalog(), {StreamId("a"): Counting()}, tmp_path)
    large = (state("x" * (1 << 20)) for _ in range(300))
    assert peak(session, large) < 4 * pending.MAX_STATE_BYTES


@pytest.mark.spec("protocol.140")
def test_a_log_message_forges_no_line_of_the_log(sync: Sync) -> None:
    text = "ok\nERROR - forged\r\x1b[31mred\u2028x"
    log = message("LOG", {"level": "INFO", "message": text, "stack_trace": "one\nERROR - two"})
    failure = message("TRACE", {"type": "ERROR", "error": {"message": "a\nb"}})
    sync.run([log, failure])
    lines = sync.logs().splitlines()
    assert lines[:3] == [r"ok\nERROR - forged\r\x1b[31mred\u2028x", "    one", "    ERROR - two"]
    assert lines[3] == r"a\nb"


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_more_streams_than_open_files_can_take_turns(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(MAX_OPEN * 2 + 1)]
    sinks = {name: MemorySink() for name in names}
    before = _open_files()
    counts = []

    def messages() -> Iterator[Sent]:
        for number in range(3):
            yield from (record(number, name) for name in names)
            counts.append(_open_files() - before)
            yield state(number, "s0")
        yield from (state(3, name) for name in names[:-1])
        yield status(INCOMPLETE, names[-1])  # its segment is cut back to nothing

    Sync(tmp_path, sinks, Threshold()).run(messages())
    assert max(counts) < MAX_OPEN + 20
    assert {tuple(sinks[name].numbers) for name in names[:-1]} == {(0, 1, 2)}
    assert sinks[names[-1]].numbers == []
