"""Singer's catalogs: what is discovered, and what is selected of it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.catalog import AirbyteStream, Catalog, ConfiguredStream
from elt_assets.protocol.singer_catalog import (
    attach_all_entries,
    make_log_based,
    map_record_names,
    read_catalog,
    remove_entries,
    selection,
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


def discover(*entries: dict[str, Any]) -> list[AirbyteStream]:
    """Write and read the catalog as the file that catalogs are kept in."""
    catalog = read_catalog(json.dumps({"streams": entries}).encode())
    pretty = json.dumps(json.loads(catalog.to_json()), indent=2)
    return Catalog.from_json(pretty).streams


def discover_one(root: dict[str, Any] | None = None, **more: Any) -> AirbyteStream:
    return discover(entry(root, **more))[0]


def select(stream: AirbyteStream, **more: Any) -> dict[str, Any]:
    [tap_entry] = selection([ConfiguredStream(stream=stream, **more)])["streams"]
    return dict(tap_entry)


def metadata(tap_entry: dict[str, Any], *breadcrumb: str) -> dict[str, Any]:
    [contents] = [
        m["metadata"] for m in tap_entry["metadata"] if m["breadcrumb"] == list(breadcrumb)
    ]
    return dict(contents)


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
        (
            {"forced-replication-method": "INCREMENTAL"},
            {}, ["full_refresh", "incremental"], None, True,
        ),
        (
            {"forced-replication-method": "INCREMENTAL", "valid-replication-keys": ["id", "at"]},
            {}, ["full_refresh", "incremental"], None, None,
        ),
    ],
)  # fmt: skip
def test_sync_modes_and_cursor_are_read_from_the_metadata(
    root: dict[str, Any],
    more: dict[str, Any],
    modes: list[str],
    cursor: list[str] | None,
    own: bool | None,
) -> None:
    stream = discover_one(root, **more)
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
    assert discover_one(root, **more).source_defined_primary_key == key


@pytest.mark.spec("singer.15")
def test_all_other_entries_of_a_tap_are_passed_and_not_selected() -> None:
    parent = entry(tap_stream_id="parents", root={"selected-by-default": True, "selected": True})
    old = {"stream": "old", "schema": {"properties": PROPERTIES, "selected": True}}
    every = [parent, entry(), old]
    streams = attach_all_entries(Catalog(streams=discover(*every))).streams

    entries = selection([ConfiguredStream(stream=streams[1])])["streams"]

    names = [tap_entry.get("tap_stream_id", tap_entry["stream"]) for tap_entry in entries]
    assert names == ["parents", "db-users", "old"]
    for tap_entry, is_selected in zip(entries, [False, True, False], strict=True):
        assert metadata(tap_entry)["selected"] is is_selected
        assert tap_entry["selected"] is tap_entry["schema"]["selected"] is is_selected
    assert entries[0]["schema"]["properties"] == PROPERTIES and len(entries[0]["metadata"]) == 3
    assert entries[1] == select(discover(entry())[0])
    assert (
        entries
        == selection([ConfiguredStream(stream=stream) for stream in streams[1:2]])["streams"]
    )


def test_a_destination_gets_no_entries() -> None:
    [stream] = attach_all_entries(Catalog(streams=discover(entry()))).streams
    assert set(stream.extra) == {"singer", "singer_catalog"}
    assert remove_entries(ConfiguredStream(stream=stream)).stream.extra == {}
    assert set(stream.extra) == {"singer", "singer_catalog"}


@pytest.mark.spec("singer.15")
def test_only_the_selection_of_an_entry_is_changed() -> None:
    own = entry({"x": 1}, row_count=10**30, title="ü")
    again = select(discover_one({"x": 1}, row_count=10**30, title="ü"))
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
    tap_entry = select(
        discover_one({"replication-key": "id"}), sync_mode="incremental", cursor_field=["at"]
    )
    settings = metadata(tap_entry)
    assert (settings["selected"], settings["replication-method"]) == (True, "INCREMENTAL")
    assert settings["replication-key"] == tap_entry["replication_key"] == "at"
    assert tap_entry["replication_method"] == "INCREMENTAL"
    assert tap_entry["schema"]["selected"] is True


def test_a_full_refresh_has_no_cursor() -> None:
    tap_entry = select(discover_one({"replication-key": "at"}, replication_key="at"))
    assert (
        metadata(tap_entry)["replication-method"] == tap_entry["replication_method"] == "FULL_TABLE"
    )
    assert "replication-key" not in metadata(tap_entry) and "replication_key" not in tap_entry


@pytest.mark.spec("singer.18")
def test_a_log_based_stream_stays_log_based_except_in_a_full_refresh() -> None:
    stream = discover_one({"replication-method": "LOG_BASED"})
    assert metadata(select(stream, sync_mode="incremental"))["replication-method"] == "LOG_BASED"
    assert metadata(select(stream))["replication-method"] == "FULL_TABLE"


@pytest.mark.spec("sdk.8")
def test_a_nested_cursor_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a single top-level field.* it is a\.b"):
        select(discover_one(), sync_mode="incremental", cursor_field=["a", "b"])


def test_fields_that_the_schema_omits_are_not_selected() -> None:
    stream = copy.copy(discover_one())
    stream.json_schema = {"type": "object", "properties": {"note": PROPERTIES["note"]}}
    tap_entry = select(stream)
    assert metadata(tap_entry, "properties", "id") == {"inclusion": "automatic"}
    assert metadata(tap_entry, "properties", "at") == {
        "inclusion": "available",
        "selected": False,
    }
    assert metadata(tap_entry, "properties", "note") == {"selected": True}


def test_nested_fields_are_selected_if_the_tap_supports_it() -> None:
    inner = {"type": "object", "properties": {"a": {}, "b": {}}}
    own = entry(schema={"properties": {"o": inner, "p": inner}})
    own["metadata"] += [
        {"breadcrumb": ["properties", "o", "properties", name], "metadata": {}} for name in "ab"
    ]
    [stream] = discover(own)
    stream.json_schema = {"properties": {"o": {"properties": {"a": {}}}, "p": inner}}
    tap_entry = select(stream)
    assert metadata(tap_entry, "properties", "o", "properties", "a") == {"selected": True}
    assert metadata(tap_entry, "properties", "o", "properties", "b") == {"selected": False}
    assert not any(
        m["breadcrumb"][:3] == ["properties", "p", "properties"] for m in tap_entry["metadata"]
    )


def test_all_fields_are_selected_if_the_schema_has_no_properties() -> None:
    stream = copy.copy(discover_one())
    stream.json_schema = {}
    assert metadata(select(stream), "properties", "at")["selected"] is True


def test_taps_without_metadata_are_selected_in_the_schema() -> None:
    stream = discover_one(metadata=None)
    stream.json_schema = {"properties": {"id": {}}}
    tap_entry = select(stream)
    assert tap_entry["schema"]["selected"] is True
    selected = {name: part["selected"] for name, part in tap_entry["schema"]["properties"].items()}
    assert selected == {"id": True, "at": False, "note": False}


@pytest.mark.parametrize("more", [{}, {"metadata": None}])
def test_fields_of_a_schema_in_several_parts_are_selected(more: dict[str, Any]) -> None:
    row: dict[str, Any] = {"properties": {"at": {}, "note": {}}}
    parts = {"allOf": [{"$ref": "#/definitions/row"}], "definitions": {"row": row}}
    stream = discover_one(schema={**parts, "properties": {"id": {}}}, **more)
    assert list(stream.json_schema["properties"]) == ["id", "at", "note"]
    stream.json_schema = {"properties": {"id": {}, "at": {}}}
    tap_entry = select(stream)
    selected = [metadata(tap_entry, "properties", name).get("selected") for name in ("at", "note")]
    assert selected == [True, False]
    assert tap_entry["schema"]["allOf"] == parts["allOf"]


def test_a_stream_of_another_source_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'x' was not discovered from a Singer tap\n.*discover"):
        select(AirbyteStream(name="x", json_schema={}))


def test_only_unambiguous_record_names_are_mapped_to_streams() -> None:
    ids = ("a-users", "b-users", "c-orders", "orders2", "plain")
    names = ("users", "users", "orders", "plain", "plain")
    entries = [entry(tap_stream_id=i, stream=n) for i, n in zip(ids, names, strict=True)]
    streams = [ConfiguredStream(stream=stream) for stream in discover(*entries)]
    assert map_record_names(streams) == {"orders": "c-orders"}
    assert map_record_names(streams[:1]) == {"users": "a-users"}


def test_log_based_replication_can_be_selected() -> None:
    stream = make_log_based(discover_one({"replication-method": "FULL_TABLE"}))
    assert (stream.sync_modes, stream.source_defined_cursor) == (
        ["full_refresh", "incremental"],
        True,
    )
    amended = discover_one({"replication-key": "at"})
    amended.json_schema = {"properties": {"id": {"type": "string"}}}  # by hand, in catalog.json
    assert make_log_based(amended).json_schema == amended.json_schema
    assert make_log_based(amended).default_cursor_field is None

    tap_entry = select(stream, sync_mode="incremental")
    assert (
        metadata(tap_entry)["replication-method"] == tap_entry["replication_method"] == "LOG_BASED"
    )
    assert "replication-key" not in metadata(tap_entry)


def test_log_based_replication_is_refused_if_the_tap_forces_another_method() -> None:
    with pytest.raises(ConfigError, match="'db-users' only by FULL_TABLE"):
        make_log_based(discover_one({"forced-replication-method": "FULL_TABLE"}))
    with pytest.raises(ConfigError, match="'users' was not discovered from a Singer tap"):
        make_log_based(AirbyteStream(name="users", json_schema={}))
