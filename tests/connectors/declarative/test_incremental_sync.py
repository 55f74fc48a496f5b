"""The statements and examples of "Incremental sync", as the requests of whole syncs of manifests.

The documentation's URLs are requested from a server on the loopback, and compared percent-decoded. The clock
is stopped; where the text has `now`, the request has the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from connectors.declarative.cursors.times.formats import DatetimeFormat, DatetimeFormats
from connectors.declarative.source import ManifestSource
from connectors.sdk.reports import listen_to_warnings
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL
from tests.connectors.declarative.cursors.engine import Json, Sync, manifest, option, stream, sync
from tests.connectors.declarative.cursors.support import at
from tests.programs.json_api import Answer
from tests.programs.recording_api import Received, RecordingApi, serving

GUARDIAN = """
version: 6.0.0
type: DeclarativeSource
check:
  type: CheckStream
  stream_names: [articles]
streams:
  - type: DeclarativeStream
    name: articles
    primary_key: [id]
    retriever:
      type: SimpleRetriever
      requester:
        type: HttpRequester
        url_base: "{{ config['url'] }}"
        path: /search
        http_method: GET
      record_selector:
        type: RecordSelector
        extractor:
          type: DpathExtractor
          field_path: [response, results]
    incremental_sync:
      type: DatetimeBasedCursor
      cursor_field: webPublicationDate
      datetime_format: "%Y-%m-%dT%H:%M:%SZ"
      start_datetime:
        type: MinMaxDatetime
        datetime: "{{ config['start_date'] }}"
        datetime_format: "%Y-%m-%dT%H:%M:%SZ"
      end_datetime:
        type: MinMaxDatetime
        datetime: "{{ now_utc().strftime('%Y-%m-%dT%H:%M:%SZ') }}"
        datetime_format: "%Y-%m-%dT%H:%M:%SZ"
      start_time_option:
        type: RequestOption
        inject_into: request_parameter
        field_name: from-date
      end_time_option:
        type: RequestOption
        inject_into: request_parameter
        field_name: to-date
    schema_loader:
      type: InlineSchemaLoader
      schema:
        type: object
        properties:
          id: {type: string}
          webPublicationDate: {type: string}
spec:
  type: Spec
  connection_specification:
    type: object
    required: [start_date]
    properties:
      start_date: {type: string}
      url: {type: string}
"""
SITE = "https://content.guardianapis.com"
PUBLISHED = "2023-04-15T07:30:58Z"
NEXT_DAY = "2023-04-16T07:30:58Z"
FIRST = {
    "id": "world/2022/oct/21/russia-ukraine-war-latest-what-we-know-on-day-240-of-the-invasion",
    "type": "article",
    "sectionId": "world",
    "sectionName": "World news",
    "webPublicationDate": "2022-10-21T14:06:14Z",
    "webTitle": "Russia-Ukraine war latest: what we know on day 240 of the invasion",
}
LAST = {
    "id": "business/live/2023/apr/15/uk-bosses-more-optimistic-energy-prices-fall-ai-spending-boom-"
    "economics-business-live",
    "type": "liveblog",
    "sectionId": "business",
    "sectionName": "Business",
    "webPublicationDate": PUBLISHED,
}
SPLIT = {"step": "P10D", "cursor_granularity": "PT1S"}
NOW = "2024-01-31T12:00:00Z"
SECONDS = "%Y-%m-%dT%H:%M:%SZ"
SINCE = {"start_time_option": option("since"), "end_time_option": option("until")}


@pytest.fixture(scope="module")
def server() -> Iterator[RecordingApi]:
    with serving(RecordingApi()) as api:
        yield api


@pytest.fixture
def api(server: RecordingApi) -> RecordingApi:
    server.requests.clear()
    server.script = lambda _: {"data": []}
    return server


def changed(**fields: Any) -> str:
    """Return the manifest of the Guardian with changes to the incremental sync; None removes a field."""
    document = yaml.safe_load(GUARDIAN)
    written = {**document["streams"][0]["incremental_sync"], **fields}
    kept = {name: value for name, value in written.items() if value is not None}
    document["streams"][0]["incremental_sync"] = kept
    return yaml.safe_dump(document)


def read(
    api: RecordingApi,
    written: str = GUARDIAN,
    state: Mapping[str, Any] | None = None,
    *,
    start: str = "2023-04-09T00:00:00Z",
    now: str = NEXT_DAY,
    **settings: Any,
) -> Sync:
    return sync(written, {"url": api.url, "start_date": start}, state, now=now, **settings)


def articles(api: RecordingApi, *found: Json) -> None:
    """Answer each request with these articles."""
    api.script = lambda _: {"response": {"status": "ok", "results": list(found)}}


def urls(api: RecordingApi) -> list[str]:
    return [SITE + url for url in api.urls]


def dated(**fields: Any) -> Json:
    """Return a cursor over `updated_at`, with a start on 2024-01-01."""
    return {
        "cursor_field": "updated_at",
        "datetime_format": SECONDS,
        "start_datetime": "2024-01-01T00:00:00Z",
        **fields,
    }


def orders(api: RecordingApi, cursor: Json, state: Any = None, **settings: Any) -> Sync:
    """Sync a stream of one page with a cursor."""
    now = settings.pop("now", NOW)
    how = {name: settings.pop(name) for name in ("mode", "partitions", "items") if name in settings}
    written = manifest(stream(cursor, **settings))
    return sync(written, {"url": api.url, "name": "changed"}, state, now=now, **how)


def answer(api: RecordingApi, *values: Any) -> None:
    """Answer each request with records that have these values of `updated_at`."""
    api.script = lambda _: {"data": [{"updated_at": value} for value in values]}


# --- the example ----------------------------------------------------------------------------------


@pytest.mark.spec("builder.1", "builder.12")
def test_the_first_sync_requests_all_from_the_start_date_until_now(api: RecordingApi) -> None:
    articles(api, FIRST)
    done = read(api, now=PUBLISHED)
    assert urls(api) == [
        "https://content.guardianapis.com/search?from-date=2023-04-09T00:00:00Z&to-date="
        + PUBLISHED
    ]
    assert done.records == [FIRST]


@pytest.mark.spec("builder.3", "builder.9", "builder.13")
def test_the_next_sync_begins_at_the_most_recent_date(api: RecordingApi) -> None:
    articles(api, LAST)
    first = read(api, now=PUBLISHED)
    assert first.state == {"webPublicationDate": PUBLISHED}
    read(api, state=first.state)
    assert urls(api)[1:] == [
        "https://content.guardianapis.com/search?from-date=2023-04-15T07:30:58Z&to-date=" + NEXT_DAY
    ]


@pytest.mark.spec("builder.14")
def test_the_end_of_the_interval_is_the_state_if_the_last_record_is_older(
    api: RecordingApi,
) -> None:
    articles(api, LAST)
    assert read(api).state == {"webPublicationDate": NEXT_DAY}
    articles(api)
    assert read(api).state == {"webPublicationDate": NEXT_DAY}


@pytest.mark.spec("builder.8")
def test_a_start_date_of_the_user_that_is_no_date_is_an_error(api: RecordingApi) -> None:
    done = read(api, start="9 April")
    assert "start_datetime.datetime gives '9 April'" in str(done.error)
    assert "streams[0].incremental_sync" in str(done.error)
    assert api.requests == []


@pytest.mark.spec("builder.6")
def test_a_cursor_that_is_nested_is_moved_to_the_top_by_transformations(api: RecordingApi) -> None:
    """The transformations run before the cursor reads the record."""
    api.script = lambda _: {"data": [{"id": 1, "meta": {"changed": "2024-01-30T00:00:00Z"}}]}
    transformations = [
        {
            "type": "AddFields",
            "fields": [{"path": ["updated_at"], "value": "{{ record['meta']['changed'] }}"}],
        },
        {"type": "RemoveFields", "field_pointers": [["meta"]]},
    ]
    done = orders(api, dated(is_data_feed=True), stream_transformations=transformations)
    assert done.records == [{"id": 1, "updated_at": "2024-01-30T00:00:00Z"}]
    assert done.state == {"updated_at": "2024-01-30T00:00:00Z"}


def test_a_full_refresh_reads_all_and_sends_no_state(api: RecordingApi) -> None:
    articles(api, LAST)
    done = read(api, state={"webPublicationDate": PUBLISHED}, mode=FULL_REFRESH)
    assert "from-date=2023-04-09T00:00:00Z" in urls(api)[0]
    assert (len(done.records), done.states) == (1, [])


@pytest.mark.spec("builder.5")
def test_the_catalog_declares_the_cursor_field(api: RecordingApi) -> None:
    (found,) = ManifestSource(GUARDIAN).open({"url": api.url, "start_date": "2023-04-09T00:00:00Z"})
    described = found.describe()
    assert described.default_cursor_field == ["webPublicationDate"]
    assert described.source_defined_cursor
    assert described.supported_sync_modes == [FULL_REFRESH, INCREMENTAL]


# --- start, end and formats -----------------------------------------------------------------------


@pytest.mark.spec("builder.8", "builder.10")
@pytest.mark.parametrize(
    ("fields", "config_start", "query"),
    [
        ({}, "2023-04-01T00:00:00Z", f"from-date=2023-04-01T00:00:00Z&to-date={NEXT_DAY}"),
        (
            {"start_datetime": "2023-03-01T00:00:00Z"},
            "",
            f"from-date=2023-03-01T00:00:00Z&to-date={NEXT_DAY}",
        ),
        (
            {"end_datetime": None},
            "2023-04-01T00:00:00Z",
            f"from-date=2023-04-01T00:00:00Z&to-date={NEXT_DAY}",
        ),
        (
            {"end_datetime": "2023-04-10T00:00:00Z"},
            "2023-04-01T00:00:00Z",
            "from-date=2023-04-01T00:00:00Z&to-date=2023-04-10T00:00:00Z",
        ),
        (
            {"end_datetime": "{{ config['start_date'] }}"},
            "2023-04-01T00:00:00Z",
            "from-date=2023-04-01T00:00:00Z&to-date=2023-04-01T00:00:00Z",
        ),
    ],
)
def test_start_and_end_are_fixed_or_from_the_config_or_now(
    api: RecordingApi, fields: Json, config_start: str, query: str
) -> None:
    articles(api)
    read(api, changed(**fields), start=config_start)
    assert urls(api) == [f"{SITE}/search?{query}"]


@pytest.mark.spec("builder.7")
@pytest.mark.parametrize(
    ("written", "start", "end", "value"),
    [
        (
            "%Y-%m-%dT%H:%M:%SZ",
            "2024-01-01T00:00:00Z",
            "2024-01-31T12:00:00Z",
            "2024-01-30T05:06:07Z",
        ),
        (
            "%Y-%m-%dT%H:%M:%S.%fZ",
            "2024-01-01T00:00:00.000000Z",
            "2024-01-31T12:00:00.000000Z",
            "2024-01-30T05:06:07.000000Z",
        ),
        (
            "%Y-%m-%dT%H:%M:%S%z",
            "2024-01-01T00:00:00+0000",
            "2024-01-31T12:00:00+0000",
            "2024-01-30T05:06:07+0000",
        ),
        ("%Y-%m-%d", "2024-01-01", "2024-01-31", "2024-01-30"),
        ("%s", "1704067200", "1706702400", "1706591167"),
        ("%ms", "1704067200000", "1706702400000", "1706591167000"),
        ("%epoch_microseconds", "1704067200000000", "1706702400000000", "1706591167000000"),
        ("%s_as_float", "1704067200.0", "1706702400.0", "1706591167.0"),
        (
            "%Y-%m-%dT%H:%M:%S.%_msZ",
            "2024-01-01T00:00:00.000Z",
            "2024-01-31T12:00:00.000Z",
            "2024-01-30T05:06:07.000Z",
        ),
        (
            "%Y-%m-%dT%H:%M:%S-08:00",
            "2023-12-31T16:00:00-08:00",
            "2024-01-31T04:00:00-08:00",
            "2024-01-29T21:06:07-08:00",
        ),
    ],
)
def test_requests_and_states_have_the_datetime_format(
    api: RecordingApi, written: str, start: str, end: str, value: str
) -> None:
    """The records have another format, which `cursor_datetime_formats` names."""
    answer(api, "2024-01-30T05:06:07Z")
    cursor = dated(
        datetime_format=written,
        cursor_datetime_formats=[SECONDS],
        start_datetime={"datetime": "2024-01-01T00:00:00Z", "datetime_format": SECONDS},
    )
    done = orders(api, {**cursor, **SINCE})
    assert api.requests[0].params == {"since": start, "until": end}
    form = DatetimeFormat(written)
    saved = form.make_state_format().format
    assert done.state == {"updated_at": saved(form.parse(end))}
    feed = orders(api, {**cursor, "is_data_feed": True})
    assert feed.state == {"updated_at": saved(form.parse(value))}
    orders(api, {**cursor, **SINCE}, done.state)
    assert api.requests[-1].params["since"] == end


@pytest.mark.spec("builder.7")
def test_records_in_several_formats_and_with_offsets_are_compared_as_instants(
    api: RecordingApi,
) -> None:
    answer(api, "2024-01-30T01:00:00+0530", 1706572800, "2024-01-29T23:30:00Z")
    formats = [SECONDS, "%Y-%m-%dT%H:%M:%S%z", "%s"]
    done = orders(api, dated(is_data_feed=True, cursor_datetime_formats=formats))
    assert done.state == {"updated_at": "2024-01-30T00:00:00Z"}


@pytest.mark.spec("builder.5")
def test_records_without_the_cursor_are_read_and_warned_of(api: RecordingApi) -> None:
    answer(api, None, "soon", "2024-01-30T00:00:00Z")
    done = orders(api, dated())
    assert len(done.records) == 3
    assert done.state == {"updated_at": "2024-01-30T00:00:00Z"}
    assert any("'updated_at': 2;" in each for each in done.warnings)


@pytest.mark.parametrize(("fields", "lacks"), [({}, True), ({"lookback_window": "PT1H"}, False)])
def test_a_check_recommends_an_overlap_where_late_records_may_be_missed(
    api: RecordingApi, fields: Json, lacks: bool
) -> None:
    articles(api)
    found: list[str] = []
    with listen_to_warnings(found.append), at(NEXT_DAY):
        source = ManifestSource(changed(**fields))
        source.check(source.parse({"url": api.url, "start_date": "2023-04-09T00:00:00Z"}))
        source.close()
    assert ["'articles': each read asks" in text for text in found] == [True] * lacks


# --- split up interval ----------------------------------------------------------------------------


@pytest.mark.spec("builder.20")
def test_a_period_is_split_into_intervals_of_the_step(api: RecordingApi) -> None:
    """The text begins with an interval of nine days, from 2023-01-01 to 2023-01-09. Its others have the ten
    days of the step, as all intervals have here: these are its second and third one."""
    articles(api)
    read(api, changed(**SPLIT), start="2022-12-31T00:00:00Z", now="2023-02-01T00:00:00Z")
    assert urls(api) == [
        f"{SITE}/search?from-date=2022-12-31T00:00:00Z&to-date=2023-01-09T23:59:59Z",
        f"{SITE}/search?from-date=2023-01-10T00:00:00Z&to-date=2023-01-19T23:59:59Z",
        f"{SITE}/search?from-date=2023-01-20T00:00:00Z&to-date=2023-01-29T23:59:59Z",
        f"{SITE}/search?from-date=2023-01-30T00:00:00Z&to-date=2023-02-01T00:00:00Z",
    ]


@pytest.mark.spec("builder.20")
def test_the_three_requests_of_the_text_follow_from_a_start_date_that_was_moved_back(
    api: RecordingApi,
) -> None:
    """The first interval then ends before that which was read from 2023-01-10 on."""
    articles(api)
    saved = {"start": "2023-01-10T00:00:00Z", "end": "2023-01-10T00:00:00Z"}
    state = {"state_type": "date-range", "slices": [saved]}
    times = {"start": "2023-01-01T00:00:00Z", "now": "2023-01-29T23:59:59Z"}
    done = read(api, changed(**SPLIT), state, **times)
    assert urls(api) == [
        "https://content.guardianapis.com/search?from-date=2023-01-01T00:00:00Z&to-date=2023-01-09T23:59:59Z",
        "https://content.guardianapis.com/search?from-date=2023-01-10T00:00:00Z&to-date=2023-01-19T23:59:59Z",
        "https://content.guardianapis.com/search?from-date=2023-01-20T00:00:00Z&to-date=2023-01-29T23:59:59Z",
    ]
    assert done.state == {"webPublicationDate": "2023-01-29T23:59:59Z"}


@pytest.mark.spec("builder.22")
def test_a_state_is_sent_after_each_interval(api: RecordingApi) -> None:
    articles(api, FIRST)
    done = read(api, changed(**SPLIT), start="2023-01-01T00:00:00Z", now="2023-02-01T00:00:00Z")
    assert [(number, state["webPublicationDate"]) for number, state in done.states] == [
        (1, "2023-01-10T23:59:59Z"),
        (2, "2023-01-20T23:59:59Z"),
        (3, "2023-01-30T23:59:59Z"),
        (4, "2023-02-01T00:00:00Z"),
    ]


def failing(number: int) -> Any:
    """Return a script that refuses the requests from a number on."""
    requests = 0

    def script(request: Received) -> Any:
        nonlocal requests
        requests += 1
        if requests >= number:
            return Answer(403, {"message": "not today"})
        return {"data": [{"updated_at": request.params["since"]}]}

    return script


@pytest.mark.spec("builder.24")
def test_a_sync_that_fails_resumes_at_the_interval_that_was_not_complete(api: RecordingApi) -> None:
    cursor = {**dated(**SPLIT), **SINCE}
    api.script = failing(3)
    done = orders(api, cursor)
    assert done.error is not None
    assert done.state == {"updated_at": "2024-01-20T23:59:59Z"}
    api.requests.clear()
    api.script = failing(9)
    again = orders(api, cursor, done.state)
    assert [request.params["since"] for request in api.requests] == [
        "2024-01-20T23:59:59Z",
        "2024-01-30T23:59:59Z",
    ]
    assert again.state == {"updated_at": NOW}


@pytest.mark.spec("builder.23")
def test_without_a_step_the_period_is_one_request(api: RecordingApi) -> None:
    orders(api, {**dated(start_datetime="2014-01-01T00:00:00Z"), **SINCE})
    assert len(api.requests) == 1


@pytest.mark.spec("builder.20")
def test_months_have_their_lengths(api: RecordingApi) -> None:
    daily = {"datetime_format": "%Y-%m-%d", "step": "P1M", "cursor_granularity": "P1D"}
    cursor = {**dated(**daily), **SINCE, "start_datetime": "2023-12-01"}
    orders(api, cursor, now="2024-04-02T00:00:00Z")
    assert [tuple(request.params.values()) for request in api.requests] == [
        ("2023-12-01", "2023-12-31"),
        ("2024-01-01", "2024-01-31"),
        ("2024-02-01", "2024-02-29"),
        ("2024-03-01", "2024-03-31"),
        ("2024-04-01", "2024-04-02"),
    ]


def test_intervals_can_be_listed_and_read_alone(api: RecordingApi) -> None:
    cursor = {**dated(**SPLIT), **SINCE}
    with at(NOW):
        (found,) = ManifestSource(manifest(stream(cursor))).open({"url": api.url})
        contexts = list(found.partitions() or ())
    assert contexts[1] == {"start_time": "2024-01-11T00:00:00Z"}
    state = {"updated_at": "2024-01-02T00:00:00Z"}
    done = orders(api, cursor, state, partitions=contexts[1:3])
    assert [tuple(request.params.values()) for request in api.requests] == [
        ("2024-01-11T00:00:00Z", "2024-01-20T23:59:59Z"),
        ("2024-01-21T00:00:00Z", "2024-01-30T23:59:59Z"),
    ]
    assert done.state == state


@pytest.mark.spec("builder.24")
def test_intervals_that_are_read_at_the_same_time_leave_no_gap_in_the_state(
    api: RecordingApi,
) -> None:
    """The third interval fails. Those after it may have been read, and the state does not cover them."""

    mornings = [f"2024-01-{day:02d}T08:00:00Z" for day in range(1, 32)]

    def script(request: Received) -> Any:
        low, high = request.params.values()
        if is_refusing and low == "2024-01-03T00:00:00Z":
            return Answer(403, {"message": "not today"}, delay=0.05)
        return {"data": [{"updated_at": each} for each in mornings if low <= each <= high]}

    api.script = script
    daily = dated(step="P1D", cursor_granularity="PT1S")
    written = manifest(
        stream({**daily, **SINCE}),
        concurrency_level={"type": "ConcurrencyLevel", "default_concurrency": 4},
    )
    is_refusing = True
    done = sync(written, {"url": api.url}, now=NOW)
    assert done.error is not None
    assert done.state.get("updated_at", "") <= "2024-01-02T23:59:59Z"
    is_refusing = False
    again = sync(written, {"url": api.url}, done.state, now=NOW)
    assert again.state == {"updated_at": NOW}
    assert {*done.values("updated_at"), *again.values("updated_at")} == set(mornings)
    assert set(again.values("updated_at")) >= set(mornings[2:])


# --- lookback window ------------------------------------------------------------------------------


@pytest.mark.spec("builder.26")
def test_the_lookback_window_is_subtracted_from_the_cutoff_date(api: RecordingApi) -> None:
    articles(api, LAST)
    written = changed(lookback_window="P2D")
    first = read(api, written, now=PUBLISHED)
    assert "from-date=2023-04-09T00:00:00Z" in urls(api)[0]
    read(api, written, first.state)
    assert urls(api)[1:] == [
        "https://content.guardianapis.com/search?from-date=2023-04-13T07:30:58Z&to-date=" + NEXT_DAY
    ]


@pytest.mark.spec("builder.26")
def test_a_lookback_does_not_reach_before_the_start_date(api: RecordingApi) -> None:
    articles(api)
    read(api, changed(lookback_window="P30D"), {"webPublicationDate": PUBLISHED})
    assert urls(api) == [f"{SITE}/search?from-date=2023-04-09T00:00:00Z&to-date={NEXT_DAY}"]


@pytest.mark.spec("builder.26")
def test_a_lookback_does_not_move_the_state_back(api: RecordingApi) -> None:
    api.script = failing(2)
    state = {"updated_at": "2024-01-30T00:00:00Z"}
    cursor = {**dated(**SPLIT, lookback_window="P20D"), **SINCE}
    done = orders(api, cursor, state)
    assert done.error is not None
    assert done.state == state


# --- without time filtering -----------------------------------------------------------------------

POSTS = [
    {"data": {"name": f"t3_{number}", "created_utc": float(created)}}
    for number, created in enumerate([1706700000, 1706600000, 1706500000, 1706500000, 1706400000,
                                      1706300000, 1704067200, 1704000000, 1703900000])
]  # fmt: skip
"""The posts of a subreddit, from the newest to the oldest; two have the same time."""


def subreddit(request: Received) -> Json:
    """Answer two posts after the one that the parameter `after` names."""
    names = [post["data"]["name"] for post in POSTS]
    begin = names.index(request.params["after"]) + 1 if "after" in request.params else 0
    page = POSTS[begin : begin + 2]
    has_more = begin + 2 < len(POSTS)
    after = page[-1]["data"]["name"] if has_more else None
    return {"kind": "Listing", "data": {"children": page, "after": after}}


def reddit(**fields: Any) -> str:
    cursor = {
        "cursor_field": "created_utc",
        "datetime_format": "%s",
        "start_datetime": {"datetime": "2024-01-01", "datetime_format": "%Y-%m-%d"},
        "is_data_feed": True,
        **fields,
    }
    paginator = {
        "type": "DefaultPaginator",
        "page_token_option": option("after"),
        "pagination_strategy": {
            "type": "CursorPagination",
            "cursor_value": "{{ response['data']['after'] }}",
            "stop_condition": "{{ not response['data']['after'] }}",
        },
    }
    extractor = {"type": "DpathExtractor", "field_path": ["data", "children", "*", "data"]}
    return manifest(
        stream(
            cursor,
            "new",
            paginator=paginator,
            record_selector={"type": "RecordSelector", "extractor": extractor},
        )
    )


def posts(api: RecordingApi, state: Any = None, **fields: Any) -> Sync:
    api.requests.clear()
    api.script = subreddit
    return sync(reddit(**fields), {"url": api.url}, state, now=NOW)


@pytest.mark.spec("builder.17")
def test_the_first_sync_of_a_feed_requests_pages_until_the_start_date(api: RecordingApi) -> None:
    done = posts(api)
    assert api.urls == ["/new", "/new?after=t3_1", "/new?after=t3_3", "/new?after=t3_5"]
    assert done.values("name") == [f"t3_{number}" for number in range(7)]


@pytest.mark.spec("builder.16")
def test_a_feed_is_read_until_a_post_is_older_than_the_latest_of_the_last_sync(
    api: RecordingApi,
) -> None:
    """The text stops at a post that is as old as the cutoff. Posts of one time may be on two pages: these are
    read, and an older one ends the pages."""
    done = posts(api, {"created_utc": "1706500000"})
    assert api.urls == ["/new", "/new?after=t3_1", "/new?after=t3_3"]
    assert done.values("name") == ["t3_0", "t3_1", "t3_2", "t3_3"]
    done = posts(api, {"created_utc": "1706600000"})
    assert api.urls == ["/new", "/new?after=t3_1"]
    assert done.values("name") == ["t3_0", "t3_1"]


@pytest.mark.spec("builder.17")
def test_the_state_of_a_feed_is_its_latest_cursor_value(api: RecordingApi) -> None:
    done = posts(api)
    assert [state for _, state in done.states] == [{"created_utc": "1706700000"}]
    assert posts(api, done.state).values("name") == ["t3_0"]
    assert posts(api, {"created_utc": "1706701000"}).state == {"created_utc": "1706701000"}


@pytest.mark.spec("builder.18")
def test_a_feed_is_not_split_and_has_no_state_before_its_end(api: RecordingApi) -> None:
    api.script = subreddit
    cut = sync(reddit(**SPLIT), {"url": api.url}, now=NOW, items=2)
    assert (len(cut.records), cut.states) == (4, [])
    assert api.urls[0] == "/new"


def test_a_feed_looks_back(api: RecordingApi) -> None:
    done = posts(api, {"created_utc": "1706700000"}, lookback_window="PT200000S")
    assert done.values("name") == ["t3_0", "t3_1", "t3_2", "t3_3"]


# --- client-side filtering ------------------------------------------------------------------------


def test_records_that_the_api_cannot_filter_are_left_out(api: RecordingApi) -> None:
    answer(api, "2024-01-09T00:00:00Z", "2024-01-10T00:00:00Z", "2024-01-20T00:00:00Z")
    cursor = dated(is_client_side_incremental=True)
    done = orders(api, cursor, {"updated_at": "2024-01-10T00:00:00Z"})
    assert done.values("updated_at") == ["2024-01-10T00:00:00Z", "2024-01-20T00:00:00Z"]
    assert api.urls == ["/orders"]
    assert len(orders(api, dated(), {"updated_at": "2024-01-10T00:00:00Z"}).records) == 3


ZONED = "%Y-%m-%dT%H:%M:%S%z"
PRECISE = {"datetime_format": "%Y-%m-%dT%H:%M:%S.%f%z", "cursor_datetime_formats": [ZONED]}
EPOCH = {"request_parameters": {"since": "{{ timestamp(stream_interval.start_time) }}"}}


@pytest.mark.parametrize(
    ("cursor", "requester"),
    [
        ({"start_time_option": option("since")}, {}),
        ({"is_client_side_incremental": True}, {}),
        (PRECISE, EPOCH),
    ],
    ids=["by the API", "by the client", "by the API since an epoch"],
)
def test_values_with_offsets_are_filtered_as_instants(
    api: RecordingApi, cursor: Json, requester: Json
) -> None:
    """The last of the values as texts is the first of them as instants."""
    values = ["2024-01-20T23:30:00-0800", "2024-01-21T05:00:00+0000", "2024-01-21T10:00:00+0700"]
    later = ["2024-01-21T07:45:00+0000", "2024-01-21T01:00:00-0700"]
    parse = DatetimeFormats([ZONED, "%s_as_float"]).parse

    def script(request: Received) -> Any:
        since = parse(request.params.get("since", 0))
        return {"data": [{"updated_at": value} for value in values if parse(value) >= since]}

    api.script = script
    start = {"datetime": "2024-01-01T00:00:00Z", "datetime_format": SECONDS}
    cursor = dated(**{"datetime_format": ZONED, "start_datetime": start, **cursor})
    first = orders(api, cursor, requester=requester)
    assert first.values("updated_at") == values
    latest, values = values[0], values + later
    again = orders(api, cursor, first.state, requester=requester)
    assert again.values("updated_at") == [latest, *later]


# --- injection ------------------------------------------------------------------------------------


@pytest.mark.spec("builder.11")
@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("request_parameter", lambda request: request.params),
        ("header", lambda request: request.headers),
        ("body_data", lambda request: dict(request.form)),
        ("body_json", lambda request: request.json),
    ],
)
def test_start_and_end_are_injected_where_the_manifest_says(
    api: RecordingApi, where: str, found: Any
) -> None:
    options = {f"{name}_time_option": option(name, where) for name in ("start", "end")}
    orders(api, dated(**options), requester={"http_method": "POST"})
    assert found(api.requests[0]).items() >= {"start": "2024-01-01T00:00:00Z", "end": NOW}.items()


@pytest.mark.spec("builder.15", "builder.25", "builder.27")
def test_the_interval_may_be_part_of_the_path(api: RecordingApi) -> None:
    """The Exchange Rates API has the day in its path, and no more than a day in a response."""
    cursor = dated(
        datetime_format="%Y-%m-%d",
        start_datetime="2024-01-29",
        step="P1D",
        cursor_granularity="P1D",
    )
    path = "/exchangerates_data/{{ stream_interval['start_time'] }}"
    orders(api, cursor, requester={"path": path})
    assert api.urls == [f"/exchangerates_data/2024-01-{day}" for day in (29, 30, 31)]


@pytest.mark.spec("builder.28")
def test_start_and_end_may_be_parts_of_one_parameter(api: RecordingApi) -> None:
    """The Sendgrid API has both in `query`."""
    query = (
        'last_event_time BETWEEN TIMESTAMP "{{stream_interval.start_time}}" '
        'AND TIMESTAMP "{{stream_interval.end_time}}"'
    )
    orders(api, dated(), requester={"request_parameters": {"query": query}})
    assert api.requests[0].params == {
        "query": 'last_event_time BETWEEN TIMESTAMP "2024-01-01T00:00:00Z" AND TIMESTAMP '
        '"2024-01-31T12:00:00Z"'
    }


@pytest.mark.spec("builder.15", "builder.27")
def test_parameters_headers_and_bodies_are_built_by_templates(api: RecordingApi) -> None:
    requester = {
        "http_method": "POST",
        "request_parameters": {
            "filter": "{{ config['name'] }}>={{ stream_interval['start_time'] }}",
            "slice": "{{ stream_slice['end_time'] }}",
            "recent": "{{ 'yes' if stream_interval['start_time'] > '2024-01-15' else 'no' }}",
        },
        "request_headers": {
            "X-Range": "{{ stream_partition.start_time }}..{{ stream_slice.end_time }}"
        },
        "request_body_json": {"range": {"from": "{{ stream_interval.start_time }}"}},
    }
    orders(api, dated(), {"updated_at": "2024-01-20T00:00:00Z"}, requester=requester)
    (request,) = api.requests
    assert request.params == {
        "filter": "changed>=2024-01-20T00:00:00Z",
        "slice": NOW,
        "recent": "yes",
    }
    assert request.headers["x-range"] == f"2024-01-20T00:00:00Z..{NOW}"
    assert request.json == {"range": {"from": "2024-01-20T00:00:00Z"}}


# --- clocks ---------------------------------------------------------------------------------------


def test_a_clock_that_was_set_back_reads_nothing_and_warns(api: RecordingApi) -> None:
    state = {"updated_at": "2024-02-15T00:00:00Z"}
    done = orders(api, {**dated(), **SINCE}, state)
    assert api.requests == []
    assert done.state == state
    assert any("nothing is read" in each for each in done.warnings)


@pytest.mark.spec("builder.14")
def test_records_of_the_future_do_not_move_the_state_beyond_now(api: RecordingApi) -> None:
    answer(api, "2024-02-15T00:00:00Z")
    assert orders(api, dated()).state == {"updated_at": NOW}


# --- partitions -----------------------------------------------------------------------------------

SHOPS = {"type": "ListPartitionRouter", "cursor_field": "shop", "values": ["a", "b"]}
BY_LIST = {**SHOPS, "request_option": option("shop")}


def entry(shop: Any, value: str, **partition: Any) -> Json:
    return {"partition": {"shop": shop, **partition}, "cursor": {"updated_at": value}}


def test_each_partition_has_a_state(api: RecordingApi) -> None:
    cursor = {**dated(), **SINCE}
    done = orders(api, cursor, partition_router=BY_LIST)
    assert done.state["states"] == [entry("a", NOW), entry("b", NOW)]
    state = {"states": [entry("a", "2024-01-20T00:00:00Z"), entry("b", "2024-01-25T00:00:00Z")]}
    api.requests.clear()
    orders(api, cursor, state, partition_router=BY_LIST)
    assert [(request.params["shop"], request.params["since"]) for request in api.requests] == [
        ("a", "2024-01-20T00:00:00Z"),
        ("b", "2024-01-25T00:00:00Z"),
    ]


@pytest.mark.parametrize("partitions", [{}, {"partition_router": BY_LIST}])
@pytest.mark.parametrize(
    ("datetime_format", "granularity"),
    [(SECONDS, "PT1S"), (SECONDS, "PT0.000001S"), ("%Y-%m-%d", "P1D")],
)
def test_each_period_has_its_records_once_and_the_next_sync_reads_only_the_end_of_the_last(
    api: RecordingApi, datetime_format: str, granularity: str, partitions: Json
) -> None:
    """The granularity may be finer than the format of requests."""
    hours = ("00:00:00", "12:00:00", "23:59:59")
    times = [f"2024-01-{day}T{hour}Z" for day in (28, 29, 30) for hour in hours]

    def script(request: Received) -> Any:
        low, high = request.params["since"], request.params["until"]
        return {"data": [{"updated_at": time} for time in times if low <= time[: len(low)] <= high]}

    api.script = script
    cursor = dated(
        datetime_format=datetime_format,
        cursor_datetime_formats=[SECONDS],
        start_datetime={"datetime": times[0], "datetime_format": SECONDS},
        step="P1D",
        cursor_granularity=granularity,
        **SINCE,
    )
    midnight = {"now": "2024-01-31T00:00:00Z", **partitions}
    first = orders(api, cursor, **midnight)
    shops = len(SHOPS["values"]) if partitions else 1
    assert first.values("updated_at") == times * shops
    api.requests.clear()
    assert orders(api, cursor, first.state, **midnight).records == []
    assert [request.params["since"][:10] for request in api.requests] == ["2024-01-31"] * shops


def test_a_partition_that_fails_keeps_the_states_of_those_before(api: RecordingApi) -> None:
    api.script = lambda request: (
        Answer(403, {}) if request.params["shop"] == "b" else {"data": [{"updated_at": NOW}]}
    )
    done = orders(api, {**dated(), **SINCE}, partition_router=BY_LIST)
    assert done.error is not None
    assert done.state == {"use_global_cursor": False, "states": [entry("a", NOW)]}


def by_parent(**fields: Any) -> Json:
    shops = stream({**dated(), **SINCE}, "shops")
    config = {
        "type": "ParentStreamConfig",
        "stream": shops,
        "parent_key": "id",
        "partition_field": "shop",
        "request_option": option("shop"),
        **fields,
    }
    return {"type": "SubstreamPartitionRouter", "parent_stream_configs": [config]}


def shops_and_orders(refused: str = "") -> Any:
    def script(request: Received) -> Any:
        if request.path == "/shops":
            shops = {1: "2024-01-10T00:00:00Z", 2: "2024-01-20T00:00:00Z"}.items()
            found = [(shop, value) for shop, value in shops if value >= request.params["since"]]
            return {"data": [{"id": shop, "updated_at": value} for shop, value in found]}
        if request.params["shop"] == refused:
            return Answer(403, {})
        return {"data": [{"updated_at": "2024-01-30T00:00:00Z"}]}

    return script


def test_the_state_of_a_parent_is_in_that_of_the_child(api: RecordingApi) -> None:
    api.script = shops_and_orders()
    cursor, router = {**dated(), **SINCE}, by_parent(incremental_dependency=True)
    done = orders(api, cursor, partition_router=router)
    assert done.state["parent_state"] == {"shops": {"updated_at": NOW}}
    assert done.state["states"] == [entry(shop, NOW, parent_slice={}) for shop in (1, 2)]
    state = {**done.state, "parent_state": {"shops": {"updated_at": "2024-01-15T00:00:00Z"}}}
    api.requests.clear()
    orders(api, cursor, state, partition_router=router)
    assert [(each.path, each.params.get("shop")) for each in api.requests] == [
        ("/shops", None),
        ("/orders", "2"),
    ]


def test_the_state_of_a_parent_moves_only_after_its_children(api: RecordingApi) -> None:
    api.script = shops_and_orders(refused="2")
    router = by_parent(incremental_dependency=True)
    done = orders(api, {**dated(), **SINCE}, partition_router=router)
    assert done.error is not None
    assert done.state["parent_state"] == {"shops": {}}
    assert done.state["states"] == [entry(1, NOW, parent_slice={})]


def test_one_state_for_all_partitions_is_taken_over(api: RecordingApi) -> None:
    state = {"updated_at": "2024-01-20T00:00:00Z"}
    done = orders(api, {**dated(), **SINCE}, state, partition_router=BY_LIST)
    assert [request.params["since"] for request in api.requests] == ["2024-01-20T00:00:00Z"] * 2
    assert done.state["states"] == [entry("a", NOW), entry("b", NOW)]


def test_all_partitions_may_have_one_cursor(api: RecordingApi) -> None:
    cursor = {**dated(global_substream_cursor=True), **SINCE}
    done = orders(api, cursor, partition_router=BY_LIST)
    assert [state["state"] for _, state in done.states] == [{"updated_at": NOW}]
    assert "states" not in done.state


def test_partitions_can_be_listed_and_read_alone(api: RecordingApi) -> None:
    cursor = {**dated(), **SINCE}
    (found,) = ManifestSource(manifest(stream(cursor, partition_router=BY_LIST))).open(
        {"url": api.url}
    )
    assert list(found.partitions() or ()) == [{"shop": "a"}, {"shop": "b"}]
    done = orders(api, cursor, partition_router=BY_LIST, partitions=[{"shop": "b"}])
    assert [request.params["shop"] for request in api.requests] == ["b"]
    assert done.state["states"] == [entry("b", NOW)]
