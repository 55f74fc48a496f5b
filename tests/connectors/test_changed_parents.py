"""Child streams that are read for changed parents only, and fields of the parent in their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.sdk import Parent, Stream, Window
from connectors.sdk.items import Context, Record
from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream
from elt_assets.protocol.singer_catalog import read_catalog, selection
from tests.connectors.support import call, catalog, errors, output_of, records
from tests.connectors.test_ranges import Table, configure, last_state, read, rows, states
from tests.connectors.test_unusual_keys import Shop

Json = dict[str, Any]
NUMBER = {"type": "integer"}


class Shops:
    """Shops with a city and a time of their last change, and the orders of each."""

    def __init__(self) -> None:
        self.clock = 0
        self.shops: dict[int, Record] = {}
        self.orders: dict[int, list[Record]] = {}

    def change(self, shop: int, city: str | None = None) -> None:
        """Change a shop, with a new order; or add it."""
        self.clock += 1
        before = self.shops.get(shop, {"id": shop, "city": "Bonn"})
        self.shops[shop] = {**before, "changed": self.clock, "city": city or before["city"]}
        orders = self.orders.setdefault(shop, [])
        orders.append({"id": self.clock, "at": self.clock})


class ShopStream(Stream):
    name = "shops"
    primary_key = ("id",)
    replication_key = "changed"
    json_schema: Json = {  # noqa: RUF012 - as the SDK has it
        "properties": {"id": NUMBER, "changed": NUMBER, "city": {"type": "string"}}
    }

    def __init__(self, data: Shops, **attributes: Any):
        self.data = data
        self.reads = 0
        for name, value in attributes.items():
            setattr(self, name, value)

    def records(self, window: Window) -> Iterator[Record]:
        self.reads += 1
        yield from list(self.data.shops.values())


class OrderStream(Stream):
    name = "orders"
    fields: Mapping[str, str] = {}
    primary_key = ("shop", "id")
    json_schema: Json = {"properties": {"shop": NUMBER, "id": NUMBER, "at": NUMBER}}  # noqa: RUF012

    def __init__(
        self, data: Shops, parent: Stream, *, only_changed: bool = True, **attributes: Any
    ):
        self.data = data
        fields = {"id": "shop", **attributes.pop("fields", self.fields)}
        self.parent = Parent(parent, fields, only_changed=only_changed)
        self.shops_read: list[int] = []
        for name, value in attributes.items():
            setattr(self, name, value)

    def records(self, window: Window) -> Iterator[Record]:
        self.shops_read.append(window.partition["shop"])
        yield from list(self.data.orders[window.partition["shop"]])


def make_orders(data: Shops, **attributes: Any) -> OrderStream:
    return OrderStream(data, ShopStream(data), **attributes)


KEYS: dict[str, Json] = {
    "without a key": {},
    "by a key": {"replication_key": "at"},
    "sorted": {"replication_key": "at", "order": "ascending"},
    "in threads": {"replication_key": "at", "concurrency": 3},
}


@pytest.mark.parametrize("kind", KEYS)
def test_only_children_of_new_and_changed_parents_are_read(kind: str) -> None:
    data = Shops()
    for shop in (1, 2, 3):
        data.change(shop)
    stream = make_orders(data, **KEYS[kind])
    state = last_state(read(stream))
    assert sorted(stream.shops_read) == [1, 2, 3]
    for changed in ([2], [], [4, 1]):
        for shop in changed:
            data.change(shop)
        stream = make_orders(data, **KEYS[kind])
        items = read(stream, state)
        assert sorted(stream.shops_read) == sorted(changed)
        has_key = "replication_key" in KEYS[kind]
        assert len(rows(items)) == sum(1 if has_key else len(data.orders[n]) for n in changed)
        state = last_state(items)


CHANGES = st.lists(st.integers(0, 3), max_size=5)


@pytest.mark.parametrize("kind", KEYS)
@given(history=st.lists(st.tuples(CHANGES, st.none() | st.integers(0, 12)), max_size=5))
def test_no_child_is_lost_whatever_interrupts_the_reads(
    kind: str, history: list[tuple[list[int], int | None]]
) -> None:
    data, table = Shops(), Table()
    for changes, cut in [*history, ([], None)]:
        for shop in changes:
            data.change(shop)
        table.sync(make_orders(data, STATE_MSG_FREQUENCY=2, **KEYS[kind]), cut)
    assert {*table.numbers} == {row["id"] for orders in data.orders.values() for row in orders}
    if kind == "sorted":
        assert len(table.numbers) == len({*table.numbers})


def test_a_parent_that_changes_while_its_children_are_read_is_read_again() -> None:
    data = Shops()
    data.change(1)
    data.change(2)

    class Busy(OrderStream):
        def records(self, window: Window) -> Iterator[Record]:
            yield from super().records(window)
            if not self.data.orders.get(9):
                data.change(9)
                data.change(1)

    state = last_state(read(Busy(data, ShopStream(data))))
    stream = make_orders(data)
    read(stream, state)
    assert sorted(stream.shops_read) == [1, 9]


def test_the_state_of_the_parent_moves_only_at_the_end() -> None:
    data = Shops()
    data.change(1)
    state = last_state(read(make_orders(data, **KEYS["by a key"])))
    before = state["parent_state"]
    data.change(2)
    data.change(3)
    *middle, last = states(read(make_orders(data, **KEYS["by a key"]), state))
    assert [state["parent_state"] for state in middle] == [before] * len(middle)
    assert last["parent_state"]["replication_key_value"] == 3


def test_a_full_refresh_reads_all_parents_and_sends_no_state() -> None:
    data = Shops()
    data.change(1)
    stream = make_orders(data, **KEYS["by a key"])
    items = read(stream, {"parent_state": {"changed": 7}}, mode=FULL_REFRESH)
    assert items == [{"id": 1, "at": 1, "shop": 1}]


def test_grandchildren_are_read_for_changed_parents_too() -> None:
    data = Shops()
    data.change(1)
    data.change(2)

    class Lines(Stream):
        name = "lines"
        json_schema: Json = {"properties": {"order": NUMBER}}  # noqa: RUF012

        def records(self, window: Window) -> Iterable[Record]:
            return [{"id": window.parent["id"]}]

    stream = Lines()
    stream.parent = Parent(make_orders(data, **KEYS["by a key"]), only_changed=True)
    items = read(stream)
    assert [row["id"] for row in rows(items)] == [1, 2]
    data.change(2)
    orders = make_orders(data, **KEYS["by a key"])
    stream.parent = Parent(orders, only_changed=True)
    items = read(stream, last_state(items))
    assert (orders.shops_read, [row["id"] for row in rows(items)]) == ([2], [3])


@pytest.mark.parametrize("names", [["orders", "visits"], ["visits", "shops", "orders"]])
def test_streams_that_continue_from_one_state_share_the_read_of_a_parent(
    names: list[str], tmp_path: Path
) -> None:
    data = Shops()
    data.change(1)
    data.change(2)
    parent = ShopStream(data)
    children = [
        OrderStream(data, parent, name="orders"),
        OrderStream(data, parent, name="visits", fields={"city": "shop_city"}),
    ]
    saved: Json = {"state": []}
    for reads, changes in ((1, []), (2, [2, 3]), (3, [])):
        for shop in changes:
            data.change(shop)
        files: Json = {"config": {}, "catalog": catalog(*names, mode=INCREMENTAL), **saved}
        code, messages = call(Shop(parent, *children), tmp_path, "read", **files)
        assert (code, parent.reads) == (0, reads)
        saved = {"state": [m["state"] for m in messages if m["type"] == "STATE"]}
        cities = [row["shop_city"] for row in records(messages) if "shop_city" in row]
        assert cities == ["Bonn"] * {1: 2, 2: 3, 3: 0}[reads]


def test_a_parent_of_another_state_is_read_for_itself(tmp_path: Path) -> None:
    data = Shops()
    data.change(1)
    parent = ShopStream(data)
    files: Json = {"config": {}, "catalog": catalog("shops", "orders", mode=INCREMENTAL)}
    _, messages = call(Shop(parent, OrderStream(data, parent)), tmp_path, "read", **files)
    states_of_all = [m["state"] for m in messages if m["type"] == "STATE"]
    of_shops = [
        state for state in states_of_all if state["stream"]["stream_descriptor"]["name"] == "shops"
    ]
    orders = OrderStream(data, parent)
    call(Shop(parent, orders), tmp_path, "read", **files, state=of_shops)
    assert orders.shops_read == [1]  # the state of the orders was reset, that of the shops was not


def test_a_tap_whose_catalog_was_selected_by_a_platform_reads_only_what_has_changed(
    tmp_path: Path,
) -> None:
    data = Shops()
    data.change(1)
    data.change(2)
    orders = make_orders(data)
    source = Shop(orders)
    _, output = output_of(source, tmp_path, "--discover", config={})
    [stream] = read_catalog(output).streams
    assert (stream.source_defined_cursor, stream.default_cursor_field) == (True, None)
    selected = selection([ConfiguredStream(stream, INCREMENTAL)])
    saved: Json = {}
    for changes, shops in (([], [1, 2]), ([2], [2]), ([], [])):
        for shop in changes:
            data.change(shop)
        orders.shops_read.clear()
        code, messages = call(source, tmp_path, config={}, catalog=selected, **saved)
        assert (code, orders.shops_read) == (0, shops)
        saved = {"state": [m["value"] for m in messages if m["type"] == "STATE"][-1]}


def test_a_stream_without_a_suitable_parent_is_an_error() -> None:
    with pytest.raises(SystemFailure, match="its parent has no replication key"):
        read(OrderStream(Shops(), ShopStream(Shops(), replication_key=None)))


# Fields of the parent


class Visits(OrderStream):
    name = "visits"
    fields: Mapping[str, str] = {"city": "shop_city", "changed": "shop_changed"}

    def __init__(self, data: Shops, parent: Stream, **attributes: Any):
        super().__init__(data, parent, only_changed=False, **attributes)


def test_records_have_the_fields_of_their_parent() -> None:
    data = Shops()
    data.change(1, "Köln")
    data.change(2)
    data.shops[2].pop("city")
    stream = Visits(data, ShopStream(data))
    assert rows(read(stream, mode=FULL_REFRESH)) == [
        {"shop": 1, "id": 1, "at": 1, "shop_city": "Köln", "shop_changed": 1},
        {"shop": 2, "id": 2, "at": 2, "shop_city": None, "shop_changed": 2},
    ]
    declared = stream.describe().json_schema["properties"]
    assert declared["shop_city"] == {"type": "string"}
    assert declared["shop_changed"] == NUMBER


def test_a_change_of_the_parent_is_no_new_partition() -> None:
    data = Shops()
    data.change(1)
    stream = Visits(data, ShopStream(data), replication_key="at")
    state = last_state(read(stream))
    assert [entry["context"] for entry in state["partitions"]] == [{"shop": 1}]
    data.change(1, "Aachen")
    items = read(stream, state)
    # The first order is the record at the bookmark, and it has changed: the city of its shop has.
    assert [(row["id"], row["shop_city"]) for row in rows(items)] == [(1, "Aachen"), (2, "Aachen")]
    assert len(last_state(items)["partitions"]) == 1


def test_a_single_partition_has_the_fields_of_its_parent() -> None:
    data = Shops()
    data.change(1)
    data.change(2, "Ulm")
    stream = Visits(data, ShopStream(data))
    for mode in (FULL_REFRESH, INCREMENTAL):
        stream.replication_key = "at" if mode == INCREMENTAL else None
        items = list(stream.read(configure(stream, mode, partitions=[{"shop": 2}]), None))
        assert [row["shop_city"] for row in rows(items)] == ["Ulm"]
    with pytest.raises(ConfigError, match="no partition"):
        list(stream.read(configure(stream, FULL_REFRESH, partitions=[{"shop": 9}]), None))


@pytest.mark.parametrize(
    "names", [["shops", "visits"], ["visits", "shops"], ["visits"], ["orders", "visits"]]
)
def test_fields_of_the_parent_are_collected_while_it_is_read(
    names: list[str], tmp_path: Path
) -> None:
    data = Shops()
    data.change(1)
    parent = ShopStream(data)
    streams = [parent, Visits(data, parent), OrderStream(data, parent, only_changed=False)]
    files: Json = {"config": {}, "catalog": catalog(*names)}
    code, messages = call(Shop(*streams), tmp_path, "read", **files)
    assert (code, parent.reads) == (0, 1)
    assert [row["shop_city"] for row in records(messages) if "shop_city" in row] == ["Bonn"]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"city": "at"}, "the name 'at' is that of another field"),
        ({"city": "x", "changed": "x"}, "the name 'x' is that of another field"),
        ({"town": "x"}, "the parent has no field 'town'"),
    ],
)
def test_a_conflict_of_names_is_an_error_of_discover(
    names: dict[str, str], reason: str, tmp_path: Path
) -> None:
    data = Shops()
    stream = Visits(data, ShopStream(data), fields=names)
    code, messages = call(Shop(stream), tmp_path, "discover", config={})
    assert code == 1
    assert reason in errors(messages)[0]["message"]


def test_the_field_of_the_parent_replaces_one_that_is_not_declared() -> None:
    data = Shops()
    data.change(1)
    data.orders[1][0]["shop_city"] = "of the record"
    [row] = rows(read(Visits(data, ShopStream(data)), mode=FULL_REFRESH))
    assert row["shop_city"] == "Bonn"


@pytest.mark.parametrize("only_changed", [False, True])
def test_what_a_parent_reports_is_not_taken_for_the_child(
    only_changed: bool, tmp_path: Path
) -> None:
    data = Shops()
    data.change(1)

    class Telling(ShopStream):
        def records(self, window: Window) -> Iterator[Record]:
            self.estimate(7)
            self.warn("a shop is closed")
            return super().records(window)

    class TellingOrders(OrderStream):
        def records(self, window: Window) -> Iterator[Record]:
            self.estimate(1)
            self.warn("an order is open")
            return super().records(window)

    parent = Telling(data)
    source = Shop(parent, TellingOrders(data, parent, only_changed=only_changed))
    files: Json = {
        "config": {},
        "catalog": catalog("orders", mode=INCREMENTAL if only_changed else FULL_REFRESH),
    }
    _, messages = call(source, tmp_path, "read", **files)
    estimates = [m["trace"]["estimate"] for m in messages if "estimate" in m.get("trace", {})]
    assert [(e["name"], e["row_estimate"]) for e in estimates] == [("orders", 1)]
    assert [m["log"]["message"] for m in messages if m["type"] == "LOG"] == [
        "stream orders: parent stream 'shops': a shop is closed",
        "stream orders: an order is open",
    ]


@pytest.mark.parametrize("only_changed", [False, True])
def test_the_author_leaves_out_parents(only_changed: bool) -> None:
    data = Shops()
    data.change(1)
    data.change(2, "closed")

    class OpenShops(OrderStream):
        fields: Mapping[str, str] = {"city": "shop_city"}

        def partitions(self) -> Iterator[Context]:
            for context in super().partitions() or ():
                if context.parent["city"] != "closed":  # type: ignore[attr-defined]
                    yield context

    stream = OpenShops(data, ShopStream(data), only_changed=only_changed)
    assert [
        row["shop"]
        for row in rows(read(stream, mode=INCREMENTAL if only_changed else FULL_REFRESH))
    ] == [1]
