"""Deletes: any value in the delete marker, with or without a cursor value."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from elt_assets.protocol.catalog import APPEND_DEDUP, DELETED_AT, ConfiguredStream
from tests.lake.harness import Lake
from tests.lake.staging import BOOLEAN, INTEGER, STRING, TIMESTAMP, array, rows, stream, struct

ANY_VALUES = [
    1769904000000,
    0,
    "Sat Jan 31 2026",
    "2018-11-22T12:51:30+00:00+00:00",
    "",
    True,
    False,
    {"a": 1},
    {},
    [],
    [None],
    "x" * 20,
]
MARKER_TYPES = [
    TIMESTAMP,
    {"type": "string", "format": "date"},
    STRING,
    BOOLEAN,
    INTEGER,
    struct(at=TIMESTAMP),
    array(INTEGER),
    {"type": "object"},
]


def people(marker: Any = TIMESTAMP, **more: Any) -> ConfiguredStream:
    fields = {"id": INTEGER, "name": STRING, "at": INTEGER, DELETED_AT: marker, **more}
    return stream(fields, APPEND_DEDUP, key=["id"], cursor=["at"])


@pytest.mark.spec("protocol.93")
@pytest.mark.parametrize("marker", MARKER_TYPES, ids=str)
def test_any_value_but_null_deletes(lake: Lake, marker: Any) -> None:
    lake.history = True
    numbers = range(len(ANY_VALUES))
    alive = {"id": 100, "name": "null", "at": 2, DELETED_AT: None}
    present = [{"id": number, "name": "a", "at": 1} for number in [*numbers, 100]]
    deletes = [{"id": n, "at": 2, DELETED_AT: ANY_VALUES[n]} for n in numbers]
    lake.sync(people(marker), *present)
    lake.sync(people(marker), *deletes, alive)
    assert rows(lake.spark, lake.table, "id", "name") == [(100, "null")]
    found = lake.versions("id", "_is_current")
    assert found == sorted([*((n, False) for n in [*numbers, 100]), (100, True)], key=repr)
    lake.sync(people(marker), *({"id": n, "name": "late", "at": 1} for n in numbers))
    assert lake.ids() == [100]


def test_a_delete_of_a_row_without_other_values_is_a_version(lake: Lake) -> None:
    """The row before it has the same values: null in all columns but the key."""
    lake.history = True
    lake.sync(people(), {"id": 1})
    lake.sync(people(), {"id": 1, DELETED_AT: "gone"})
    assert lake.ids() == []
    assert lake.versions("id", "_is_current") == [(1, False)]


def test_a_marker_deletes_in_a_frozen_table_and_if_it_is_no_longer_declared(lake: Lake) -> None:
    lake.sync(people(), *({"id": number, "at": 1} for number in (1, 2, 3)))
    done = lake.sync(people(INTEGER), {"id": 1, "at": 2, DELETED_AT: 5}, on_schema_change="freeze")
    assert (done.records, done.rejected, done.changed) == (1, 0, 1)
    assert lake.ids() == [2, 3]
    undeclared = people()
    del undeclared.stream.json_schema["properties"][DELETED_AT]
    lake.sync(undeclared, {"id": 2, "at": 2, DELETED_AT: "2026-01-01T00:00:00Z"})
    assert lake.ids() == [3]


@pytest.mark.spec("protocol.93")
@pytest.mark.parametrize(
    "engine", ["whole", "tasks", pytest.param("joins", marks=pytest.mark.long)], indirect=True
)
def test_a_delete_without_a_cursor_value_is_ordered_by_arrival(lake: Lake, engine: str) -> None:
    lake.history = True
    syncs = itertools.count(1)

    def sync(*records: dict[str, Any]) -> list[tuple[Any, ...]]:
        configured = people()
        configured.sync_id = next(syncs)  # as runs do: ids of rows grow with it
        lake.sync(configured, *records)
        return rows(lake.spark, lake.table, "id", "name", "at")

    gone = {"id": 1, DELETED_AT: "2026-01-02T00:00:00Z"}
    old = {"id": 1, "name": "old", "at": 1}
    other = (2, "b", 1)
    assert sync({"id": 1, "name": "a", "at": 9}, {"id": 2, "name": "b", "at": 1}) == [
        (1, "a", 9),
        other,
    ]
    assert sync(gone) == [other]
    assert sync(old) == [(1, "old", 1), other]
    assert sync({"id": 1, "name": "none"}, {"id": 2, "name": "none"}) == [(1, "old", 1), other]
    assert sync({**old, "name": "before"}, gone) == [other]
    assert sync(gone, {"id": 1, "name": "none"}) == [(1, "none", None), other]
    assert lake.versions("name", "_is_current") == [
        ("a", False),
        ("b", True),
        ("before", False),
        ("none", False),  # id 1, older than "before"
        ("none", False),  # id 2, older than "b"
        ("none", True),
    ]
