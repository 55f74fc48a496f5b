"""Each value that a schema allows is stored as it is, also if an option of a union does not name its type."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from elt_assets.lake.columns.from_json_schema import columns
from elt_assets.protocol.json_schema import compose_schema
from tests.lake.conforming import Conformer, changes

VALUES: list[Any] = ["a", "", 0, 7, -1.5, True, False, [], [1, "a"], {}, {"a": 1}, {"a": "x"}]
KINDS = ["string", "integer", "number", "boolean", "array", "object", "null"]
NOTES: list[Any] = [{}, {"title": "any"}, True, False, {"minimum": 3}, {"required": ["a"]}]
OPTIONS: Any = (
    st.sampled_from(KINDS).map(lambda kind: {"type": kind})
    | st.lists(st.sampled_from(KINDS), min_size=1, max_size=3).map(lambda kinds: {"type": kinds})
    | st.sampled_from([*VALUES, None]).map(lambda value: {"const": value})
    | st.lists(st.sampled_from([*VALUES, None]), max_size=2).map(lambda values: {"enum": values})
    | st.sampled_from(NOTES)
)
UNIONS = st.builds(
    lambda beside, keyword, options: {**beside, keyword: options},
    st.just({}) | st.lists(st.sampled_from(KINDS), min_size=1).map(lambda kinds: {"type": kinds}),
    st.sampled_from(["anyOf", "oneOf", "allOf"]),
    st.lists(OPTIONS, min_size=1, max_size=3),
)
SCHEMAS = st.one_of(
    UNIONS,
    st.builds(lambda first, second: {**second, **first}, UNIONS, UNIONS),
    OPTIONS,
    UNIONS.map(lambda schema: {"type": "array", "items": schema}),
    UNIONS.map(lambda schema: {"type": "object", "properties": {"a": schema}}),
)


@pytest.fixture(scope="module")
def conformer(tmp_path_factory: pytest.TempPathFactory) -> Conformer:
    return Conformer(tmp_path_factory.mktemp("segments"))


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(SCHEMAS, min_size=10, max_size=10))
def test_a_value_that_a_schema_allows_is_kept(conformer: Conformer, schemas: list[Any]) -> None:
    """An option without a type allows any value (MeltanoLabs/target-snowflake#162)."""
    properties = {f"f{number}": schema for number, schema in enumerate(schemas)}
    declared = columns(compose_schema({"type": "object", "properties": properties}))
    allowed = {
        name: [value for value in VALUES if Draft202012Validator(schema).is_valid(value)]
        for name, schema in properties.items()
    }
    records = [
        {name: values[row] for name, values in allowed.items() if row < len(values)}
        for row in range(len(VALUES))
    ]
    for row, record in zip(conformer.rows(declared, records), records, strict=True):
        assert changes(row) == [], (record, properties)
