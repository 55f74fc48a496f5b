"""The rejected records are counted with the state that they came before, in any commits."""

from __future__ import annotations

import gc
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.destination.airbyte_read import Envelopes, Tally
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import State
from elt_assets.sync import pending
from elt_assets.sync.events import Acknowledged, Committed, SharedAcknowledged
from elt_assets.sync.pending import PendingState, PendingStates, Span

A, B = StreamId("a"), StreamId("b")


def acknowledge(stream: StreamId, places: list[int], *states: PendingState) -> Acknowledged:
    done = Committed(1, 1, 1, 0, len(places), 0, places=places)
    return Acknowledged(stream, None, done, False, states)


def pend(*spans: Span) -> PendingState:
    return PendingState(State(data=Raw(b"1")), spans)


def cuts(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 5), min_size=1, max_size=most).map(
        lambda sizes: list(accumulate(sizes))
    )


@given(cuts(12), st.data())
def test_a_stream_state_counts_the_rejected_records_since_the_previous_state(
    ends: list[int], data: st.DataObject
) -> None:
    rejected = sorted(data.draw(st.sets(st.integers(0, ends[-1] + 3))))
    states = [pend(Span(A, a, z)) for a, z in zip([0, *ends], ends, strict=False)]
    tally, counts, start, waiting = Tally(), [], 0, list(rejected)
    while start < len(states):  # commits of some states each, and what came of them
        end = data.draw(st.integers(start + 1, len(states)))
        places = [place for place in waiting if place < ends[end - 1]]
        waiting = waiting[len(places) :]
        event = acknowledge(A, places, *states[start:end])
        counts += [count for _, count in tally.count_own(event)]
        start = end
    spans = zip([0, *ends], ends, strict=False)
    assert counts == [sum(a <= place < z for place in rejected) for a, z in spans]


@given(cuts(8), cuts(8), st.data())
def test_a_shared_state_counts_the_rejected_records_of_all_streams(
    ends_a: list[int], ends_b: list[int], data: st.DataObject
) -> None:
    """The commits of the streams come before the states, and are cut as they like."""
    count = min(len(ends_a), len(ends_b))
    ends = {A: ends_a[:count], B: ends_b[:count]}
    rejected = {stream: sorted(data.draw(st.sets(st.integers(0, 30)))) for stream in ends}
    tally = Tally()
    for stream, places in rejected.items():
        cut = data.draw(st.integers(0, len(places)))
        for part in (places[:cut], places[cut:]):
            assert list(tally.count_own(acknowledge(stream, part))) == []
    spans = [
        [Span(stream, [0, *ends[stream]][number], ends[stream][number]) for stream in ends]
        for number in range(count)
    ]
    counted = list(
        tally.count_shared(SharedAcknowledged(tuple(pend(*state_spans) for state_spans in spans)))
    )
    assert [rejected_count for _, rejected_count in counted] == [
        sum(
            stream.first <= place < stream.end
            for stream in state_spans
            for place in rejected[stream.stream]
        )
        for state_spans in spans
    ]


def test_rejected_records_without_a_state_are_counted_in_the_next_one() -> None:
    tally = Tally()
    assert list(tally.count_own(acknowledge(A, [0, 2]))) == []
    (counted,) = tally.count_own(acknowledge(A, [4], pend(Span(A, 0, 5))))
    assert counted[1] == 3


def test_with_states_of_both_kinds_no_count_exceeds_the_records() -> None:
    tally = Tally()
    (own,) = tally.count_own(acknowledge(A, [1, 2, 3], pend(Span(A, 0, 4))))
    first, second = pend(Span(A, 0, 2)), pend(Span(A, 2, 4))
    counts = [
        rejected_count
        for _, rejected_count in tally.count_shared(SharedAcknowledged((first, second)))
    ]
    assert (own[1], counts) == (3, [2, 1])


def test_what_belongs_to_a_dropped_state_is_dropped_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream that is published at its end keeps the newest states only, however long it takes."""
    monkeypatch.setattr(pending, "MAX_STATES", 10)
    waiting, envelopes = PendingStates(), Envelopes()
    for number in range(1_000):
        state = State(type="LEGACY", data=Raw(b"%d" % number))
        envelopes.keep(state, {"note": Raw(b"%d" % number)})
        waiting.add(state, ())
        del state
        waiting.forget_oldest()
        assert len(envelopes) == len(waiting) <= 10
    for item in waiting.take():
        assert envelopes.find(item.state) == {"note": item.state.data}
    del item
    gc.collect()
    assert len(envelopes) == 0
