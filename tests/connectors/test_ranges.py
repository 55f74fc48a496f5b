"""The range that a stream reads: lookback, steps, end, descending order; over histories of an API that grows,
also while it is read, and reads that are interrupted anywhere."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from connectors.sdk import Checkpoint, Source, Stream, Window
from connectors.sdk.items import Context, Record, Warn
from connectors.sdk.ranges import Intervals
from connectors.sdk.state.replication_key import ReplicationKey
from connectors.sdk.times import add_length, instant, parse_length
from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream

Json = dict[str, Any]
DATE_TIME = {"type": "string", "format": "date-time"}
STORES = ["a", "b", "c"]


@dataclass
class Api:
    """An API whose records have a number, and a value that grows, with late ones; `growth` is what is added
    while it is read, one entry for each record that it returns."""

    rows: list[Record] = field(default_factory=list)
    growth: list[Sequence[int]] = field(default_factory=list)
    stores: Sequence[str] = ("",)

    def add(self, *steps: int) -> None:
        """Add records whose values are so much after the greatest one, or before it."""
        for step in steps:
            number = len(self.rows)
            store = self.stores[number % len(self.stores)]
            self.rows.append({"id": number, "at": max(0, self.newest + step), "store": store})

    @property
    def newest(self) -> int:
        return max((int(row["at"]) for row in self.rows), default=0)

    def select(self, partition: Context, start: int | None, end: int | None) -> list[Record]:
        low, high = start or 0, self.newest + 1 if end is None else end
        return [
            row
            for row in self.rows
            if low <= row["at"] < high and partition in ({}, {"store": row["store"]})
        ]

    def grow(self) -> None:
        if self.growth:
            self.add(*self.growth.pop(0))


class Events(Stream):
    """A stream over the API, in the order that it declares."""

    name = "events"
    primary_key = ("id",)
    replication_key = "at"
    json_schema: Json = {"properties": {"at": {"type": "integer"}, "store": {}}}  # noqa: RUF012

    def __init__(self, api: Api):
        self.api = api
        self.newest = 0

    def partitions(self) -> Iterable[Context] | None:
        self.newest = self.api.newest  # the first thing that a read does
        return None if self.api.stores == ("",) else [{"store": name} for name in self.api.stores]

    def max_bookmark(self, partition: Context) -> Any:
        return None if self.order == "ascending" else self.newest

    def end_value(self, partition: Context) -> Any:
        return None if self.step is None else self.newest + 1

    def records(self, window: Window) -> Iterator[Record]:
        start = None if self.order == "descending" else window.start
        selected = self.api.select(window.partition, start, window.end)
        if self.order is not None:
            selected.sort(key=lambda row: row["at"], reverse=self.order == "descending")
        for row in selected:
            self.api.grow()
            yield dict(row)


def configure(stream: Stream, mode: str = INCREMENTAL, **extra: Any) -> ConfiguredStream:
    described = json.loads(stream.describe().to_json())
    settings = {"stream": described, "sync_mode": mode, "destination_sync_mode": "append", **extra}
    return ConfiguredStream.from_json(json.dumps(settings).encode())


def read(stream: Stream, state: Json | None = None, mode: str = INCREMENTAL) -> list[Any]:
    return list(stream.read(configure(stream, mode), state))


def rows(items: Iterable[Any]) -> list[Record]:
    return [item for item in items if isinstance(item, dict)]


def ids(items: Iterable[Any]) -> list[int]:
    return [row["id"] for row in rows(items)]


def states(items: Iterable[Any]) -> list[Json]:
    return [state_of(item) for item in items if isinstance(item, Checkpoint)]


def state_of(checkpoint: Checkpoint) -> Json:
    assert isinstance(checkpoint.state, Raw)
    return dict(json.loads(bytes(checkpoint.state)))


def last_state(items: Iterable[Any]) -> Json:
    return states(items)[-1]


def warnings(items: Iterable[Any]) -> list[str]:
    return [item.text for item in items if isinstance(item, Warn)]


class Table:
    """A destination that commits records together with the state after them, and forgets all others."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.state: Json | None = None

    def sync(self, stream: Stream, cut: int | None = None) -> list[Record]:
        """Read a stream, up to a number of items, and return the records that were committed."""
        pending: list[Record] = []
        committed: list[Record] = []
        items = stream.read(configure(stream), self.state)
        for number, item in enumerate(items):
            if number == cut:
                break
            if isinstance(item, dict):
                pending.append(item)
            elif isinstance(item, Checkpoint):
                self.state = state_of(item)
                committed += pending
                pending.clear()
        items.close()  # type: ignore[attr-defined]
        self.numbers += [row["id"] for row in committed]
        return committed

    def bookmarks(self) -> dict[str, int]:
        entries = [self.state or {}, *(self.state or {}).get("partitions", [])]
        return {
            json.dumps(entry.get("context")): entry["replication_key_value"]
            for entry in entries
            if "replication_key_value" in entry
        }


HISTORY = st.lists(
    st.tuples(
        st.lists(st.integers(0, 4), max_size=6),  # what is new before a sync
        st.lists(
            st.lists(st.integers(0, 3), max_size=2), max_size=6
        ),  # what comes while it is read
        st.none() | st.integers(0, 20),  # where it is cut
    ),
    min_size=1,
    max_size=5,
)
SHAPES: dict[str, Json] = {
    "unsorted": {},
    "sorted": {"order": "ascending"},
    "descending": {"order": "descending"},
    "steps": {"step": 3},
    "sorted steps": {"step": 2, "order": "ascending"},
    "descending steps": {"step": 4, "order": "descending"},
}


def make_events(api: Api, **shape: Any) -> Events:
    stream = Events(api)
    for name, value in shape.items():
        setattr(stream, name, value)
    return stream


@pytest.mark.parametrize("stores", [("",), STORES], ids=["alone", "partitions"])
@pytest.mark.parametrize("shape", SHAPES)
@given(history=HISTORY, frequency=st.sampled_from([2, 1_000]))
def test_each_record_is_committed_once_whatever_interrupts_the_reads(
    shape: str,
    stores: Sequence[str],
    history: list[tuple[list[int], list[list[int]], int | None]],
    frequency: int,
) -> None:
    """Records come again in two cases. A stream that is not sorted commits some before its bookmark moves, if
    states are frequent; and what is newer than the signpost comes in the next sync, too."""
    api, table = Api(stores=stores), Table()
    is_exact = frequency > 2 or shape not in ("unsorted", "steps")
    if shape in ("unsorted", "descending") and len(stores) > 1:
        is_exact = is_exact and not any(growth for _, growth, _ in history)
    shapes = {**SHAPES[shape], "STATE_MSG_FREQUENCY": frequency}
    before: dict[str, int] = {}
    for new, growth, cut in [*history, ([], [], None)]:
        api.add(*new)
        api.growth = list(growth)
        table.sync(make_events(api, **shapes), cut)
        bookmarks = table.bookmarks()
        assert all(bookmarks[name] >= value for name, value in before.items())
        before = bookmarks
    table.sync(make_events(api, **shapes))  # what came while the last one was read
    numbers = table.numbers if is_exact else {*table.numbers}
    assert sorted(numbers) == list(range(len(api.rows)))


@pytest.mark.parametrize("shape", SHAPES)
@given(history=HISTORY, late=st.lists(st.integers(-5, -1), max_size=5), lookback=st.integers(5, 7))
def test_late_records_within_the_lookback_are_not_lost(
    shape: str,
    history: list[tuple[list[int], list[list[int]], int | None]],
    late: list[int],
    lookback: int,
) -> None:
    api, table = Api(), Table()
    for new, _, cut in [*history, ([0], [], None)]:
        before = table.bookmarks().get("null")
        api.add(*new, *late[:1])
        late = late[1:]
        stream = make_events(api, **SHAPES[shape], lookback=lookback)
        committed = table.sync(stream, cut)
        assert before is None or all(row["at"] >= before - lookback for row in committed)
        assert before is None or table.bookmarks()["null"] >= before
    assert set(table.numbers) == {row["id"] for row in api.rows}


def test_the_bookmark_stays_where_it_is_while_a_read_looks_back() -> None:
    api = Api([{"id": 1, "at": 0, "store": ""}])
    state = last_state(read(make_events(api, lookback=5)))
    assert state["replication_key_value"] == 0
    api.rows = [{"id": 2, "at": -4, "store": ""}]
    assert last_state(read(make_events(api, lookback=5), state))["replication_key_value"] == 0


class Times(Stream):
    """A stream by times that notes the ranges that it is asked for."""

    name = "times"
    replication_key = "at"
    json_schema: Json = {"properties": {"at": DATE_TIME}}  # noqa: RUF012

    def __init__(self, *values: Any, **attributes: Any):
        self.values = values
        self.asked: list[tuple[Any, Any]] = []
        for name, value in attributes.items():
            setattr(self, name, value)

    def records(self, window: Window) -> Iterator[Record]:
        self.asked.append((window.start, window.end))
        return ({"id": number, "at": value} for number, value in enumerate(self.values))


@pytest.mark.parametrize(
    ("bookmark", "lookback", "start"),
    [
        ("2024-03-01T00:00:00Z", "P1D", "2024-02-29T00:00:00Z"),
        ("2024-03-31T10:20:30.5+02:00", "P1M", "2024-02-29T10:20:30.5+02:00"),
        ("2024-03-31 02:30:00", timedelta(hours=3), "2024-03-30 23:30:00"),
        ("2016-12-31T23:59:60Z", "PT1S", "2016-12-31T23:59:59Z"),
        ("2024-01-05", "P7D", "2024-01-02"),  # not before the start date
        ("0001-01-01T00:00:00Z", "P1D", "2024-01-02"),
        (1704844800, "P1D", 1704758400),
        (1704844800000.5, "PT1S", 1704844799000.5),
    ],
)
def test_a_read_begins_the_lookback_before_the_bookmark(
    bookmark: Any, lookback: Any, start: Any
) -> None:
    has_start = str(start) == "2024-01-02"
    stream = Times(lookback=lookback, start_date="2024-01-02" if has_start else None)
    read(stream, {"at": bookmark})
    assert stream.asked == [(start, None)]


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"lookback": "1 day"}, "`lookback` is '1 day'"),
        ({"lookback": -1}, "`lookback` is -1"),
        ({"lookback": 7}, "to which the number 7 cannot be added"),
        ({"step": "P0D"}, "`step` is 'P0D'"),
        ({"step": 3}, "to which the number 3 cannot be added"),
        ({"order": "newest"}, "`order` of stream 'times' is 'newest'"),
        ({"concurrency": 0}, "`concurrency` is 0"),
        ({"missing_keys": "drop"}, "`missing_keys` is 'drop'"),
    ],
)
def test_what_an_author_cannot_have_meant_is_an_error(attributes: Json, text: str) -> None:
    with pytest.raises(SystemFailure, match=text):
        read(Times(**attributes), {"at": "2024-01-01T00:00:00Z"})


class Numbers(Times):
    json_schema: Json = {"properties": {"at": {"type": "number"}}}  # noqa: RUF012


def test_steps_of_numbers_need_an_end() -> None:
    with pytest.raises(SystemFailure, match="the end of what is read by the steps of 'at'"):
        read(Numbers(step=3), {"at": 1})
    with pytest.raises(SystemFailure, match="to which the duration"):
        read(Numbers(lookback="P1D"), {"at": 1})


MOMENTS = st.datetimes(min_value=datetime.fromisoformat("1971-01-01")).filter(
    lambda moment: moment.year < 9000
)
STEPS = ["P1D", "P1M", "P1Y", "PT7H", "P3DT0.25S", "P2W"]


@given(MOMENTS, MOMENTS, st.sampled_from(STEPS), st.integers(-12, 12), st.sampled_from("T "))
def test_intervals_have_no_gap_and_no_overlap(
    start: datetime, end: datetime, step: str, hours: int, separator: str
) -> None:
    zone = timezone(timedelta(hours=hours))
    days = (end - start) % timedelta(days=400) if end > start else timedelta(days=-1)
    texts = [moment.replace(tzinfo=zone).isoformat(separator) for moment in (start, start + days)]
    key = ReplicationKey("at", DATE_TIME)
    parts = list(Intervals(key, parse_length(step, "step"), lambda _: None).split(*texts))
    if instant(texts[0]) >= instant(texts[1]):
        assert parts == []
        return
    assert (parts[0].start, parts[-1].end) == tuple(texts)
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    for part, following in itertools.pairwise(parts):
        assert part.end == following.start
    orders = [instant(part.start) for part in parts]
    assert orders == sorted(set(orders))


@given(st.integers(-50, 50), st.integers(0, 300), st.sampled_from([1, 7, 0.1, Decimal("0.3"), 50]))
def test_intervals_of_numbers_end_at_multiples_of_the_step(
    start: int, length: int, step: Any
) -> None:
    key = ReplicationKey("at", {"type": "number"})
    parts = list(
        Intervals(key, parse_length(step, "step"), lambda _: None).split(start, start + length)
    )
    assert len(parts) == math.ceil(length / Decimal(str(step)))
    for number, part in enumerate(parts):
        assert Decimal(str(part.start)) == start + number * Decimal(str(step))


@pytest.mark.parametrize(
    ("start", "step", "ends"),
    [
        ("2024-01-31", "P1M", ["2024-02-29", "2024-03-31", "2024-04-30", "2024-05-15"]),
        ("2024-05-15", "P1D", []),
        ("2024-06-01", "P1D", []),
        # A day of a zone has 24 hours; the clock change is not in an offset.
        ("2024-03-30T12:00:00+01:00", "P1Y", ["2024-05-15"]),
        ("2024-05-14T12:00", "PT12H", ["2024-05-15"]),
        ("2024-05-14T23:59:60Z", "PT1H", []),
    ],
)
def test_the_boundaries_of_intervals(start: str, step: str, ends: list[str]) -> None:
    stream = Times(step=step, end_date="2024-05-15")
    items = read(stream, {"at": start})
    assert [end for _, end in stream.asked] == ends
    assert [begin for begin, _ in stream.asked] == [start, *ends][: len(ends)]
    assert bool(warnings(items)) is (ends == [])


def test_too_many_intervals_are_an_error_before_they_are_all_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("connectors.sdk.ranges.MAX_INTERVALS", 100)
    with pytest.raises(ConfigError, match="more than 100 intervals"):
        read(Times(step="PT1S", end_date="2024-01-02"), {"at": "2024-01-01"})


@pytest.mark.parametrize(
    ("values", "bookmarks"),
    [
        ([], ["2024-01-02", "2024-01-03"]),
        (["2024-01-01T05:00:00Z"], ["2024-01-02", "2024-01-03"]),
        (["2024-01-03T05:00:00Z"], ["2024-01-02", "2024-01-03", "2024-01-03T05:00:00Z"]),
        (
            ["2024-01-03T05:00:00Z", "2024-01-04T07:00:00Z"],
            ["2024-01-02", "2024-01-03", "2024-01-03T05:00:00Z", "2024-01-04T07:00:00Z"],
        ),
    ],
)
def test_a_whole_step_before_the_end_the_end_of_an_interval_is_the_bookmark(
    values: list[str], bookmarks: list[str]
) -> None:
    stream = Times(*values, step="P1D", end_date="2024-01-05", start_date="2024-01-01")
    reached = [state["replication_key_value"] for state in states(read(stream))]
    assert list(dict.fromkeys(reached)) == bookmarks


def test_the_end_is_the_present_whatever_the_end_date_says() -> None:
    """Or an end in the future would be the bookmark, and what comes until then would be lost."""
    begin = datetime.now(timezone.utc)
    stream = Times(step="P300D", end_date="2999-01-01", start_date="2020-01-01T00:00:00Z")
    state = last_state(read(stream))
    ends = [instant(end) for _, end in stream.asked]
    assert ends[-1] <= instant(datetime.now(timezone.utc).isoformat())
    assert ends[-1] >= instant(begin.isoformat())
    assert instant(state["replication_key_value"]) < ends[-1]


def test_the_present_day_is_read() -> None:
    today = datetime.now(timezone.utc).date()

    class Days(Times):
        json_schema: Json = {"properties": {"at": {"type": "string", "format": "date"}}}  # noqa: RUF012

    stream = Days(today.isoformat(), step="P1M", start_date=(today - timedelta(days=3)).isoformat())
    items = read(stream)
    assert ids(items) == [0]
    assert last_state(items)["replication_key_value"] == today.isoformat()


@pytest.mark.parametrize("attribute", ["step", "lookback"])
def test_dates_are_read_by_whole_days(attribute: str) -> None:
    class Days(Times):
        json_schema: Json = {"properties": {"at": {"type": "string", "format": "date"}}}  # noqa: RUF012

    for length in ("PT6H", "P1M1DT1S", timedelta(hours=36)):
        with pytest.raises(SystemFailure, match="the values of the replication key are dates"):
            read(Days(**{attribute: length}), {"at": "2024-01-01"})
    for length in ("PT48H", "P1Y", timedelta(days=2)):
        read(Days(**{attribute: length}), {"at": "2024-01-01"})


def test_a_stream_without_a_start_is_one_interval() -> None:
    stream = Times("1999-01-01T00:00:00Z", step="P1D")
    assert ids(read(stream)) == [0]
    assert [start for start, _ in stream.asked] == [None]


def test_an_interval_leaves_out_what_the_api_returns_beyond_it() -> None:
    """An API that knows days only, and counts the end in, returns a record for two intervals."""
    values = ["2024-01-01T06:00:00Z", "2024-01-02T00:00:00Z", "2024-01-02T23:59:59.9999Z", None]
    stream = Times(*values, step="P1D", start_date="2024-01-01T05:00:00Z", end_date="2024-01-03")
    assert ids(read(stream)) == [
        0,
        1,
        3,
        2,
        3,
    ]  # one without a value comes as often as the API returns it


@pytest.mark.parametrize("order", [None, "descending", "ascending"])
def test_a_step_whose_end_is_not_requested_is_an_error(order: str | None) -> None:
    """Each interval would have all records from its start on. Records in order end at the first one after."""

    class FromStart(Numbers):
        def records(self, window: Window) -> Iterator[Record]:
            values = [value for value in range(20) if value >= window.start]
            yield from ({"id": v, "at": v} for v in sorted(values, reverse=order == "descending"))

    stream = FromStart(order=order, step=3, end_date=10)
    if order == "ascending":
        assert ids(read(stream, {"at": 2})) == list(range(2, 10))
        return
    with pytest.raises(SystemFailure, match="does not ask for the end of an interval"):
        read(stream, {"at": 2})


def test_a_source_that_is_not_asked_for_a_start_is_filtered() -> None:
    class All(Numbers):
        def records(self, window: Window) -> Iterator[Record]:
            return ({"id": number, "at": value} for number, value in enumerate([1, None, 7, 3]))

    assert ids(read(All(), {"at": 3})) == [1, 2, 3]


def test_a_sorted_stream_is_read_up_to_the_end() -> None:
    """An API that cannot be asked for an end would be read to its own end for each interval."""
    taken: list[int] = []

    class Sorted(Numbers):
        def records(self, window: Window) -> Iterator[Record]:
            for value in range(window.start, 100):
                taken.append(value)
                yield {"id": value, "at": value}

    stream = Sorted(order="ascending", step=3, end_date=7)
    assert ids(read(stream, {"at": 2})) == [2, 3, 4, 5, 6]
    assert taken == [2, 3, 4, 5, 5, 6, 7]


def test_a_leap_second_at_the_end_of_an_interval_is_not_lost() -> None:
    values = ["2016-12-31T23:59:60.5Z", "2015-06-30T23:59:60Z"]

    class Leaps(Times):
        def records(self, window: Window) -> Iterator[Record]:
            """The API compares texts."""
            rows = super().records(window)
            return (row for row in rows if window.start <= row["at"] < window.end)

    stream = Leaps(*values, step="P1D", start_date="2015-06-29T00:00:00Z", end_date="2017-01-02")
    assert sorted(set(ids(read(stream)))) == [0, 1]


@pytest.mark.parametrize("mode", [INCREMENTAL, FULL_REFRESH])
@pytest.mark.parametrize("kind", [DATE_TIME, {"type": "string"}, {"type": "integer"}], ids=str)
def test_the_end_date_of_a_config_ends_every_read(kind: Json, mode: str) -> None:
    class Shop(Source):
        name = "shop"

        def check(self, config: Json) -> None:
            """Succeed."""

        def streams(self, config: Json) -> Sequence[Stream]:
            return [stream]

    texts = ["2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z", "2024-01-03T00:00:00Z"]
    is_number = kind == {"type": "integer"}
    stream = Times(*([1704067200, 1704153600, 1704240000] if is_number else texts))
    stream.json_schema = {"properties": {"at": kind}}
    Shop().open({"start_date": "2024-01-02", "end_date": "2024-01-03T00:00:00Z"})
    assert ids(read(stream, mode=mode)) in ([1], [0, 1])  # a time is not filtered by its start here
    assert 2 not in ids(read(stream, mode=mode))
    with pytest.raises(ConfigError, match="not after config"):
        Shop().open({"start_date": "2024-01-03", "end_date": "2024-01-02"})
    with pytest.raises(ConfigError, match="end_date is not a date"):
        Shop().open({"end_date": "tomorrow"})


# Descending order


def test_a_descending_read_ends_at_the_first_record_before_the_bookmark() -> None:
    api = Api()
    api.add(1, 1, 1, 0, 1)
    stream = make_events(api, order="descending")
    state = last_state(read(stream))
    api.add(1, 0)
    taken: list[int] = []
    original = stream.records

    def count_rows(window: Window) -> Iterator[Record]:
        for row in original(window):
            taken.append(row["id"])
            yield row

    stream.records = count_rows  # type: ignore[method-assign]
    assert ids(read(stream, state)) == [5, 6]
    assert taken == [5, 6, 4, 2]  # the one of the bookmark, and one that ends the read


def test_an_interrupted_descending_read_is_done_again() -> None:
    api, table = Api(), Table()
    api.add(1, 1, 1, 1)
    assert table.sync(make_events(api, order="descending"), cut=4) == []
    assert "replication_key_value" not in (table.state or {})
    assert len(table.sync(make_events(api, order="descending"))) == 4


def test_the_greatest_value_is_the_bookmark_also_if_it_is_not_the_first() -> None:
    stream = Numbers(3, 4, 2, 1, order="descending")
    assert last_state(read(stream))["replication_key_value"] == 4


def test_values_of_the_future_are_read_and_move_no_bookmark_there() -> None:
    values = ["2999-01-01T00:00:00Z", "2024-01-02T00:00:00Z", "2023-01-01T00:00:00Z"]
    items = read(Times(*values, order="descending"), {"at": "2024-01-01T00:00:00Z"})
    assert ids(items) == [0, 1]
    assert last_state(items)["replication_key_value"] < values[0]


def test_values_that_are_missing_end_no_descending_read() -> None:
    stream = Numbers(9, None, 8, "x", 1, 0, order="descending")
    assert ids(read(stream, {"at": 7})) == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", [INCREMENTAL, FULL_REFRESH])
def test_the_policy_for_missing_keys(mode: str) -> None:
    class Dirty(Numbers):
        primary_key = ("id", ("of", "store"))

        def records(self, window: Window) -> Iterator[Record]:
            yield {"id": 1, "of": {"store": 1}, "at": 1}
            yield {"id": 2, "of": {}, "at": 2}
            yield {"id": 3, "of": None, "at": 3}
            yield {"id": 4, "of": {"store": 1}, "at": None}
            yield {"id": None, "of": {"store": 0}, "at": 5}
            yield {"id": 6, "of": {"store": ""}}

    items = read(Dirty(missing_keys="skip"), mode=mode)
    assert ids(items) == [1]
    counts = {text.partition(";")[0] for text in warnings(items)}
    assert counts == {
        "records without a value of the key 'of.store': 2",
        "records without a value of the key 'at': 2",
        "records without a value of the key 'id': 1",
    }
    items = read(Dirty(missing_keys="keep"), mode=mode)
    assert ids(items) == [1, 2, 3, 4, None, 6]
    assert any("they were kept" in text for text in warnings(items))
    with pytest.raises(
        SystemFailure, match=r"no value of the key 'of\.store'; it has 'id', 'of', 'at'"
    ):
        read(Dirty(missing_keys="error"), mode=mode)
    if mode == INCREMENTAL:
        with pytest.raises(SystemFailure, match="a record has no field 'at'"):
            read(Dirty(), mode=mode)


def test_a_key_that_is_in_the_context_is_not_missing() -> None:
    class InStores(Numbers):
        primary_key = ("id", "store")
        json_schema: Json = {"properties": {"at": {"type": "integer"}, "store": {}}}  # noqa: RUF012

        def partitions(self) -> Iterable[Context]:
            return [{"store": 1}]

    assert ids(read(InStores(1, missing_keys="error"))) == [0]


@given(MOMENTS, st.sampled_from(STEPS), st.integers(1, 40))
def test_a_length_is_added_in_the_notation_of_the_value(
    moment: datetime, step: str, times: int
) -> None:
    length = parse_length(step, "step")
    assert not isinstance(length, int | Decimal | None)
    for text in (moment.isoformat() + "Z", moment.isoformat(" ", "milliseconds") + "+05:30"):
        later = add_length(text, length, times)
        if later is None:
            continue
        parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
        assert instant(later) == instant((parsed + length * times).isoformat())
        assert later[len("2024-01-01")] == text[len("2024-01-01")]
        assert later.endswith(("Z", "+05:30")) and later[-1] == text[-1]
