"""The reaction of a session to failures of a source, a stream or a sink: at any point, in any order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.errors import ConfigError, SystemFailure, TransientError
from elt_assets.protocol.catalog import APPEND, FULL_REFRESH, INCREMENTAL, OVERWRITE
from elt_assets.protocol.codec import decode
from elt_assets.protocol.messages import COMPLETE, INCOMPLETE, STARTED
from elt_assets.protocol.singer import Translator
from elt_assets.sync.segments import Segment
from elt_assets.sync.session import Threshold
from tests.support.examples import examples
from tests.sync.doubles import (
    MemorySink,
    Sent,
    Sync,
    catalog,
    cursor,
    error,
    failing,
    message,
    record,
    state,
    status,
)

# What fails


@pytest.mark.spec("protocol.101")
def test_records_before_the_last_state_are_kept_if_the_source_fails(
    sync: Sync, sink: MemorySink
) -> None:
    sync.threshold = Threshold()
    sync.run(failing([record(0), state(1), record(1), state(2), record(2)]))
    assert sink.numbers == [0, 1]
    assert sync.acknowledged() == [2]
    assert isinstance(sync.failure, TransientError)
    assert sync.left_behind() == []


def test_no_queued_commit_is_published_after_a_failed_write(tmp_path: Path) -> None:
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


def test_commits_before_a_failure_are_acknowledged(tmp_path: Path) -> None:
    sink = MemorySink(fail_at=2)  # the second segment's write
    sync = Sync(tmp_path, {"a": sink}).run([record(0), state(1), record(1), state(2)])
    assert (sink.numbers, sync.acknowledged()) == ([0], [1])
    assert isinstance(sync.failure, SystemFailure)


@pytest.mark.spec("protocol.148")
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


def test_an_error_of_a_stream_keeps_its_type_and_message(sync: Sync) -> None:
    sync.run([error("wrong password", "a", "config_error")])
    assert isinstance(sync.failure, ConfigError)
    assert "wrong password" in str(sync.failure)


def test_an_error_without_a_stream_fails_all_streams(tmp_path: Path) -> None:
    sinks = {"a": MemorySink(), "b": MemorySink()}
    sync = Sync(tmp_path, sinks, Threshold()).run([record(0), error("gone"), record(0, "b")])
    assert (sinks["a"].commits, sinks["b"].commits) == ([], [])
    assert "'a', 'b'" in str(sync.failure)


COMBINED = error("During the sync, the following streams did not sync successfully: a")
"""The error with which airbyte-cdk ends a failed read: of no stream, and always a `config_error`."""


@pytest.mark.spec("protocol.147")
def test_the_error_of_a_stream_takes_precedence_over_a_later_combined_error(sync: Sync) -> None:
    sync.run([record(0), error("503", "a", "transient_error"), COMBINED])
    assert isinstance(sync.failure, TransientError)
    assert "503" in str(sync.failure)


@pytest.mark.spec("protocol.147")
def test_the_first_error_is_reported_if_none_names_a_stream(sync: Sync) -> None:
    sync.run([error("503", None, "transient_error"), error("gave up")])
    assert isinstance(sync.failure, TransientError)


def failed_beside_a_complete_one() -> Iterator[Sent]:
    yield from (status(STARTED, "a"), status(STARTED, "b"), record(1, "b"), status(COMPLETE, "b"))
    yield from (error("503", "a", "transient_error"), status(INCOMPLETE, "a"), COMBINED)


@pytest.mark.spec("protocol.148")
@pytest.mark.parametrize("exits_with", [0, 1])
@pytest.mark.parametrize(("mode", "policy"), [(FULL_REFRESH, OVERWRITE), (INCREMENTAL, APPEND)])
def test_a_complete_stream_is_published_before_an_error_without_a_stream(
    tmp_path: Path, exits_with: int, mode: str, policy: str
) -> None:
    sinks = {"a": MemorySink(), "b": MemorySink()}
    sync = Sync(
        tmp_path, sinks, configured=catalog(["a", "b"], mode, policy), shares_state=True
    ).run(failing(failed_beside_a_complete_one()) if exits_with else failed_beside_a_complete_one())
    assert sinks["b"].numbers == [1] and sinks["b"].commits[-1].final
    assert not any(commit.final for commit in sinks["a"].commits)
    assert isinstance(sync.failure, TransientError)


def test_an_error_after_all_streams_are_complete_fails_the_sync(
    sync: Sync, sink: MemorySink
) -> None:
    sync.run([record(0), status(COMPLETE), error("could not log out")])
    assert (sink.numbers, sink.commits[-1].final) == ([0], True)
    assert isinstance(sync.failure, ConfigError) and "could not log out" in str(sync.failure)


@pytest.mark.spec("protocol.149")
@pytest.mark.parametrize("body", [{}, {"error": {}}, {"error": {"internal_message": "boom"}}])
def test_an_error_without_a_body_or_a_message_fails_the_sync(
    sync: Sync, body: dict[str, object]
) -> None:
    sync.run([record(0), message("TRACE", {"type": "ERROR", "emitted_at": 1, **body})])
    assert isinstance(sync.failure, SystemFailure)
    assert "boom" in str(sync.failure) or "an error without a message" in str(sync.failure)


NOISE = decode(b"SLF4J: a banner on stdout")
SPOKEN = message("LOG", {"level": "INFO", "message": "no new rows"})


def test_plain_text_beside_a_stream_without_new_data_is_not_a_failure(tmp_path: Path) -> None:
    sinks = {"a": MemorySink(), "b": MemorySink()}
    sync = Sync(tmp_path, sinks, shares_state=True).run([NOISE, record(1), state(1)])
    assert sync.failure is None
    assert "stream 'b': the source sent no message about it" in sync.logs()


@pytest.mark.spec("protocol.19", "airbyte.26")
def test_plain_text_beside_any_message_is_not_a_failure(sync: Sync) -> None:
    assert sync.run([NOISE, SPOKEN]).failure is None


@pytest.mark.spec("protocol.19")
def test_only_plain_text_is_a_failure(sync: Sync) -> None:
    sync.run([NOISE, decode(b'{"type":"FOO"}')])
    assert isinstance(sync.failure, SystemFailure)
    assert "1 lines that are not messages" in str(sync.failure)


@pytest.mark.spec("protocol.130")
def test_a_stream_state_without_its_contents_is_refused(sync: Sync, sink: MemorySink) -> None:
    sync.run([record(0), message("STATE", {"type": "STREAM", "data": {"n": 1}})])
    assert isinstance(sync.failure, SystemFailure) and "without its contents" in str(sync.failure)
    assert sink.commits == []


@pytest.mark.spec("protocol.130")
@pytest.mark.parametrize("body", [{}, {"type": "LEGACY"}, {"type": "NEWER", "data": {}}])
def test_a_state_without_contents_is_refused(sync: Sync, sink: MemorySink, body: object) -> None:
    sync.run([record(0), state(1), record(1), message("STATE", body)])
    assert isinstance(sync.failure, SystemFailure)
    assert "without its contents" in str(sync.failure)
    assert (sink.numbers, sync.acknowledged()) == ([0], [1])


def test_a_complete_status_does_not_replace_an_incomplete_one(sync: Sync) -> None:
    sync.run([status(STARTED), record(0), status(INCOMPLETE), status(COMPLETE), state(1)])
    assert isinstance(sync.failure, SystemFailure)
    assert sync.acknowledged() == []


@pytest.mark.spec("protocol.154", "protocol.155")
def test_a_stream_that_started_must_complete(sync: Sync, sink: MemorySink) -> None:
    sync.run([status(STARTED), record(0), state(1), record(1)])
    assert isinstance(sync.failure, SystemFailure)
    assert (sink.numbers, sync.acknowledged()) == ([0], [1])


@pytest.mark.spec("protocol.156")
def test_a_source_without_statuses_is_complete_at_its_end(sync: Sync, sink: MemorySink) -> None:
    sync.run([record(0)])
    assert sync.failure is None
    assert sink.numbers == [0]


def test_a_shared_state_fails_with_guidance_and_keeps_earlier_records(
    sync: Sync, sink: MemorySink
) -> None:
    shared = {"type": "GLOBAL", "global": {"stream_states": []}}
    sync.run([record(0), state(1), record(1), message("STATE", shared)])
    assert isinstance(sync.failure, ConfigError)
    assert "read_together" in str(sync.failure)
    assert sink.numbers == [0]


def test_a_legacy_state_belongs_to_the_only_stream(sync: Sync) -> None:
    sync.run([record(0), message("STATE", {"data": {"n": 1}})])
    assert sync.acknowledged() == [{"n": 1}]


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


@pytest.mark.spec("protocol.30", "singer.14")
@settings(max_examples=examples(300), deadline=None)
@given(
    steps,
    st.none() | st.integers(0, 40),
    st.fixed_dictionaries({name: st.none() | st.integers(0, 10) for name in STREAMS}),
    st.integers(1, 6),
    st.sampled_from([INCREMENTAL, FULL_REFRESH]),
    st.booleans(),
)
def test_uncommitted_records_are_never_acknowledged(
    script: list[tuple[str, str]],
    source_fails_at: int | None,
    sinks_fail_at: dict[str, int | None],
    rows: int,
    sync_mode: str,
    is_resumable: bool,
) -> None:
    sinks = {name: MemorySink(fail_at) for name, fail_at in sinks_fail_at.items()}
    ahead = []

    def messages() -> Iterator[Sent]:
        yield from play(script[:source_fails_at])
        if source_fails_at is not None:
            raise TransientError("the source failed")

    with TemporaryDirectory() as folder:
        configured = catalog(STREAMS, sync_mode, is_resumable=is_resumable)
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


@pytest.mark.spec("sdk.3")
def test_records_before_a_repeated_bookmark_of_a_tap_are_kept(sync: Sync, sink: MemorySink) -> None:
    record_line = b'{"type":"RECORD","stream":"a","record":{"n":%d}}'
    state_line = b'{"type":"STATE","value":{"bookmarks":{"a":{"at":5}}}}'
    lines = [line for n in range(4) for line in (record_line % n, state_line)]
    translate = Translator().messages
    messages = (message for line in [*lines, record_line % 4] for message in translate(line))
    sync.threshold = Threshold()
    sync.run(failing(messages))
    assert sink.numbers == [0, 1, 2, 3]


# What the source calls failed is not published

MALFORMED: list[tuple[str | None, str]] = [
    ("a", '{"type":"ERROR","error":{"message":7,"stream_descriptor":{"name":"a"}}}'),
    ("b", '{"type":"ERROR","emitted_at":"x","error":{"stream_descriptor":{"name":"b"}}}'),
    ("a", '{"type":"STREAM_STATUS","stream_status":{"stream_descriptor":{"name":"a"}}}'),
    (
        "b",
        '{"type":"STREAM_STATUS","stream_status":{"status":5,"stream_descriptor":{"name":"b"}}}',
    ),
    ("a", '{"type":"ERROR","error":{"stream_descriptor":{"name":"a","namespace":"other"}}}'),
    (None, '{"type":"ERROR","error":"boom"}'),
    (None, '{"type":"STREAM_STATUS","stream_status":{"status":"INCOMPLETE"}}'),
    (None, '{"type":"ERROR","error":{"stream_descriptor":{"name":5}}}'),
    (None, '{"type":"ERR'),
]
"""Traces that report a failure of a stream, or of one that cannot be read."""


@st.composite
def reports(draw: st.DrawFn) -> tuple[list[Sent], set[str]]:
    """Return messages of a source in any order, and the names of the streams that they call failed."""
    sent: list[Sent] = []
    failed: set[str] = set()
    kinds = ["record", "state", "COMPLETE", "INCOMPLETE", "error", "malformed", "STARTED"]
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=12)):
        stream = draw(st.sampled_from(STREAMS))
        if kind == "malformed":
            named, text = draw(st.sampled_from(MALFORMED))
            line = b'{"type":"TRACE","trace":' + text.encode()
            sent += [decode(line + b"}" * text.endswith("}"))]
            failed |= {named} if named else set(STREAMS)
        elif kind in ("record", "state"):
            sent.append(record(1, stream) if kind == "record" else state(1, stream))
        else:
            sent.append(error("x", stream) if kind == "error" else status(kind, stream))
            failed |= {stream} if kind in ("INCOMPLETE", "error") else set()
    return sent, failed


@pytest.mark.spec("protocol.143")
@settings(deadline=None, max_examples=examples(300))
@given(reports(), st.sampled_from([INCREMENTAL, FULL_REFRESH]), st.booleans())
def test_a_stream_that_the_source_called_failed_is_never_published(
    script: tuple[list[Sent], set[str]], sync_mode: str, exits: bool
) -> None:
    sent, failed = script
    sinks = {name: MemorySink() for name in STREAMS}
    with TemporaryDirectory() as folder:
        configured = catalog(STREAMS, sync_mode, OVERWRITE)
        messages = failing(sent) if exits else iter(sent)
        sync = Sync(Path(folder), sinks, Threshold(rows=1), configured).run(messages)
    assert not failed or sync.failure is not None
    for name in failed:
        assert not any(commit.final for commit in sinks[name].commits)


@pytest.mark.parametrize("stream", ["other", "a"])
def test_a_failure_of_a_stream_that_is_not_configured_fails_the_sync(
    sync: Sync, sink: MemorySink, stream: str
) -> None:
    body = {"stream_descriptor": {"name": stream, "namespace": "n"}, "status": INCOMPLETE}
    failed = message("TRACE", {"type": "STREAM_STATUS", "stream_status": body})
    sync.run([record(0), failed])
    assert sync.failure is not None and "which is not configured" in str(sync.failure)
    assert not any(commit.final for commit in sink.commits)
