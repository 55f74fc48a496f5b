"""The statements and examples of "Incremental sync", of the connector builder's documentation."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.declarative.cursors.cursor import Page
from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest.template import Template
from tests.connectors.declarative.cursors.support import (
    Api,
    at,
    dated,
    intervals,
    min_max,
    option,
    stream,
    url,
)

pytestmark = pytest.mark.unit

BASE = "https://content.guardianapis.com/search"
ARTICLE = {
    "id": "business/live/2023/apr/15/uk-bosses-more-optimistic-energy-prices-fall-ai-spending-boom-"
    "economics-business-live",
    "type": "liveblog",
    "sectionId": "business",
    "sectionName": "Business",
    "webPublicationDate": "2023-04-15T07:30:58Z",
}
PUBLISHED = "2023-04-15T07:30:58Z"
NEXT_DAY = "2023-04-16T07:30:58Z"


def articles(**fields: Any) -> Any:
    """Return the stream of the example."""
    given = {
        "cursor_field": "webPublicationDate",
        "datetime_format": "%Y-%m-%dT%H:%M:%SZ",
        "start_datetime": min_max(
            "{{ config['start_date'] }}", datetime_format="%Y-%m-%dT%H:%M:%SZ"
        ),
        "end_datetime": min_max(
            "{{ now_utc().strftime('%Y-%m-%dT%H:%M:%SZ') }}", datetime_format="%Y-%m-%dT%H:%M:%SZ"
        ),
        "start_time_option": option("from-date"),
        "end_time_option": option("to-date"),
        **fields,
    }
    return stream("articles", sync=dated(**given))


def guardian(*records: dict[str, Any], start: str = "2023-04-09T00:00:00Z") -> Api:
    def answer(name: str, each: Slice, options: Any) -> list[Page]:
        return [list(records)]

    return Api(answer, {"start_date": start})


def urls(api: Api) -> list[str]:
    return [
        url(BASE, [Option("request_parameter", (name,), value) for name, value in request.items()])
        for _, request in api.requests
    ]


def test_the_first_sync_requests_all_from_the_start_date_until_now() -> None:
    api = guardian()
    with at(PUBLISHED):
        api.read(articles())
    assert urls(api) == [f"{BASE}?from-date=2023-04-09T00:00:00Z&to-date={PUBLISHED}"]


def test_the_next_sync_begins_at_the_most_recent_date() -> None:
    api = guardian(ARTICLE)
    with at(PUBLISHED):
        state = api.read(articles()).state
    assert state == {"webPublicationDate": PUBLISHED}
    with at(NEXT_DAY):
        api.read(articles(), state)
    assert urls(api)[-1] == f"{BASE}?from-date=2023-04-15T07:30:58Z&to-date={NEXT_DAY}"


def test_the_end_of_the_interval_is_stored_if_the_last_record_is_older() -> None:
    with at(NEXT_DAY):
        assert guardian(ARTICLE).read(articles()).state == {"webPublicationDate": NEXT_DAY}


def test_a_period_is_split_into_intervals_of_the_step() -> None:
    """The text has 2023-01-09 as the end of the first interval, which is nine days. Its other two intervals
    have the ten days of the step, as all intervals have here."""
    api = guardian(start="2023-01-01T00:00:00Z")
    with at("2023-02-01T00:00:00Z"):
        api.read(articles(step="P10D", cursor_granularity="PT1S"))
    assert urls(api) == [
        f"{BASE}?from-date=2023-01-01T00:00:00Z&to-date=2023-01-10T23:59:59Z",
        f"{BASE}?from-date=2023-01-11T00:00:00Z&to-date=2023-01-20T23:59:59Z",
        f"{BASE}?from-date=2023-01-21T00:00:00Z&to-date=2023-01-30T23:59:59Z",
        f"{BASE}?from-date=2023-01-31T00:00:00Z&to-date=2023-02-01T00:00:00Z",
    ]


def test_the_three_requests_of_the_text_follow_from_a_start_date_that_was_moved_back() -> None:
    """The first interval then ends before the ones that were read from 2023-01-10 on."""
    api = guardian(start="2023-01-01T00:00:00Z")
    read = {"start": "2023-01-10T00:00:00Z", "end": "2023-01-10T00:00:00Z"}
    with at("2023-01-29T23:59:59Z"):
        api.read(
            articles(step="P10D", cursor_granularity="PT1S"),
            {"state_type": "date-range", "slices": [read]},
        )
    assert urls(api) == [
        f"{BASE}?from-date=2023-01-01T00:00:00Z&to-date=2023-01-09T23:59:59Z",
        f"{BASE}?from-date=2023-01-10T00:00:00Z&to-date=2023-01-19T23:59:59Z",
        f"{BASE}?from-date=2023-01-20T00:00:00Z&to-date=2023-01-29T23:59:59Z",
    ]


def test_a_state_is_saved_after_each_interval() -> None:
    with at("2023-02-01T00:00:00Z"):
        done = guardian(start="2023-01-01T00:00:00Z").read(
            articles(step="P10D", cursor_granularity="PT1S")
        )
    assert [state["webPublicationDate"] for _, state in done.states[:-1]] == [
        "2023-01-10T23:59:59Z",
        "2023-01-20T23:59:59Z",
        "2023-01-30T23:59:59Z",
        "2023-02-01T00:00:00Z",
    ]


def test_the_lookback_window_is_subtracted_from_the_cutoff_date() -> None:
    api = guardian(ARTICLE)
    with at(NEXT_DAY):
        api.read(articles(lookback_window="P2D"), {"webPublicationDate": PUBLISHED})
    assert urls(api) == [f"{BASE}?from-date=2023-04-13T07:30:58Z&to-date={NEXT_DAY}"]


def test_templates_reach_the_interval_of_the_slice() -> None:
    with at(NEXT_DAY):
        (each,) = guardian().begin(articles()).slices()
    sendgrid = Template(
        'last_event_time BETWEEN TIMESTAMP "{{stream_interval.start_time}}" AND TIMESTAMP '
        '"{{stream_interval.end_time}}"'
    )
    assert sendgrid.text_of(each.variables()) == (
        'last_event_time BETWEEN TIMESTAMP "2023-04-09T00:00:00Z" AND TIMESTAMP "2023-04-16T07:30:58Z"'
    )
    assert Template("/{{ stream_slice['start_time'] }}").text_of(each.variables()) == (
        "/2023-04-09T00:00:00Z"
    )


# --- without time filtering -----------------------------------------------------------------------

FEED = [
    [{"webPublicationDate": "2023-04-16T00:00:00Z"}, {"webPublicationDate": PUBLISHED}],
    [{"webPublicationDate": PUBLISHED}, {"webPublicationDate": "2023-04-14T00:00:00Z"}],
    [{"webPublicationDate": "2023-04-13T00:00:00Z"}],
]


def feed() -> Any:
    return articles(is_data_feed=True, start_time_option=None, end_time_option=None)


def reddit(pages: list[list[dict[str, Any]]]) -> tuple[Api, list[int]]:
    """Return a source with a feed, and the numbers of the pages that were requested."""
    requested: list[int] = []

    def answer(name: str, each: Slice, options: Any) -> Any:
        for number, page in enumerate(pages):
            requested.append(number)
            yield [dict(record) for record in page]

    return Api(answer, {"start_date": "2023-04-09T00:00:00Z"}), requested


def test_a_feed_is_read_until_a_record_is_older_than_the_cutoff() -> None:
    """The text stops at a record that is as old as the cutoff. Records of the same time may be on two pages:
    here such records are read, and the pages end with an older one."""
    api, requested = reddit(FEED)
    with at(NEXT_DAY):
        done = api.read(feed(), {"webPublicationDate": PUBLISHED})
    dates = [record["webPublicationDate"] for record in done.records]
    assert dates == ["2023-04-16T00:00:00Z", PUBLISHED, PUBLISHED]
    assert requested == [0, 1]


def test_the_first_sync_of_a_feed_is_read_until_the_start_date() -> None:
    api, requested = reddit(FEED)
    with at(NEXT_DAY):
        assert len(api.read(feed()).records) == 5
    assert requested == [0, 1, 2]


def test_the_state_of_a_feed_is_its_latest_cursor_value() -> None:
    api, _ = reddit(FEED)
    with at(NEXT_DAY):
        assert api.read(feed()).state == {"webPublicationDate": "2023-04-16T00:00:00Z"}


def test_a_feed_is_not_split_and_puts_no_dates_into_requests() -> None:
    api, _ = reddit(FEED)
    sync = articles(is_data_feed=True, step="P1D", cursor_granularity="PT1S", end_time_option=None)
    with at(NEXT_DAY):
        assert len(intervals(api.begin(sync))) == 1
        api.read(feed())
    assert api.requests == [("articles", {})]
