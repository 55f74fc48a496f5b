"""The changes between two catalogs that are reported."""

from __future__ import annotations

from typing import Any

import pytest

from elt_assets.connection.catalog_diff import changes
from elt_assets.protocol.catalog import AirbyteStream, Catalog

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def catalog(properties: dict[str, Any] | None = None, name: str = "users", **more: Any) -> Catalog:
    schema = {"type": "object", "properties": properties or {"id": WHOLE}}
    return Catalog(streams=[AirbyteStream(name=name, json_schema=schema, **more)])


def descriptions(old: Catalog, new: Catalog) -> list[str]:
    return [f"{change.stream}: {change.description}" for change in changes(old, new)]


@pytest.mark.parametrize(
    ("before", "after", "description"),
    [
        ({}, {"a": TEXT}, "users: a is new: string"),
        ({"a": TEXT}, {}, "users: a is gone: it was string"),
        ({"a": TEXT}, {"a": WHOLE}, "users: a was string, and is integer"),
        (
            {"a": TEXT},
            {"a": {**TEXT, "format": "date"}},
            "users: a was string, and is string (date)",
        ),
        (
            {"a": {"type": "object", "properties": {"b": TEXT}}},
            {"a": {"type": "object", "properties": {"b": WHOLE}}},
            "users: a.b was string, and is integer",
        ),
        (
            {"a": {"type": "array", "items": TEXT}},
            {"a": {"type": "array", "items": WHOLE}},
            "users: a was array of string, and is array of integer",
        ),
        (
            {"a": {"type": "object", "properties": {"b": {"properties": {"c": TEXT}}}}},
            {"a": {"type": "object", "properties": {}}},
            "users: a.b is gone: it was any",
        ),
        (
            {"a": {"oneOf": [TEXT, WHOLE]}},
            {"a": {"oneOf": [TEXT, {"type": "boolean"}]}},
            "users: a was integer | string, and is boolean | string",
        ),
    ],
)
def test_a_changed_column_is_reported(before: Any, after: Any, description: str) -> None:
    assert descriptions(catalog({"id": WHOLE, **before}), catalog({"id": WHOLE, **after})) == [
        description
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": "string"}, {"type": ["null", "string"]}),
        ({"type": ["string", "null"]}, {"type": ["null", "string"]}),
        (TEXT, {**TEXT, "description": "new words", "maxLength": 5, "examples": ["x"]}),
        ({"oneOf": [TEXT, WHOLE]}, {"oneOf": [WHOLE, {"type": "null"}, TEXT]}),
    ],
)
def test_a_schema_change_with_the_same_column_type_is_not_reported(before: Any, after: Any) -> None:
    assert not changes(catalog({"a": before}), catalog({"a": after}))


def test_new_and_removed_streams_are_reported() -> None:
    assert descriptions(catalog(), catalog(name="people")) == [
        "users: the source no longer has the stream",
        "people: the source has a new stream",
    ]


def test_changed_modes_keys_and_cursors_are_reported() -> None:
    old = catalog(supported_sync_modes=["full_refresh", "incremental"])
    new = catalog(
        supported_sync_modes=[],
        source_defined_primary_key=[["id"]],
        default_cursor_field=["at"],
        source_defined_cursor=True,
    )
    assert descriptions(old, new) == [
        "users: sync_modes was full_refresh, incremental, and is full_refresh",
        "users: primary_key was none, and is id",
        "users: cursor_field was none, and is at (defined by the source)",
    ]
    (change, *_) = changes(old, new)
    assert (change.kind, change.field, change.before) == (
        "sync_modes",
        None,
        "full_refresh, incremental",
    )


def test_malformed_schemas_can_be_compared() -> None:
    odd = {"a": True, "b": {"type": 5}, "c": {"oneOf": 5}, "d": {"items": []}, "e": None}
    assert not changes(catalog(odd), catalog(odd))
    assert len(changes(catalog(odd), catalog({**odd, "a": TEXT}))) == 1
