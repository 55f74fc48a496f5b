"""Partitions of a stream that are read at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sdk import Checkpoint, Parent, Stream, Window
from connectors.sdk.http import HttpClient, HttpStream, RetryPolicy
from connectors.sdk.items import Context, Record
from connectors.sdk.reading import RECORDS_AT_ONCE
from connectors.sdk.reports import RATE_LIMITED, report_wait
from connectors.sdk.saved_config import report_config
from connectors.sdk.team import STEPS_AHEAD, THREAD
from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL
from tests.connectors.support import call, catalog, errors, records
from tests.connectors.test_ranges import (
    HISTORY,
    SHAPES,
    STORES,
    Api,
    Table,
    configure,
    make_events,
    read,
    rows,
    state_of,
)
from tests.connectors.test_unusual_keys import Shop
from tests.programs.json_api import Answer, JsonApi, serving

Json = dict[str, Any]


@pytest.mark.parametrize("shape", SHAPES)
@given(history=HISTORY, frequency=st.sampled_from([1, 2, 1_000]))
def test_no_record_is_lost_whatever_interrupts_the_reads(
    shape: str, history: list[tuple[list[int], list[list[int]], int | None]], frequency: int
) -> None:
    api, table = Api(stores=STORES), Table()
    shapes = {**SHAPES[shape], "STATE_MSG_FREQUENCY": frequency, "concurrency": 3}
    for new, _, cut in [*history, ([], [], None)]:
        api.add(*new)
        table.sync(make_events(api, **shapes), cut)
    is_exact = "sorted" in shape.split() or all(cut is None for _, _, cut in history)
    numbers = table.numbers if is_exact else {*table.numbers}
    assert sorted(numbers) == list(range(len(api.rows)))


@pytest.mark.parametrize("mode", [INCREMENTAL, FULL_REFRESH])
@given(steps=st.lists(st.integers(0, 2), max_size=60), threads=st.integers(2, 5))
def test_the_records_of_a_partition_keep_their_order(
    mode: str, steps: list[int], threads: int
) -> None:
    api = Api(stores=STORES)
    api.add(*steps)
    together = rows(read(make_events(api, concurrency=threads), mode=mode))
    alone = rows(read(make_events(api), mode=mode))
    for store in STORES:
        of_store = [row for row in together if row["store"] == store]
        assert of_store == [row for row in alone if row["store"] == store]


@given(steps=st.lists(st.integers(0, 2), max_size=60))
def test_a_state_covers_only_what_was_sent_before_it(steps: list[int]) -> None:
    api, sent = Api(stores=STORES), set[int]()
    api.add(*steps)
    stream = make_events(api, order="ascending", STATE_MSG_FREQUENCY=1, concurrency=3)
    for item in stream.read(configure(stream), None):
        if isinstance(item, dict):
            sent.add(item["id"])
        elif isinstance(item, Checkpoint):
            for entry in state_of(item)["partitions"]:
                value, store = entry.get("replication_key_value", -1), entry["context"]["store"]
                before = {r["id"] for r in api.rows if r["store"] == store and r["at"] < value}
                assert before <= sent


class Numbered(Stream):
    """Partitions with records that are made when they are needed."""

    name = "numbered"
    json_schema: Json = {"properties": {"n": {"type": "integer"}}}  # noqa: RUF012

    def __init__(self, partitions: int, size: int, **attributes: Any):
        self.number, self.size = partitions, size
        self.begun: list[int] = []
        self.made = 0
        self.lock = threading.Lock()
        self.failing = attributes.pop("failing", -1)
        for name, value in attributes.items():
            setattr(self, name, value)

    def partitions(self) -> Iterable[Context]:
        return ({"n": number} for number in range(self.number))

    def records(self, window: Window) -> Iterator[Record]:
        with self.lock:
            self.begun.append(window.partition["n"])
        for number in range(self.size):
            with self.lock:
                self.made += 1
            yield {"n": window.partition["n"], "number": number}
        if window.partition["n"] == self.failing:
            raise SystemFailure("the partition is broken")


def test_an_error_in_one_partition_stops_the_others() -> None:
    stream = Numbered(1_000, 5, failing=3, concurrency=3)
    received: list[Record] = []
    with pytest.raises(SystemFailure, match="the partition is broken"):
        received.extend(
            item
            for item in stream.read(configure(stream, FULL_REFRESH), None)
            if isinstance(item, dict)
        )
    assert len(stream.begun) < 50
    assert THREAD not in [thread.name for thread in threading.enumerate()]


def test_a_broken_partition_has_no_bookmark() -> None:
    stream = Numbered(9, 5, failing=3, concurrency=3, replication_key="number")
    stream.json_schema = {"properties": {"n": {}, "number": {"type": "integer"}}}
    items: list[Any] = []
    with pytest.raises(SystemFailure):
        items.extend(iter(stream.read(configure(stream), None)))
    complete = [
        entry["context"]["n"]
        for item in items
        if isinstance(item, Checkpoint)
        for entry in state_of(item)["partitions"]
        if "replication_key_value" in entry
    ]
    assert 3 not in complete


def test_many_partitions_need_few_threads() -> None:
    stream = Numbered(5_000, 1, concurrency=2)
    assert len(read(stream, mode=FULL_REFRESH)) == 5_000


def test_what_a_broken_partition_had_is_sent_first() -> None:
    stream = Numbered(1, 5, failing=0, concurrency=3)
    items = stream.read(configure(stream, FULL_REFRESH), None)
    assert [next(items) for _ in range(5)] == [{"n": 0, "number": number} for number in range(5)]
    with pytest.raises(SystemFailure):
        next(items)


def test_a_slow_reader_lets_threads_wait() -> None:
    stream = Numbered(2, 100_000, concurrency=2)
    items = stream.read(configure(stream, FULL_REFRESH), None)
    for _ in range(1_000):
        next(items)
    made = -1
    while made != stream.made:  # until the threads wait
        made = stream.made
        threading.Event().wait(0.3)
    assert made <= 1_000 + RECORDS_AT_ONCE * (STEPS_AHEAD + 2 * 2)
    items.close()  # type: ignore[attr-defined]


class Reporting(Numbered):
    def records(self, window: Window) -> Iterator[Record]:
        if window.partition["n"] == 1:
            report_wait(60, RATE_LIMITED)
            report_config({"token": "new"})
        yield from super().records(window)


def test_what_threads_report_is_passed_on(tmp_path: Path) -> None:
    stream = Reporting(3, 5, concurrency=3)
    files: Json = {"config": {}, "catalog": catalog("numbered")}
    code, messages = call(Shop(stream), tmp_path, "read", **files)
    assert code == 0
    assert len(records(messages)) == 15
    assert [m["control"]["connectorConfig"]["config"] for m in messages if "control" in m] == [
        {"token": "new"}
    ]
    statuses = [m["trace"].get("stream_status", {}) for m in messages if "trace" in m]
    assert any("RATE_LIMITED" in str(status) for status in statuses)


class Orders(HttpStream):
    name = "orders"
    path = "all/stores/{store}/orders"
    json_schema: Json = {"properties": {"id": {}, "store": {}}}  # noqa: RUF012

    def partitions(self) -> Iterable[Context]:
        return [{"store": store} for store in STORES]


class CountingLimit:
    """A limit that one object keeps for all threads."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.requests = 0

    def reserve(self, request: httpx.Request) -> float:
        self.threads.add(threading.get_ident())
        self.requests += 1
        return 0.0

    def observe(self, response: httpx.Response) -> None:
        """Learn nothing."""


@pytest.fixture
def api() -> Iterator[JsonApi]:
    resources = {f"stores/{store}/orders": [{"id": store}] for store in STORES}
    with serving(JsonApi(resources)) as served:
        yield served


def test_the_limit_and_the_retries_are_those_of_one_client(api: JsonApi) -> None:
    limit = CountingLimit()
    api.answers.extend([Answer(503), Answer(429), None])
    with HttpClient(api.url, rate_limit=limit, retry=RetryPolicy(factor=0.01)) as client:
        stream = Orders(client)
        stream.concurrency = 3
        received = rows(read(stream, mode=FULL_REFRESH))
    assert sorted(row["id"] for row in received) == STORES
    assert limit.requests == len(api.requests) == 5
    assert threading.get_ident() not in limit.threads


def test_a_thread_that_waits_for_the_api_stops_with_the_read(api: JsonApi, tmp_path: Path) -> None:
    busy = Answer(429, headers={"Retry-After": "250"})
    api.answers.extend([busy, Answer(400), busy])
    with HttpClient(api.url) as client:
        stream = Orders(client)
        stream.concurrency = 3
        catalog_of_all = catalog("orders")
        code, messages = call(Shop(stream), tmp_path, "read", config={}, catalog=catalog_of_all)
    assert code == 1
    assert "400" in errors(messages)[0]["message"]
    assert THREAD not in [thread.name for thread in threading.enumerate()]


def test_a_parent_is_read_once_for_children_that_are_read_together(tmp_path: Path) -> None:
    class Stores(Stream):
        name = "parent"
        primary_key = ("id",)
        json_schema: Json = {"properties": {"id": {}}}  # noqa: RUF012
        reads = 0

        def records(self, window: Window) -> Iterator[Record]:
            Stores.reads += 1
            return ({"id": number} for number in range(20))

    parent = Stores()
    streams: Sequence[Any] = [Numbered(0, 2, concurrency=4, name=name) for name in ("x", "y")]
    for stream in streams:
        stream.parent = Parent(parent, {"id": "n"})
        stream.partitions = partial(Stream.partitions, stream)
    for names in (("x", "y"), ("parent", "y", "x")):
        Stores.reads = 0
        files: Json = {"config": {}, "catalog": catalog(*names)}
        code, messages = call(Shop(parent, *streams), tmp_path, "read", **files)
        assert (code, Stores.reads) == (0, 1)
        assert len(records(messages)) == 80 + 20 * (len(names) == 3)
