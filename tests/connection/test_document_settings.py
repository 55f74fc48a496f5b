"""Streams of files in the catalog, and `include_files`."""

from __future__ import annotations

from typing import Any

import pytest

from elt_assets.connection import Connection, as_landed, resolve_streams
from elt_assets.connection.catalog_diff import changes
from elt_assets.connection.default_attributes import stream_attributes
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import AirbyteStream, Catalog, ConfiguredStream

pytestmark = pytest.mark.unit
FIELDS = {"source_uri": {"type": "string"}, "bytes": {"type": "integer"}}


def describe(*, files: bool | None = True, **more: Any) -> AirbyteStream:
    """A stream as airbyte-cdk describes one of files: no record has its key and its cursor."""
    return AirbyteStream(
        name="docs",
        json_schema={"type": "object", "properties": FIELDS},
        supported_sync_modes=["full_refresh", "incremental"],
        source_defined_cursor=True,
        default_cursor_field=["_ab_source_file_last_modified"],
        source_defined_primary_key=[["document_key"]],
        is_file_based=files,
        **more,
    )


def connect(**stream: Any) -> Connection:
    settings = {"name": "docs", "sync_mode": "incremental", **stream}
    attributes = {"name": "shop", "source": {"command": ["x"]}, "streams": [settings]}
    return Connection.model_validate(attributes)


def resolve(stream: AirbyteStream, **settings: Any) -> ConfiguredStream:
    (configured,) = resolve_streams(connect(**settings), Catalog(streams=[stream]))
    return configured


@pytest.mark.parametrize(
    ("files", "setting", "expected"),
    [(True, None, True), (True, True, True), (True, False, False), (None, None, None)],
)
def test_documents_are_stored_unless_the_connection_says_otherwise(
    files: bool | None, setting: bool | None, expected: bool | None
) -> None:
    stream = describe(files=files)
    stream.source_defined_primary_key = stream.default_cursor_field = None
    configured = resolve(stream, include_files=setting)
    assert configured.include_files is expected
    landed = as_landed(connect(include_files=setting), configured)
    assert ("file_reference" in landed.stream.json_schema["properties"]) is bool(expected)


def test_a_key_and_a_cursor_that_no_record_has_are_ignored() -> None:
    configured = resolve(describe())
    assert configured.key == [] and configured.cursor == []
    with pytest.raises(ConfigError, match="append_dedup needs one"):
        resolve(describe(), destination_sync_mode="append_dedup")
    key = [["source_uri"]]
    configured = resolve(describe(), destination_sync_mode="append_dedup", primary_key=key)
    assert configured.key == key
    with pytest.raises(ConfigError, match="no field 'document_key'"):
        resolve(describe(files=None), destination_sync_mode="append_dedup")


def test_a_new_connection_appends_such_streams() -> None:
    attributes = stream_attributes(describe(), lambda _: None)
    assert attributes is not None and "primary_key" not in attributes
    modes = (attributes["sync_mode"], attributes["destination_sync_mode"])
    assert modes == ("incremental", "append")


def test_a_stream_that_begins_to_have_files_is_a_change() -> None:
    before, after = Catalog(streams=[describe(files=None)]), Catalog(streams=[describe()])
    (change,) = changes(before, after)
    assert change.description == "is_file_based was none, and is true"
