"""Statement by statement: the stream state of the SDK.

Spec: SDK Implementation Details - Stream State.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sdk import Checkpoint, Parent, Stream, Window
from connectors.sdk.items import Context, Item, Record, Warn
from connectors.sdk.reports import ESTIMATES
from connectors.sdk.state.bookmark import ERROR, BookmarkRules, InvalidStreamSortException
from connectors.sdk.state.partitions import partition_name
from connectors.sdk.state.replication_key import ReplicationKey
from connectors.sdk.state.schedule import SECONDS, StateSchedule
from connectors.sdk.state.stream_state import StreamState
from connectors.sdk.times import instant
from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream, StreamId

Json = dict[str, Any]
DATE_TIME = {"type": "string", "format": "date-time"}
LONG_AGO = "2021-01-01T00:00:00Z"


class Orders(Stream):
    """Yields the given records of each partition, those from the start on if `filters`."""

    name = "orders"
    primary_key = ("id",)
    replication_key = "updatedAt"
    json_schema: Json = {  # noqa: RUF012 - as the SDK has it
        "properties": {"id": {"type": "integer"}, "updatedAt": DATE_TIME, "storeId": {}}
    }

    def __init__(self, *found: Record | Exception, stores: Sequence[Context] | None = None):
        self.found = found
        self.stores = stores
        self.starts: list[Any] = []

    def partitions(self) -> Iterable[Context] | None:
        return self.stores

    def records(self, window: Window) -> Iterable[Record]:
        self.starts.append(window.start)
        for each in self.found:
            if isinstance(each, Exception):
                raise each
            if all(each[name] == window.partition[name] for name in window.partition):
                yield each


class SortedOrders(Orders):
    order = "ascending"


class Often(SortedOrders):
    STATE_MSG_FREQUENCY = 2


def configured(stream: Stream, mode: str = INCREMENTAL, **extra: Any) -> ConfiguredStream:
    described = json.loads(stream.describe().to_json())
    written = {"stream": described, "sync_mode": mode, "destination_sync_mode": "append", **extra}
    return ConfiguredStream.from_json(json.dumps(written).encode())


def read(
    stream: Stream, state: Json | None = None, mode: str = INCREMENTAL, **extra: Any
) -> list[Item]:
    return list(stream.read(configured(stream, mode, **extra), state))


def states(items: Iterable[Item]) -> list[Json]:
    found = [json.loads(bytes(i.state)) for i in items if isinstance(i, Checkpoint)]  # type: ignore[arg-type]
    return [without_hashes(state) for state in found]


def without_hashes(state: Any) -> Any:
    """Return a state without the hashes of sent records, which `test_unusual_keys` is about."""
    if isinstance(state, list):
        return [without_hashes(part) for part in state]
    if not isinstance(state, dict):
        return state
    return {name: without_hashes(state[name]) for name in state if not name.startswith("sent")}


def seen(stream: Stream, state: Json | None = None) -> tuple[list[Item], BaseException | None]:
    """Return the messages that a read yields before it fails, and its error."""
    items: list[Item] = []
    try:
        items.extend(stream.read(configured(stream), state))
    except SystemFailure as failure:
        return items, failure
    return items, None


def strict(stream: Stream) -> Stream:
    """Return a stream in which a value that cannot be compared is an error."""
    stream.bad_replication_key = ERROR
    return stream


def warnings(stream: Stream, state: Json) -> list[str]:
    return [item.text for item in read(stream, state) if isinstance(item, Warn)]


def order(number: int, at: Any, store: int = 1) -> Record:
    return {"id": number, "updatedAt": at, "storeId": store}


def at(day: int) -> str:
    return f"2021-01-{day:02}T00:00:00Z"


@pytest.mark.spec("sdk.13")
def test_the_bookmark_has_the_replication_key_and_the_highest_value() -> None:
    [state] = states(read(SortedOrders(order(1, at(1)), order(2, at(3)))))
    assert state == {"replication_key": "updatedAt", "replication_key_value": at(3)}


@pytest.mark.spec("sdk.14")
def test_a_state_is_sent_after_a_set_number_of_records() -> None:
    items = read(Often(*(order(n, at(n)) for n in range(1, 6))))
    kinds = ["state" if isinstance(item, Checkpoint) else "record" for item in items]
    assert kinds == ["record", "record", "state", "record", "record", "state", "record", "state"]
    assert [state["replication_key_value"] for state in states(items)] == [at(2), at(4), at(5)]


def test_a_sync_begins_at_the_bookmark() -> None:
    stream = SortedOrders()
    read(stream, {"replication_key": "updatedAt", "replication_key_value": at(7)})
    assert stream.starts == [at(7)]


def test_a_bookmark_of_another_replication_key_is_ignored() -> None:
    stream = SortedOrders()
    read(stream, {"replication_key": "id", "replication_key_value": 7})
    assert stream.starts == [None]


def test_a_bookmark_of_another_replication_key_causes_a_warning() -> None:
    [warning] = warnings(SortedOrders(), {"replication_key": "id", "replication_key_value": 7})
    assert "bookmarks of 'id'" in warning


def test_a_state_of_another_source_causes_a_warning() -> None:
    [warning] = warnings(SortedOrders(), {"cursor": "abc", "page": 7})
    assert "no bookmark, but 'cursor', 'page'" in warning
    assert "abc" not in warning
    assert not warnings(SortedOrders(), {})


@pytest.mark.spec("sdk.15")
def test_a_state_of_an_earlier_version_can_be_translated() -> None:
    class Renamed(SortedOrders):
        def load_state(self, state: Json) -> Json:
            if "last_record" in state:
                return {
                    "replication_key": "updatedAt",
                    "replication_key_value": state["last_record"],
                }
            return state

    stream = Renamed(order(1, at(9)))
    [state] = states(read(stream, {"last_record": at(8)}))
    assert stream.starts == [at(8)]
    assert state == {"replication_key": "updatedAt", "replication_key_value": at(9)}


@pytest.mark.spec("sdk.15")
def test_a_state_of_cursor_field_and_value_is_accepted_as_a_bookmark() -> None:
    stream = SortedOrders()
    [state] = states(read(stream, {"updatedAt": at(8)}))
    assert stream.starts == [at(8)]
    assert state == {"replication_key": "updatedAt", "replication_key_value": at(8)}


STORES = [{"storeId": 1}, {"storeId": 2}]
EXAMPLE = {
    "partitions": [
        {
            "context": {"storeId": 1},
            "replication_key": "updatedAt",
            "replication_key_value": "2021-01-02T0:00:00Z",
        },
        {
            "context": {"storeId": 2},
            "replication_key": "updatedAt",
            "replication_key_value": "2021-01-01T00:00:00Z",
        },
    ]
}
"""The state of the specification's example, with its hour of one digit."""


@pytest.mark.spec("sdk.16")
@pytest.mark.parametrize("is_sorted", [True, False])
def test_each_partition_has_a_bookmark_under_partitions(is_sorted: bool) -> None:
    found = [order(1, "2021-01-02T0:00:00Z"), order(2, "2021-01-01T00:00:00Z", store=2)]
    stream = (SortedOrders if is_sorted else Orders)(*found, stores=STORES)
    items = read(stream)
    assert states(items)[-1] == EXAMPLE
    again = (SortedOrders if is_sorted else Orders)(stores=STORES)
    assert states(read(again, EXAMPLE))[-1] == EXAMPLE
    assert again.starts == ["2021-01-02T0:00:00Z", "2021-01-01T00:00:00Z"]


def test_a_state_is_sent_at_the_end_of_each_partition() -> None:
    stream = SortedOrders(order(1, at(2)), order(2, at(1), store=2), stores=STORES)
    found = states(read(stream))
    assert [len(state["partitions"]) for state in found] == [1, 2]


@pytest.mark.spec("sdk.16")
def test_partitions_are_matched_by_their_exact_context() -> None:
    saved = {
        "partitions": [
            {
                "context": {"b": 2, "a": 1},
                "replication_key": "updatedAt",
                "replication_key_value": at(1),
            },
            {"context": {"a": 1}, "replication_key": "updatedAt", "replication_key_value": at(2)},
            {
                "context": {"a": "1", "b": 2},
                "replication_key": "updatedAt",
                "replication_key_value": at(3),
            },
        ]
    }
    stream = Orders(stores=[{"a": 1, "b": 2}, {"a": 1, "b": 3}])
    [*_, state] = states(read(stream, saved))
    assert stream.starts == [at(1), None]
    assert len(state["partitions"]) == 4


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("saved_key", ["updatedAt", "id"])
def test_the_bookmark_of_a_partition_advances_with_each_sync(
    is_sorted: bool, saved_key: str
) -> None:
    entry = {"replication_key": saved_key, "replication_key_value": at(1), "seed": 7}
    saved = {"partitions": [{"context": {"storeId": 1}, **entry}]}
    stream = (SortedOrders if is_sorted else Orders)(order(1, at(5)), stores=STORES[:1])
    [*_, state] = states(read(stream, saved))
    expected = {"replication_key": "updatedAt", "replication_key_value": at(5), "seed": 7}
    assert state == {"partitions": [{"context": {"storeId": 1}, **expected}]}


def test_the_earliest_of_several_bookmarks_of_a_partition_is_used() -> None:
    entries = [
        {
            "context": {"storeId": 1},
            "replication_key": "updatedAt",
            "replication_key_value": at(day),
        }
        for day in (3, 2, 4)
    ]
    stream = Orders(stores=STORES[:1])
    read(stream, {"partitions": entries})
    assert stream.starts == [at(2)]


def test_contexts_are_compared_by_their_json() -> None:
    stores: list[Context] = [{"storeId": 1}, {"storeId": True}, {"storeId": [1]}, {"storeId": 1.0}]
    [*_, state] = states(read(Orders(stores=stores)))
    assert [entry["context"] for entry in state["partitions"]] == stores


def test_a_stream_may_change_or_reuse_a_context() -> None:
    class Careless(Orders):
        def partitions(self) -> Iterable[Context]:
            context: Context = {}
            for number in range(3):
                context["storeId"] = number
                yield context

        def records(self, window: Window) -> Iterable[Record]:
            yield order(1, at(1), store=window.partition["storeId"])
            window.partition["token"] = "secret"

    items = read(Careless())
    assert [item["storeId"] for item in items if isinstance(item, dict)] == [0, 1, 2]
    assert [e["context"] for e in states(items)[-1]["partitions"]] == [
        {"storeId": n} for n in range(3)
    ]


@pytest.mark.parametrize("partitions", [{}, {"a": 1}, [None], ["x"], [{"context": 1}], [{}]])
def test_a_state_whose_partitions_are_malformed_is_refused(partitions: Any) -> None:
    if partitions == {}:
        assert states(read(Orders(), {"partitions": {}})) == [{}]
        return
    with pytest.raises(ConfigError, match="list of objects with a `context`"):
        read(Orders(stores=STORES), {"partitions": partitions})


def test_removed_partitions_keep_their_bookmarks() -> None:
    [*_, state] = states(read(Orders(stores=STORES[:1]), EXAMPLE))
    assert state == EXAMPLE


class ByStore(Orders):
    """Orders with a partition for each clerk of a store, and a bookmark for each store."""

    state_partitioning_keys: Sequence[str] = ("storeId",)
    order = "ascending"


CLERKS = [{"storeId": 1, "clerk": "a"}, {"storeId": 2, "clerk": "b"}, {"storeId": 1, "clerk": "c"}]


def clerks_order(number: int, at: str, store: int, clerk: str) -> Record:
    return {**order(number, at, store), "clerk": clerk}


class Stores(Stream):
    """The parent of `StoreOrders`."""

    name = "stores"
    primary_key = ("id",)
    json_schema: Json = {"properties": {"id": {}, "name": {}}}  # noqa: RUF012 - as the SDK has it

    def records(self, window: Window) -> Iterable[Record]:
        for number in (1, 2, 1):
            yield {"id": number, "name": f"store {number}"}


class StoreOrders(Orders):
    parent = Parent(Stores(), fields={"id": "storeId"})
    partitions = Stream.partitions


@pytest.mark.spec("sdk.17")
def test_the_default_partition_of_a_child_stream_is_the_context_of_its_parent() -> None:
    stream = StoreOrders(order(1, at(2)), order(2, at(3), store=2))
    [*_, state] = states(read(stream))
    assert [(e["context"], e["replication_key_value"]) for e in state["partitions"]] == [
        ({"storeId": 1}, at(2)),
        ({"storeId": 2}, at(3)),
    ]


@pytest.mark.spec("sdk.17")
def test_a_grandchild_stream_has_the_contexts_of_both_ancestors() -> None:
    middle = StoreOrders(order(7, at(2)), order(8, at(3), store=2))
    child = Stream()
    child.parent = Parent(middle)
    assert list(child.partitions() or ()) == [
        {"storeId": 1, "orders.id": 7},
        {"storeId": 2, "orders.id": 8},
    ]


def test_a_parent_whose_records_have_no_key_is_an_error() -> None:
    class Nameless(Stores):
        primary_key = ()  # type: ignore[assignment]

    class ByName(Stores):
        primary_key = ("name", "city")  # type: ignore[assignment]

    for kind, text in ((Nameless, "no primary key"), (ByName, "no value of its key 'city'")):
        stream = StoreOrders()
        stream.parent = Parent(kind())
        with pytest.raises(SystemFailure, match=text):
            read(stream)


@pytest.mark.spec("singer.43")
def test_records_before_the_bookmark_are_omitted_if_the_source_cannot_filter() -> None:
    class Unfiltered(SortedOrders):
        def records(self, window: Window) -> Iterable[Record]:
            return (record for record in self.found if isinstance(record, dict))

    stream = Unfiltered(*(order(n, at(n)) for n in range(1, 5)), order(5, None))
    items = read(stream, {"replication_key": "updatedAt", "replication_key_value": at(3)})
    assert [item["id"] for item in items if isinstance(item, dict)] == [3, 4, 5]
    assert [item["id"] for item in read(stream) if isinstance(item, dict)] == [1, 2, 3, 4, 5]


def test_the_number_of_records_is_sent_as_an_estimate() -> None:
    class Counted(SortedOrders):
        def records(self, window: Window) -> Iterable[Record]:
            self.estimate(5 if window.start is None else 2)
            return super().records(window)

    mark = {"replication_key": "updatedAt", "replication_key_value": at(1)}
    estimates: list[tuple[StreamId, int]] = []
    for state, mode, rows in (
        (None, INCREMENTAL, 5),
        (mark, INCREMENTAL, 2),
        (None, FULL_REFRESH, 5),
    ):
        with ESTIMATES.listen(lambda *report: estimates.append(report)):
            read(Counted(order(1, at(1))), state, mode)
        assert estimates.pop() == (StreamId("orders"), rows)
    assert estimates == []


def test_a_state_is_not_sent_twice() -> None:
    assert len(states(read(Often(order(1, at(1)), order(2, at(2)))))) == 1


def test_the_name_of_a_partition_is_unique_and_readable() -> None:
    names = {
        partition_name(context)
        for context in (
            *({"a": 1}, {"a": "1"}, {"a": "x"}, {"a": None}, {"a": "null"}, {"a": ""}, {"a": " x"}),
            *({"a": "a=1,b=2"}, {"a": 1, "b": 2}, {"b": 1, "a": 2}, {"a": "1|2"}, {"a": "1...2"}),
        )
    }
    assert names >= {"1", '"1"', "x", "null", '"null"', '""', "a=1,b=2", "a=2,b=1"}
    assert len(names) == 12
    assert not [name for name in names if "..." in name or "|" in name]


@pytest.mark.spec("sdk.18", "sdk.26")
def test_state_partitioning_keys_coarsen_the_partitions_of_the_state() -> None:
    found = [
        clerks_order(1, at(5), 1, "a"),
        clerks_order(2, at(4), 2, "b"),
        clerks_order(3, at(3), 1, "c"),
    ]
    stream = ByStore(*found, stores=CLERKS)
    *middle, state = states(read(stream))
    assert {e["context"]["storeId"]: e["replication_key_value"] for e in state["partitions"]} == {
        1: at(5),
        2: at(4),
    }
    # The stream counts as unsorted: nothing is a bookmark before its end.
    assert all("replication_key_value" not in e for s in middle for e in s["partitions"])
    again = ByStore(stores=CLERKS)
    read(again, state)
    assert again.starts == [at(5), at(4), at(5)]


@pytest.mark.spec("sdk.18")
def test_an_empty_list_of_partitioning_keys_gives_one_bookmark() -> None:
    class Whole(ByStore):
        state_partitioning_keys = ()

    found = [clerks_order(1, at(5), 1, "a"), clerks_order(2, at(9), 2, "b")]
    [*_, state] = states(read(Whole(*found, stores=CLERKS)))
    assert state == {"replication_key": "updatedAt", "replication_key_value": at(9)}


@pytest.mark.spec("sdk.21", "singer.44")
def test_a_sorted_stream_resumes_from_its_last_state() -> None:
    found = [order(n, at(n)) for n in range(1, 6)]
    items, failure = seen(Often(*found, SystemFailure("the line is dead")))
    assert failure is not None
    last = states(items)[-1]
    assert last == {"replication_key": "updatedAt", "replication_key_value": at(4)}
    again = Often()
    read(again, last)
    assert again.starts == [at(4)]


@pytest.mark.spec("sdk.22")
def test_a_record_out_of_order_is_an_error_that_names_both_values_and_the_record() -> None:
    _, failure = seen(SortedOrders(order(1, at(2)), order(27, at(1))))
    assert isinstance(failure, InvalidStreamSortException)
    assert all(text in str(failure) for text in (repr(at(1)), repr(at(2)), "id=27"))


def test_the_order_of_records_is_checked_in_each_partition() -> None:
    stream = SortedOrders(order(1, at(5)), order(2, at(1), store=2), stores=STORES)
    assert len(states(read(stream))[-1]["partitions"]) == 2


def test_records_before_the_bookmark_do_not_lower_it() -> None:
    saved = {"replication_key": "updatedAt", "replication_key_value": at(9)}
    for kind in (SortedOrders, Orders):
        assert states(read(kind(order(1, at(3)), order(2, at(4))), saved))[-1] == saved


class Unsorted(Orders):
    STATE_MSG_FREQUENCY = 2


@pytest.mark.spec("sdk.23")
def test_the_progress_of_an_unsorted_stream_is_kept_apart_from_its_bookmark() -> None:
    saved = {"replication_key": "updatedAt", "replication_key_value": at(1)}
    found = [order(1, at(8)), order(2, at(3)), order(3, at(5))]
    items, _ = seen(Unsorted(*found, SystemFailure("the line is dead")), saved)
    [state] = states(items)
    assert state["replication_key_value"] == at(1)
    assert state["progress_markers"]["replication_key_value"] == at(8)


@pytest.mark.spec("sdk.24")
def test_progress_markers_are_removed_when_a_failed_sync_restarts() -> None:
    failed = {
        "replication_key": "updatedAt",
        "replication_key_value": at(1),
        "progress_markers": {"replication_key": "updatedAt", "replication_key_value": at(8)},
        "replication_key_signpost": at(9),
        "starting_replication_value": at(1),
    }
    stream = Orders(order(1, at(4)))
    [state] = states(read(stream, failed))
    assert stream.starts == [at(1)]
    assert state == {"replication_key": "updatedAt", "replication_key_value": at(4)}
    in_part = {"partitions": [{"context": {"storeId": 1}, **failed}]}
    [*_, state] = states(read(Orders(stores=[{"storeId": 2}]), in_part))
    assert "progress_markers" not in json.dumps(state)


@pytest.mark.spec("sdk.25")
def test_progress_becomes_the_bookmark_only_when_the_partition_is_complete() -> None:
    found = [order(1, at(8)), order(2, at(3), store=2)]
    items, _ = seen(Orders(*found[:1], SystemFailure("the line is dead"), stores=STORES))
    assert states(items) == []
    *_, state = states(read(Orders(*found, stores=STORES)))
    assert [e["replication_key_value"] for e in state["partitions"]] == [at(8), at(3)]


@pytest.mark.spec("sdk.27")
def test_the_bookmark_of_a_date_time_never_passes_the_time_of_the_sync() -> None:
    before = dt.datetime.now(dt.timezone.utc)
    far = "2999-01-01T00:00:00Z"
    [state] = states(read(Orders(order(1, far), order(2, at(1)))))
    bookmark = instant(state["replication_key_value"])
    assert instant(before.isoformat()) <= bookmark
    assert bookmark <= instant(dt.datetime.now(dt.timezone.utc).isoformat())


@pytest.mark.spec("sdk.27")
def test_a_sorted_stream_has_no_signpost_by_default() -> None:
    far = "2999-01-01T00:00:00Z"
    [state] = states(read(SortedOrders(order(1, far))))
    assert state["replication_key_value"] == far


@pytest.mark.spec("sdk.28")
def test_a_custom_signpost_limits_the_bookmark() -> None:
    class Events(SortedOrders):
        replication_key = "id"

        def max_bookmark(self, partition: Context) -> Any:
            return 100

    [state] = states(read(Events(order(99, at(1)), order(101, at(1)))))
    assert state == {"replication_key": "id", "replication_key_value": 100}


def test_a_signpost_may_depend_on_the_partition() -> None:
    class Events(Orders):
        replication_key = "id"

        def max_bookmark(self, partition: Context) -> Any:
            return 10 * partition["storeId"]

    found = [order(99, at(1)), order(15, at(1), store=2)]
    [*_, state] = states(read(Events(*found, stores=STORES)))
    assert [entry["replication_key_value"] for entry in state["partitions"]] == [10, 15]


def test_the_current_time_limits_undeclared_date_times_and_no_other_texts() -> None:
    class Undeclared(Orders):
        json_schema: Json = {}  # noqa: RUF012 - as the SDK has it

    far = "2999-01-01T00:00:00Z"
    [state] = states(read(Undeclared(order(1, far))))
    assert state["replication_key_value"] < far
    [state] = states(read(Undeclared(order(1, "zebra"), order(2, "ant"))))
    assert state["replication_key_value"] == "zebra"
    [state] = states(read(Orders(order(1, 5), order(2, 40))))
    assert state["replication_key_value"] == 40


def test_the_sync_time_is_taken_before_partitions_are_listed() -> None:
    class Slow(Orders):
        def partitions(self) -> Iterable[Context] | None:
            self.listed = dt.datetime.now(dt.timezone.utc)
            return [{"storeId": 1}]

    stream = Slow(order(1, "2999-01-01T00:00:00Z"))
    [*_, state] = states(read(stream))
    [entry] = state["partitions"]
    assert instant(entry["replication_key_value"]) <= instant(stream.listed.isoformat())


def test_a_sync_begins_at_the_start_date_unless_the_bookmark_is_later() -> None:
    for saved, start in (
        (None, at(5)),
        ({"updatedAt": at(3)}, at(5)),
        ({"updatedAt": at(7)}, at(7)),
    ):
        stream = SortedOrders()
        stream.start_date = at(5)
        read(stream, saved)
        assert stream.starts == [start]
    stream = SortedOrders()
    stream.start_date = at(5)
    read(stream, mode=FULL_REFRESH)
    assert stream.starts == [at(5)]


def test_a_full_refresh_ignores_the_state_and_sends_none() -> None:
    stream = SortedOrders(order(1, at(5)))
    assert read(stream, {"updatedAt": at(7)}, FULL_REFRESH) == [order(1, at(5))]
    assert stream.starts == [None]


def test_only_the_partitions_that_the_catalog_names_are_read() -> None:
    stream = SortedOrders(order(1, at(5)), order(2, at(6), store=2), stores=STORES)
    items = read(stream, partitions=[{"storeId": 2}])
    assert [item for item in items if isinstance(item, dict)] == [order(2, at(6), store=2)]
    assert [entry["context"] for entry in states(items)[-1]["partitions"]] == [{"storeId": 2}]


@pytest.mark.parametrize(
    ("stream", "partitions"),
    [
        (Orders(), [{"storeId": 1}]),
        (ByStore(stores=CLERKS), [{"storeId": 1, "clerk": "a"}]),
        (Orders(stores=STORES), {"storeId": 1}),
        (Orders(stores=STORES), [1]),
    ],
)
def test_invalid_partitions_in_the_catalog_are_refused(stream: Stream, partitions: Any) -> None:
    with pytest.raises(ConfigError, match="partitions"):
        read(stream, partitions=partitions)


def test_all_partitions_are_read_if_the_catalog_names_none() -> None:
    stream = SortedOrders(stores=STORES)
    read(stream, partitions=None)
    assert len(stream.starts) == 2


def test_missing_fields_of_the_context_are_added_to_records() -> None:
    class Bare(Orders):
        def records(self, window: Window) -> Iterable[Record]:
            yield {"id": 1, "updatedAt": at(1)}

    items = read(Bare(stores=[{"storeId": 7, "hidden": 1}]))
    assert items[0] == {"id": 1, "updatedAt": at(1), "storeId": 7}


# Values


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2021-01-01T00:00:00+02:00", "2020-12-31T23:00:00Z"),
        ("2021-01-01T00:00:00.0999Z", "2021-01-01T00:00:00.1Z"),
        ("2021-01-01T00:00:00.999999Z", "2021-01-01T00:00:00.9999999Z"),
        ("2021-01-01", "2021-01-01 00:00:01"),
        ("2021-01-01T9:00:00", "2021-01-01T10:00:00"),
        ("2021-01-01T09:00:00-0100", "2021-01-01T10:30:00Z"),
        ("2021-10-31T02:30:00.000+0200", "2021-10-31T02:10:00.000+0100"),
        ("2021-01-01 11:00:00+05", "2021-01-01 10:00:00+00"),
        ("2021-01-01t00:00:00z", "2021-01-01T00:00:01Z"),
    ],
)
def test_date_times_are_compared_by_value(earlier: str, later: str) -> None:
    for found in ([earlier, later], [later, earlier]):
        [state] = states(read(Orders(*(order(n, each) for n, each in enumerate(found)))))
        assert state["replication_key_value"] == later
    _, failure = seen(SortedOrders(order(1, later), order(2, earlier)))
    assert isinstance(failure, InvalidStreamSortException)


MOMENTS = st.datetimes(min_value=dt.datetime.fromisoformat("1971-01-01"))


@given(st.lists(st.tuples(MOMENTS, st.integers(0, 4)), max_size=8))
def test_the_bookmark_is_the_highest_instant_in_any_notation(
    found: list[tuple[dt.datetime, int]],
) -> None:
    """The values are in many orders and notations, among them those that are compared as texts."""
    texts = [notation(moment, how) for moment, how in found]
    key = ReplicationKey("updatedAt", DATE_TIME)
    state = StreamState(key, {})
    bookmark = state.begin(None)
    for number, text in enumerate(texts):
        bookmark.see(order(number, text))
    state.finish()
    reached = json.loads(bytes(state.encode())).get("replication_key_value")
    highest = max((instant(text) for text in texts), default=None)
    assert (None if reached is None else instant(reached)) == highest


def notation(moment: dt.datetime, how: int) -> str:
    if how == 0:
        return moment.isoformat() + "Z"
    if how == 1:
        zone = dt.timezone(dt.timedelta(hours=5, minutes=30))
        return moment.replace(tzinfo=dt.timezone.utc).astimezone(zone).isoformat()
    if how == 4:
        hours = moment.microsecond % 20 - 10
        shifted = moment.replace(tzinfo=dt.timezone.utc).astimezone(
            dt.timezone(dt.timedelta(hours=hours))
        )
        return shifted.strftime("%Y-%m-%d %H:%M:%S%z")
    if how == 2:
        return moment.isoformat(sep=" ", timespec="milliseconds") + "+00:00"
    return moment.isoformat(timespec="seconds") + "Z"


class Numbered(SortedOrders):
    replication_key = "id"


@pytest.mark.parametrize("numbers", [[9, 10, 100], [0, 0.5, 1], [-1, 0], [2, 2, 2]])
def test_numbers_are_compared_by_value(numbers: list[float]) -> None:
    [state] = states(read(Numbered(*(order(n, at(1)) for n in numbers))))  # type: ignore[arg-type]
    assert state["replication_key_value"] == numbers[-1]


def test_numeric_texts_are_compared_as_numbers_if_the_schema_declares_them() -> None:
    [state] = states(read(Numbered({"id": "9"}, {"id": "10"})))
    assert state["replication_key_value"] == "10"


def test_midnight_may_be_written_as_the_end_of_a_day() -> None:
    assert (
        len(read(SortedOrders(order(1, "2021-01-02T00:00:00Z"), order(2, "2021-01-01T24:00:00Z"))))
        == 3
    )


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), Decimal("NaN"), Decimal("Infinity"), "Infinity"]
)
def test_a_value_that_is_not_a_finite_number_is_an_error(value: Any) -> None:
    for found in ([{"id": value}], [{"id": 1}, {"id": value}]):
        _, failure = seen(strict(Numbered(*found)))
        assert "cannot be compared as a number" in str(failure)


def test_a_decimal_bookmark_is_not_rounded() -> None:
    value = Decimal("1700000000.12345613")
    [state] = states(read(Numbered({"id": value})))
    stream = Numbered({"id": value})
    assert states(read(stream, state)) == [state]
    assert stream.starts == [value]


@pytest.mark.parametrize("schema", [{}, DATE_TIME, {"type": "number"}], ids=str)
@pytest.mark.parametrize("text", ["1700000000.123", "9007199254740995.0", "1" * 30])
def test_a_read_resumes_from_a_decimal_bookmark(schema: Json, text: str) -> None:
    class ByNumber(SortedOrders):
        json_schema: Json = {"properties": {"updatedAt": schema}}  # noqa: RUF012

    value = Decimal(text)
    larger = Decimal(f"9{text}")
    [first] = states(read(ByNumber(order(1, value))))
    [second] = states(read(ByNumber(order(1, value), order(2, larger)), first))
    assert float(second["replication_key_value"]) == float(larger)


def test_a_decimal_record_at_the_bookmark_is_not_omitted() -> None:
    class Unfiltered(SortedOrders):
        json_schema: Json = {"properties": {}}  # noqa: RUF012

    found = order(1, Decimal("1700000000.123"))
    [state] = states(read(Unfiltered(found)))
    assert [item for item in read(Unfiltered(found), state) if isinstance(item, dict)] == [found]


def test_python_datetimes_are_accepted_as_date_times() -> None:
    moment = dt.datetime(2021, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2, seconds=12)))
    [state] = states(read(SortedOrders(order(1, moment))))
    assert instant(state["replication_key_value"]) == instant("2021-01-01T21:59:48Z")


def test_mixed_types_of_cursor_values_are_an_error() -> None:
    for found in ([order(1, 5), order(2, at(1))], [order(1, at(1)), order(2, 5)]):
        _, failure = seen(strict(Orders(*found)))
        assert failure is not None and "cannot be compared" in str(failure)


def test_zero_is_a_valid_bookmark() -> None:
    stream = Numbered()
    [state] = states(read(Numbered(order(0, at(1)))))
    assert state == {"replication_key": "id", "replication_key_value": 0}
    read(stream, state)
    assert stream.starts == [0]


def test_equal_cursor_values_are_in_order() -> None:
    [state] = states(read(SortedOrders(order(1, at(1)), order(2, at(1)))))
    assert state["replication_key_value"] == at(1)


def test_a_null_cursor_value_does_not_advance_the_bookmark_and_causes_a_warning() -> None:
    items = read(SortedOrders(order(1, at(2)), order(2, None), order(3, at(3))))
    assert [item.text for item in items if isinstance(item, Warn)] == [
        "records without a value of the replication key: 1; they moved no bookmark"
    ]
    assert states(items)[-1]["replication_key_value"] == at(3)


@pytest.mark.spec("sdk.20")
def test_a_record_without_the_replication_key_is_an_error_that_names_its_fields() -> None:
    _, failure = seen(SortedOrders({"id": 1, "changed": at(1)}))
    assert "no field 'updatedAt'" in str(failure) and "'id', 'changed'" in str(failure)


def test_a_value_that_cannot_be_compared_is_an_error_that_names_it() -> None:
    _, failure = seen(strict(Orders(order(1, "yesterday"))))
    assert "'yesterday'" in str(failure) and "'updatedAt'" in str(failure)
    for kind in (Orders, SortedOrders):  # of the same notation as the one before
        _, failure = seen(strict(kind(order(1, at(1)), order(2, "2021-13-01T00:00:00Z"))))
        assert "'2021-13-01T00:00:00Z'" in str(failure)


# Many partitions


@pytest.mark.spec("sdk.19")
@pytest.mark.parametrize("count", [1_001, 3_000, 20_000])
def test_the_total_size_of_states_is_at_most_four_times_the_last_state(count: int) -> None:
    class Many(SortedOrders):
        def records(self, window: Window) -> Iterable[Record]:
            yield order(1, at(1))

    for state in (None, {"partitions": [{"context": {"storeId": n}} for n in range(count)]}):
        stream = Many(stores=[{"storeId": number} for number in range(count)])
        sizes = [len(bytes(i.state)) for i in read(stream, state) if isinstance(i, Checkpoint)]  # type: ignore[arg-type]
        assert len(sizes) > 1 and sum(sizes) <= 4 * sizes[-1]


def test_the_size_limit_includes_bookmarks_of_the_state_and_of_the_sync() -> None:
    saved = {"partitions": [{"context": {"storeId": n}} for n in range(900)]}
    stream = SortedOrders(stores=[{"storeId": number} for number in range(900, 1_050)])
    sizes = [len(bytes(i.state)) for i in read(stream, saved) if isinstance(i, Checkpoint)]  # type: ignore[arg-type]
    assert sum(sizes) <= 4 * sizes[-1]


def test_a_single_bookmark_for_many_partitions_is_sent_often() -> None:
    class Whole(Often):
        state_partitioning_keys = ()

    stores = [{"storeId": number} for number in range(1_100)]
    found = [order(number, at(1), store=number) for number in range(0, 1_100, 10)]
    assert len(states(read(Whole(*found, stores=stores)))) >= len(found) // 2


def test_no_state_is_sent_after_contexts_without_records() -> None:
    class ByStore(Often):
        state_partitioning_keys = ("storeId",)

    lines = [{"storeId": store, "line": line} for store in range(40) for line in range(30)]
    found = [{**order(n, at(1), store=n), "line": 0} for n in range(40)]
    sizes = [len(json.dumps(state)) for state in states(read(ByStore(*found, stores=lines)))]
    assert len(sizes) <= len(found) // 2 + 1


def test_the_total_size_of_states_with_shared_bookmarks_is_limited() -> None:
    class ByStore(Often):
        state_partitioning_keys = ("storeId",)

    lines = [{"storeId": store, "line": line} for store in range(1_500) for line in range(2)]
    found = [{**order(n, at(1), store=n), "line": line} for n in range(1_500) for line in range(2)]

    class Quick(ByStore):
        def records(self, window: Window) -> Iterable[Record]:
            yield found[window.partition["storeId"] * 2 + window.partition["line"]]

    sizes = [len(json.dumps(state)) for state in states(read(Quick(stores=lines)))]
    small = sum(size for size in sizes if size < sizes[-1] // 3)
    assert sum(sizes) - small <= 4 * sizes[-1]


def test_states_of_one_size_are_sent_at_growing_intervals() -> None:
    """A sync of a day sends some of them, and not all in its first minutes."""
    now = 0.0
    saved = {"partitions": [{"context": {"storeId": n}} for n in range(1_001)]}
    state = StreamState(ReplicationKey("updatedAt", DATE_TIME), saved)
    schedule = StateSchedule(has_many=True, size=state.size, clock=lambda: now)
    sent: list[float] = []
    for now in range(0, 86_400, 10):
        if schedule.is_due(state, {"storeId": 1}):
            schedule.sent(state.size)
            sent.append(now)
    assert sent[0] == SECONDS and len(sent) == 3 and sent[-1] > 1_000


def test_a_long_first_partition_sends_states() -> None:
    now = 0.0
    state = StreamState(ReplicationKey("updatedAt", DATE_TIME), {}, BookmarkRules(is_sorted=True))
    state.begin({"storeId": 1}).see(order(1, at(1)))
    schedule = StateSchedule(has_many=True, size=0, clock=lambda: now)
    assert not schedule.is_due(state, {"storeId": 1})
    now = SECONDS
    assert schedule.is_due(state, {"storeId": 1})
