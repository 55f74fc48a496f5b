"""The last days of a stream in short, as the events of its syncs have them."""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from elt_assets.orchestration.days import MAX_DAYS, Day, Days, add_sync, from_json, to_json
from tests.programs.scripted import script, state
from tests.support.elt import Elt
from tests.support.project import Project

START = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
NUMBERS = st.integers(0, 10**12)
SYNCS = st.builds(
    Day,
    st.just(1),
    NUMBERS,
    NUMBERS,
    st.floats(0, 1e6),
    st.none() | NUMBERS,
    st.none() | NUMBERS,
    st.none() | st.floats(0, 1e6),
)


@given(st.lists(st.tuples(st.integers(0, 80), SYNCS), max_size=60))
def test_days_are_the_sums_and_maxima_of_their_syncs(syncs: list[tuple[int, Day]]) -> None:
    syncs.sort(key=lambda sync: sync[0])
    days: Days = {}
    by_day = defaultdict(list)
    for day, sync in syncs:
        time = START + dt.timedelta(days=day, hours=day % 24)
        days = from_json(json.loads(json.dumps(to_json(add_sync(days, time, sync)))))
        by_day[time.date().isoformat()].append(sync)
    assert list(days) == sorted(by_day)[-MAX_DAYS:]
    for date, joined in days.items():
        own = by_day[date]
        values_by_name = {
            name: [value for sync in own if (value := getattr(sync, name)) is not None]
            for name in ("rows", "size", "lag")
        }
        assert joined == Day(
            len(own),
            sum(sync.committed for sync in own),
            max(sync.rejected for sync in own),
            max(sync.seconds for sync in own),
            values_by_name["rows"][-1] if values_by_name["rows"] else None,
            values_by_name["size"][-1] if values_by_name["size"] else None,
            max(values_by_name["lag"], default=None),
        )


@given(
    st.recursive(st.none() | st.integers() | st.text(), st.lists)
    | st.dictionaries(st.text(), st.text())
)
def test_what_is_of_another_form_is_left_out(value: object) -> None:
    assert from_json(value) == {}


def test_each_sync_is_in_the_days_of_its_event(own: Project, elt: Elt) -> None:
    script(own, [state(1)])
    elt("sync", "scripted")
    elt("sync", "scripted")
    ((_, day),) = own.metadata("scripted", "things")["elt/days"].items()
    assert day[0] == 2 and day[4] == 0 and day[6] is None
    assert own.metadata("scripted", "things")["elt/table_bytes"] == day[5] == 0
