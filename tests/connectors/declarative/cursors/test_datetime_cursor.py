"""DatetimeBasedCursor: intervals, states, filters and requests, with a stopped clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.declarative.cursors.cursor import Page, Progress
from connectors.declarative.cursors.datetime_cursor import DatetimeCursor
from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.sdk.http.places import Place
from elt_assets.errors import ConfigError
from tests.connectors.declarative.cursors.support import (
    NOW,
    SECONDS,
    Api,
    Read,
    at,
    dated,
    intervals,
    listed,
    made,
    min_max,
    moment,
    nothing,
    option,
    stream,
)
from tests.support.examples import examples

pytestmark = pytest.mark.unit

SECOND = {"cursor_granularity": "PT1S"}
DAILY = {"datetime_format": "%Y-%m-%d", "step": "P1D", "cursor_granularity": "P1D"}


def begin(state: Any = None, config: Any = None, **fields: Any) -> Progress:
    """Return a read that begins at NOW."""
    with at(NOW):
        return Api(nothing, config or {}).begin(stream(sync=dated(**fields)), state)


def read(
    values: list[Any], state: dict[str, Any] | None = None, now: Any = NOW, **fields: Any
) -> Read:
    """Read with the values of `updated_at` on one page of each slice."""

    def answer(name: str, each: Slice, options: Any) -> list[Page]:
        return [[{"updated_at": value} for value in values]]

    request = {"request": fields.pop("request")} if "request" in fields else {}
    with at(now):
        return Api(answer).read(stream(sync=dated(**fields), **request), state)


# --- start and end --------------------------------------------------------------------------------


@pytest.mark.spec("builder.10")
def test_the_present_time_is_evaluated_once_in_a_read() -> None:
    with at(NOW):
        cursor = Api(nothing).cursors.get(
            stream(sync=dated(step="P10D", cursor_granularity="PT1S"))
        )
        slices = cursor.begin({}).slices()
        next(slices)
    with at("2025-01-01T00:00:00Z"):
        assert [each.interval["end_time"] for each in slices][-1] == "2024-01-31T12:00:00Z"


@pytest.mark.parametrize(
    ("start", "config", "found"),
    [
        ("2024-01-05T00:00:00Z", {}, "2024-01-05T00:00:00Z"),
        ("{{ config['since'] }}", {"since": "2024-01-06T00:00:00Z"}, "2024-01-06T00:00:00Z"),
        (min_max("2024-01-07", datetime_format="%Y-%m-%d"), {}, "2024-01-07T00:00:00Z"),
        (min_max("{{ config.since }}", datetime_format="%s"), {"since": 1704067260}, "2024-01-01T00:01:00Z"),
        (min_max("{{ config.get('since') or day_delta(-1) }}", datetime_format="%Y-%m-%dT%H:%M:%S.%f%z"),
         {}, "2024-01-30T12:00:00Z"),
        (min_max("2024-01-01T00:00:00Z", min_datetime="{{ config.since }}"),
         {"since": "2024-01-09T00:00:00Z"}, "2024-01-09T00:00:00Z"),
        (min_max("2024-01-01T00:00:00Z", min_datetime="{{ config.since }}"), {}, "2024-01-01T00:00:00Z"),
        (min_max("2024-01-20T00:00:00Z", max_datetime="2024-01-10T00:00:00Z"), {}, "2024-01-10T00:00:00Z"),
        ("{{ now_utc() - duration('P1M') }}", {}, "2023-12-31T12:00:00Z"),
    ],
)  # fmt: skip
def test_the_start_is_fixed_or_from_the_config(
    start: Any, config: dict[str, Any], found: str
) -> None:
    assert intervals(begin(config=config, start_datetime=start))[0][0] == found


def test_a_start_after_the_end_reads_nothing_keeps_the_state_and_warns() -> None:
    done = read([], {"updated_at": "2025-01-01T00:00:00Z"})
    assert (done.slices, done.state) == ([], {"updated_at": "2025-01-01T00:00:00Z"})
    (warning,) = done.warnings
    assert warning == (
        "nothing is read: the cursor 'updated_at' begins at 2025-01-01T00:00:00Z, after the end of the "
        "period to read, 2024-01-31T12:00:00Z"
    )


@pytest.mark.parametrize(("day", "warns"), [("9999-12-31", True), ("2024-02-01", False)])
def test_with_clamping_only_a_start_after_the_present_period_is_warned_of(
    day: str, warns: bool
) -> None:
    clamping = made(components.Clamping, target=Template("MONTH"))
    fields: Any = {"datetime_format": "%Y-%m-%d", "start_datetime": "2024-01-01"}
    fields["clamping"] = clamping
    done = read([], {"updated_at": day}, **fields)
    assert (done.slices, done.state) == ([], {"updated_at": day})
    assert [day[:7] in warning for warning in done.warnings] == [True] * warns


def test_a_start_that_is_the_end_is_read_unless_the_api_needs_a_later_end() -> None:
    today = {"datetime_format": "%Y-%m-%d", "start_datetime": "2024-01-31"}
    assert intervals(begin(**today)) == [("2024-01-31", "2024-01-31")]
    assert intervals(begin(**today, is_compare_strictly=True)) == []


def test_days_that_are_read_one_by_one_are_read_also_where_the_api_needs_a_later_end() -> None:
    found = intervals(begin(**DAILY, start_datetime="2024-01-28", is_compare_strictly=True))
    assert found == [(f"2024-01-{day}", f"2024-01-{day}") for day in (28, 29, 30)]


@pytest.mark.parametrize("granularity", ["PT0S", "P0D"])
def test_intervals_without_a_distance_share_their_ends(granularity: str) -> None:
    found = begin(step="P20D", cursor_granularity=granularity)
    assert intervals(found) == [
        ("2024-01-01T00:00:00Z", "2024-01-21T00:00:00Z"),
        ("2024-01-21T00:00:00Z", "2024-01-31T12:00:00Z"),
    ]


def test_the_states_of_intervals_that_share_their_ends_are_those_ends() -> None:
    done = read([], step="P20D", cursor_granularity="PT0S")
    assert [state["updated_at"] for _, state in done.states[:-1]] == [
        "2024-01-21T00:00:00Z",
        "2024-01-31T12:00:00Z",
    ]


def test_a_step_beyond_all_dates_leaves_the_period_whole() -> None:
    assert len(intervals(begin(step="P9999Y", cursor_granularity="PT1S"))) == 1


def test_the_interval_has_the_names_that_the_cursor_gives() -> None:
    names = {"partition_field_start": "from", "partition_field_end": "{{ 'to' }}"}
    with at(NOW):
        (each,) = begin(**names).slices()
    assert each.interval == {"from": "2024-01-01T00:00:00Z", "to": "2024-01-31T12:00:00Z"}


def test_weeks_begin_on_the_day_of_the_clamping() -> None:
    clamping = made(
        components.Clamping, target=Template("WEEK"), target_details={"weekday": "SUNDAY"}
    )
    fields: dict[str, Any] = {
        **DAILY,
        "step": "P1W",
        "clamping": clamping,
        "start_datetime": "2024-01-10",
    }
    assert intervals(begin(**fields)) == [
        ("2024-01-14", "2024-01-20"),
        ("2024-01-21", "2024-01-27"),
    ]
    assert intervals(begin({"updated_at": "2024-01-20"}, **fields)) == [
        ("2024-01-21", "2024-01-27")
    ]


def test_a_week_that_was_read_in_part_is_read_again() -> None:
    """The state may be from a version without the clamping. The CDK goes on with the week after it."""
    clamping = made(
        components.Clamping, target=Template("WEEK"), target_details={"weekday": "SUNDAY"}
    )
    fields: dict[str, Any] = {**DAILY, "step": "P1W", "clamping": clamping}
    fields["start_datetime"] = "2024-01-01"
    assert intervals(begin({"updated_at": "2024-01-17"}, **fields)) == [
        ("2024-01-14", "2024-01-20"),
        ("2024-01-21", "2024-01-27"),
    ]
    looked_back = begin({"updated_at": "2024-01-20"}, **fields, lookback_window="P1D")
    assert intervals(looked_back)[0] == ("2024-01-14", "2024-01-20")


def test_the_state_of_a_clamped_cursor_is_the_end_of_its_last_period() -> None:
    clamping = made(components.Clamping, target=Template("MONTH"))
    fields = {**DAILY, "step": "P1M", "clamping": clamping, "start_datetime": "2023-11-15"}
    first = read([], **fields)
    assert [each["updated_at"] for _, each in first.states[:-1]] == ["2023-12-31"]
    again = read([], first.state, **fields)
    assert (again.slices, again.state, again.warnings) == ([], first.state, [])
    later = read([], first.state, now=moment("2024-02-01T05:00:00Z"), **fields)
    assert later.state == {"updated_at": "2024-01-31"}


def test_months_of_the_clamping_are_whole() -> None:
    clamping = made(components.Clamping, target=Template("MONTH"))
    fields = {**DAILY, "step": "P1M", "clamping": clamping, "start_datetime": "2023-11-01"}
    assert intervals(begin(**fields)) == [
        ("2023-11-01", "2023-11-30"),
        ("2023-12-01", "2023-12-31"),
    ]


# --- states ---------------------------------------------------------------------------------------


def test_a_record_after_the_end_moves_the_state_up_to_now() -> None:
    done = read(["2024-01-20T00:00:00Z"], end_datetime="2024-01-10T00:00:00Z")
    assert done.state == {"updated_at": "2024-01-20T00:00:00Z"}


def test_an_end_in_the_future_does_not_move_the_state_beyond_now() -> None:
    assert read([], end_datetime="2024-03-01T00:00:00Z").state == {
        "updated_at": "2024-01-31T12:00:00Z"
    }


NO_END = "since={{ stream_interval.start_time }}"


@pytest.mark.parametrize(
    ("values", "state"),
    [
        (["2024-01-05T00:00:00Z", "2024-01-04T00:00:00Z"], "2024-01-05T00:00:00Z"),
        ([], "2024-01-01T00:00:00Z"),
        (["2024-02-15T00:00:00Z"], "2024-01-31T12:00:00Z"),
    ],
)
def test_where_requests_carry_no_end_the_state_is_the_last_record(
    values: list[str], state: str
) -> None:
    """Only a record that the API shows later, with an earlier value than this one, is not read."""
    done = read(values, request=NO_END)
    assert done.state == {"updated_at": state}
    later = "2024-01-20T00:00:00Z"
    again = read([], {"updated_at": later}, request=NO_END)
    assert again.state == {"updated_at": later}


def test_where_requests_carry_no_end_a_partial_read_does_not_pass_its_intervals() -> None:
    fields: Any = {"step": "P10D", "cursor_granularity": "PT1S", "request": NO_END}
    done = read(["2024-01-05T00:00:00Z", "2024-01-17T00:00:00Z"], **fields)
    assert [state["updated_at"] for _, state in done.states] == [
        "2024-01-10T23:59:59Z",
        *["2024-01-17T00:00:00Z"] * 4,
    ]


@pytest.mark.parametrize(
    ("request_", "end", "sends"),
    [
        ("{{ stream_slice['end_time'] }}", {}, True),
        ("{{ stream_partition.get('until') }}", {"partition_field_end": "until"}, True),
        ("{{ stream_interval.end_time }}", {"partition_field_end": "until"}, False),
        ("{{ config.end_time }}", {}, False),
        ("", {"end_time_option": option("until")}, True),
    ],
)
def test_an_end_is_carried_by_an_option_or_a_template(
    request_: str, end: dict[str, Any], sends: bool
) -> None:
    state = "2024-01-31T12:00:00Z" if sends else "2024-01-01T00:00:00Z"
    assert read([], request=request_, **end).state == {"updated_at": state}


@pytest.mark.parametrize(
    ("fields", "lacks"),
    [
        ({}, True),
        ({"end_datetime": "{{ now_utc() }}"}, True),
        ({"end_datetime": "{{ day_delta(-1) }}"}, False),
        ({"lookback_window": "PT1H"}, False),
        ({"is_data_feed": True}, False),
        ({"request": "since={{ stream_interval.start_time }}"}, False),
    ],
)
def test_an_overlap_is_lacking_where_the_state_is_the_present_time(
    fields: dict[str, Any], lacks: bool
) -> None:
    request = {"request": fields.pop("request")} if "request" in fields else {}
    cursor = dated(datetime_format="%Y-%m-%dT%H:%M:%S.%f%z", **fields)
    with at(NOW):
        found = Api(nothing).cursors.get(stream(sync=cursor, **request))
        assert found.lacks_overlap() is lacks


MILLISECONDS = {"cursor_datetime_formats": ("%Y-%m-%dT%H:%M:%S.%fZ", SECONDS)}
STEPS = {"step": "P10D", **MILLISECONDS}


@pytest.mark.parametrize(
    ("fields", "value", "warns"),
    [
        ({**STEPS, **SECOND}, "2024-01-10T23:59:59.412Z", True),
        ({**STEPS, **SECOND}, "2024-01-10T23:59:59.000Z", False),
        ({**STEPS, "cursor_granularity": "PT0S"}, "2024-01-10T23:59:59.412Z", False),
        ({**STEPS, "cursor_granularity": "PT0.001S"}, "2024-01-10T23:59:59.412Z", False),
        ({**STEPS, "cursor_granularity": "P1D"}, "2024-01-10T07:00:00Z", True),
        ({**STEPS, "cursor_granularity": "P1D"}, "2024-01-10T00:00:00Z", False),
        ({**DAILY, **MILLISECONDS, "start_datetime": "2024-01-01"}, "2024-01-10T07:00:00Z", False),
        ({**STEPS, **SECOND, "request": "no end"}, "2024-01-10T23:59:59.412Z", False),
        (MILLISECONDS, "2024-01-10T23:59:59.412Z", False),
    ],
)
def test_values_between_the_end_of_an_interval_and_the_next_one_are_warned_of(
    fields: dict[str, Any], value: str, warns: bool
) -> None:
    done = read([value], **fields)
    gaps = [text for text in done.warnings if "has values between two periods" in text]
    assert len(gaps) == warns
    assert all("write `cursor_granularity: PT0S`" in text for text in gaps)


def test_a_record_beyond_its_interval_does_not_skip_the_intervals_that_follow() -> None:
    done = read(["2024-01-30T00:00:00Z"], step="P10D", cursor_granularity="PT1S")
    assert [state["updated_at"] for _, state in done.states] == [
        "2024-01-10T23:59:59Z",
        "2024-01-20T23:59:59Z",
        "2024-01-30T23:59:59Z",
        "2024-01-31T12:00:00Z",
        "2024-01-31T12:00:00Z",
    ]


def test_a_lookback_does_not_reach_before_the_start() -> None:
    state = {"updated_at": "2024-01-02T00:00:00Z"}
    assert intervals(begin(state, lookback_window="P1Y"))[0][0] == "2024-01-01T00:00:00Z"
    assert intervals(begin(state, lookback_window="P9999Y"))[0][0] == "2024-01-01T00:00:00Z"


@pytest.mark.parametrize(("days", "start"), [(2, "2024-01-18"), ("3", "2024-01-17")])
def test_a_lookback_may_come_from_the_config(days: Any, start: str) -> None:
    found = begin(
        {"updated_at": "2024-01-20"},
        config={"days": days},
        datetime_format="%Y-%m-%d",
        start_datetime="2024-01-01",
        lookback_window="P{{ config['days'] }}D",
    )
    assert intervals(found)[0][0] == start


def test_a_lookback_that_gives_nothing_is_none() -> None:
    found = begin(
        {"updated_at": "2024-01-20T00:00:00Z"}, lookback_window="{{ config.get('days') }}"
    )
    assert intervals(found)[0][0] == "2024-01-20T00:00:00Z"


def test_before_a_slice_was_closed_the_state_is_the_one_of_the_read_before() -> None:
    assert begin().state() == {}
    assert begin({"updated_at": "2024-01-02"}).state() == {"updated_at": "2024-01-02"}


def test_a_start_date_after_the_state_counts() -> None:
    done = read([], {"updated_at": "2023-06-01T00:00:00Z"})
    assert done.slices[0].interval["start_time"] == "2024-01-01T00:00:00Z"


def test_a_state_in_any_of_the_formats_is_understood_and_written_in_the_first() -> None:
    formats = ("%Y-%m-%dT%H:%M:%S.%f%z", "%ms")
    for value in ("2024-01-20T00:00:00.000000+00:00", 1705708800000, "2024-01-20T01:00:00+01:00"):
        done = read([], {"updated_at": value}, cursor_datetime_formats=formats)
        assert done.slices[0].interval["start_time"] == "2024-01-20T00:00:00Z"
        assert done.state == {"updated_at": "2024-01-31T12:00:00Z"}


def test_a_state_is_parsed_in_the_format_in_which_it_is_written() -> None:
    """`20240120` is also a number of seconds, and would be a day of 1970."""
    fields = {
        "datetime_format": "%Y%m%d",
        "cursor_datetime_formats": ("%s", "%Y%m%d"),
        "start_datetime": "19700102",
    }
    assert intervals(begin({"updated_at": "20240120"}, **fields)) == [("20240120", "20240131")]


def test_a_state_that_is_no_date_time_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError) as error:
        begin({"updated_at": "last week"})
    assert str(error.value) == (
        "the state of the cursor 'updated_at' has 'last week', which does not have the format "
        "'%Y-%m-%dT%H:%M:%SZ' (streams[0].incremental_sync)\n"
        "correct the state, or reset it to read the stream from the beginning"
    )


@pytest.mark.parametrize("value", [None, ""])
def test_a_state_without_a_value_begins_at_the_start(value: Any) -> None:
    assert intervals(begin({"updated_at": value}))[0][0] == "2024-01-01T00:00:00Z"


def test_the_value_0_is_a_state() -> None:
    fields = {"datetime_format": "%s", "start_datetime": "0", "end_datetime": "10"}
    assert intervals(begin({"updated_at": 0}, **fields)) == [("0", "10")]


def test_a_state_of_another_field_has_no_effect_and_is_kept_and_warned_of() -> None:
    done = read([], {"modified": "2024-01-20"})
    assert done.slices[0].interval["start_time"] == "2024-01-01T00:00:00Z"
    assert done.state == {"modified": "2024-01-20", "updated_at": "2024-01-31T12:00:00Z"}
    assert (
        "the state has no value of the cursor field 'updated_at', but 'modified'"
        in done.warnings[0]
    )


def test_the_mark_of_a_full_read_and_states_of_partitions_are_no_states() -> None:
    assert read([], {"__ab_no_cursor_state_message": True}).state == {
        "updated_at": "2024-01-31T12:00:00Z"
    }
    partitioned = {"use_global_cursor": False, "states": [], "lookback_window": 1}
    assert read([], partitioned).state == {"updated_at": "2024-01-31T12:00:00Z"}


def test_only_the_missing_intervals_of_a_state_of_intervals_are_read() -> None:
    state = {
        "state_type": "date-range",
        "slices": [
            {"start": "2024-01-10T00:00:00Z", "end": "2024-01-14T23:59:59Z"},
            {"start": "2024-01-20T00:00:00Z", "end": "2024-01-25T00:00:00Z",
             "most_recent_cursor_value": "2024-01-24T00:00:00Z"},
        ],
    }  # fmt: skip
    done = read([], state, step="P1M", cursor_granularity="PT1S")
    assert [tuple(each.interval.values()) for each in done.slices] == [
        ("2024-01-01T00:00:00Z", "2024-01-09T23:59:59Z"),
        ("2024-01-15T00:00:00Z", "2024-01-19T23:59:59Z"),
        ("2024-01-25T00:00:00Z", "2024-01-31T12:00:00Z"),
    ]
    assert [each for _, each in done.states] == [
        {"updated_at": "2024-01-14T23:59:59Z"},
        {"updated_at": "2024-01-24T23:59:59Z"},
        {"updated_at": "2024-01-31T12:00:00Z"},
        {"updated_at": "2024-01-31T12:00:00Z"},
    ]


@pytest.mark.parametrize(
    ("days", "found"),
    [
        ([("01", "03")], [("20", "31")]),
        ([("01", "03"), ("10", "12")], [("20", "31")]),
        ([("01", "03"), ("25", "27")], [("20", "24"), ("27", "31")]),
        ([("01", "22"), ("25", "27")], [("23", "24"), ("27", "31")]),
        ([("19", "22"), ("25", "27")], [("23", "24"), ("27", "31")]),
    ],
)
def test_gaps_in_a_state_before_the_start_are_not_read_and_do_not_hold_the_state(
    days: list[tuple[str, str]], found: list[tuple[str, str]]
) -> None:
    """The start date was moved forward since that state."""
    saved = [{"start": f"2024-01-{one}", "end": f"2024-01-{other}"} for one, other in days]
    fields = {**DAILY, "step": "P1M", "start_datetime": "2024-01-20"}
    done = read([], {"state_type": "date-range", "slices": saved}, **fields)
    assert [tuple(value[8:] for value in each.interval.values()) for each in done.slices] == found
    assert done.state == {"updated_at": "2024-01-31"}


def test_nothing_after_the_end_is_read_between_the_intervals_of_a_state() -> None:
    days = [
        ("2024-01-01", "2024-01-05"),
        ("2024-01-20", "2024-01-25"),
        ("2024-01-28", "2024-01-29"),
    ]
    state = {"state_type": "date-range", "slices": [{"start": a, "end": b} for a, b in days]}
    found = begin(state, **DAILY, start_datetime="2024-01-01", end_datetime="2024-01-07")
    assert intervals(found) == [("2024-01-06", "2024-01-07")]


def test_a_state_of_intervals_stays_until_the_time_before_them_was_read() -> None:
    state = {
        "state_type": "date-range",
        "slices": [{"start": "2024-01-20T00:00:00Z", "end": "2024-01-25T00:00:00Z"}],
    }
    with at(NOW):
        progress = begin(state, step="P10D", cursor_granularity="PT1S")
        first, second, last = progress.slices()
    progress.close(last)
    assert progress.state() == state
    progress.close(first)
    assert progress.state() == {"updated_at": "2024-01-10T23:59:59Z"}
    progress.close(second)
    assert progress.state() == {"updated_at": "2024-01-31T12:00:00Z"}


# --- records --------------------------------------------------------------------------------------


def test_records_without_a_usable_value_are_read_and_counted() -> None:
    done = read([None, "soon", True, "2024-01-02T00:00:00Z", {}, ""], is_data_feed=True)
    assert len(done.records) == 6
    assert done.state == {"updated_at": "2024-01-02T00:00:00Z"}
    (warning,) = done.warnings
    assert warning == (
        "records without a usable value in the cursor field 'updated_at': 5; they were read, and did not "
        "move the state"
    )


def test_a_client_side_cursor_looks_back() -> None:
    values = ["2024-01-04T00:00:00Z", "2024-01-05T00:00:00Z"]
    state = {"updated_at": "2024-01-10T00:00:00Z"}
    done = read(values, state, is_client_side_incremental=True, lookback_window="P5D")
    assert [record["updated_at"] for record in done.records] == values[1:]


def test_a_client_side_cursor_with_steps_yields_each_record_once() -> None:
    values = [
        f"2024-01-{day:02d}T{time}Z" for day in range(1, 31) for time in ("00:00:00", "23:59:59.9")
    ]
    done = read(
        values,
        is_client_side_incremental=True,
        step="P7D",
        cursor_granularity="PT1S",
        cursor_datetime_formats=("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.%fZ"),
    )
    assert sorted(record["updated_at"] for record in done.records) == sorted(values)


def test_a_client_side_cursor_keeps_what_the_request_asks_for() -> None:
    """The lookback begins within a day, and the request at the start of that day."""
    state = {"updated_at": "2024-01-10"}
    fields = {
        **DAILY,
        "cursor_datetime_formats": ("%Y-%m-%dT%H:%M:%SZ",),
        "lookback_window": "PT1H",
    }

    def answer(name: str, each: Slice, options: Any) -> list[Page]:
        low, high = each.interval.values()
        days = (f"2024-01-{day:02d}" for day in range(1, 31))
        return [[{"updated_at": f"{day}T05:00:00Z"} for day in days if low <= day <= high]]

    with at("2024-01-13T00:00:00Z"):
        sync = dated(**fields, start_datetime="2024-01-01", is_client_side_incremental=True)
        done = Api(answer).read(stream(sync=sync), state)
    days = [record["updated_at"][8:10] for record in done.records]
    assert days == ["09", "10", "11", "12"]


@pytest.mark.parametrize("granularity", ["PT1S", "P1D", "PT0S"])
@pytest.mark.parametrize("start", ["2024-01-01T00:00:00Z", "2024-01-01T07:00:00Z"])
def test_a_client_side_cursor_yields_each_record_also_where_requests_have_only_days(
    granularity: str, start: str
) -> None:
    sync = dated(
        datetime_format="%Y-%m-%d",
        cursor_datetime_formats=(SECONDS,),
        start_datetime=min_max(start, datetime_format=SECONDS),
        step="P1D",
        cursor_granularity=granularity,
        is_client_side_incremental=True,
    )
    hours = [f"2024-01-{day:02d}T{hour:02d}:30:00Z" for day in range(2, 30) for hour in range(24)]

    def answer(name: str, each: Slice, options: Any) -> list[Page]:
        low, high = each.interval.values()
        return [[{"updated_at": hour} for hour in hours if low <= hour[:10] <= high]]

    with at(NOW):
        done = Api(answer).read(stream(sync=sync))
    assert {record["updated_at"] for record in done.records} == set(hours)


def test_a_record_that_the_api_filters_is_not_filtered_again() -> None:
    values = ["2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z"]
    assert [record["updated_at"] for record in read(values).records] == values


def test_a_feed_without_records_keeps_its_cutoff() -> None:
    assert read([], is_data_feed=True).state == {"updated_at": "2024-01-01T00:00:00Z"}
    state = {"updated_at": "2024-01-20T00:00:00Z"}
    assert read([], state, is_data_feed=True).state == state


def test_a_feed_leaves_out_records_of_the_future_and_reads_them_later() -> None:
    values = ["2024-02-01T00:00:00Z", "2024-01-30T00:00:00Z"]
    first = read(values, is_data_feed=True)
    assert [record["updated_at"] for record in first.records] == values[1:]
    later = read(values, first.state, now=moment("2024-02-02T00:00:00Z"), is_data_feed=True)
    assert [record["updated_at"] for record in later.records] == values


@pytest.mark.spec("builder.19")
def test_the_pages_of_a_feed_end_with_the_last_record_that_has_a_value() -> None:
    progress = begin({"updated_at": "2024-01-10T00:00:00Z"}, is_data_feed=True)
    (each,) = progress.slices()
    new, tie, old = ({"updated_at": f"2024-01-{day}T00:00:00Z"} for day in (11, 10, "09"))
    assert progress.is_past(each, [new, old])
    assert progress.is_past(each, [new, old, {"updated_at": None}])
    assert not progress.is_past(each, [old, new])
    assert not progress.is_past(each, [new, tie])
    assert not progress.is_past(each, [{"updated_at": "?"}])
    assert not progress.is_past(each, [])


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.spec("builder.11")
def test_the_interval_may_be_put_into_a_nested_field_of_a_body() -> None:
    path = (Template("filter"), Template("{{ config['name'] }}"), Template("after"))
    places = {"start_time_option": option(None, "body_json", field_path=path)}
    progress = begin(config={"name": "changed"}, **places)
    (each,) = progress.slices()
    (found,) = progress.options(each)
    assert found == Option(Place("json", ("filter", "changed", "after")), "2024-01-01T00:00:00Z")


@pytest.mark.parametrize(
    "place",
    [
        option(None),
        option("since", field_path=(Template("since"),)),
        option(None, "header", field_path=(Template("since"),)),
    ],
)
def test_a_place_in_requests_that_is_not_clear_is_an_error(place: Any) -> None:
    with pytest.raises(ConfigError, match="there: the place for the value is not clear"):
        begin(start_time_option=place)


# --- the manifest ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"step": "P1D"}, " has only one of `step` and `cursor_granularity`"),
        ({"cursor_granularity": "PT1S"}, " has only one of `step` and `cursor_granularity`"),
        ({**SECOND, "step": "1 day"}, ".step is '1 day', which is not a duration"),
        ({**SECOND, "step": "P0D"}, ".step is 'P0D', which is too short"),
        ({**SECOND, "step": "-P1D"}, ".step is '-P1D', which is too short"),
        ({"step": "PT1S", "cursor_granularity": "P1D"}, ".step is 'PT1S', which is too short"),
        ({"step": "P1D", "cursor_granularity": "-PT1S"}, ".cursor_granularity is '-PT1S', which is"),
        ({"step": "P1D", "cursor_granularity": "P9999Y"}, ".step is 'P1D', which is too short"),
        ({**SECOND, "step": "P99999999999D"}, ".step is 'P99999999999D', which is not a duration"),
        ({"lookback_window": "-P1D"}, ".lookback_window is '-P1D', which is too short"),
        ({"lookback_window": "P{{ config['no'] }}D"}, ".lookback_window is 'PD', which is not a"),
        ({"cursor_field": "{{ config['no'] }}"}, ".cursor_field gives an empty text"),
        ({"start_datetime": "{{ config['no'] }}"}, ".start_datetime gives '', which does not have the"),
        ({"start_datetime": "soon"}, ".start_datetime gives 'soon', which does not have the format '%Y"),
        ({"end_datetime": min_max("soon", datetime_format="%s")}, ".end_datetime.datetime gives 'soon'"),
    ],
)  # fmt: skip
def test_a_cursor_that_is_not_valid_is_an_error_that_names_the_place(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        begin(**fields)
    assert f"streams[0].incremental_sync{message}" in str(error.value)
    assert error.value.guidance


SHORT = {"step": "PT0.000001S", "cursor_granularity": "PT0.000001S"}
TEN_THOUSAND_YEARS = {
    "start_datetime": "0001-01-01T00:00:00Z",
    "end_datetime": "9999-12-31T00:00:00Z",
}


@pytest.mark.parametrize(
    ("fields", "period"),
    [
        (SHORT, "'PT0.000001S': from 2024-01-01T00:00:00+00:00 to 2024-01-31T12:00:00+00:00 that"),
        ({**SECOND, **TEN_THOUSAND_YEARS, "step": "P1D"}, "'P1D': from 0001-01-01T00:00:00+00:00 to"),
        ({**SECOND, "step": "PT1S"}, "that is 2,635,201 intervals, and a read has at most 1,000,000"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("router", [None, listed(["a", "b"])])
def test_more_intervals_than_can_be_read_are_an_error_before_the_first_one(
    fields: dict[str, Any], period: str, router: Any
) -> None:
    api = Api(nothing)
    with at(NOW):
        written = stream(sync=dated(**fields), router=router)
        progress = api.begin(written)
        with pytest.raises(ConfigError, match=r"incremental_sync\.step is 'P") as error:
            next(progress.slices())
        assert period in str(error.value) and error.value.guidance
        if router is None:
            with pytest.raises(ConfigError, match="intervals, and a read has"):
                api.cursors.get(written).contexts()


def test_a_step_of_a_minute_may_be_read_for_a_year_and_a_state_leaves_less_to_read() -> None:
    minutes = {**SECOND, "step": "PT1M", "start_datetime": "2023-01-31T12:00:00Z"}
    assert next(begin(**minutes).slices()).interval["end_time"] == "2023-01-31T12:00:59Z"
    early = {**minutes, "start_datetime": "0001-01-01T00:00:00Z"}
    assert len(intervals(begin({"updated_at": "2024-01-31T11:00:00Z"}, **early))) == 60
    holes = {
        "state_type": "date-range",
        "slices": [
            {"start": "0001-01-01T00:00:00Z", "end": "2024-01-01T00:00:00Z"},
            {"start": "2024-01-01T00:02:01Z", "end": "2024-01-31T11:59:59Z"},
        ],
    }
    assert len(intervals(begin(holes, **early))) == 3


@pytest.mark.parametrize("step", ["PT0S", "P0M", "P0Y", "P0W", "PT0.0000001S"])
@pytest.mark.parametrize("granularity", ["PT0S", "P0M"])
def test_a_step_of_no_length_is_an_error(step: str, granularity: str) -> None:
    with pytest.raises(ConfigError, match="which is too short"):
        begin(step=step, cursor_granularity=granularity)


@pytest.mark.parametrize("target", ["YEAR", "WEEK"])
def test_a_clamping_without_known_boundaries_is_an_error(target: str) -> None:
    with pytest.raises(ConfigError, match="there does not name known boundaries"):
        begin(clamping=made(components.Clamping, target=Template(target)))


def test_a_step_from_the_config_that_gives_nothing_leaves_the_period_whole() -> None:
    assert len(intervals(begin(step="{{ config['step'] }}", cursor_granularity="PT1S"))) == 1


def test_users_choose_the_cursor_field_only_where_the_manifest_lets_them() -> None:
    for allows, field in [(True, "created_at"), (False, "updated_at"), (None, "updated_at")]:
        component = dated(allow_catalog_defined_cursor_field=allows)
        assert DatetimeCursor(component, {}, "created_at").field == field


# --- intervals that are read alone ----------------------------------------------------------------


def list_starts(
    now: str, start: Any, config: dict[str, Any] | None = None, **fields: Any
) -> list[Any]:
    """Return the starts of the intervals that are listed at a time."""
    sync = {"cursor_granularity": "PT1S", "start_datetime": start, **fields}
    with at(now):
        cursor = Api(nothing, config or {}).cursors.get(stream(sync=dated(**sync)))
        return [each["start_time"] for each in cursor.contexts() or ()]


AGO = "{{ (now_utc() - duration('PERIOD')).strftime('%Y-%m-%dT%H:%M:%SZ') }}"


@pytest.mark.parametrize(
    ("period", "step", "found"),
    [
        ("P2D", "P1D", ["2024-01-29", "2024-01-30", "2024-01-31"]),
        ("P20D", "P7D", ["2024-01-11", "2024-01-18", "2024-01-25"]),
        ("P50D", "P1M", ["2023-12-01", "2024-01-01"]),
        ("P7M", "P3M", ["2023-04-01", "2023-07-01", "2023-10-01", "2024-01-01"]),
        ("P2Y", "P1Y", ["2022-01-01", "2023-01-01", "2024-01-01"]),
    ],
)
def test_intervals_from_a_start_that_moves_count_from_a_fixed_time(
    period: str, step: str, found: list[str]
) -> None:
    """Dagster lists them every few minutes: each is listed with the same start until it is too old."""
    for now in ("2024-01-31T12:00:00Z", "2024-01-31T12:05:00Z", "2024-01-31T23:59:59Z"):
        found_starts = list_starts(now, AGO.replace("PERIOD", period), step=step)
        assert found_starts == [f"{day}T00:00:00Z" for day in found]


def test_a_start_moves_if_it_is_at_most_a_time_ago() -> None:
    least = min_max("{{ config['start'] }}", min_datetime=AGO.replace("PERIOD", "P9Y"))
    config = {"start": "2024-01-30T10:00:00Z"}
    found = list_starts("2024-01-31T12:00:00Z", least, config, step="P1D")
    assert found == ["2024-01-30T00:00:00Z", "2024-01-31T00:00:00Z"]


@pytest.mark.parametrize(
    "start",
    [
        min_max("{{ config['start'] }}"),
        min_max("{{ config['start'] or day_delta(-3) }}"),
        min_max("{{ config['start'] }}", max_datetime=AGO.replace("PERIOD", "P0D")),
    ],
)
def test_intervals_from_a_fixed_start_count_from_it(start: Any) -> None:
    config = {"start": "2024-01-30T10:00:00Z"}
    found = list_starts("2024-01-31T12:00:00Z", start, config, step="P1D")
    assert found == ["2024-01-30T10:00:00Z", "2024-01-31T10:00:00Z"]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(["PT7H", "P1D", "P5D", "P7D", "P2W", "P1M", "P5M", "P1Y", "P1M3D"]),
    st.sampled_from([None, "DAY", "WEEK", "MONTH"]),
    st.integers(0, 900),
    st.integers(0, 900),
)
def test_intervals_are_listed_again_with_the_same_starts(
    step: str, target: str | None, hour: int, passed: int
) -> None:
    details = {"weekday": Template("MONDAY")}
    clamping = (
        made(components.Clamping, target=Template(target), target_details=details)
        if target
        else None
    )
    begin = moment("2024-01-01T00:30:00Z") + timedelta(hours=hour)
    one, other = (
        list_starts(time.isoformat(), AGO.replace("PERIOD", "P400D"), step=step, clamping=clamping)
        for time in (begin, begin + timedelta(hours=passed))
    )
    assert one == sorted(set(one))
    assert set(other) - set(one) == {each for each in other if each > max(one)}
    assert set(one) - set(other) == {each for each in one if each < min(other)}


def test_an_interval_that_begins_before_the_start_is_read_alone() -> None:
    sync = dated(start_datetime=AGO.replace("PERIOD", "P2D"), step="P1D", cursor_granularity="PT1S")
    with at(NOW):
        cursors = Api(nothing).cursors
        first = next(iter(cursors.get(stream(sync=sync)).contexts() or ()))
        done = Api(nothing).read(stream(sync=sync), {}, [first])
    assert [tuple(each.interval.values()) for each in done.slices] == [
        ("2024-01-29T00:00:00Z", "2024-01-29T23:59:59Z")
    ]


def test_a_stream_without_steps_has_no_intervals_to_list() -> None:
    cursors = Api(nothing).cursors
    assert cursors.get(stream(sync=dated())).contexts() is None
    assert cursors.get(stream(sync=dated(**DAILY, is_data_feed=True))).contexts() is None
    assert cursors.get(stream()).contexts() is None


@pytest.mark.parametrize(
    "context", [{}, {"start_time": "soon"}, {"shop": 1}, {"start_time": "2024-01-01", "shop": 1}]
)
def test_what_is_no_interval_cannot_be_read_alone(context: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is not an interval of the stream"):
        list(begin(step="P10D", cursor_granularity="PT1S").slices([context]))
