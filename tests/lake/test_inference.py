"""The types of values that no schema declares, and the declarations of columns that were added for them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from pyspark.sql import types as t

from elt_assets.lake.columns import from_json_schema
from elt_assets.lake.columns.added import (
    declare_columns,
    describe_field,
    join_fields,
    list_added,
    list_missing,
)
from elt_assets.lake.columns.from_json_schema import kind_of
from elt_assets.lake.columns.logical_types import Column, describe_type, to_stored
from elt_assets.lake.worker import inference

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["text", "2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01 00:00:00"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abAB"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(values=st.lists(VALUES, max_size=6), data=st.data(), by_form=st.booleans())
def test_a_schema_does_not_depend_on_the_order_of_values(
    values: list[Any], data: st.DataObject, *, by_form: bool
) -> None:
    """Nor on the tasks that have seen them: schemas of parts are merged into the same one."""
    schemas = [inference.infer(value, by_form=by_form) for value in values]
    mixed = data.draw(st.permutations(schemas))
    cut = data.draw(st.integers(0, len(mixed)))
    parts = inference.merge_all(mixed[:cut]), inference.merge_all(mixed[cut:])
    whole = inference.merge_all(schemas)
    assert inference.merge(*parts) == whole
    assert inference.merge(whole, whole) == whole
    assert inference.has_type(whole) is any(value is not None for value in values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 2], "bigint"),
        ([1, 2**63], "decimal(38,0)"),
        ([1, 1.5], "double"),
        ([10**38], "double"),
        ([True], "boolean"),
        (["a", "2024-01-01"], "string"),
        (["2024-01-01"], "date"),
        (["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5+01:00"], "timestamp"),
        (["2024-01-01 00:00:00"], "timestamp_ntz"),
        (["2024-01-01 00:00:00", "2024-01-01T00:00:00Z"], "timestamp"),
        ([1, "a"], "JSON text"),
        ([[]], "JSON text"),
        ([[1], [2.5], []], "array<double>"),
        ([{}], "JSON text"),
        ([{"a": 1}, {"b": [None]}], "struct<a:bigint,b:string>"),
        ([{str(n): 1} for n in range(inference.MAX_FIELDS + 1)], "JSON text"),
    ],
)
def test_the_types_of_values(values: list[Any], kind: str) -> None:
    schema = inference.merge_all(inference.infer(value, by_form=True) for value in values)
    (declared,) = inference.declare({"x": schema}).values()
    assert describe_type(kind_of(declared)) == kind


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int32(), "bigint"),
        (pa.uint64(), "decimal(38,0)"),
        (pa.float32(), "double"),
        (pa.decimal128(10, 2), "decimal(38,9)"),
        (pa.decimal128(10, 0), "decimal(38,0)"),
        (pa.bool_(), "boolean"),
        (pa.date32(), "date"),
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.timestamp("us"), "timestamp_ntz"),
        (pa.large_string(), "string"),
        (pa.binary(), "binary"),
        (pa.list_(pa.int64()), "JSON text"),
    ],
)
def test_the_types_of_arrow(kind: pa.DataType, expected: str) -> None:
    assert describe_type(kind_of(inference.infer_arrow(kind))) == expected


def test_what_cannot_be_read_may_be_any_value() -> None:
    for text in (b"[" * 5000 + b"]" * 5000, b"NaN"):
        assert inference.infer(Raw(text)) == inference.ANY


@given(VALUES)
def test_an_added_column_is_declared_as_it_is_stored(value: Any) -> None:
    """So that a source is asked for its type, and a catalog that lacks it is shown what it lacks."""
    new_fields = inference.declare({"x y": inference.infer(value)})
    schema = {"properties": {"id": {"type": "integer"}}}
    columns = declare_columns(schema, t.StructType(), {}, new_fields)
    table = t.StructType([column.field for column in columns])
    table = t.StructType.fromJson(json.loads(table.json()))
    missing = list_missing(table, schema["properties"])
    assert missing.keys() == new_fields.keys()
    for name, declared in missing.items():
        (column,) = (c for c in columns if c.source == name)
        assert to_stored(kind_of(declared)) == to_stored(column.kind)
    again = declare_columns(schema, table, from_json_schema.read_names(table))
    assert [(c.name, c.is_added) for c in again] == [(c.name, c.is_added) for c in columns]
    complete = join_fields(schema["properties"], new_fields)
    assert not list_missing(table, complete)
    later = declare_columns({"properties": complete}, table, from_json_schema.read_names(table))
    assert [c.name for c in later] == [c.name for c in columns]


def test_added_fields_within_objects_keep_their_marks() -> None:
    schema = {
        "properties": {
            "lines": {
                "type": "array",
                "items": {"type": "object", "properties": {"sku": {"type": "string"}}},
            }
        }
    }
    new_fields = {"lines": {"items": {"properties": {"note": {"type": ["null", "string"]}}}}}
    columns = declare_columns(schema, t.StructType(), {}, new_fields)
    assert [path for path, _ in list_added(columns)] == [["lines", "note"]]
    table = t.StructType([column.field for column in columns])
    missing = list_missing(table, schema["properties"])
    assert list(missing["lines"]["items"]["properties"]) == ["note"]
    assert _kinds(declare_columns(schema, table, {})) == _kinds(columns)


def _kinds(columns: list[Column]) -> list[Any]:
    return [describe_field(column.kind) for column in columns]
