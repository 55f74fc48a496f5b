"""Singer's catalogs: what is discovered, and what is selected of it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.airbyte.catalog import AirbyteStream, Catalog, ConfiguredStream
from elt_assets.protocol.singer.catalog import (
    log_based,
    read_catalog,
    selection,
    stream_names,
    with_all_entries,
    without_entries,
)

PROPERTIES = {"id": {"type": "integer"}, "at": {"type": "string"}, "note": {"type": "string"}}


def entry(root: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A tap's entry; `root`: its metadata of the stream."""
    fields = [
        {"breadcrumb": ["properties", "id"], "metadata": {"inclusion": "automatic"}},
        {"breadcrumb": ["properties", "at"], "metadata": {"inclusion": "available"}},
    ]
    return {
        "tap_stream_id": "db-users",
        "stream": "users",
        "schema": {"type": "object", "properties": PROPERTIES},
        "metadata": [{"breadcrumb": [], "metadata": root or {}}, *fields],
        **more,
    }


def discovered(*entries: dict[str, Any]) -> list[AirbyteStream]:
    """Write and read the catalog as the file that catalogs are kept in."""
    catalog = read_catalog(json.dumps({"streams": entries}).encode())
    pretty = json.dumps(json.loads(catalog.to_json()), indent=2)
    return Catalog.from_json(pretty).streams


def found(root: dict[str, Any] | None = None, **more: Any) -> AirbyteStream:
    return discovered(entry(root, **more))[0]


def chosen(stream: AirbyteStream, **more: Any) -> dict[str, Any]:
    [one] = selection([ConfiguredStream(stream=stream, **more)])["streams"]
    return dict(one)


def metadata(one: dict[str, Any], *breadcrumb: str) -> dict[str, Any]:
    [found] = [m["metadata"] for m in one["metadata"] if m["breadcrumb"] == list(breadcrumb)]
    return dict(found)


@pytest.mark.parametrize(
    ("root", "more", "modes", "cursor", "own"),
    [
        ({}, {}, ["full_refresh", "incremental"], None, None),
        ({"forced-replication-method": ""}, {}, ["full_refresh", "incremental"], None, None),
        ({"forced-replication-method": "FULL_TABLE"}, {}, ["full_refresh"], None, None),
        ({"replication-method": "FULL_TABLE"}, {}, ["full_refresh"], None, None),
        (
            {"replication-method": "FULL_TABLE", "valid-replication-keys": ["id", "at"]},
            {}, ["full_refresh", "incremental"], None, None,
        ),
        ({"valid-replication-keys": ["at"]}, {}, ["full_refresh", "incremental"], ["at"], None),
        (
            {"replication-key": "at", "forced-replication-method": "INCREMENTAL"},
            {}, ["full_refresh", "incremental"], ["at"], None,
        ),
        ({}, {"replication_key": "at"}, ["full_refresh", "incremental"], ["at"], None),
        ({"replication-method": "LOG_BASED"}, {}, ["full_refresh", "incremental"], None, True),
        ({}, {"replication_method": "LOG_BASED"}, ["full_refresh", "incremental"], None, True),
    ],
)  # fmt: skip
def test_sync_modes_and_cursor_are_read_from_the_metadata(
    root: dict[str, Any],
    more: dict[str, Any],
    modes: list[str],
    cursor: list[str] | None,
    own: bool | None,
) -> None:
    stream = found(root, **more)
    assert (stream.name, stream.namespace) == ("db-users", None)
    assert stream.supported_sync_modes == modes
    assert stream.default_cursor_field == cursor
    assert stream.source_defined_cursor == own


@pytest.mark.parametrize(
    ("root", "more", "key"),
    [
        ({"table-key-properties": ["a", "b"]}, {"key_properties": ["c"]}, [["a"], ["b"]]),
        ({"table-key-properties": [], "view-key-properties": ["v"]}, {}, [["v"]]),
        ({}, {"key_properties": ["c"]}, [["c"]]),
        ({"table-key-properties": []}, {"key_properties": []}, None),
    ],
)
def test_the_key_is_read_from_the_metadata_or_the_entry(
    root: dict[str, Any], more: dict[str, Any], key: list[list[str]] | None
) -> None:
    assert found(root, **more).source_defined_primary_key == key


@pytest.mark.spec("singer.15")
def test_all_other_entries_of_a_tap_are_passed_and_not_selected() -> None:
    parent = entry(tap_stream_id="parents", root={"selected-by-default": True, "selected": True})
    old = {"stream": "old", "schema": {"properties": PROPERTIES, "selected": True}}
    every = [parent, entry(), old]
    streams = with_all_entries(Catalog(streams=discovered(*every))).streams

    found = selection([ConfiguredStream(stream=streams[1])])["streams"]

    assert [one.get("tap_stream_id", one["stream"]) for one in found] == [
        "parents",
        "db-users",
        "old",
    ]
    assert [metadata(one)["selected"] for one in found] == [False, True, False]
    assert [(one["selected"], one["schema"]["selected"]) for one in found] == [
        (False, False),
        (True, True),
        (False, False),
    ]
    assert found[0]["schema"]["properties"] == PROPERTIES and len(found[0]["metadata"]) == 3
    assert found[1] == chosen(discovered(entry())[0])
    assert found == selection([ConfiguredStream(stream=one) for one in streams[1:2]])["streams"]


def test_a_destination_gets_no_entries() -> None:
    [stream] = with_all_entries(Catalog(streams=discovered(entry()))).streams
    assert set(stream.extra) == {"singer", "singer_catalog"}
    assert without_entries(ConfiguredStream(stream=stream)).stream.extra == {}
    assert set(stream.extra) == {"singer", "singer_catalog"}


@pytest.mark.spec("singer.15")
def test_only_the_selection_of_an_entry_is_changed() -> None:
    own = entry({"x": 1}, row_count=10**30, title="ü")
    again = chosen(found({"x": 1}, row_count=10**30, title="ü"))
    assert {k: again[k] for k in own if k not in ("metadata", "schema")} == {
        k: v for k, v in own.items() if k not in ("metadata", "schema")
    }
    assert again["schema"]["properties"] == PROPERTIES
    assert metadata(again)["x"] == 1


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b'{"streams":5}', b'{"streams":[5]}', b'{"streams":[{}]}',
        b'{"streams":[{"stream":"a","metadata":[{}]}]}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_malformed_catalog_is_an_error(text: bytes) -> None:
    with pytest.raises(SystemFailure, match="catalog cannot be read"):
        read_catalog(text)


@pytest.mark.spec("singer.17")
def test_an_incremental_read_uses_the_effective_cursor() -> None:
    one = chosen(found({"replication-key": "id"}), sync_mode="incremental", cursor_field=["at"])
    settings = metadata(one)
    assert (settings["selected"], settings["replication-method"]) == (True, "INCREMENTAL")
    assert settings["replication-key"] == one["replication_key"] == "at"
    assert one["replication_method"] == "INCREMENTAL"
    assert one["schema"]["selected"] is True


def test_a_full_refresh_has_no_cursor() -> None:
    one = chosen(found({"replication-key": "at"}, replication_key="at"))
    assert metadata(one)["replication-method"] == one["replication_method"] == "FULL_TABLE"
    assert "replication-key" not in metadata(one) and "replication_key" not in one


@pytest.mark.spec("singer.18")
def test_a_log_based_stream_stays_log_based_except_in_a_full_refresh() -> None:
    stream = found({"replication-method": "LOG_BASED"})
    assert metadata(chosen(stream, sync_mode="incremental"))["replication-method"] == "LOG_BASED"
    assert metadata(chosen(stream))["replication-method"] == "FULL_TABLE"


@pytest.mark.spec("sdk.8")
def test_a_nested_cursor_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a single top-level field.* it is a\.b"):
        chosen(found(), sync_mode="incremental", cursor_field=["a", "b"])


def test_fields_that_the_schema_omits_are_not_selected() -> None:
    stream = copy.copy(found())
    stream.json_schema = {"type": "object", "properties": {"note": PROPERTIES["note"]}}
    one = chosen(stream)
    assert metadata(one, "properties", "id") == {"inclusion": "automatic"}
    assert metadata(one, "properties", "at") == {"inclusion": "available", "selected": False}
    assert metadata(one, "properties", "note") == {"selected": True}


def test_nested_fields_are_selected_if_the_tap_supports_it() -> None:
    inner = {"type": "object", "properties": {"a": {}, "b": {}}}
    own = entry(schema={"properties": {"o": inner, "p": inner}})
    own["metadata"] += [
        {"breadcrumb": ["properties", "o", "properties", each], "metadata": {}} for each in "ab"
    ]
    [stream] = discovered(own)
    stream.json_schema = {"properties": {"o": {"properties": {"a": {}}}, "p": inner}}
    one = chosen(stream)
    assert metadata(one, "properties", "o", "properties", "a") == {"selected": True}
    assert metadata(one, "properties", "o", "properties", "b") == {"selected": False}
    assert not any(
        m["breadcrumb"][:3] == ["properties", "p", "properties"] for m in one["metadata"]
    )


def test_all_fields_are_selected_if_the_schema_has_no_properties() -> None:
    stream = copy.copy(found())
    stream.json_schema = {}
    assert metadata(chosen(stream), "properties", "at")["selected"] is True


def test_taps_without_metadata_are_selected_in_the_schema() -> None:
    stream = found(metadata=None)
    stream.json_schema = {"properties": {"id": {}}}
    one = chosen(stream)
    assert one["schema"]["selected"] is True
    selected = {name: part["selected"] for name, part in one["schema"]["properties"].items()}
    assert selected == {"id": True, "at": False, "note": False}


@pytest.mark.parametrize("more", [{}, {"metadata": None}])
def test_fields_of_a_schema_in_several_parts_are_selected(more: dict[str, Any]) -> None:
    row: dict[str, Any] = {"properties": {"at": {}, "note": {}}}
    parts = {"allOf": [{"$ref": "#/definitions/row"}], "definitions": {"row": row}}
    stream = found(schema={**parts, "properties": {"id": {}}}, **more)
    assert list(stream.json_schema["properties"]) == ["id", "at", "note"]
    stream.json_schema = {"properties": {"id": {}, "at": {}}}
    one = chosen(stream)
    selected = [metadata(one, "properties", name).get("selected") for name in ("at", "note")]
    assert selected == [True, False]
    assert one["schema"]["allOf"] == parts["allOf"]


def test_a_stream_of_another_source_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'x' was not discovered from a Singer tap\n.*discover"):
        chosen(AirbyteStream(name="x", json_schema={}))


def test_only_unambiguous_record_names_are_mapped_to_streams() -> None:
    ids = ("a-users", "b-users", "c-orders", "orders2", "plain")
    names = ("users", "users", "orders", "plain", "plain")
    entries = [entry(tap_stream_id=i, stream=n) for i, n in zip(ids, names, strict=True)]
    streams = [ConfiguredStream(stream=each) for each in discovered(*entries)]
    assert stream_names(streams) == {"orders": "c-orders"}
    assert stream_names(streams[:1]) == {"users": "a-users"}


def test_log_based_replication_can_be_selected() -> None:
    stream = log_based(found({"replication-method": "FULL_TABLE"}))
    assert (stream.sync_modes, stream.source_defined_cursor) == (
        ["full_refresh", "incremental"],
        True,
    )
    amended = found({"replication-key": "at"})
    amended.json_schema = {"properties": {"id": {"type": "string"}}}  # by hand, in catalog.json
    assert log_based(amended).json_schema == amended.json_schema
    assert log_based(amended).default_cursor_field is None

    one = chosen(stream, sync_mode="incremental")
    assert metadata(one)["replication-method"] == one["replication_method"] == "LOG_BASED"
    assert "replication-key" not in metadata(one)


def test_log_based_replication_is_refused_if_the_tap_forces_another_method() -> None:
    with pytest.raises(ConfigError, match="'db-users' only by FULL_TABLE"):
        log_based(found({"forced-replication-method": "FULL_TABLE"}))
    with pytest.raises(ConfigError, match="'users' was not discovered from a Singer tap"):
        log_based(AirbyteStream(name="users", json_schema={}))
