"""A sync into another destination: what it is sent, and what is acknowledged of what it sends back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.errors import EltError, SystemFailure, TransientError
from elt_assets.protocol.catalog import ConfiguredCatalog, StreamId
from elt_assets.protocol.codec import decode
from elt_assets.protocol.messages import COMPLETE, INCOMPLETE, STARTED, Message, StateStats
from elt_assets.protocol.wire import as_read
from elt_assets.sync.events import Acknowledged, Checkpoint, Committed, Logged, SessionEvent
from elt_assets.sync.field_selection import FieldSelection
from elt_assets.sync.record_filter import RecordFilter
from elt_assets.sync.relay import Relay
from elt_assets.sync.streams import StreamRules
from tests.sync.doubles import (
    catalog,
    cursor,
    error,
    message,
    namespaced,
    shared,
    state,
    status,
)

Change = Callable[[Message], Iterable[Message]]


class States:
    """A sink that keeps states."""

    def __init__(self) -> None:
        self.commits: list[Checkpoint] = []

    @property
    def state(self) -> Any:
        found = [cursor(each) for each in self.commits if each.states]
        return found[-1] if found else None

    def write(self, segment: object) -> None:
        raise AssertionError

    def commit(self, checkpoint: Checkpoint) -> Committed:
        self.commits.append(checkpoint)
        return Committed(len(self.commits), 1, 1, 0, 0, 0)


class Destination:
    """Sends states back, each when the next one comes; `answer`: what it makes of one."""

    def __init__(self, answer: Change = lambda echo: [echo]):
        self.lines: list[Any] = []
        self._answer = answer

    def __call__(self, lines: Iterable[bytes]) -> Iterator[Message]:
        waiting: list[Message] = []
        failure = None
        try:
            for line in lines:
                self.lines.append(json.loads(line))
                found = decode(line, whole=True)
                assert isinstance(found, Message)
                if found.state is not None:
                    for each in waiting:
                        yield from self._answer(each)
                    waiting = [found]
        except EltError as raised:
            failure = raised
        for each in waiting:
            yield from self._answer(each)
        if failure is not None:
            raise failure


def record(number: int, stream: str = "a", **more: Any) -> Message:
    data = {"n": number, **more}
    body = {"stream": stream, "data": data, "emitted_at": 1, "new": {"x": 1}}
    return Message.from_json(json.dumps({"type": "RECORD", "record": body}))


class Sync:
    def __init__(
        self,
        streams: Sequence[str] = ("a",),
        configured: ConfiguredCatalog | None = None,
        **rules: Any,
    ):
        self.sinks = {name: States() for name in streams}
        self.catalog = configured or catalog(list(streams))
        self.rules = StreamRules(**rules)
        self.events: list[SessionEvent] = []
        self.failure: EltError | None = None

    def run(self, messages: Iterable[Any], destination: Destination | None = None) -> Sync:
        sinks = {stream.id: self.sinks[stream.id.name] for stream in self.catalog.streams}
        relay = Relay(self.catalog, sinks, destination or Destination(), self.rules)
        try:
            self.events.extend(relay.run(messages))
        except EltError as failure:
            self.failure = failure
        return self

    def committed(self, stream: str = "a") -> tuple[int, int]:
        """Records, committed and rejected."""
        found = [e for e in self.events if isinstance(e, Acknowledged) and e.stream.name == stream]
        return sum(e.commit.records for e in found), sum(e.commit.rejected for e in found)


@pytest.mark.spec("protocol.8")
def test_records_states_and_statuses_are_sent_unchanged() -> None:
    destination = Destination()
    sent = [status(STARTED), record(0, x="é\u2028"), state(1), status(COMPLETE)]
    sync = Sync().run([*sent, message("LOG", {"level": "INFO", "message": "hi"})], destination)
    assert [line["type"] for line in destination.lines] == ["TRACE", "RECORD", "STATE", "TRACE"]
    assert destination.lines[1] == json.loads(record(0, x="é\u2028").to_json())
    assert Logged("INFO", "hi") in sync.events
    assert (sync.sinks["a"].state, sync.committed(), sync.failure) == (1, (1, 0), None)
    assert sync.sinks["a"].commits[-1].final


BAD = b'{"a":"cut \\ud83d","b":"\xff\t\\u0000","c":NaN}'
BAD_STATE = b'{"type":"STREAM","stream":{"stream_descriptor":{"name":"a"},"stream_state":%b}}' % BAD


@pytest.mark.parametrize(
    ("bad", "good"), [("cut \ufffd", "cut \ud83d"), ("cut \ufffd", "cut ?"), ("\ufffd\t", "?\t")]
)
def test_a_bad_text_is_replaced_in_records_and_stays_in_states(bad: str, good: str) -> None:
    """The destination writes what is no text in its own way when it sends a state back."""
    received: list[bytes] = []

    class Reader(Destination):
        def __call__(self, lines: Iterable[bytes]) -> Iterator[Message]:
            def kept() -> Iterator[bytes]:
                for line in lines:
                    received.append(line)
                    yield json.dumps(decoded(line)).encode()

            return super().__call__(kept())

    def decoded(line: bytes) -> Any:
        text = json.dumps(json.loads(as_read(line)), ensure_ascii=False)
        return json.loads(text.replace(bad, good) if b'"STATE"' in line else text)

    sent = [
        decode(
            b'{"type":"RECORD","record":{"stream":"a","data":%b,"emitted_at":1}}' % BAD, whole=True
        ),
        decode(b'{"type":"STATE","state":%b}' % BAD_STATE, whole=True),
    ]
    sync = Sync().run([*sent, status(COMPLETE)], Reader())
    assert (sync.failure, sync.committed()) == (None, (1, 0))
    record = json.loads(received[0])["record"]
    assert record["data"] == {"a": "cut \ufffd", "b": "\ufffd\t\0", "c": "NaN"}
    changes = [(each["field"], each["change"]) for each in record["meta"]["changes"]]
    assert changes == [("a", "TRUNCATED"), ("b", "TRUNCATED")]
    assert BAD.replace(b"\t", b"\\u0009").replace(b"NaN", b'"NaN"') in received[1]
    states = [each.states[-1] for each in sync.sinks["a"].commits if each.states]
    assert [each.to_json() for each in states] == [BAD_STATE]


@pytest.mark.parametrize(
    ("data", "expected", "changed"),
    [
        (b'{"id":"\\ud83d","b":{"c":["\xff"]}}', b'{"id":"\\ud83d","b":{"c":["\xef\xbf\xbd"]}}', ["x", "b"]),
        (b'{"id":"\xff","b":"good"}', b'{"id":"\xff","b":"good"}', ["x"]),
        (b'{"id":1,"\xff":"\xff"}', b'{"id":1,"\xef\xbf\xbd":"\xef\xbf\xbd"}', ["x", "\ufffd"]),
        (b'"\xff"', b'"\xff"', ["x"]),
    ],
)  # fmt: skip
def test_a_bad_text_in_a_key_goes_on_as_received(
    data: bytes, expected: bytes, changed: list[str]
) -> None:
    """Two keys that differ must not become one."""
    received: list[bytes] = []

    class Reader(Destination):
        def __call__(self, lines: Iterable[bytes]) -> Iterator[Message]:
            received.extend(line for line in lines if b'"RECORD"' in line)
            yield from ()

    sync = Sync()
    sync.catalog.streams[0].primary_key = [["id"]]
    line = (
        b'{"type":"RECORD","record":{"stream":"a","data":%b,"emitted_at":1,'
        b'"meta":{"changes":[{"field":"x"}],"more":1}}}'
    ) % data
    sync.run([decode(line, whole=True), status(COMPLETE)], Reader())
    assert b'"data":%b' % expected in received[0]
    meta_received = json.loads(as_read(received[0]))["record"]["meta"]
    assert [each["field"] for each in meta_received["changes"]] == changed
    assert meta_received["more"] == 1
    warnings = [each for each in sync.events if isinstance(each, Logged) and each.level == "WARN"]
    assert [each.message.split("'")[1] for each in warnings] == changed[1:]


class Coalescing(Destination):
    """Sends back only the last state of each stream, as Airbyte's Java destinations may."""

    def __call__(self, lines: Iterable[bytes]) -> Iterator[Message]:
        last: dict[str, Message] = {}
        for echo in super().__call__(lines):
            assert echo.state is not None and echo.state.stream is not None
            last[echo.state.stream.stream_descriptor.name] = echo
        for each in last.values():
            yield from self._answer(each)


@pytest.mark.spec("protocol.34")
def test_a_later_state_acknowledges_earlier_states_of_its_stream() -> None:
    sent = [record(0), state(1), record(0, "b"), state(9, "b"), record(1), state(2), state(2)]
    sync = Sync(["a", "b"]).run(sent, Coalescing())
    assert sync.failure is None
    assert (sync.sinks["a"].state, sync.sinks["b"].state) == (2, 9)
    assert (sync.committed("a"), sync.committed("b")) == ((2, 0), (1, 0))


def test_the_count_of_a_state_includes_skipped_states_before_it() -> None:
    sent = [record(0), state(1), record(1), state(2)]
    sync = Sync().run(sent, Coalescing(counting(1.0, 1.0)))
    assert (sync.failure, sync.committed()) == (None, (1, 1))
    assert "was sent 2;" in str(Sync().run(sent, Coalescing(counting(1.0))).failure)


def endings(destination: Destination) -> list[tuple[str, str]]:
    """The final statuses that a destination got, by stream."""
    traces = [line["trace"] for line in destination.lines if line["type"] == "TRACE"]
    statuses = [each["stream_status"] for each in traces]
    found = [(each["stream_descriptor"]["name"], each["status"]) for each in statuses]
    return [each for each in found if each[1] != STARTED]


@pytest.mark.spec("protocol.158")
def test_each_stream_gets_one_final_status() -> None:
    sent = [status(COMPLETE, "b"), record(0), state(1), status(COMPLETE, "b")]
    Sync(["a", "b"]).run(sent, destination := Destination())
    assert endings(destination) == [("b", COMPLETE), ("a", COMPLETE)]


@pytest.mark.spec("protocol.158")
def test_a_failed_stream_is_never_reported_complete() -> None:
    sent = [record(0), error("gone", "a"), status(COMPLETE), status(COMPLETE, "b")]
    Sync(["a", "b"]).run(sent, destination := Destination())
    assert endings(destination) == [("b", COMPLETE), ("a", INCOMPLETE)]


def test_a_destination_gets_the_namespace_of_the_catalog() -> None:
    sync = Sync(configured=namespaced(("a", "n")))
    destination = Destination()
    sync.run([record(0), state(1), status(COMPLETE)], destination)
    first, stored, ended = destination.lines
    assert first["record"]["namespace"] == "n"
    assert stored["state"]["stream"]["stream_descriptor"]["namespace"] == "n"
    assert ended["trace"]["stream_status"]["stream_descriptor"]["namespace"] == "n"
    assert (sync.failure, sync.committed(), sync.sinks["a"].state) == (None, (1, 0), 1)


def test_a_source_of_only_plain_text_has_failed() -> None:
    sync = Sync().run([decode(b"hello")])
    assert "not messages of the Airbyte Protocol" in str(sync.failure)
    assert sync.sinks["a"].commits == []


def test_records_and_states_of_other_streams_are_not_sent() -> None:
    destination = Destination()
    sync = Sync().run([record(0, "b"), state(1, "b"), record(0)], destination)
    assert [line["type"] for line in destination.lines] == ["RECORD", "TRACE"]
    assert endings(destination) == [("a", COMPLETE)]
    assert sync.failure is None


def test_a_state_that_is_not_returned_is_not_acknowledged() -> None:
    sync = Sync().run([record(0), state(1), record(1), state(2)], Destination(lambda _: []))
    assert sync.sinks["a"].commits == []
    assert "without acknowledging the states of 'a'" in str(sync.failure)


def other(echo: Message) -> list[Message]:
    return [state(99)]  # type: ignore[list-item]


@pytest.mark.spec("protocol.33")
def test_an_unknown_state_of_the_destination_fails_the_sync() -> None:
    sync = Sync().run([record(0), state(1)], Destination(other))
    assert isinstance(sync.failure, SystemFailure)
    assert sync.sinks["a"].state is None
    assert not any(commit.final for commit in sync.sinks["a"].commits)


def test_a_state_that_comes_back_twice_is_a_warning() -> None:
    sync = Sync().run([record(0), state(1)], Destination(lambda echo: [echo, echo]))
    assert (sync.failure, sync.sinks["a"].state, sync.committed()) == (None, 1, (1, 0))
    assert "once more" in " ".join(e.message for e in sync.events if isinstance(e, Logged))


def with_namespace(echo: Message) -> list[Message]:
    assert echo.state is not None and echo.state.stream is not None
    echo.state.stream.stream_descriptor.namespace = "public"
    return [echo]


def test_a_destination_may_add_its_namespace_to_a_state() -> None:
    messages = [record(0), state(1), record(1), state(2)]
    sync = Sync(["a", "b"]).run(messages, Destination(with_namespace))
    assert (sync.failure, sync.sinks["a"].state, sync.committed()) == (None, 2, (2, 0))


def counting(committed: float | None, rejected: float | None = None) -> Change:
    def answer(echo: Message) -> list[Message]:
        assert echo.state is not None
        stats = StateStats(recordCount=committed, rejectedRecordCount=rejected)
        echo.state.destinationStats = stats
        return [echo]

    return answer


def test_counts_of_the_destination_are_kept() -> None:
    sync = Sync().run([record(0), record(1), state(1)], Destination(counting(1.0, 1.0)))
    assert (sync.committed(), sync.sinks["a"].state) == ((1, 1), 1)


@pytest.mark.spec("protocol.137")
def test_a_count_of_the_destination_that_differs_by_one_acknowledges_nothing() -> None:
    sync = Sync().run([record(0), record(1), state(1)], Destination(counting(1.0)))
    assert "1 committed or rejected records before its state, but was sent 2;" in str(sync.failure)
    assert sync.sinks["a"].state is None


def test_a_wrong_count_of_an_equal_state_is_an_error() -> None:
    sent = [record(0), state(1), record(1), record(2), state(1)]

    def run(*counts: float) -> Sync:
        left = iter(counts)

        def answer(echo: Message) -> Iterable[Message]:
            return counting(next(left))(echo)

        return Sync().run(sent, Destination(answer))

    assert (run(1.0, 2.0).failure, run(1.0, 2.0).committed()) == (None, (3, 0))
    assert "reports 3 committed or rejected records before its state, but was sent 2;" in str(
        run(1.0, 3.0).failure
    )


@pytest.mark.spec("protocol.106")
@pytest.mark.parametrize("named", [None, "a"])
def test_an_error_of_the_destination_is_a_failure_whatever_its_exit_code(
    named: str | None,
) -> None:
    def answer(echo: Message) -> list[Any]:
        assert echo.state is not None and echo.state.stream is not None
        is_first = cursor(Checkpoint((echo.state,), final=False)) == 1
        return [echo, error("disk full", named)] if is_first else [echo]

    sent = [record(0), state(1), record(1), state(2), record(0, "b"), state(9, "b")]
    sync = Sync(["a", "b"]).run(sent, Destination(answer))
    assert "disk full" in str(sync.failure)
    assert sync.sinks["a"].state == 1
    assert not any(commit.final for commit in sync.sinks["a"].commits)
    assert any(commit.final for commit in sync.sinks["b"].commits) == (named == "a")
    assert sync.sinks["b"].state == (9 if named == "a" else None)


def test_a_count_of_the_source_that_differs_by_one_acknowledges_nothing() -> None:
    body = json.loads(state(1).to_json())["state"]  # type: ignore[union-attr]
    wrong = message("STATE", {**body, "sourceStats": {"recordCount": 2.0}})
    destination = Destination()
    sync = Sync().run([record(0), wrong], destination)
    assert [line["type"] for line in destination.lines] == ["RECORD", "TRACE"]
    assert "reports 2 records before its state, but 1 were received" in str(sync.failure)


def test_states_acknowledged_before_a_failure_of_the_source_are_kept() -> None:
    def messages() -> Iterator[Any]:
        yield from (record(0), state(1), record(1))
        raise TransientError("the source failed")

    destination = Destination()
    sync = Sync().run(messages(), destination)
    # Its end of input alone would look like success.
    assert destination.lines[-1]["trace"]["stream_status"]["status"] == INCOMPLETE
    assert (sync.sinks["a"].state, sync.committed()) == (1, (1, 0))
    assert not any(commit.final for commit in sync.sinks["a"].commits)
    assert isinstance(sync.failure, TransientError)


@pytest.mark.parametrize("failed", [status(INCOMPLETE, "b"), error("no such table", "b")])
def test_a_failed_stream_does_not_affect_other_streams(failed: Any) -> None:
    sent = [record(0), record(0, "b"), failed, state(9, "b"), state(1), status(COMPLETE)]
    sync = Sync(["a", "b"]).run(sent)
    assert (sync.sinks["a"].state, sync.sinks["a"].commits[-1].final) == (1, True)
    assert sync.sinks["b"].commits == []
    assert sync.failure is not None


def test_a_shared_state_advances_for_all_streams() -> None:
    sync = Sync(["a", "b"], shares_state=True).run([record(0), record(0, "b"), shared(5)])
    assert [sink.state for sink in sync.sinks.values()] == [5, 5]
    assert (sync.committed("a"), sync.committed("b")) == ((1, 0), (1, 0))


def test_own_states_and_shared_states_are_kept_side_by_side() -> None:
    sent = [record(0), record(0, "b"), state(3, "b"), shared(5, ["a"]), record(1), shared(6, ["a"])]
    sync = Sync(["a", "b"], shares_state=True).run(sent)
    assert (sync.failure, sync.sinks["a"].state, sync.sinks["b"].state) == (None, 6, 3)
    assert (sync.committed("a"), sync.committed("b")) == ((2, 0), (1, 0))


def test_excluded_fields_are_not_sent() -> None:
    rules = FieldSelection(include=None, exclude=(("secret",),), hashed=(), key=(), cursor=())
    destination = Destination()
    sync = Sync(filters={StreamId("a"): RecordFilter(rules, b"salt")})
    sync.run([record(0, secret="x")], destination)
    assert destination.lines[0]["record"]["data"] == {"n": 0}


@given(st.lists(st.sampled_from(["a", "b", "state a", "state b"]), max_size=30))
def test_all_records_and_states_are_counted(script: list[str]) -> None:
    counts = {"a": 0, "b": 0}
    sent: list[Any] = []
    for what in script:
        if what.startswith("state"):
            sent.append(state(counts[what[-1]], what[-1]))
        else:
            sent.append(record(counts[what], what))
            counts[what] += 1
    sync = Sync(["a", "b"]).run(sent)
    assert sync.failure is None
    for name, sink in sync.sinks.items():
        assert sync.committed(name) == (counts[name], 0)
        assert sink.commits[-1].final
        states = [each.state for each in sent if each.state is not None]
        own = [one for one in states if one.stream.stream_descriptor.name == name]
        assert sink.state == (cursor(Checkpoint((own[-1],), final=False)) if own else None)
