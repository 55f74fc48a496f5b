"""Slices in a session: they stand for their rows, among records and states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from elt_assets.errors import TransientError
from elt_assets.protocol.airbyte.messages import Message
from elt_assets.sync.session import Threshold
from elt_assets.sync.slices import MAX_SLICES_OF_UNKNOWN_SIZE, SliceGroup
from tests.sync.doubles import MemorySink, Sent, Sync, record, state


class SliceSink(MemorySink):
    """A table that also reads slices; `groups` are the numbers of slices that were read together."""

    def __init__(self, fail_at: int | None = None) -> None:
        super().__init__(fail_at)
        self.groups: list[int] = []

    def read(self, group: SliceGroup) -> int:
        self._call()
        self.groups.append(len(group.slices))
        rows = [
            {"n": n} for part in group.slices for n in range(*json.loads(bytes(part.data))["range"])
        ]
        self._pending += rows
        return len(rows)


def make_slice(first: int, end: int, estimate: int | None = None) -> Sent:
    body: dict[str, Any] = {
        "stream_descriptor": {"name": "a"},
        "key": f"{first} to {end}",
        "reader": "a:B",
        "data": {"range": [first, end]},
    }
    if estimate is not None:
        body["row_estimate"] = estimate
    return Message.from_json(json.dumps({"type": "SLICE", "slice": body}))


BARRIER = Message.from_json('{"type": "BARRIER", "barrier": {}}')


def test_a_barrier_is_passed_when_its_slices_are_committed(tmp_path: Path) -> None:
    sink, seen = SliceSink(), []

    def messages() -> Iterator[Sent]:
        yield make_slice(0, 3)
        yield make_slice(3, 5)
        yield state(5)
        yield BARRIER
        seen.append((sink.numbers, sink.state))
        yield make_slice(5, 6)
        yield BARRIER  # no state covers the last one
        seen.append((sink.numbers, sink.state))

    done = Sync(tmp_path, {"a": sink}).run(messages())
    assert done.failure is None
    assert seen == [([*range(5)], 5), ([*range(5)], 5)]
    assert sink.numbers == [*range(6)] and sink.groups == [2, 1]
    assert done.acknowledged() == [5]


def test_slices_of_unknown_size_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    sink = SliceSink()
    count = MAX_SLICES_OF_UNKNOWN_SIZE * 2 + 1
    messages = [item for n in range(count) for item in (make_slice(n, n + 1), state(n + 1))]
    Sync(tmp_path, {"a": sink}, Threshold()).run(messages)
    assert sink.groups == [MAX_SLICES_OF_UNKNOWN_SIZE, MAX_SLICES_OF_UNKNOWN_SIZE, 1]
    assert sink.numbers == [*range(count)]


ITEMS = st.lists(
    st.one_of(
        st.just("record"),
        st.just("state"),
        st.just("barrier"),
        st.tuples(st.integers(0, 3), st.sampled_from([None, 0, 5, 100])),
    ),
    max_size=25,
)


def make_messages(items: Sequence[Any]) -> tuple[list[Sent], int]:
    """Return the messages, and the number of rows for which they stand."""
    messages: list[Sent] = []
    count = 0
    for item in items:
        if item == "record":
            messages.append(record(count))
            count += 1
        elif item == "state":
            messages.append(state(count))
        elif item == "barrier":
            messages.append(BARRIER)
        else:
            rows, estimate = item
            messages.append(make_slice(count, count + rows, estimate))
            count += rows
    return messages, count


@example(["record", (2, None), "state", "record"], True, None)
@example([(2, 100), (1, 100), "state", (1, 100)], True, None)
@given(ITEMS, st.booleans(), st.none() | st.integers(0, 5))
def test_a_state_is_committed_with_all_rows_before_it(
    items: Sequence[Any], fails: bool, fail_at: int | None
) -> None:
    messages, count = make_messages(items)

    def read() -> Iterator[Sent]:
        yield from messages
        if fails:
            raise TransientError("the source failed")

    sink = SliceSink(fail_at)
    with TemporaryDirectory() as folder:
        done = Sync(Path(folder), {"a": sink}, Threshold(rows=2)).run(read())
    if done.failure is None:
        assert sink.numbers == [*range(count)]
    else:
        assert sink.numbers == [*range(sink.state or 0)]
    assert done.acknowledged()[-1:] == ([] if sink.state is None else [sink.state])
