"""Partition routers: lists, parents and combinations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from connectors.declarative.cursors.cursor import Page
from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest.template import Template
from elt_assets.errors import ConfigError
from tests.connectors.declarative.cursors.support import (
    NOW,
    Api,
    at,
    dated,
    listed,
    nothing,
    option,
    parent,
    stream,
    substream,
)

pytestmark = pytest.mark.unit

SHOPS = [{"id": 1, "name": "A", "at": {"city": "Rome"}}, {"id": 2, "name": "B"}]


def source(**records: Any) -> Api:
    """Return a source with the records of some streams by name, two on a page."""

    def answer(name: str, each: Slice, options: Sequence[Option]) -> list[Page]:
        found = [
            record
            for record in records.get(name, [])
            if "of" not in record or record["of"] == each.partition.get("shop")
        ]
        return [found[at : at + 2] for at in range(0, len(found), 2)]

    return Api(answer, {"shops": ["x", "y"], "by": "shop", "empty": ""})


def partitions(api: Api, router: Any) -> list[dict[str, Any]]:
    return [dict(each.partition) for each in api.begin(stream(router=router)).slices()]


# --- lists ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["a", "1"], ["a", "1"]),
        ("{{ config['shops'] }}", ["x", "y"]),
        ("['a', 1]", ["a", 1]),
        ("{{ [0, ''] }}", [0, ""]),
        ([], []),
        ("{{ config['no'] }}", []),
        ("{{ config.get('no') }}", []),
        ("{{ config['empty'] }}", []),
    ],
)
def test_a_list_has_a_partition_for_each_value(values: Any, found: list[Any]) -> None:
    assert partitions(source(), listed(values)) == [{"shop": value} for value in found]


def test_the_name_of_a_list_may_come_from_the_config() -> None:
    assert partitions(source(), listed(["a"], "{{ config.by }}_id")) == [{"shop_id": "a"}]


@pytest.mark.parametrize("values", ["a", "{{ config }}", "5"])
def test_values_that_are_no_list_are_an_error(values: str) -> None:
    with pytest.raises(ConfigError, match=r"there\.values does not give a list"):
        partitions(source(), listed(values))


def test_a_partition_is_put_into_requests_also_the_value_0() -> None:
    api = source()
    api.read(stream(router=listed("{{ [0, 'a', ''] }}", request_option=option("shop", "header"))))
    assert api.requests == [("orders", {"shop": 0}), ("orders", {"shop": "a"}), ("orders", {})]


# --- parents --------------------------------------------------------------------------------------


def test_parent_records_come_once_and_those_without_the_key_not_at_all() -> None:
    records: list[Any] = [{"id": 1}, {"id": 1, "new": True}, {}, {"id": None}, {"id": "1"}]
    found = partitions(source(shops=records), substream(parent(stream("shops"))))
    assert [each["shop"] for each in found] == [1, "1"]


@pytest.mark.parametrize(
    ("key", "found"),
    [("at/city", ["Rome"]), ("*/city", ["Rome"]), ("tags/0", ["t"]), ("no/id", [])],
)
def test_the_parent_key_may_be_a_path(key: str, found: list[str]) -> None:
    records = [{"id": 1, "at": {"city": "Rome"}, "tags": ["t"]}]
    router = substream(parent(stream("shops"), key=key))
    assert [each["shop"] for each in partitions(source(shops=records), router)] == found


def test_parents_of_several_streams_follow_each_other() -> None:
    router = substream(
        parent(stream("shops")), parent(stream("sites"), "site", request_option=option("s"))
    )
    api = source(shops=SHOPS, sites=[{"id": 7}])
    api.read(stream(router=router))
    assert [each for name, each in api.requests if name == "orders"] == [{}, {}, {"s": 7}]


def test_partitions_may_be_nested_three_deep() -> None:
    regions = stream("regions", listed(["eu", "us"], "region"))
    shops = stream("shops", substream(parent(regions, "region")))
    desks = stream("desks", substream(parent(shops, "shop")))
    api = source(regions=[{"id": 1}], shops=[{"id": 5}], desks=[{"id": 9}])
    assert partitions(api, substream(parent(desks, "desk"))) == [
        {
            "desk": 9,
            "parent_slice": {
                "shop": 5,
                "parent_slice": {"region": 1, "parent_slice": {"region": region}},
            },
        }
        for region in ("eu", "us")
    ]


def test_templates_reach_the_partitions_of_parents_and_the_extra_fields() -> None:
    shops = stream("shops", listed(["eu"], "region"))
    fields = (("name",), ("at", "city"), ("at", "street"))
    paths = tuple(tuple(map(Template, path)) for path in fields)
    api = source(shops=SHOPS[:1])
    router = substream(parent(shops, extra_fields=paths))
    (each,) = api.begin(stream(router=router)).slices()
    assert each.extra == {"name": "A", "at.city": "Rome", "at.street": None}
    for text, found in [
        ("{{ stream_partition.shop }}", 1),
        ("{{ stream_slice['parent_slice']['region'] }}", "eu"),
        ("{{ stream_partition.parent_slice.region }}", "eu"),
        ("{{ stream_slice.extra_fields['at.city'] }}", "Rome"),
        ("{{ stream_slice._partition.shop }}", 1),
        ("{{ stream_slice._partition.extra_fields['name'] }}", "A"),
        ("{{ stream_partition.extra_fields.name }}", "A"),
        ("{{ stream_slice.partition.shop }}", 1),
        ("{{ stream_slice.cursor_slice }}", {}),
    ]:
        assert Template(text).evaluate(each.variables()) == found


def test_the_first_read_of_a_child_may_begin_with_what_the_parent_has() -> None:
    records: list[Any] = [{"id": 1, "orders": {"data": [{"n": 1}]}}, {"id": 2}]
    pointer = (Template("orders"),)
    router = substream(parent(stream("shops"), lazy_read_pointer=pointer))
    orders = stream(router=router, sync=dated())
    api = source(shops=records)
    with at(NOW):
        first = api.read(orders)
        assert [each.extra for each in first.slices] == [
            {"child_response": {"data": [{"n": 1}]}},
            {"child_response": []},
        ]
        assert [each.extra for each in api.read(orders, first.state).slices] == [{}, {}]


def test_a_pointer_with_a_wildcard_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"lazy_read_pointer has a `\*`"):
        partitions(source(), substream(parent(stream("s"), lazy_read_pointer=(Template("*"),))))


def test_a_router_without_parents_is_an_error() -> None:
    with pytest.raises(ConfigError, match="has no parent streams"):
        partitions(source(), substream())


def test_the_pages_of_a_parent_are_requested_when_they_are_needed() -> None:
    requested = []

    def answer(name: str, each: Slice, options: Any) -> Any:
        for number in range(3):
            requested.append(number)
            yield [{"id": number}]

    slices = Api(answer).begin(stream(router=substream(parent(stream("shops"))))).slices()
    next(slices)
    assert requested == [0]


def test_the_parameters_of_a_parent_are_those_of_its_own_slices() -> None:
    shops = stream(
        "shops",
        listed(["eu"], "region", request_option=option("region")),
        dated(start_time_option=option("since")),
    )
    api = source(shops=[{"id": 1, "updated_at": "2024-01-01T00:00:00Z"}])
    with at(NOW):
        api.read(stream(router=substream(parent(shops, request_option=option("shop")))))
    assert api.requests == [
        ("shops", {"region": "eu", "since": "2024-01-01T00:00:00Z"}),
        ("orders", {"shop": 1}),
    ]


# --- combinations ---------------------------------------------------------------------------------


def test_a_list_and_parents_are_combined() -> None:
    routers = (listed(["a"], "x"), substream(parent(stream("shops"))))
    assert partitions(source(shops=SHOPS), routers) == [
        {"x": "a", "shop": 1, "parent_slice": {}},
        {"x": "a", "shop": 2, "parent_slice": {}},
    ]


def test_the_first_of_several_routers_wins_a_place_in_requests() -> None:
    routers = (
        listed(["a"], "x", request_option=option("v")),
        listed(["b"], "y", request_option=option("v")),
    )
    api = source()
    api.read(stream(router=routers))
    assert api.requests == [("orders", {"v": "a"})]


# --- partitions that are read alone ---------------------------------------------------------------


def read_alone(router: Any, contexts: list[dict[str, Any]], api: Api | None = None) -> Any:
    api = api or source(shops=SHOPS)
    done = api.read(stream(router=router), contexts=contexts)
    return [dict(each.partition) for each in done.slices], [name for name, _ in api.requests]


def test_partitions_are_listed_by_their_contexts() -> None:
    router = substream(parent(stream("shops")))
    cursor = source(shops=[*SHOPS, SHOPS[0]]).cursors.get(stream(router=router))
    assert list(cursor.contexts() or ()) == [{"shop": 1}, {"shop": 2}]
    nested = substream(parent(stream("shops", listed(["eu"], "region"))))
    cursor = source(shops=SHOPS).cursors.get(stream(router=nested, sync=dated()))
    assert next(iter(cursor.contexts() or ())) == {"shop": 1, "parent_slice": {"region": "eu"}}


def test_a_partition_is_read_alone_without_its_parents() -> None:
    router = substream(parent(stream("shops", listed(["eu"], "region"))))
    context = {"shop": 1, "parent_slice": {"region": "eu"}}
    assert read_alone(router, [context]) == ([context], ["orders"])
    assert read_alone(router, [{"shop": 9}])[0] == [{"shop": 9, "parent_slice": {}}]
    both = (listed(["a"], "x"), router)
    assert read_alone(both, [{"x": "a", "shop": 1}])[0] == [
        {"x": "a", "shop": 1, "parent_slice": {}}
    ]


def test_a_partition_with_values_of_its_parent_is_found_among_the_parents() -> None:
    router = substream(parent(stream("shops"), extra_fields=((Template("name"),),)))
    done = source(shops=SHOPS).read(stream(router=router), contexts=[{"shop": 2}])
    assert [(each.partition["shop"], each.extra) for each in done.slices] == [(2, {"name": "B"})]
    with pytest.raises(ConfigError, match=r"the stream has no partition \{'shop': 9\}"):
        read_alone(router, [{"shop": 1}, {"shop": 9}])


@pytest.mark.parametrize("context", [{}, {"site": 1}, {"shop": 1, "x": 2}])
def test_what_is_no_partition_cannot_be_read_alone(context: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match="is not a partition of the stream, whose partitions have"
    ):
        read_alone(substream(parent(stream("shops"))), [context])


def test_a_stream_without_partitions_has_none_to_read_alone() -> None:
    with pytest.raises(ConfigError, match="the stream has none"):
        Api(nothing).read(stream(), contexts=[{}])


def test_a_stream_without_cursor_and_partitions_is_one_slice() -> None:
    done = Api(nothing).read(stream())
    assert [(dict(each.partition), dict(each.interval)) for each in done.slices] == [({}, {})]
    assert done.state == {"__ab_no_cursor_state_message": True}


@pytest.mark.parametrize("router", [None, listed(["a", "b"])])
def test_a_read_without_a_cursor_that_is_cut_leaves_no_state(router: Any) -> None:
    progress = Api(nothing).begin(stream(router=router))
    slices = progress.slices()
    progress.close(next(slices))
    assert progress.state() == {}
    for each in slices:
        progress.close(each)
    progress.finish()
    assert progress.state() == {"__ab_no_cursor_state_message": True}
