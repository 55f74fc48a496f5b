"""When a stream is stale: by its own freshness or schedule, and never without one."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.cli.assets import assets_of
from elt_assets.connection import find_place
from elt_assets.orchestration.due import PATIENCE, DueRule, find_rule
from tests.programs.scripted import script
from tests.support.project import Project

UTC = dt.timezone.utc
TIMES = st.integers(0, 365 * 86_400).map(
    lambda seconds: dt.datetime(2026, 1, 1, tzinfo=UTC) + dt.timedelta(seconds=seconds)
)
CRONS = {"*/5 * * * *": 5, "0 * * * *": 60, "30 6 * * *": 24 * 60}
"""Cron expressions, with the minutes between their ticks."""


@given(time=TIMES, cron=st.sampled_from(sorted(CRONS)), seconds=st.floats(0, 7_200))
def test_a_tick_counts_as_missed_when_there_was_time_for_a_sync(
    time: dt.datetime, cron: str, seconds: float
) -> None:
    rule, period = DueRule("", cron=cron), dt.timedelta(minutes=CRONS[cron])
    patience = max(PATIENCE, 2 * dt.timedelta(seconds=seconds))
    deadline = rule.find_deadline(time, seconds=seconds)
    assert time - patience - period <= deadline <= time - patience
    # A sync that began at the tick and took as long as the longest one is never too late.
    tick = rule.find_deadline(time + patience, seconds=seconds)
    end = tick + dt.timedelta(seconds=seconds)
    assert end >= rule.find_deadline(end, seconds=seconds)
    running = rule.find_deadline(time, seconds=seconds, is_running=True)
    assert deadline - running == period


@given(time=TIMES, later=st.timedeltas(dt.timedelta(), dt.timedelta(days=2)))
def test_a_stream_that_is_stale_stays_so_until_it_is_synced(
    time: dt.datetime, later: dt.timedelta
) -> None:
    for rule in (
        DueRule("", limit=dt.timedelta(hours=6)),
        DueRule("", cron="0 6 * * *", timezone="Europe/Berlin"),
        DueRule("", cron="0 6 * * *", within=dt.timedelta(hours=1)),
    ):
        assert rule.find_deadline(time) <= rule.find_deadline(time + later) <= time + later


def test_deadlines_and_ages_are_those_of_dagsters_policies() -> None:
    time = dt.datetime(2026, 3, 10, 12, tzinfo=UTC)
    aged = DueRule("", limit=dt.timedelta(hours=6))
    assert aged.find_deadline(time) == dt.datetime(2026, 3, 10, 6, tzinfo=UTC)
    deadline = DueRule("", cron="0 6 * * *", timezone="Europe/Berlin", within=dt.timedelta(hours=1))
    assert deadline.find_deadline(time) == dt.datetime(2026, 3, 10, 4, tzinfo=UTC)


def test_a_tick_that_the_clocks_leave_out_or_have_twice_is_one_a_day() -> None:
    """In Berlin there was no 02:30 on 2026-03-29, and there are two on 2026-10-25."""
    rule = DueRule("", cron="30 2 * * *", timezone="Europe/Berlin")
    for first in (
        dt.datetime(2026, 3, 27, 12, tzinfo=UTC),
        dt.datetime(2026, 10, 23, 12, tzinfo=UTC),
    ):
        times = [first + dt.timedelta(minutes=10 * number) for number in range(6 * 24 * 5)]
        deadlines = sorted({rule.find_deadline(time) for time in times})
        assert [time.date() for time in deadlines] == [
            first.date() + dt.timedelta(days=number) for number in range(6)
        ]


@pytest.mark.parametrize(
    ("attributes", "stream", "text"),
    [
        ({}, {}, None),
        ({"automation": "eager"}, {}, None),
        ({"new_data": {"every": "5m", "read": True}}, {}, None),
        ({"schedule": "0 6 * * *", "timezone": "Europe/Berlin"}, {},
         'schedule: "0 6 * * *" (Europe/Berlin)'),
        ({"schedule": "0 6 * * *"}, {"schedule": "0 7 * * *"}, 'schedule: "0 7 * * *" (UTC)'),
        ({"schedule": "0 6 * * *"}, {"enabled": False}, None),
        ({"schedule": "0 6 * * *"}, {"freshness": {"fail_after": "6h"}},
         "freshness: at most 6 h old"),
        ({"freshness": {"cron": "0 6 * * *", "within": "30m"}}, {},
         'freshness: 30 min before "0 6 * * *" (UTC)'),
        ({"automation": 'on_cron "0 5 * * *"'}, {}, 'automation: on_cron "0 5 * * *" (UTC)'),
        ({"automation": 'on_cron "0 5 * * *"'}, {"automation": None}, None),
    ],
)  # fmt: skip
def test_what_a_connection_says_is_the_rule(
    own: Project, attributes: dict[str, Any], stream: dict[str, Any], text: str | None
) -> None:
    script(own, [], **stream)
    own.amend("scripted", **attributes)
    (asset,) = assets_of(find_place("scripted"))
    rule = find_rule(asset)
    assert (None if rule is None else rule.text) == text
