"""Syncs of random manifests that are cut at random places, through the whole engine: no record is lost, and
what was committed is not read again, apart from the boundary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.declarative.cursors.times.formats import DatetimeFormat
from tests.connectors.declarative.cursors.engine import (
    Json,
    Sync,
    manifest,
    opened,
    option,
    stream,
    sync,
)
from tests.connectors.declarative.cursors.support import at
from tests.programs.json_api import Answer
from tests.programs.recording_api import Received, RecordingApi, serving
from tests.support.examples import examples

ORIGIN = datetime(2024, 1, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
PRECISE = DatetimeFormat("%Y-%m-%dT%H:%M:%S.%fZ")
GRANULARITIES = {
    "%Y-%m-%dT%H:%M:%SZ": "PT1S",
    "%Y-%m-%dT%H:%M:%S.%f%z": "PT0.000001S",
    "%Y-%m-%dT%H:%M:%S-08:00": "PT1S",
    "%s": "PT1S",
    "%ms": "PT0.001S",
    "%Y-%m-%d": "P1D",
}
DAYS, PAGE = 40, 3
LAST = 24 * (DAYS + 5)

CURSORS = st.fixed_dictionaries(
    {
        "datetime_format": st.sampled_from(sorted(GRANULARITIES)),
        "step": st.sampled_from([None, "P5D", "P2W", "P1M"]),
        "is_exact": st.booleans(),
        "lookback_window": st.sampled_from([None, None, "PT30M", "P3D", "P1M"]),
        "filtering": st.sampled_from(["api", "api", "client", "feed"]),
        "threads": st.sampled_from([1, 1, 3]),
    }
)
EVENTS = st.lists(st.integers(0, 24 * DAYS * 3600), unique=True, max_size=15)
"""The seconds after the origin at which records change; each gets some microseconds of its own."""
CUTS = st.one_of(
    st.none(),
    st.tuples(st.just("items"), st.integers(1, 20)),
    st.tuples(st.just("requests"), st.integers(1, 12)),
)
SYNCS = st.lists(st.tuples(st.integers(0, LAST), CUTS), max_size=4)
"""The hour of each sync; and what cuts it: a number of items, or a request that fails."""


@pytest.fixture(scope="module")
def api() -> Iterator[RecordingApi]:
    with serving(RecordingApi()) as found:
        yield found


def described(drawn: Mapping[str, Any], *, is_global: bool = False, **changes: Any) -> str:
    """Return the manifest for what was drawn."""
    written = drawn["datetime_format"]
    cursor = {
        "cursor_field": "updated_at",
        "datetime_format": written,
        "cursor_datetime_formats": [PRECISE.text],
        "start_datetime": DatetimeFormat(written).format(ORIGIN),
        "start_time_option": option("since"),
        "end_time_option": option("until"),
        "global_substream_cursor": is_global,
        "is_data_feed": drawn["filtering"] == "feed",
        "is_client_side_incremental": drawn["filtering"] == "client",
        **({"lookback_window": drawn["lookback_window"]} if drawn["lookback_window"] else {}),
    }
    if drawn["step"]:
        granularity = GRANULARITIES[written] if drawn["is_exact"] else "PT0S"
        cursor |= {"step": drawn["step"], "cursor_granularity": granularity}
    return manifest(
        stream(cursor, paginator=paginator(), **changes),
        concurrency_level={"type": "ConcurrencyLevel", "default_concurrency": drawn["threads"]},
    )


def router(kind: str) -> Json:
    if kind == "list":
        values = [str(shop) for shop in range(1, 5)]
        return {
            "type": "ListPartitionRouter",
            "cursor_field": "shop",
            "values": values,
            "request_option": option("shop"),
        }
    cursor = {
        "cursor_field": "updated_at",
        "datetime_format": PRECISE.text,
        "start_datetime": PRECISE.format(ORIGIN),
        "step": "P2W",
        "cursor_granularity": "PT0.000001S",
        "start_time_option": option("since"),
        "end_time_option": option("until"),
    }
    parents = {
        "type": "ParentStreamConfig",
        "stream": stream(cursor, "shops", paginator=paginator()),
        "parent_key": "id",
        "partition_field": "shop",
        "request_option": option("shop"),
        "incremental_dependency": kind == "incremental",
    }
    return {"type": "SubstreamPartitionRouter", "parent_stream_configs": [parents]}


def paginator() -> Json:
    return {
        "type": "DefaultPaginator",
        "page_token_option": option("page"),
        "pagination_strategy": {"type": "PageIncrement", "page_size": PAGE},
    }


def page(request: Received, found: list[Json]) -> Json:
    begin = int(request.params.get("page", 0)) * PAGE
    return {"data": found[begin : begin + PAGE]}


def within(request: Received, written: str, moment: datetime) -> bool:
    """Return whether a request asks for a time, as an API does whose times have the format."""
    form = DatetimeFormat(written)
    low, high = (form.parse(request.params[name]) for name in ("since", "until"))
    return low <= form.parse(form.format(moment)) <= high


def failing(script: Any, cut: tuple[str, int] | None) -> Any:
    """Return a script that refuses the requests after a number of them, if that is what cuts the sync."""
    if cut is None or cut[0] == "items":
        return script
    received = 0

    def answer(request: Received) -> Any:
        nonlocal received
        received += 1
        return Answer(403, {}) if received > cut[1] else script(request)

    return answer


@dataclass
class Cut:
    """Syncs of one stream: the last state that arrived, and the records that it covers."""

    api: RecordingApi
    written: str
    state: Json = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)

    def sync(self, hour: int, cut: tuple[str, int] | None, script: Any) -> Sync:
        """Sync at an hour, until the sync is cut."""
        self.api.script = failing(script, cut)
        items = cut[1] if cut is not None and cut[0] == "items" else None
        config = {"url": self.api.url}
        done = sync(self.written, config, self.state, now=ORIGIN + hour * HOUR, items=items)
        assert done.error is None or (cut is not None and cut[0] == "requests")
        self.arrived |= {record["id"] for record in done.committed}
        self.state = done.state if done.states else self.state
        return done


def planned(syncs: Sequence[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Return the syncs by their times, and at the end one that is not cut."""
    return [*sorted(syncs, key=lambda each: each[0]), (LAST, None)]


def listing(drawn: Mapping[str, Any], events: Sequence[tuple[int, datetime]], hour: int) -> Any:
    """Return a script that lists the events up to an hour: those of the shop that the request names, if it
    names one."""
    known = [
        (n, shop, moment) for n, (shop, moment) in enumerate(events) if moment <= at_hour(hour)
    ]
    known.sort(key=lambda each: each[2], reverse=drawn["filtering"] == "feed")

    def script(request: Received) -> Json:
        if request.path == "/shops":
            return page(request, shops(request, known))
        filters = drawn["filtering"] == "api"
        found = [
            {"id": number, "updated_at": PRECISE.format(moment)}
            for number, shop, moment in known
            if request.params.get("shop", str(shop)) == str(shop)
            and (not filters or within(request, drawn["datetime_format"], moment))
        ]
        return page(request, found)

    return script


def at_hour(hour: int) -> datetime:
    return ORIGIN + hour * HOUR


def shops(request: Received, known: Sequence[tuple[int, int, datetime]]) -> list[Json]:
    """Return the shops that a request asks for. A shop changes with each of its events."""
    last = {shop: moment for _, shop, moment in sorted(known, key=lambda each: each[2])}
    return [
        {"id": shop, "updated_at": PRECISE.format(moment)}
        for shop, moment in last.items()
        if within(request, PRECISE.text, moment)
    ]


def test_a_check_reads_one_page_of_the_parents_and_one_partition(api: RecordingApi) -> None:
    drawn = {"datetime_format": "%s", "filtering": "api", "lookback_window": None, "step": None}
    written = described({**drawn, "threads": 1}, partition_router=router("parent"))
    events = [(shop, ORIGIN) for shop in range(50)]
    with opened(written, {"url": api.url}) as found, at(at_hour(9)):
        api.script = listing(drawn, events, 9)
        api.requests.clear()
        found.check()
    assert [request.path for request in api.requests] == ["/shops", "/orders"]


@pytest.mark.spec("builder.3", "builder.4")
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CURSORS, EVENTS, SYNCS)
def test_no_cut_loses_a_record_and_only_the_boundary_is_read_twice(
    api: RecordingApi, drawn: dict[str, Any], seconds: list[int], syncs: list[tuple[int, Any]]
) -> None:
    form = DatetimeFormat(drawn["datetime_format"])
    events = [
        (0, ORIGIN + timedelta(seconds=second, microseconds=7919 * number))
        for number, second in enumerate(sorted(seconds))
    ]
    reads = Cut(api, described(drawn))
    for hour, cut in planned(syncs):
        before, boundary = set(reads.arrived), reads.state.get("updated_at")
        done = reads.sync(hour, cut, listing(drawn, events, hour))
        numbers = done.values("id")
        assert len(numbers) == len(set(numbers)) or not drawn["is_exact"]
        # Of intervals that are read at the same time, a state may follow parts that it does not cover.
        if drawn["lookback_window"] is None and drawn["threads"] == 1:
            saved = form.make_state_format().format
            again = {saved(events[number][1]) for number in before & set(numbers)}
            assert again <= {boundary}
    assert reads.arrived == set(range(len(events)))


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    CURSORS,
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 24 * DAYS)), max_size=12),
    SYNCS,
    st.sampled_from(["list", "parent", "incremental"]),
    st.booleans(),
)
def test_no_cut_loses_a_record_of_any_partition(
    api: RecordingApi,
    drawn: dict[str, Any],
    changes: list[tuple[int, int]],
    syncs: list[tuple[int, Any]],
    kind: str,
    is_global: bool,
) -> None:
    events = [(shop, at_hour(hour)) for shop, hour in changes]
    written = described(drawn, is_global=is_global, partition_router=router(kind))
    reads = Cut(api, written)
    for hour, cut in planned(syncs):
        reads.sync(hour, cut, listing(drawn, events, hour))
    assert reads.arrived == set(range(len(events)))
