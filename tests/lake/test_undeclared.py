"""Fields of records that the stream's schema does not declare."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.lake.worker.job import MAX_NAMES, OTHERS
from elt_assets.lake.write.parsing import describe_counts, limit_counts
from tests.lake.conforming import Conformer
from tests.lake.staging import INTEGER, STRING, array, stage, struct

ADDRESS = struct(city=STRING)
PROPERTIES = {
    "id": INTEGER,
    "address": {**ADDRESS, "additionalProperties": True},
    "lines": array(ADDRESS),
    "anything": {"type": "object"},
}


def counts(
    conformer: Conformer, properties: dict[str, Any], *records: Any, **more: Any
) -> dict[str, int]:
    conformer.parse(stage(conformer.folder, records, **more), properties)
    return dict(sum((result.undeclared for result in conformer.results), Counter()))


@pytest.mark.parametrize(
    ("record", "names"),
    [
        ({"id": 1, "address": {"city": "x"}, "lines": [{"city": "y"}], "anything": {"a": 1}}, []),
        ({"address": "a text", "lines": {"city": "one"}}, []),
        ({'a "quoted" name': 1, "": 2, "äöü\n": 3}, ["", 'a "quoted" name', "äöü\n"]),
        (b'{ "id" : 1 , "colour" : "a" , "colour" : "b" }', ["colour"]),
        (b'{"id":1,"colour":', []),
        (b'["no", "object"]', []),
        (b"{}", []),
        (b'{"id":"\xff"}', []),
        (b'{"colour":"\xff"}', ["colour"]),
        (b'{"id":' + b"[" * 5000 + b"]" * 5000 + b"}", []),
    ],
)
def test_undeclared_fields_of_a_record_are_found(
    conformer: Conformer, record: Any, names: list[str]
) -> None:
    assert counts(conformer, PROPERTIES, record) == dict.fromkeys(names, 1)


def test_declared_names_may_contain_any_character(conformer: Conformer) -> None:
    names = {
        'a "quoted" name': INTEGER,
        "a\\b": INTEGER,
        "a.b": INTEGER,
        "ü\n": INTEGER,
        "": INTEGER,
    }
    record = dict.fromkeys(names, 1)
    assert counts(conformer, names, record, {**record, "more": 2}) == {"more": 1}


def test_changes_reported_by_the_source_are_not_undeclared_fields(conformer: Conformer) -> None:
    meta = {
        "changes": [{"field": "id", "change": "NULLED", "reason": "SOURCE_SERIALIZATION_ERROR"}]
    }
    assert counts(conformer, PROPERTIES, {"id": 1}, {}, meta=meta) == {}


def test_the_number_of_counted_names_is_limited(conformer: Conformer) -> None:
    records = [{f"user-{number}": 1, f"name-{number}": 2} for number in range(1000)]
    found = counts(conformer, {"id": INTEGER}, *records, {"id": 1})
    assert len(found) == MAX_NAMES + 1
    assert found.pop(OTHERS) == 1000 - MAX_NAMES // 2
    assert set(found.values()) == {1}


def test_the_sum_of_counts_has_a_limited_number_of_names() -> None:
    counts = {**{f"n{number}": number + 1 for number in range(MAX_NAMES + 20)}, OTHERS: 5}
    kept = limit_counts(counts)
    assert len(kept) == MAX_NAMES + 1
    assert sum(kept.values()) == sum(counts.values())
    assert kept["n119"] == 120
    assert "n0" not in kept


def test_the_log_shows_the_most_frequent_names() -> None:
    assert describe_counts({"b": 1, "a": 1204}) == "a (1,204 records), b (1 records)"
    assert describe_counts({f"n{number}": 1 for number in range(12)}).endswith(
        "n7 (1 records) and 2 more"
    )


EXTRA = {"_extra": {"type": "object"}}


def test_undeclared_fields_are_kept_as_one_object_per_record(conformer: Conformer) -> None:
    records = [
        {"id": 1},
        {"id": 2, "colour": "red", "address": {"city": "x", "planet": {"name": "p"}}},
        {"id": 3, "lines": [{"city": "y"}, {"a": 1.50}], "_extra": "its own"},
        {"id": "no", "_extra": 5},
    ]
    segment = stage(conformer.folder, records)
    rows, _ = conformer.parse(segment, {**PROPERTIES, **EXTRA}, keeps_undeclared=True)
    assert dict(conformer.results[0].undeclared) == {
        "colour": 1,
        "address.planet": 1,
        "lines.a": 1,
        "_extra": 2,
    }
    assert [row["_extra"] and json.loads(row["_extra"]) for row in rows] == [
        None,
        {"colour": "red", "address": {"planet": {"name": "p"}}},
        {"lines": [None, {"a": 1.5}], "_extra": "its own"},
        {"_extra": 5},
    ]
    assert [row["id"] for row in rows] == [1, 2, 3, None]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b'{"ID":1.50,"name":"a"}', b'{"id":1.50,"name":"a"}'),
        (b'{"address":{"City":"x"},"more":2}', b'{"address":{"city":"x"},"more":2}'),
        (b'{"Address":{"City":"x"}}', b'{"address":{"city":"x"}}'),
        (b'{"LINES":[null,{"CITY":"x"}]}', b'{"lines":[null,{"city":"x"}]}'),
        (b'{"id":1,"Id":2}', b'{"id":1}'),
        (b'{"Id":1,"ID":2}', b"{}"),
        (b'{"BOTH":1}', b"{}"),
        (b'{"anything":{"ID":1},"id":[{"Id":1}]}', b'{"anything":{"ID":1},"id":[]}'),
    ],
)
def test_a_field_that_is_renamed_in_case_only_is_the_declared_one(
    conformer: Conformer, record: bytes, expected: bytes
) -> None:
    properties = {**PROPERTIES, "both": INTEGER, "Both": INTEGER}
    row, other = conformer.rows(properties, [record, expected])
    assert {**row, "_airbyte_raw_id": ""} == {**other, "_airbyte_raw_id": ""}


NAMES = st.sampled_from(["a", "b", "c", 'q"', "d.e"])
SCHEMAS = st.recursive(
    st.just(INTEGER),
    lambda inner: (
        inner.map(array) | st.dictionaries(NAMES, inner, min_size=1).map(lambda p: struct(**p))
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.none() | st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, SCHEMAS), st.lists(st.dictionaries(NAMES, VALUES), max_size=5))
def test_undeclared_fields_are_found_for_any_record_and_schema(
    conformer: Conformer, properties: dict[str, Any], records: list[Any]
) -> None:
    expected: Counter[str] = Counter()
    for record in records:
        expected.update(set(_expected(record, struct(**properties), "")))
    assert counts(conformer, properties, *records) == dict(expected)


def _expected(value: Any, schema: Any, prefix: str) -> list[str]:
    """Find undeclared fields by plain recursion over Python values."""
    while schema.get("type") == "array":
        schema = schema["items"]
    if "properties" not in schema:
        return []
    if isinstance(value, list):
        return [name for item in value for name in _expected(item, schema, prefix)]
    if not isinstance(value, dict):
        return []
    found: list[str] = []
    for name, inner in value.items():
        path = f"{prefix}.{name}" if prefix else name
        known = schema["properties"].get(name)
        found += [path] if known is None else _expected(inner, known, path)
    return found


def test_undeclared_fields_are_found_in_a_field_that_many_values_do_not_fit(
    conformer: Conformer,
) -> None:
    segment = stage(
        conformer.folder, [{"address": 5}] * 40 + [{"address": {"City": "x", "zip": 1}}]
    )
    rows, _ = conformer.parse(segment, {"address": ADDRESS})
    assert rows[-1]["address"] == {"city": "x"}
    assert dict(conformer.results[0].undeclared) == {"address.zip": 1}
