"""Slices in a session: they stand for their rows, among records and states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elt_assets.errors import SystemFailure, TransientError
from elt_assets.protocol.message_rules import MAX_DATA, MAX_KEY
from elt_assets.protocol.messages import Message
from elt_assets.sync.events import SlicesRead
from elt_assets.sync.pending import MAX_SLICES_OF_UNKNOWN_SIZE, SliceGroup
from elt_assets.sync.session import Threshold
from tests.sync.doubles import MemorySink, Sent, Sync, catalog, record, state, status


class SliceSink(MemorySink):
    """A table that also reads slices; `groups` are the numbers of slices that were read together.

    Args:
        bad_row: a row whose slice cannot be read.
    """

    def __init__(self, fail_at: int | None = None, bad_row: int | None = None) -> None:
        super().__init__(fail_at)
        self.groups: list[int] = []
        self._bad_row = bad_row

    def read(self, group: SliceGroup) -> SlicesRead:
        self._call()
        self.groups.append(len(group.slices))
        slices = [range(*json.loads(bytes(part.data))["range"]) for part in group.slices]
        good = next((n for n, rows in enumerate(slices) if self._bad_row in rows), None)
        error = None
        if good is not None:
            error = TransientError("a slice cannot be read")
            slices = slices[: group.count_covered(good)]
            if not slices:
                raise error
        rows = [{"n": n} for numbers in slices for n in numbers]
        self._pending += rows
        return SlicesRead(len(slices), len(rows), error)


def make_slice(first: int, end: int, estimate: int | None = None) -> Sent:
    body: dict[str, Any] = {
        "stream_descriptor": {"name": "a"},
        "key": f"{first} to {end}",
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


@example(["record", (2, None), "state", "record"], True, None, None)
@example([(2, 100), (1, 100), "state", (1, 100)], True, None, None)
@example(["record", "state", (1, None), (1, None), "state", (1, None)], False, None, 2)
@example([(1, None), "state", "record", (1, None)], False, None, 2)
@given(ITEMS, st.booleans(), st.none() | st.integers(0, 5), st.none() | st.integers(0, 20))
def test_a_state_is_committed_with_all_rows_before_it(
    items: Sequence[Any], fails: bool, fail_at: int | None, bad_row: int | None
) -> None:
    messages, count = make_messages(items)

    def read() -> Iterator[Sent]:
        yield from messages
        if fails:
            raise TransientError("the source failed")

    sink = SliceSink(fail_at, bad_row)
    with TemporaryDirectory() as folder:
        done = Sync(Path(folder), {"a": sink}, Threshold(rows=2)).run(read())
    if done.failure is None:
        assert sink.numbers == [*range(count)]
    else:
        assert sink.numbers == [*range(sink.state or 0)]
    assert done.acknowledged()[-1:] == ([] if sink.state is None else [sink.state])


@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=12),
    st.integers(0, 35),
    st.booleans(),
)
def test_slices_before_one_that_cannot_be_read_are_committed_with_the_last_state_before_it(
    slices: Sequence[tuple[int, bool]], bad_row: int, ends_together: bool
) -> None:
    """Slices, some with a state after them, in one group: nothing is committed beyond the last state before
    the bad slice, and nothing less."""
    items = [item for rows, has_state in slices for item in [(rows, None), *["state"] * has_state]]
    messages, count = make_messages([*items, *["barrier"] * ends_together])
    covered = end = 0
    for rows, has_state in slices:
        end += rows
        if bad_row < end:
            break
        covered = end if has_state else covered
    sink = SliceSink(bad_row=bad_row)
    with TemporaryDirectory() as folder:
        done = Sync(Path(folder), {"a": sink}, Threshold()).run(messages)
    if bad_row >= count:
        assert done.failure is None and sink.numbers == [*range(count)]
        return
    assert isinstance(done.failure, TransientError)
    assert (sink.numbers, sink.state or 0) == ([*range(covered)], covered)
    assert done.acknowledged() == ([covered] if covered else [])


def test_a_stream_that_cannot_resume_commits_no_part_of_its_slices(tmp_path: Path) -> None:
    sink = SliceSink(bad_row=1)
    messages = [make_slice(0, 1), state(1), make_slice(1, 2), state(2)]
    whole = catalog(sync_mode="full_refresh", policy="overwrite")
    done = Sync(tmp_path, {"a": sink}, Threshold(), whole).run(messages)
    assert isinstance(done.failure, TransientError)
    assert sink.commits == []


def make_message(**body: Any) -> Sent:
    part = {"stream_descriptor": {"name": "a"}, "key": "1", "data": {"range": [0, 1]}, **body}
    return Message.from_json(json.dumps({"type": "SLICE", "slice": part}))


@pytest.mark.parametrize(
    ("before", "part", "reason"),
    [
        ([], {"stream_descriptor": {"name": "b"}}, "stream 'b', which was not asked for slices"),
        ([], {"stream_descriptor": {"name": "c"}}, "stream 'c', which was not asked for slices"),
        (
            [],
            {"stream_descriptor": {"name": "a", "namespace": "x"}},
            "which was not asked for slices",
        ),
        ([status("COMPLETE")], {}, "stream 'a', which has ended"),
        ([status("INCOMPLETE")], {}, "stream 'a', which has ended"),
        ([], {"key": "x" * (MAX_KEY + 1)}, "whose key has more than 1,000 characters"),
        ([], {"data": {"x": "y" * MAX_DATA}}, "whose data has more than 4,194,304 bytes"),
        ([], {"data": [1]}, "whose data is no object"),
        ([], {"data": "x"}, "whose data is no object"),
        ([], {"row_estimate": -1}, "whose estimate is no number of rows"),
    ],
)
def test_a_slice_that_is_no_answer_to_a_request_fails_the_sync(
    tmp_path: Path, before: Sequence[Sent], part: dict[str, Any], reason: str
) -> None:
    sinks = {"a": SliceSink(), "b": SliceSink()}
    done = Sync(tmp_path, sinks).run([*before, make_message(**part)])
    assert isinstance(done.failure, SystemFailure) and reason in done.failure.message
    assert "remove its connection" in str(done.failure.guidance)
    assert sinks["a"].groups == sinks["b"].groups == []


@pytest.mark.parametrize("sent", [BARRIER, make_slice(0, 1)])
def test_a_sync_that_asks_for_no_slices_takes_none(tmp_path: Path, sent: Sent) -> None:
    sink = SliceSink()
    done = Sync(tmp_path, {"a": sink}, sliced=()).run([record(0), state(1), sent, record(1)])
    assert isinstance(done.failure, SystemFailure) and sink.groups == []
    assert "not asked for slices" in done.failure.message
    assert sink.numbers == [0] and sink.state == 1


def test_many_slices_are_read_before_their_data_fills_the_memory(tmp_path: Path) -> None:
    sink = SliceSink()
    large = {"range": [0, 0], "x": "y" * (3 << 20)}
    Sync(tmp_path, {"a": sink}, Threshold()).run(
        make_message(data=large, row_estimate=1) for _ in range(25)
    )
    assert sink.groups == [11, 11, 3]
