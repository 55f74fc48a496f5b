"""The types of values that no schema declares, as a JSON schema.

Used by `records` and `slice_batches` for the fields of records, by `write.writer`, which gives them columns
(`on_undeclared: add`), and by `elt discover --sample`, which also looks at the form of texts.

A schema is made value by value, and schemas are merged, so it does not depend on the order of the records or
on the tasks that have seen them. It declares each type that a value had: fields with several become what
`columns.from_json_schema` makes of such a schema. A null says nothing: a field without any other value has no
type (`has_type`), and no column.
`tests/lake/test_inference.py::test_a_schema_does_not_depend_on_the_order_of_values`

An object whose names are data (more than `MAX_FIELDS` of them) has no fields: it is JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Raw

MAX_FIELDS = 50
"""Maximum number of fields of an object that is taken for a structure."""
_BIG = 1 << 63
_MAX_DIGITS = 38
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?")
Schema = dict[str, Any]
"""A JSON schema of this module: `type` is a sorted list without `null`, empty if only nulls were seen."""
ANY: Schema = {"type": ["array", "boolean", "integer", "number", "object", "string"]}
"""The schema of any JSON."""
_DETAILS = ("format", "airbyte_type", "contentEncoding")
"""Keywords of scalars. Two schemas that differ in one of them become the plain type."""

_ARROW: tuple[tuple[Callable[[pa.DataType], bool], Schema], ...] = (
    (pa.types.is_boolean, {"type": ["boolean"]}),
    (pa.types.is_uint64, {"type": ["integer"], "airbyte_type": "big_integer"}),
    (pa.types.is_integer, {"type": ["integer"]}),
    (pa.types.is_floating, {"type": ["number"]}),
    (pa.types.is_date, {"type": ["string"], "format": "date"}),
    (pa.types.is_binary, {"type": ["string"], "contentEncoding": "base64"}),
    (pa.types.is_large_binary, {"type": ["string"], "contentEncoding": "base64"}),
    (pa.types.is_string, {"type": ["string"]}),
    (pa.types.is_large_string, {"type": ["string"]}),
)
"""The schemas of types of Arrow that have no parameters."""


def has_type(schema: Schema) -> bool:
    """Return whether a value other than null was seen."""
    return bool(schema.get("type"))


def infer(value: Any, *, by_form: bool = False) -> Schema:
    """Return the schema of a value: of JSON, or an object or list of raw values.

    Args:
        by_form: texts that are dates or times get their `format`.
    """
    if isinstance(value, Raw):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):  # a number that is no JSON, or far too deep
            return ANY
    if value is None:
        return {"type": []}
    if isinstance(value, dict):
        fields = {name: infer(inner, by_form=by_form) for name, inner in value.items()}
        return _close({"type": ["object"], "properties": fields})
    if isinstance(value, list):
        items = merge_all(infer(item, by_form=by_form) for item in value)
        return {"type": ["array"], "items": items}
    if isinstance(value, bool):
        return {"type": ["boolean"]}
    if isinstance(value, int):
        return _infer_integer(value)
    if isinstance(value, float):
        return {"type": ["number"]}
    return _infer_text(str(value)) if by_form else {"type": ["string"]}


def _infer_integer(value: int) -> Schema:
    if -_BIG <= value < _BIG:
        return {"type": ["integer"]}
    if abs(value) < 10**_MAX_DIGITS:
        return {"type": ["integer"], "airbyte_type": "big_integer"}
    return {"type": ["number"]}


def _infer_text(text: str) -> Schema:
    if _DATE.fullmatch(text):
        return {"type": ["string"], "format": "date"}
    match = _MOMENT.fullmatch(text)
    if match is None:
        return {"type": ["string"]}
    schema: Schema = {"type": ["string"], "format": "date-time"}
    return schema if match[2] else {**schema, "airbyte_type": "timestamp_without_timezone"}


def infer_arrow(kind: pa.DataType) -> Schema:
    """Return the schema of a column of Arrow that has values."""
    for is_of, schema in _ARROW:
        if is_of(kind):
            return dict(schema)
    if pa.types.is_decimal(kind):
        return {"type": ["number"], "airbyte_type": "big_number" if kind.scale else "big_integer"}
    if pa.types.is_timestamp(kind):
        zone = {} if kind.tz else {"airbyte_type": "timestamp_without_timezone"}
        return {"type": ["string"], "format": "date-time", **zone}
    return ANY


def merge(first: Schema, second: Schema) -> Schema:
    """Return the schema of the values of two schemas."""
    kinds = sorted({*first.get("type", ()), *second.get("type", ())})
    merged: Schema = {"type": kinds}
    parts = [schema for schema in (first, second) if has_type(schema)]
    for key in _DETAILS:
        details = {schema.get(key) for schema in parts}
        if len(details) == 1 and (detail := details.pop()) is not None:
            merged[key] = detail
    if merged.get("airbyte_type") is None:
        _keep_big(merged, parts)
    objects = [schema for schema in parts if "object" in schema["type"]]
    if objects and all("properties" in schema for schema in objects):
        merged["properties"] = merge_fields(*(schema["properties"] for schema in objects))
        merged = _close(merged)
    arrays = [schema["items"] for schema in parts if "items" in schema]
    if arrays:
        merged["items"] = merge_all(arrays)
    return merged


def _keep_big(merged: Schema, parts: list[Schema]) -> None:
    """Keep that some numbers are large, if the others are numbers of the same kind."""
    large = {schema["airbyte_type"] for schema in parts if "airbyte_type" in schema}
    if merged["type"] == ["integer"] and "big_integer" in large:
        merged["airbyte_type"] = "big_integer"


def merge_all(schemas: Iterable[Schema]) -> Schema:
    """Return the schema of the values of all schemas."""
    merged: Schema = {"type": []}
    for schema in schemas:
        merged = merge(merged, schema)
    return merged


def merge_fields(*objects: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return the fields of objects by their names, in the order in which they were seen."""
    merged: dict[str, Schema] = {}
    for fields in objects:
        for name, schema in fields.items():
            merged[name] = merge(merged[name], schema) if name in merged else schema
    return merged


def declare(fields: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return the declarations of fields for a catalog: those that have a type, and each may be null."""
    return {name: _declare(schema) for name, schema in fields.items() if has_type(schema)}


def _declare(schema: Schema) -> Schema:
    declared = {**schema, "type": ["null", *schema["type"]]}
    if "properties" in schema:
        declared["properties"] = declare(schema["properties"])
    if "items" in schema:
        del declared["items"]
        if has_type(schema["items"]):
            declared["items"] = _declare(schema["items"])
    return declared


def _close(schema: Schema) -> Schema:
    """Return an object without its fields, if it has too many of them."""
    if len(schema["properties"]) <= MAX_FIELDS:
        return schema
    return {key: value for key, value in schema.items() if key != "properties"}
