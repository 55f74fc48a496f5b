"""Comparison of records and cursor values in the conformance kit."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.testing.commands import bad_configs
from connectors.testing.comparison import (
    Identity,
    canonical,
    difference,
    evenly_spread,
    is_later,
    order,
    parse_time,
    scalars,
)
from connectors.testing.protocols.protocol import SeenRecord
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.config_check import violations

USERS = StreamId("users")
ROWS = st.lists(st.sampled_from("abcde"), max_size=12)


def record(**data: Any) -> SeenRecord:
    return SeenRecord(USERS, data, 1)


@given(ROWS, st.data())
def test_a_source_that_resumes_exactly_has_no_difference(
    whole: list[str], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(whole)))
    again = data.draw(st.integers(0, cut))
    assert not difference(whole, whole[:cut], whole[cut - again :])


@given(ROWS.filter(bool), st.data())
def test_each_gap_is_found(whole: list[str], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(whole) - 1))
    gap = data.draw(st.integers(1, len(whole) - cut))
    found = difference(whole, whole[:cut], whole[cut + gap :])
    assert sum(found.missing.values()) == gap
    assert not found.extra


@given(ROWS, st.data())
def test_each_record_that_the_whole_read_lacks_is_found(
    whole: list[str], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(whole)))
    found = difference(whole, whole[:cut], [*whole[cut:], "new", "new"])
    assert found.extra == {"new": 2}
    assert not found.missing


def test_records_are_identified_by_their_key_or_by_all_fields() -> None:
    keyed, plain = Identity({USERS: [["id"], ["at", "store"]]}), Identity({USERS: []}, ["seen"])
    one = {"id": 1, "at": {"store": "x"}, "seen": "today"}
    assert keyed(record(**one)) == keyed(record(**{**one, "seen": "tomorrow"}))
    assert keyed(record(**one)) != keyed(record(**{**one, "id": 2}))
    assert keyed(record(id=1, name="a")) != keyed(
        record(id=1, name="b")
    )  # a part of the key is missing
    assert plain(record(**one)) == plain(record(at={"store": "x"}, id=1.0, seen=None))
    assert plain(record(id=1)) != plain(record(id=2))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_canonical_json_distinguishes_different_values(value: Any) -> None:
    assert canonical(value) == canonical(value)
    assert canonical([value]) != canonical([value, value])


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (9, 10),
        (9, 9.5),
        ("2026-01-09", "2026-01-10"),
        ("2026-01-01T00:00:00+02:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01", "2026-01-01T00:00:00.000001Z"),
        ("a", "b"),
        (None, 0),
        (None, ""),
    ],
)
def test_cursor_values_are_ordered(earlier: Any, later: Any) -> None:
    assert order(earlier) < order(later)


def test_notations_of_the_same_time_are_equal() -> None:
    notations = (
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01 00:00:00Z",
        "2026-01-01T01:00:00+01:00",
    )
    assert len({order(text) for text in notations}) == 1
    assert parse_time("yesterday") is None
    present = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone.utc)
    assert is_later(order("2026-01-02"), present)
    assert not is_later(order("2026-01-01"), present)
    assert not is_later(order("zebra"), present)


def test_the_values_of_a_state_are_found_at_any_depth() -> None:
    state = {"partitions": [{"context": {"a": 1}, "value": "x"}], "is_done": True, "none": None}
    assert list(scalars(state)) == [1, "x"]


@given(st.integers(0, 200), st.integers(1, 50))
def test_states_are_spread_evenly(count: int, limit: int) -> None:
    found = evenly_spread(count, limit)
    assert len(found) == min(count, limit)
    assert found == sorted(set(found))
    assert not count or found[-1] == count - 1
    assert evenly_spread(count, None) == list(range(count))


def test_generated_bad_configs_violate_the_specification() -> None:
    schema = {
        "type": "object",
        "required": ["host", "port", "user", "password"],
        "properties": {
            "host": {"type": "string"},
            "port": {"type": "integer"},
            "options": {"type": "object"},
        },
    }
    config = {"host": "h", "port": 1, "user": "u", "password": "p"}
    found = bad_configs(config, schema)
    assert [bad.description for bad in found] == [
        "without the required field 'host'",
        "without the required field 'port'",
        "without the required field 'user'",
        "without the required field 'password'",
        "with a wrong type in the field 'host'",
    ]
    assert all(violations(bad.config, schema) for bad in found)
    assert bad_configs(config, {"type": "object"}) == []
    only_object = {"properties": {"options": {"type": "object"}}}
    assert [bad.config["options"] for bad in bad_configs({}, only_object)] == ["wrong type"]
