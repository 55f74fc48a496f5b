"""The Singer catalog of a source, and the selection that a tap gets.

Spec: Singer, discovery mode and the catalog's metadata.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.sdk.declared_stream import make_schema
from connectors.sdk.items import Record
from connectors.sdk.stream import Stream
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream
from elt_assets.protocol.singer_catalog import (
    FULL_TABLE,
    Breadcrumb,
    Entry,
    metadata_by_breadcrumb,
    metadata_list,
)

_INCREMENTAL = "INCREMENTAL"
_METHODS = {FULL_TABLE: FULL_REFRESH, _INCREMENTAL: INCREMENTAL}

Excluded = dict[str, "Excluded | None"]
"""The fields that are not selected, by name: None for the whole field, or those inside of it."""


@dataclass(frozen=True)
class SelectedStream:
    """A stream that is to be read, with the fields that are not."""

    stream: Stream
    configured: ConfiguredStream
    excluded: Excluded

    @property
    def name(self) -> str:
        return stream_name(self.stream)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the selected fields."""
        return _schema_without(make_schema(self.stream), self.excluded)

    @property
    def key_properties(self) -> list[str]:
        return _key_properties(self.stream)

    @property
    def bookmark_properties(self) -> list[str]:
        is_incremental = self.configured.sync_mode == INCREMENTAL
        return list(self.stream.describe().default_cursor_field or ()) if is_incremental else []


def stream_name(stream: Stream) -> str:
    """Return the `tap_stream_id` of a stream, which is also its name in messages and bookmarks."""
    return stream.name if stream.namespace is None else f"{stream.namespace}-{stream.name}"


def catalog_entry(stream: Stream) -> Entry:
    """Return a stream's entry of the catalog that `--discover` prints. Everything is selected by default."""
    name, schema = stream_name(stream), dict(make_schema(stream))
    key, cursor, methods = _key_properties(stream), _cursor(stream), _methods(stream)
    root: dict[str, Any] = {"inclusion": "available", "selected-by-default": True}
    root["table-key-properties"] = key
    entry: Entry = {"tap_stream_id": name, "stream": name, "schema": schema, "key_properties": key}
    entry["replication_method"] = methods[0]
    if cursor is None:
        root["forced-replication-method"] = methods[0]
    else:
        root["valid-replication-keys"] = [cursor]
        entry["replication_key"] = cursor
    metadata: dict[Breadcrumb, dict[str, Any]] = {(): root}
    for field in schema.get("properties") or {}:
        inclusion = "automatic" if field in {*key, cursor} else "available"
        metadata["properties", field] = {"inclusion": inclusion, "selected-by-default": True}
    entry["metadata"] = metadata_list(metadata)
    return entry


def select_streams(
    entries: Sequence[Entry], streams: Sequence[Stream]
) -> Iterator[SelectedStream | str]:
    """Yield the streams that a catalog selects; for a stream that the source does not have, its name.

    Raises:
        ConfigError: the catalog requests what a stream does not support.
    """
    streams_by_name = {stream_name(stream): stream for stream in streams}
    for entry in entries:
        metadata = metadata_by_breadcrumb(entry)
        if not _is_stream_selected(entry, metadata.get((), {})):
            continue
        name = str(entry.get("tap_stream_id") or entry.get("stream"))
        yield _select(streams_by_name[name], entry, metadata) if name in streams_by_name else name


def remove_fields(record: Record, excluded: Excluded) -> Record:
    """Return a record without the fields that are not selected."""
    result = {}
    for name, value in record.items():
        inner = excluded.get(name, {})
        if inner is not None:
            result[name] = (
                remove_fields(value, inner) if inner and isinstance(value, dict) else value
            )
    return result


def _select(
    stream: Stream, entry: Entry, metadata: Mapping[Breadcrumb, Mapping[str, Any]]
) -> SelectedStream:
    root = metadata.get((), {})
    cursor, methods = _cursor(stream), _methods(stream)
    method = root.get("replication-method") or entry.get("replication_method") or methods[0]
    key = root.get("replication-key") or entry.get("replication_key")
    if method not in methods or (method == _INCREMENTAL and key not in (None, cursor)):
        with_key = f" with {cursor!r}" if cursor else ""
        raise ConfigError(
            f"the catalog requests stream {stream_name(stream)!r} by {method} with replication key {key!r}, "
            f"but it can be read by {' or '.join(methods)}{with_key}",
            guidance="correct `replication-method` and `replication-key` in the catalog's metadata",
        )
    configured = ConfiguredStream(stream=stream.describe(), sync_mode=_METHODS[method])
    always_kept = {*_key_properties(stream), cursor}
    excluded = _find_excluded(make_schema(stream), metadata, ())
    return SelectedStream(
        stream,
        configured,
        {name: part for name, part in excluded.items() if name not in always_kept},
    )


def _key_properties(stream: Stream) -> list[str]:
    """Return the primary key; empty if a part of it is inside of an object, which Singer cannot express."""
    paths = stream.describe().source_defined_primary_key or []
    return [path[0] for path in paths] if all(len(path) == 1 for path in paths) else []


def _methods(stream: Stream) -> list[str]:
    """Return the replication methods of a stream, its own first. Without a cursor that Singer can express, it
    is incremental only if it finds itself what is new."""
    described = stream.describe()
    finds_new = INCREMENTAL in described.sync_modes and bool(described.source_defined_cursor)
    return [_INCREMENTAL, FULL_TABLE] if finds_new or _cursor(stream) is not None else [FULL_TABLE]


def _cursor(stream: Stream) -> str | None:
    described = stream.describe()
    path = described.default_cursor_field or []
    return path[0] if INCREMENTAL in described.sync_modes and len(path) == 1 else None


def _is_stream_selected(entry: Entry, root: Mapping[str, Any]) -> bool:
    """Return whether a stream is selected: by its metadata, or by the properties that older catalogs use."""
    schema = entry.get("schema") or {}
    choices = (
        root.get("selected"),
        entry.get("selected"),
        schema.get("selected"),
        root.get("selected-by-default"),
    )
    return bool(next((choice for choice in choices if choice is not None), False))


def _find_excluded(
    schema: Any, metadata: Mapping[Breadcrumb, Mapping[str, Any]], place: Breadcrumb
) -> Excluded:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    excluded: Excluded = {}
    for name, part in (properties or {}).items():
        path = (*place, "properties", name)
        if not _is_field_selected(metadata.get(path, {})):
            excluded[name] = None
        elif inner := _find_excluded(part, metadata, path):
            excluded[name] = inner
    return excluded


def _is_field_selected(metadata: Mapping[str, Any]) -> bool:
    if metadata.get("inclusion") in ("automatic", "unsupported"):
        return bool(metadata["inclusion"] == "automatic")
    return bool(metadata.get("selected", metadata.get("selected-by-default", True)))


def _schema_without(schema: Mapping[str, Any], excluded: Excluded) -> dict[str, Any]:
    narrowed = copy.deepcopy(dict(schema))
    for name, inner in excluded.items():
        if inner is None:
            del narrowed["properties"][name]
            if name in narrowed.get("required", ()):
                narrowed["required"].remove(name)
        else:
            narrowed["properties"][name] = _schema_without(narrowed["properties"][name], inner)
    return narrowed
