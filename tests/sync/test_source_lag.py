"""The time from a commit in the source to that in the lake, from what the source says and the commits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import SOURCE_COMMIT_TIME
from elt_assets.sync.events import Acknowledged, Committed, Measured
from elt_assets.sync.source_lag import SourceLag

STREAMS = [StreamId("orders", None), StreamId("users", "public")]
TIMES = st.floats(0, 2_000_000_000)
STEPS = st.lists(st.tuples(st.sampled_from([None, *STREAMS]), TIMES), max_size=20)


def acknowledge(stream: StreamId) -> Acknowledged:
    return Acknowledged(stream, None, Committed(1, 0, 0, 1, 0, 0), completes=False)


@given(STEPS)
def test_the_first_commit_after_a_window_has_its_lag(
    steps: list[tuple[StreamId | None, float]],
) -> None:
    present = 0.0
    lag = SourceLag(lambda: present)
    expected: dict[StreamId, float] = {}
    oldest: float | None = None
    waiting = set(STREAMS)
    for stream, number in steps:
        present = number
        if stream is None:
            oldest, waiting = number / 2, set(STREAMS)
            lag.observe(Measured(SOURCE_COMMIT_TIME, oldest))
            lag.observe(Measured("slot_retained_bytes", number))
        else:
            lag.observe(acknowledge(stream))
            if oldest is not None and stream in waiting:
                expected[stream] = round(max(0.0, present - oldest), 3)
                waiting.discard(stream)
        assert {name: lag.of(name) for name in STREAMS if lag.of(name) is not None} == expected


def test_a_clock_that_is_ahead_gives_no_negative_lag() -> None:
    lag = SourceLag(lambda: 100.0)
    lag.observe(Measured(SOURCE_COMMIT_TIME, 160.0))
    lag.observe(acknowledge(STREAMS[0]))
    assert lag.of(STREAMS[0]) == 0.0 and lag.of(STREAMS[1]) is None
