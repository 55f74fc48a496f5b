"""An incremental read that is cut at any state loses no record: a model API filters by the interval."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.declarative.cursors.cursor import Page
from connectors.declarative.cursors.slices import Slice
from connectors.declarative.cursors.times.formats import DatetimeFormat
from connectors.sdk.times import parse_duration
from tests.connectors.declarative.cursors.support import Api, at, dated, stream
from tests.support.examples import examples

pytestmark = pytest.mark.unit

ORIGIN = datetime(2024, 1, 1, tzinfo=timezone.utc)
FORMATS = {
    "%Y-%m-%dT%H:%M:%SZ": "PT1S",
    "%s": "PT1S",
    "%ms": "PT0.001S",
    "%Y-%m-%d": "P1D",
    "%Y-%m-%dT%H:%M:%S.%f%z": "PT0.000001S",
}
PRECISE = DatetimeFormat("%Y-%m-%dT%H:%M:%S.%fZ")
HOURS = timedelta(hours=1)
CURSORS = st.fixed_dictionaries(
    {
        "datetime_format": st.sampled_from(sorted(FORMATS)),
        "step": st.sampled_from([None, "P1D", "P2D", "P5D", "P1M"]),
        "lookback_window": st.sampled_from([None, "PT30M", "P3D", "P1M"]),
        "is_client_side_incremental": st.booleans(),
    }
)
EVENTS = st.lists(st.floats(0, 40 * 24).map(lambda hours: round(hours, 3)), max_size=25)
SYNCS = st.lists(
    st.tuples(st.floats(0, 45 * 24).map(lambda hours: round(hours, 2)), st.integers(0, 12)),
    min_size=1,
    max_size=5,
)
"""The hours at which a sync begins, and how many of its states arrive before it is cut."""


def server(events: Sequence[datetime], written: str, filters: bool) -> Any:
    """Return a source that has the records up to now, filtered by the interval at its granularity."""
    form = DatetimeFormat(written)

    def answer(name: str, each: Slice, options: Any) -> list[Page]:
        low, high = (form.parse(value) for value in each.interval.values())
        found = [
            {"id": number, "updated_at": PRECISE.format(moment)}
            for number, moment in enumerate(events)
            if not filters or low <= form.parse(form.format(moment)) <= high
        ]
        return [found[:2], found[2:]]

    return answer


def answering(pages: list[Page]) -> Any:
    """Return a source that answers any request with some pages."""
    return lambda name, each, options: pages


@pytest.mark.spec("builder.16")
@settings(max_examples=examples(200), deadline=None)
@given(
    EVENTS,
    st.lists(st.floats(0, 45 * 24).map(lambda hours: round(hours, 2)), min_size=1, max_size=5),
    st.integers(1, 5),
)
def test_no_sync_of_a_feed_loses_a_record(
    hours: list[float], syncs: list[float], size: int
) -> None:
    """The pages have some records of one time, so that ties span pages."""
    events = sorted(ORIGIN + int(hour / 6) * 6 * HOURS for hour in hours)
    orders = stream(sync=dated(is_data_feed=True))
    state: dict[str, Any] = {}
    arrived: set[int] = set()
    for hour in [*sorted(syncs), 46 * 24]:
        now = ORIGIN + hour * HOURS
        form = DatetimeFormat("%Y-%m-%dT%H:%M:%SZ")
        newest_first = [
            {"id": number, "updated_at": form.format(moment)}
            for number, moment in reversed(list(enumerate(events)))
            if moment <= now
        ]
        pages = [newest_first[at : at + size] for at in range(0, len(newest_first), size)]
        with at(now):
            done = Api(answering(pages)).read(orders, state)
        arrived |= {record["id"] for record in done.records}
        state = done.state
    assert arrived == set(range(len(events)))


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from(sorted(FORMATS)),
    st.sampled_from(["P1D", "P3D", "P1M"]),
    st.permutations(range(12)),
    st.integers(0, 12),
)
def test_slices_that_are_closed_in_any_order_lose_no_time(
    written: str, step: str, order: list[int], number: int
) -> None:
    """The slices of the next read cover those that were not closed."""
    form = DatetimeFormat(written)
    orders = stream(
        sync=dated(
            datetime_format=written,
            step=step,
            cursor_granularity=FORMATS[written],
            start_datetime=form.format(ORIGIN),
        )
    )
    length = parse_duration(step)
    with at(ORIGIN + 12 * timedelta(days=1)):
        progress = Api(lambda *_: []).begin(orders)
        slices = list(progress.slices())
        places = [place for place in order if place < len(slices)]
        for place in places[:number]:
            progress.close(slices[place])
        again = list(Api(lambda *_: []).begin(orders, progress.state()).slices())
    first = min(places[number:], default=None)
    assert ORIGIN + length > ORIGIN
    if first is not None:
        begin = form.parse(again[0].interval["start_time"])
        assert begin <= form.parse(slices[first].interval["start_time"])
        assert again[-1].interval["end_time"] == slices[-1].interval["end_time"]
