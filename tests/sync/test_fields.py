"""A selection of fields as a schema sees it, and what it keeps against its word."""

from __future__ import annotations

from typing import Any

import pytest

from elt_assets.protocol.catalog import AirbyteStream, ConfiguredStream
from elt_assets.sync.field_selection import (
    FieldSelection,
    Path,
    describe_kept_fields,
    land_schema,
    land_stream,
    narrow_schema,
    narrow_stream,
    properties,
)

Json = dict[str, Any]
TEXT = {"type": "string"}
HASHED = {"type": ["null", "string"]}
ADDRESS = {"type": "object", "properties": {"city": TEXT, "zip": TEXT}, "required": ["zip"]}
SCHEMA: Json = {
    "type": "object",
    "required": ["id", "ssn"],
    "additionalProperties": True,
    "properties": {
        "id": {"type": "integer", "description": "of the user"},
        "ssn": TEXT,
        "address": ADDRESS,
        "contacts": {"type": "array", "items": {"properties": {"email": TEXT, "kind": TEXT}}},
        "pet": {"oneOf": [{"type": "null"}, {"properties": {"name": TEXT, "age": TEXT}}]},
        "tags": {"type": "array", "items": TEXT},
    },
}


def paths(*written: str) -> tuple[Path, ...]:
    return tuple(tuple(path.split(".")) for path in written)


def shape(schema: Any) -> Any:
    """A schema's fields by name: nested dicts, and None where there are none."""
    return {name: shape(inner) for name, inner in properties(schema).items()} or None


WHOLE = shape(SCHEMA)


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        (
            FieldSelection(exclude=paths("ssn", "address.zip", "contacts.email", "pet.age")),
            WHOLE
            | {"address": {"city": None}, "contacts": {"kind": None}, "pet": {"name": None}}
            | {"ssn": ...},
        ),
        (FieldSelection(exclude=paths("address", "address.zip")), WHOLE | {"address": ...}),
        (FieldSelection(exclude=paths("address"), key=paths("address.zip")),
            WHOLE | {"address": {"zip": None}}),
        (FieldSelection(exclude=paths("id"), key=paths("id")), WHOLE),
        (FieldSelection(exclude=paths("address.zip"), key=paths("address")), WHOLE),
        (FieldSelection(exclude=paths("nothing.such")), WHOLE),
        (FieldSelection(include=paths("address.city", "tags")),
            {"address": {"city": None}, "tags": None}),
        (FieldSelection(include=paths("tags"), key=paths("id"), cursor=("address", "zip")),
            {"id": None, "tags": None, "address": {"zip": None}}),
        (FieldSelection(include=paths("address"), key=paths("address.zip")),
            {"address": {"city": None, "zip": None}}),
        (FieldSelection(hashed=paths("ssn")), WHOLE),
    ],
)  # fmt: skip
def test_excluded_fields_are_removed_from_the_schema(fields: FieldSelection, left: Json) -> None:
    expected = {name: inner for name, inner in left.items() if inner is not ...}
    assert shape(narrow_schema(SCHEMA, fields)) == expected
    assert shape(land_schema(SCHEMA, fields)) == expected


def test_excluded_fields_are_not_required() -> None:
    found = narrow_schema(SCHEMA, FieldSelection(exclude=paths("ssn", "address.zip")))
    assert (found["required"], found["additionalProperties"]) == (["id"], True)
    assert found["properties"]["address"]["required"] == []


def test_a_hashed_field_is_stored_as_text_and_requested_with_its_type() -> None:
    fields = FieldSelection(hashed=paths("id", "address.zip", "contacts.email", "pet.age", "tags"))
    assert narrow_schema(SCHEMA, fields) == SCHEMA
    found = land_schema(SCHEMA, fields)["properties"]
    assert found["id"] == HASHED | {"description": "of the user"}
    assert found["tags"] == HASHED
    assert properties(found["address"]) == {"city": TEXT, "zip": HASHED}
    assert properties(found["contacts"]) == {"email": HASHED, "kind": TEXT}
    assert properties(found["pet"]) == {"name": TEXT, "age": HASHED}


@pytest.mark.parametrize("schema", [{}, {"properties": []}, {"properties": {"a": True}}])
def test_a_schema_without_the_selected_fields_is_not_changed(schema: Json) -> None:
    fields = FieldSelection(exclude=paths("x.y"), hashed=paths("a.b"))
    assert land_schema(schema, fields) == schema


@pytest.mark.spec("protocol.51")
def test_only_the_schema_of_a_stream_is_changed() -> None:
    stream = ConfiguredStream(
        stream=AirbyteStream(name="a", json_schema=SCHEMA), sync_mode="incremental", generation_id=3
    )
    fields = FieldSelection(exclude=paths("ssn"), hashed=paths("id"))
    asking, landing = narrow_stream(stream, fields), land_stream(stream, fields)
    assert stream.stream.json_schema == SCHEMA
    assert asking.stream.json_schema == narrow_schema(SCHEMA, fields)
    assert landing.stream.json_schema == land_schema(SCHEMA, fields)
    assert (asking.id, landing.sync_mode, landing.generation_id) == (stream.id, "incremental", 3)
    assert narrow_stream(stream, None) == land_stream(stream, None) == stream


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            FieldSelection(exclude=paths("id"), key=paths("id")),
            "'id' is still stored: it is",
        ),
        (
            FieldSelection(exclude=paths("a"), key=paths("a.id")),
            "'a.id' in 'a' is still stored: it is the stream's primary key",
        ),
        (
            FieldSelection(exclude=paths("at.day"), cursor=("at",)),
            "'at.day' is still stored: 'at' is the stream's cursor, which is always kept",
        ),
    ],
)
def test_excluded_fields_that_are_kept_are_reported(fields: FieldSelection, reason: str) -> None:
    [notice] = describe_kept_fields(fields)
    assert notice.startswith("fields.exclude: ")
    assert reason in notice


@pytest.mark.parametrize(
    "fields",
    [
        None,
        FieldSelection(exclude=paths("ssn"), key=paths("id"), cursor=("at",)),
        FieldSelection(include=paths("ssn"), key=paths("id")),
    ],
)
def test_nothing_is_reported_if_all_rules_are_applied(fields: FieldSelection | None) -> None:
    assert describe_kept_fields(fields) == []
