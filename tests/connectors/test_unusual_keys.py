"""Streams of the SDK whose replication key has values that are no times, or that its schema does not declare,
and parents that are read once for all of their child streams."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from connectors.sdk import Checkpoint, Parent, Source, Stream, Window
from connectors.sdk.items import Record, Warn
from connectors.sdk.state import parents as parents_module
from connectors.sdk.state.bookmark import ERROR, KEEP, SKIP
from connectors.sdk.times import moment
from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream
from tests.connectors.support import call, catalog

Json = dict[str, Any]
DIRTY = ["", "Sun, 31 Jan 2021 10:00:00 GMT", 20240101, "yesterday", True, "2021-02-30", [1], {}]


class Orders(Stream):
    name = "orders"
    primary_key = ("id",)
    replication_key = "at"

    def __init__(self, values: Sequence[Any], kind: Json | None = None):
        declared = {"type": "string", "format": "date-time"} if kind is None else kind
        self.json_schema = {"properties": {"id": {"type": "integer"}, "at": declared}}
        self.rows = [{"id": number, "at": value} for number, value in enumerate(values)]
        self.starts: list[Any] = []
        self.asks = False

    def records(self, window: Window) -> Iterable[Record]:
        if self.asks:
            self.starts.append(window.start)
        return iter(self.rows)


class Shop(Source):
    name = "shop"

    def __init__(self, *streams: Stream):
        self.offered = streams

    def check(self, config: Json) -> None:
        """Succeed."""

    def streams(self, config: Json) -> Sequence[Stream]:
        return self.offered


def read(stream: Stream, state: Json | None = None, mode: str = INCREMENTAL) -> list[Any]:
    return list(stream.read(ConfiguredStream(stream=stream.describe(), sync_mode=mode), state))


def ids(items: Iterable[Any]) -> list[int]:
    return [item["id"] for item in items if isinstance(item, dict)]


def last_state(items: Iterable[Any]) -> Json:
    *_, state = (each.state for each in items if isinstance(each, Checkpoint))
    assert isinstance(state, Raw)
    return dict(json.loads(bytes(state)))


def day(number: int) -> str:
    return f"2021-01-{number:02}T00:00:00Z"


@pytest.mark.parametrize("is_sorted", [False, True])
@given(dirty=st.lists(st.sampled_from(DIRTY), max_size=5), data=st.data())
def test_dirty_values_lose_no_record_and_move_no_bookmark(
    is_sorted: bool, dirty: list[Any], data: st.DataObject
) -> None:
    values: list[Any] = [day(number) for number in (1, 2, 3, 9)]
    for value in dirty:
        values.insert(data.draw(st.integers(1, len(values))), value)
    stream = Orders(values)
    stream.order = "ascending" if is_sorted else None
    items = read(stream)
    assert ids(items) == list(range(len(values)))
    assert last_state(items)["replication_key_value"] == day(9)
    warnings = [item.text for item in items if isinstance(item, Warn)]
    assert len(warnings) == bool(dirty)
    assert not dirty or f"cannot be compared: {len(dirty)}, the first one" in warnings[0]


def test_the_author_chooses_what_becomes_of_a_dirty_value() -> None:
    chosen = {}
    for choice in (KEEP, SKIP):
        stream = Orders([day(1), "", day(2)])
        stream.bad_replication_key = choice
        chosen[choice] = ids(read(stream))
    assert chosen == {KEEP: [0, 1, 2], SKIP: [0, 2]}
    stream.bad_replication_key = ERROR
    with pytest.raises(SystemFailure, match="has the value ''"):
        read(stream)


def test_an_empty_first_value_decides_nothing() -> None:
    stream = Orders(["", "2021-01-05T01:00:00+02:00", "2021-01-04T23:30:00Z"], {})
    assert last_state(read(stream))["replication_key_value"] == "2021-01-04T23:30:00Z"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ({"type": "string"}, ["2021-01-01", "2021-01-05", "2021-01-06"]),
        ({}, ["2021-01-01 10:00", "2021-01-05T00:00:00+00:00", "2021-01-05T01:00:00Z"]),
        ({"type": "integer"}, [1609459200, 1609804800, 1609804801]),
        ({"type": "number"}, [1609459200000.5, 1609804800000, 1609804800000.5]),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", [INCREMENTAL, FULL_REFRESH])
def test_the_start_date_applies_by_value(kind: Json, values: list[Any], mode: str) -> None:
    stream = Orders(values, kind)
    stream.asks = True
    Shop(stream).open({"start_date": "2021-01-05"})
    assert ids(read(stream, mode=mode)) == [1, 2]
    assert stream.starts == [None]  # the form of the key is not known yet


def test_numbers_that_are_no_times_are_kept_from_the_start_date_on() -> None:
    stream = Orders([1, 99, "x"], {})
    Shop(stream).open({"start_date": "2021-01-05"})
    items = read(stream)
    assert ids(items) == [0, 1, 2]
    assert any("`start_date`" in item.text for item in items if isinstance(item, Warn))


@pytest.mark.parametrize("filters", [False, True])
def test_numbers_under_a_declared_date_time_have_a_start_date(filters: bool) -> None:
    stream = Orders([1609459200, 1609804800, 1609804801])
    stream.asks = not filters
    Shop(stream).open({"start_date": "2021-01-05"})
    items = read(stream)
    assert ids(items) == ([1, 2] if filters else [0, 1, 2])
    state = last_state(items)
    assert state["replication_key_value"] == 1609804801
    read(stream, state)
    assert stream.starts == ([] if filters else ["2021-01-05", 1609804801])


@given(st.integers(946_684_800, 4_102_444_799))
def test_a_number_is_the_time_in_seconds_or_milliseconds(seconds: int) -> None:
    time = dt.datetime.fromtimestamp(seconds, dt.timezone.utc)
    assert {moment(seconds), moment(seconds * 1000)} == {moment(time.isoformat())}
    assert moment(7) is moment(float("nan")) is moment(10**18) is None


class Counted(Stream):
    """Counts how often each partition is read."""

    primary_key = ("id",)

    def __init__(self, name: str, parent: Stream | None = None):
        self.name = name
        self.parent = None if parent is None else Parent(parent, fields={"id": "up"})
        self.json_schema = {"properties": {"id": {}, "up": {}}}
        self.reads: list[Any] = []

    def records(self, window: Window) -> Iterator[Record]:
        self.reads.append(window.partition)
        up = window.partition.get("up", "")
        yield from ({"id": f"{up}{self.name[0]}{number}"} for number in range(2))


@pytest.mark.parametrize("memory", [parents_module.MEMORY, 1])
@pytest.mark.parametrize("names", [["p", "c", "g", "h"], ["h", "g", "c", "p"], ["g", "h"]])
def test_parents_are_read_once_for_all_child_streams(
    names: list[str], memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parents_module, "MEMORY", memory)
    top = Counted("p")
    middle = Counted("c", top)
    streams = {"p": top, "c": middle, "g": Counted("g", middle), "h": Counted("h", middle)}
    files = {"config": {}, "catalog": catalog(*names)}
    code, messages = call(Shop(*streams.values()), tmp_path, "read", **files)
    records = [m["record"]["data"]["id"] for m in messages if m["type"] == "RECORD"]
    assert code == 0
    assert len(records) == len(set(records)) == sum({"p": 2, "c": 4}.get(n, 8) for n in names)
    assert (len(top.reads), len(middle.reads)) == (1, 2)


CHANGES = st.lists(st.integers(0, 6), max_size=12)


@pytest.mark.parametrize("is_sorted", [False, True])
@given(reads=st.lists(CHANGES, min_size=1, max_size=4))
def test_ties_and_nulls_are_sent_once(is_sorted: bool, reads: list[list[int]]) -> None:
    """The source can only grow; each record is sent once, whatever shares its value of the key."""
    values: list[Any] = []
    sent: list[int] = []
    state: Json | None = None
    for growth in reads:
        latest = max((value for value in values if value), default=1)
        values += [None if step == 0 else latest + step // 5 for step in sorted(growth)]
        stream = Orders(values, {"type": "integer"})
        stream.order = "ascending" if is_sorted else None
        if is_sorted:
            stream.rows.sort(key=lambda row: row["at"] or 0)
        items = read(stream, state)
        state = last_state(items)
        sent += ids(items)
    assert sorted(sent) == list(range(len(values)))


def test_a_changed_record_and_one_of_a_full_bookmark_are_sent_again() -> None:
    stream = Orders([day(1), day(1), None])
    state = last_state(read(stream))
    stream.rows[1] = {**stream.rows[1], "note": "changed"}
    items = read(stream, state)
    assert ids(items) == [1]
    assert last_state(items)["replication_key_value"] == day(1)
    old = {name: value for name, value in state.items() if not name.startswith("sent")}
    assert ids(read(stream, old)) == [0, 1, 2]  # a state of an earlier version
    many = Orders([day(1)] * 1_001)
    assert "sent" not in last_state(read(many))
    assert len(ids(read(many, last_state(read(many))))) == 1_001


def test_equal_records_of_one_read_are_all_sent() -> None:
    stream = Orders([])
    stream.rows = [{"id": 1, "at": None}, {"id": 1, "at": None}, {"id": 1, "at": day(1)}] * 2
    assert len(ids(read(stream))) == 6
