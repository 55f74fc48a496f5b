"""What of a stream needs a person, in which order, and what does not."""

from __future__ import annotations

import datetime as dt
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from elt_assets.orchestration.attention import (
    FACTOR,
    KINDS,
    MIN_DAYS,
    StreamFacts,
    find_concerns,
    is_far_above,
)
from elt_assets.orchestration.days import Day
from elt_assets.orchestration.due import DueRule
from elt_assets.orchestration.last_syncs import LastSync, Result, StoredCheck, SyncFailure

TIME = dt.datetime(2026, 3, 10, 12, tzinfo=dt.timezone.utc)
RULE = DueRule("schedule", cron="0 6 * * *")
CHECKS = st.lists(
    st.builds(StoredCheck, st.sampled_from("abc"), st.sampled_from(["ERROR", "WARN"]))
)


def facts(sync: LastSync, **more: Any) -> StreamFacts:
    return StreamFacts(("shop", "orders"), sync, True, **{"rule": None, **more})


def make_sync(
    ago: dt.timedelta,
    result: Result = "complete",
    days: list[Day] | None = None,
    metadata: dict[str, Any] | None = None,
) -> LastSync:
    dates = [
        (TIME - dt.timedelta(days=n)).date().isoformat() for n in range(len(days or []), 0, -1)
    ]
    return LastSync(
        result, TIME - ago, metadata=metadata or {}, days=dict(zip(dates, days or [], strict=True))
    )


@given(
    result=st.sampled_from(["complete", "failed", "running", "queued", "never"]),
    hours=st.integers(0, 100),
    checks=CHECKS,
    has_rule=st.booleans(),
)
def test_concerns_are_those_of_the_facts_and_in_their_order(
    result: Result, hours: int, checks: list[StoredCheck], has_rule: bool
) -> None:
    sync = make_sync(dt.timedelta(hours=hours), result)
    if result == "never":
        sync = LastSync("never")
    if result == "failed":
        sync = LastSync("failed", sync.complete, failure=SyncFailure(TIME, "run", "no answer"))
    rule = RULE if has_rule else None
    concerns = find_concerns(facts(sync, failed_checks=checks, rule=rule), TIME)
    kinds = [concern.kind for concern in concerns]
    assert kinds == sorted(kinds, key=list(KINDS).index)
    assert ("failed" in kinds) == (result == "failed")
    assert ("never" in kinds) == (result == "never")
    assert ("check" in kinds) == any(check.is_error for check in checks)
    assert ("warning" in kinds) == any(not check.is_error for check in checks)
    missed = hours > (30 if result == "running" else 6)
    assert ("stale" in kinds) == (has_rule and result != "never" and missed)
    assert all(concern.next_step for concern in concerns)


def test_a_stream_that_is_not_enabled_may_never_have_been_synced() -> None:
    off = StreamFacts(("shop", "orders"), LastSync("never"), is_enabled=False, rule=None)
    assert find_concerns(off, TIME) == []


@given(value=st.floats(0, 1e9), before=st.lists(st.none() | st.floats(0, 1e9), max_size=30))
def test_far_above_is_three_times_the_most_of_enough_days(
    value: float, before: list[float | None]
) -> None:
    numbers = [number for number in before if number is not None]
    expected = len(numbers) >= MIN_DAYS and value >= 10 and value > FACTOR * max(numbers)
    assert is_far_above(value, before, 10) == expected


@given(rows=st.lists(st.integers(0, 10**9), min_size=1, max_size=30), growth=st.floats(1, FACTOR))
def test_steady_growth_is_no_concern(rows: list[int], growth: float) -> None:
    days, last = [Day(1, rows=number) for number in rows], int(max(rows) * growth)
    sync = make_sync(dt.timedelta(), days=days, metadata={"dagster/row_count": last})
    assert find_concerns(facts(sync), TIME) == []


def test_numbers_far_above_their_history_are_named_with_it() -> None:
    days = [Day(1, rejected=0, seconds=20, rows=10_000, size=10**8, lag=100)] * MIN_DAYS
    more: dict[str, Any] = {
        "elt/records_rejected": 4,
        "elt/seconds": 61.0,
        "dagster/row_count": 30_001,
        "elt/table_bytes": 3 * 10**8 + 1,
        "elt/source_lag_seconds": 301.0,
    }
    concerns = find_concerns(facts(make_sync(dt.timedelta(), days=days, metadata=more)), TIME)
    assert [concern.kind for concern in concerns] == ["rejecting", "lagging", *["growing"] * 3]
    assert concerns[0].text == "rejected records: 4; at most 0 on the 5 days before"
    assert concerns[0].next_step == "elt replay shop orders"
    assert find_concerns(facts(make_sync(dt.timedelta(), days=days[1:], metadata=more)), TIME) == []
    # The present day does not count as its own history, and a later sync that is as before ends the concern.
    today = make_sync(dt.timedelta(), days=days, metadata={"elt/records_rejected": 0})
    today.days[TIME.date().isoformat()] = Day(2, rejected=4)  # type: ignore[index]
    assert find_concerns(facts(today), TIME) == []
