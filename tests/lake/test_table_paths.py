"""Paths of the tables of streams whose names collide."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elt_assets.errors import ConfigError
from elt_assets.lake.columns.names import table_path
from elt_assets.lake.write.companions import app_id, check_claims
from elt_assets.lake.write.paths import TablePath, TablePaths, find_table, open_tables
from elt_assets.lake.write.states import StateOnlyWriter
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.catalog import StreamId
from elt_assets.storage.location import Location
from tests.lake.harness import USERS
from tests.lake.staging import checkpoint, stream

NAMES = [
    "a",
    "A",
    "a b",
    "a_b",
    "A_b",
    "a.b",
    "a_history",
    "A_History",
    "a_dead_letter",
    "b",
    "é",
    "É",
]
ids = st.builds(StreamId, st.sampled_from(NAMES), st.sampled_from([None, None, "a", "A", "a b"]))


def paths_of(streams: dict[StreamId, bool]) -> dict[StreamId, TablePath]:
    paths = TablePaths(["shop"])
    paths.add(streams)
    return {stream: paths[stream] for stream in streams}


@given(st.dictionaries(ids, st.booleans(), max_size=8), st.randoms())
def test_no_two_streams_share_a_table_and_their_order_does_not_matter(
    streams: dict[StreamId, bool], order: random.Random
) -> None:
    found = paths_of(streams)
    check_claims((repr(one), path.levels, streams[one]) for one, path in found.items())
    shuffled = list(streams.items())
    order.shuffle(shuffled)
    assert paths_of(dict(shuffled)) == found
    for one in streams:
        alone = paths_of({one: streams[one]})[one]
        assert alone.levels == tuple(table_path(["shop"], one))
        assert {alone.levels, alone.other} >= {found[one].levels, found[one].other}


@given(st.lists(st.sampled_from(NAMES).map(StreamId), unique=True, max_size=8))
def test_streams_that_are_added_later_move_no_other_stream(streams: list[StreamId]) -> None:
    paths = TablePaths(["shop"])
    for count, one in enumerate(streams):
        before = [paths[other].levels for other in streams[:count]]
        paths.add({one: False})
        assert [paths[other].levels for other in streams[:count]] == before
    check_claims((repr(one), paths[one].levels, False) for one in streams)


def test_the_plain_name_that_is_in_lower_case_keeps_its_table() -> None:
    names = ["Orders", "orders", "orders_history", "or.ders", "or_ders"]
    found = paths_of({StreamId(name): name == "orders" for name in names})
    plain = [one.name for one, path in found.items() if path.levels[-1] == path_name(one)]
    assert plain == ["orders", "or_ders"]
    assert found[StreamId("Orders")].levels == ("shop", "Orders_b7e8acdd")


def path_name(one: StreamId) -> str:
    return table_path([], one)[-1]


class Shop:
    """A lake whose streams are synced by connections of different streams, one after the other."""

    def __init__(self, folder: str | Path):
        self.lake = Location.parse(str(folder))

    def sync(self, streams: Sequence[str], history: Sequence[str] = ()) -> dict[str, str]:
        """Commit a state for each stream that is not refused; return the names of their tables."""
        paths = paths_of({StreamId(name): name in history for name in streams})
        names = {}
        for one, path in paths.items():
            writer = app_id(["shop", one.name])
            tables = open_tables(self.lake, path, writer, history=one.name in history)
            if tables.main.is_foreign:  # refused: the stream that has the table is not configured
                assert not path.rivals
                continue
            assert find_table(self.lake, path, writer).uri == tables.main.uri
            StateOnlyWriter(tables, WriteSpec(stream(USERS), "run")).commit(checkpoint(1))
            names[one.name] = tables.main.uri.rsplit("/", 1)[-1]
        return names


plain_names = st.sampled_from([name for name in NAMES if "_h" not in name.lower()])


@settings(max_examples=15)
@example([["a", "a_b"], ["A_b"], ["a_b", "A_b"]])
@given(st.lists(st.lists(plain_names, unique=True, min_size=1, max_size=4), max_size=4))
def test_a_stream_keeps_its_table_whatever_other_streams_come_and_go(
    connections: list[list[str]],
) -> None:
    """A new table is nobody else's, also where names differ in case only; one that is there stays."""
    with TemporaryDirectory() as folder:
        shop, names = Shop(folder), dict[str, str]()
        for streams in connections:
            now = shop.sync(streams)
            assert now == {name: names.get(name, now[name]) for name in now}
            taken = Counter(name.casefold() for name in now.values())
            assert all(taken[now[name].casefold()] == 1 for name in now if name not in names)
            names |= now


def test_a_new_stream_does_not_move_the_table_of_one_that_it_collides_with(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    assert shop.sync(["Users"]) == {"Users": "Users"}
    both = shop.sync(["users", "Users"])
    assert both["Users"] == "Users" and both["users"].startswith("users_")
    assert shop.sync(["users"]) == {"users": both["users"]}


def test_a_history_is_not_written_to_the_table_of_another_stream(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.sync(["orders", "orders_history"])
    with pytest.raises(ConfigError, match="the table of another stream"):
        shop.sync(["orders", "orders_history"], history=["orders"])
    assert shop.sync(["orders_history", "new"], history=["new"])["new"] == "new"


def test_a_table_is_not_written_within_the_table_of_another_stream(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.sync(["sales"])
    inner = StreamId("orders", "sales")
    path = paths_of({inner: False, StreamId("sales"): False})[inner]
    with pytest.raises(ConfigError, match="the table of another stream"):
        open_tables(shop.lake, path, "elt:shop/sales/orders")
