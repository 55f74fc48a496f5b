"""A destination that sends states back in every allowed way, beside a model of what it has committed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elt_assets.errors import TransientError
from elt_assets.protocol.codec import decode
from elt_assets.protocol.messages import Message
from elt_assets.sync.events import Checkpoint
from tests.support.examples import examples
from tests.sync.doubles import cursor, message
from tests.sync.test_relay import Destination, Sync, record

STREAMS = ("a", "b")
VALUES: tuple[Any, ...] = (
    None, {}, {"n": 1}, {"n": 2, "gone": None}, {"n": 2.5, "at": "x", "deep": {"z": None, "y": [1, None]}},
    {"n": 10**18 + 1}, {"n": 1e22, "text": "\u00e9"},
)  # fmt: skip
"""The contents of states: few, so that many states of a sync are equal."""

steps = st.lists(
    st.tuples(st.sampled_from(["record", "record", "state", "shared"]),
              st.sampled_from(STREAMS), st.sampled_from(VALUES)),
    max_size=25,
)  # fmt: skip


class Sloppy(Destination):
    """A destination. Each of `habits` changes how it sends states back; none may fail a sync.

    `acknowledged`: how many records it has committed before the last state it sent back, by stream.
    """

    def __init__(self, habits: set[str], seed: int):
        super().__init__()
        self._habits = habits
        self._random = random.Random(seed)
        self._since = dict.fromkeys((*STREAMS, None), 0)

    def __call__(self, lines: Iterable[bytes]) -> Iterator[Message]:
        waiting: list[tuple[str | None, dict[str, Any], int]] = []
        for line in lines:
            sent = json.loads(line)
            if sent["type"] == "RECORD":
                for about in (sent["record"]["stream"], None):
                    self._since[about] += 1
            if sent["type"] != "STATE":
                continue
            about = sent["state"].get("stream", {}).get("stream_descriptor", {}).get("name")
            waiting.append((about, sent, self._since[about]))
            self._since[about] = 0
            if self._random.random() < 0.3:
                yield from self._flush(waiting)
        yield from self._flush(waiting)

    def _flush(self, waiting: list[tuple[str | None, dict[str, Any], int]]) -> Iterator[Message]:
        last = {about: number for number, (about, _, _) in enumerate(waiting)}
        skipped = dict.fromkeys(last, 0)
        for number, (about, sent, count) in enumerate(waiting):
            skipped[about] += count
            if "only last" in self._habits and last[about] != number:
                continue
            for times in range(2 if "twice" in self._habits else 1):
                yield self._echo(sent, 0 if times else skipped[about])
            skipped[about] = 0
        waiting.clear()

    def _echo(self, sent: dict[str, Any], count: int) -> Message:
        echo = copy.deepcopy(sent)
        if "without nulls" in self._habits:
            echo = without_nulls(echo)
        if "reordered" in self._habits:
            echo = self._reordered(echo)
        if "floats" in self._habits:
            echo = with_floats(echo)
        if "more properties" in self._habits:
            echo["state"]["received_at"] = "now"
            for blob in (echo["state"].get("stream", {}).get("stream_state"),):
                if blob:
                    blob["_seen"] = True
        if "counts" in self._habits:
            echo["state"]["destinationStats"] = {"recordCount": float(count)}
        found = decode(json.dumps(echo).encode(), whole=True)
        assert isinstance(found, Message) and found.state is not None
        return found

    def _reordered(self, value: Any) -> Any:
        if isinstance(value, dict):
            items = [(key, self._reordered(inner)) for key, inner in value.items()]
            self._random.shuffle(items)
            found = dict(items)
            if "stream_states" in found:
                self._random.shuffle(found["stream_states"])
            return found
        return [self._reordered(inner) for inner in value] if isinstance(value, list) else value


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def with_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_floats(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_floats(inner) for inner in value]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    # An integer that a double does not hold would be another value, which is no way to send a state back.
    return float(value) if is_number and int(float(value)) == value else value


def own_state(stream: str, value: Any) -> Any:
    descriptor = {"name": stream, "namespace": None}
    body = {"stream_descriptor": descriptor, "stream_state": value}
    return message("STATE", {"type": "STREAM", "stream": body, "new": None})


def shared_state(value: Any, entry: Any) -> Any:
    states = [{"stream_descriptor": {"name": name}, "stream_state": entry} for name in STREAMS]
    body = {"shared_state": value, "stream_states": states}
    return message("STATE", {"type": "GLOBAL", "global": body})


HABITS = ["only last", "twice", "without nulls", "reordered", "floats", "more properties", "counts"]


@pytest.mark.spec("protocol.105")
@settings(max_examples=examples(400), deadline=None)
@given(steps, st.sets(st.sampled_from(HABITS)), st.integers(0, 1_000), st.booleans())
@example(
    [("state", "a", None), ("state", "a", {"n": 1}), ("state", "a", None)],
    {"twice", "without nulls", "more properties"},
    0,
    False,
)
@example(
    [("shared", "b", {}), ("shared", "b", {"n": 10**18 + 1})],
    {"twice", "floats", "only last"},
    0,
    True,
)
def test_every_allowed_way_to_send_states_back_completes_the_sync(
    script: list[tuple[str, str, Any]], habits: set[str], seed: int, is_shared: bool
) -> None:
    sent: list[Any] = []
    counts = dict.fromkeys(STREAMS, 0)
    last: dict[str, Any] = {}
    for what, stream, value in script:
        if what == "record":
            sent.append(record(counts[stream], stream))
            counts[stream] += 1
        elif is_shared and what == "shared":
            sent.append(shared_state(value, {"of": stream}))
            last = dict.fromkeys(STREAMS, sent[-1].state)
        elif not is_shared:
            sent.append(own_state(stream, value))
            last[stream] = sent[-1].state
    expected = {name: json.loads(state.to_json()) for name, state in last.items()}
    sync = Sync(STREAMS, shares_state=is_shared).run(sent, Sloppy(habits, seed))
    assert sync.failure is None
    for name, sink in sync.sinks.items():
        stored = [json.loads(each.states[-1].to_json()) for each in sink.commits if each.states]
        if expected.get(name) is None:
            assert stored == []
        else:
            # Of equal states an earlier one may be the last that was acknowledged.
            assert meaning(stored[-1]) == meaning(expected[name])
        assert sync.committed(name) == (counts[name], 0)
        assert sink.commits[-1].final


def meaning(state: Any) -> Any:
    return without_nulls({key: value for key, value in state.items() if key != "destinationStats"})


@pytest.mark.spec("protocol.104")
@settings(max_examples=examples(200), deadline=None)
@given(steps, st.sets(st.sampled_from(HABITS)), st.integers(0, 1_000), st.integers(0, 25))
def test_nothing_is_acknowledged_that_the_destination_did_not_commit(
    script: list[tuple[str, str, Any]], habits: set[str], seed: int, dies_at: int
) -> None:
    """The states are distinct: each has the number of records before it."""
    sent: list[Any] = []
    counts = dict.fromkeys(STREAMS, 0)
    for what, stream, _ in script:
        if what == "record":
            sent.append(record(counts[stream], stream))
            counts[stream] += 1
        else:
            sent.append(own_state(stream, counts[stream]))
    committed = dict.fromkeys(STREAMS, 0)

    class Dying(Sloppy):
        def __call__(self, lines: Iterable[bytes]) -> Iterator[Message]:
            for number, echo in enumerate(super().__call__(lines)):
                if number == dies_at:
                    raise TransientError("the destination died")
                assert echo.state is not None and echo.state.stream is not None
                name = echo.state.stream.stream_descriptor.name
                value = cursor(Checkpoint((echo.state,), final=False))
                committed[name] = max(committed[name], int(value))
                yield echo

    sync = Sync(STREAMS).run(sent, Dying(habits - {"more properties"}, seed))
    for name, sink in sync.sinks.items():
        if sync.failure is not None:
            assert (sink.state or 0) == committed[name]
            assert sync.committed(name)[0] == committed[name]
            assert not any(commit.final for commit in sink.commits)
