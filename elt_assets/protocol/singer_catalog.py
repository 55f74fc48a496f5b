"""Singer catalogs: the streams of a tap, and the selection that the tap gets for a read.

For `runner.singer_tap`, `connection.resolution`, `pipeline.connection_read`, connectors that are taps
(`connectors.sdk.singer`) and tests of taps (`connectors.testing`).

Spec: Singer, discovery mode and the catalog's metadata. A stream keeps the tap's own entry in its property
`singer`, so that `read` can return the entry with only the selection changed.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.catalog import (
    FULL_REFRESH,
    INCREMENTAL,
    AirbyteStream,
    Catalog,
    ConfiguredStream,
)
from elt_assets.protocol.json_schema import compose_schema, shallow
from elt_assets.protocol.singer import json_schema, key_paths
from elt_assets.protocol.wire import as_read, check_values

ENTRY = "singer"
"""The property of a stream that contains the tap's own entry."""
ALL_ENTRIES = "singer_catalog"
"""The property of a stream that contains the entries of all streams of its tap; the streams share it."""
FULL_TABLE = "FULL_TABLE"
LOG_BASED = "LOG_BASED"
_INCREMENTAL = "INCREMENTAL"
_MAX_QUOTED = 2_000
"""Maximum number of bytes of an output that an error quotes."""

Entry = dict[str, Any]
Breadcrumb = tuple[str, ...]
_STREAM: Breadcrumb = ()


def read_catalog(text: bytes) -> Catalog:
    """Return the output of `--discover` as a catalog of this project.

    Raises:
        SystemFailure: the output is not a Singer catalog.
    """
    try:
        check_values(text)
        entries = json.loads(shallow(as_read(text)))["streams"]
        return Catalog(streams=[_TapStream(dict(entry)).to_airbyte() for entry in entries])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SystemFailure(
            f"the tap's catalog cannot be read: {type(error).__name__}: {error}",
            guidance="its `--discover` must print a JSON object with `streams`, and nothing else",
            detail=f"its output begins with:\n{text[:_MAX_QUOTED].decode(errors='replace')}",
        ) from None


class _TapStream:
    """A stream in the catalog of a tap."""

    def __init__(self, entry: Entry):
        self.entry = entry
        self.fields = metadata_by_breadcrumb(entry)
        self.metadata = self.fields.get(_STREAM, {})

    @classmethod
    def read(cls, stream: AirbyteStream) -> _TapStream:
        """Return the stream from which one of this project was made.

        Raises:
            ConfigError: it was not made from one.
        """
        raw = stream.extra.get(ENTRY)
        if raw is None:
            raise ConfigError(
                f"stream {stream.name!r} was not discovered from a Singer tap",
                guidance="write the catalog again with `elt discover`",
            )
        return cls(dict(json.loads(bytes(raw))))

    def to_airbyte(self) -> AirbyteStream:
        key = self.metadata.get("table-key-properties") or self.metadata.get("view-key-properties")
        cursor = None if self.is_log_based else self.cursor
        return AirbyteStream(
            name=self.name,
            json_schema=json_schema(self.entry.get("schema") or {}),
            supported_sync_modes=self.list_sync_modes(cursor),
            source_defined_cursor=True if self.is_log_based or self.finds_new else None,
            default_cursor_field=None if cursor is None else [cursor],
            source_defined_primary_key=key_paths(key or self.entry.get("key_properties")),
            extra={ENTRY: self.encode()},
        )

    def encode(self) -> Raw:
        return Raw(json.dumps(self.entry, ensure_ascii=False).encode())

    @property
    def name(self) -> str:
        return str(self.entry.get("tap_stream_id") or self.entry["stream"])

    @property
    def method(self) -> str | None:
        """The replication method that the tap declares."""
        names = ("forced-replication-method", "replication-method")
        methods = (*map(self.metadata.get, names), self.entry.get("replication_method"))
        return next(filter(None, methods), None)

    @property
    def is_log_based(self) -> bool:
        return self.method == LOG_BASED

    @property
    def cursor(self) -> str | None:
        """The replication key that the tap declares; None if it declares none, or several valid ones."""
        valid = self.metadata.get("valid-replication-keys") or []
        only_field = valid[0] if len(valid) == 1 else None
        declared = self.metadata.get("replication-key") or self.entry.get("replication_key")
        field = declared or only_field
        return None if field is None else str(field)

    @property
    def finds_new(self) -> bool:
        """Whether the tap finds itself what is new, without a replication key: it forces INCREMENTAL, and
        names no key."""
        is_forced = self.metadata.get("forced-replication-method") == _INCREMENTAL
        return is_forced and not (self.cursor or self.metadata.get("valid-replication-keys"))

    def list_sync_modes(self, cursor: str | None) -> list[str]:
        """Return the sync modes. If the tap declares no replication key, the user chooses one. Only full
        refresh is supported if the tap forces FULL_TABLE, or declares it without a key."""
        choices = cursor or self.metadata.get("valid-replication-keys")
        is_forced = self.metadata.get("forced-replication-method") == FULL_TABLE
        if is_forced or (self.method == FULL_TABLE and not choices):
            return [FULL_REFRESH]
        return [FULL_REFRESH, INCREMENTAL]


def metadata_by_breadcrumb(entry: Entry) -> dict[Breadcrumb, dict[str, Any]]:
    """Return the metadata of a stream and of its fields, by breadcrumb; empty for old taps."""
    entries = entry.get("metadata") or []
    return {tuple(part["breadcrumb"]): dict(part.get("metadata") or {}) for part in entries}


def attach_all_entries(catalog: Catalog) -> Catalog:
    """Return a catalog in which each stream of a tap has the entries of all of them, for `selection`."""
    entries = [bytes(stream.extra[ENTRY]) for stream in catalog.streams if ENTRY in stream.extra]
    if not entries:
        return catalog
    entries_property = {ALL_ENTRIES: Raw(b"[" + b",".join(entries) + b"]")}
    streams = [copy.copy(stream) for stream in catalog.streams]
    for stream in streams:
        if ENTRY in stream.extra:
            stream.extra = {**stream.extra, **entries_property}
    return Catalog(streams=streams, extra=catalog.extra)


def remove_entries(stream: ConfiguredStream) -> ConfiguredStream:
    """Return a stream without its tap's entries, which mean nothing to a destination."""
    stream = copy.copy(stream)
    stream.stream = copy.copy(stream.stream)
    stream.stream.extra = {
        key: raw for key, raw in stream.stream.extra.items() if key not in (ENTRY, ALL_ENTRIES)
    }
    return stream


def selection(streams: Sequence[ConfiguredStream]) -> dict[str, Any]:
    """Return the catalog for `--catalog`: all streams of the tap, of which only the given ones are selected,
    with only those fields that their configured schemas still have.

    A tap reads a child stream by way of its parent, so it needs the parent's entry too.

    Raises:
        ConfigError: a stream is not from a tap, or its cursor is not a single top-level field.
    """
    selected = {stream.stream.name: _select(stream) for stream in streams}
    entry_lists = [stream.stream.extra.get(ALL_ENTRIES, b"[]") for stream in streams]
    entries: list[Entry] = []
    for entry in json.loads(bytes(entry_lists[0]) if entry_lists else "[]"):
        stream = _TapStream(entry)
        if stream.name in selected:
            entries.append(selected.pop(stream.name))
            continue
        metadata = metadata_list({**stream.fields, _STREAM: {**stream.metadata, "selected": False}})
        schema = {**(entry.get("schema") or {}), "selected": False}  # as in `_select`
        entries.append({**entry, "selected": False, "schema": schema, "metadata": metadata})
    return {"streams": [*entries, *selected.values()]}


def catalog_options(help_text: str) -> list[str]:
    """Return the options that pass the catalog to a tap, as its `--help` names them.

    Old taps read the selection from `--properties`. Some of them accept `--catalog` too, but ignore it.
    """
    if "--properties" not in help_text:
        return ["catalog"]
    return ["catalog", "properties"] if "--catalog" in help_text else ["properties"]


def map_record_names(streams: Sequence[ConfiguredStream]) -> dict[str, str]:
    """Return the `tap_stream_id` for each name that records use, if the two differ and the name is unique."""
    ids = {stream.stream.name for stream in streams}
    named = [(_TapStream.read(s.stream).entry.get("stream"), s.stream.name) for s in streams]
    times = Counter(name for name, _ in named)
    return {
        name: stream_id
        for name, stream_id in named
        if isinstance(name, str) and name not in ids and times[name] == 1
    }


def find_shared_names(streams: Sequence[ConfiguredStream]) -> dict[str, list[str]]:
    """Return each stream name that several entries share, with the `tap_stream_id` of each of them. A name
    that is itself a `tap_stream_id` is omitted."""
    ids_by_name: dict[str, list[str]] = {}
    for stream in streams:
        name = _TapStream.read(stream.stream).entry.get("stream")
        if isinstance(name, str):
            ids_by_name.setdefault(name, []).append(stream.stream.name)
    own = {stream.stream.name for stream in streams}
    return {name: ids for name, ids in ids_by_name.items() if len(ids) > 1 and name not in own}


def make_log_based(stream: AirbyteStream) -> AirbyteStream:
    """Return a tap's stream with the replication method `LOG_BASED`, which reads the log of a database.

    Raises:
        ConfigError: the stream is not from a tap, or the tap forces another method.
    """
    tap_stream = _TapStream.read(stream)
    forced = tap_stream.metadata.get("forced-replication-method")
    if forced not in (None, "", LOG_BASED):
        raise ConfigError(
            f"the tap reads stream {stream.name!r} only by {forced}",
            guidance="remove `replication_method`",
        )
    metadata = {**tap_stream.metadata, "replication-method": LOG_BASED}
    tap_stream.entry["metadata"] = metadata_list({**tap_stream.fields, _STREAM: metadata})
    converted = copy.copy(stream)
    converted.supported_sync_modes = [FULL_REFRESH, INCREMENTAL]
    converted.source_defined_cursor, converted.default_cursor_field = True, None
    converted.extra = {**stream.extra, ENTRY: tap_stream.encode()}
    return converted


def metadata_list(metadata: Mapping[Breadcrumb, Mapping[str, Any]]) -> list[Entry]:
    """Return an entry's metadata in the form of the catalog."""
    return [{"breadcrumb": list(key), "metadata": value} for key, value in metadata.items()]


def _select(stream: ConfiguredStream) -> Entry:
    tap_stream = _TapStream.read(stream.stream)
    entry, metadata = tap_stream.entry, tap_stream.fields
    is_old = not metadata
    method, cursor = _replication(stream, tap_stream)
    stream_metadata = {**tap_stream.metadata, "selected": True}
    for field in ("replication-key", "replication_key"):
        stream_metadata.pop(field, None)
        entry.pop(field, None)
    stream_metadata["replication-method"] = entry["replication_method"] = method
    if cursor is not None:
        stream_metadata["replication-key"] = entry["replication_key"] = cursor
    metadata[_STREAM] = stream_metadata
    schema = entry.setdefault("schema", {})
    schema["selected"] = entry["selected"] = True  # taps older than metadata read these
    old_fields = schema.get("properties") if is_old else None
    for path, is_selected in _fields(compose_schema(schema), stream.stream.json_schema, ()):
        if len(path) > 2 and path not in metadata:
            continue  # the tap does not select fields inside objects
        field_metadata = metadata.setdefault(path, {})
        if field_metadata.get("inclusion") not in ("automatic", "unsupported"):
            field_metadata["selected"] = is_selected
        if isinstance(old_fields, dict) and isinstance(part := old_fields.get(path[1]), dict):
            part["selected"] = is_selected
    entry["metadata"] = metadata_list(metadata)
    return entry


def _replication(stream: ConfiguredStream, tap_stream: _TapStream) -> tuple[str, str | None]:
    """Return the replication method, and the replication key if the method uses one."""
    if stream.sync_mode != INCREMENTAL:
        return FULL_TABLE, None
    if tap_stream.is_log_based:
        return LOG_BASED, None
    cursor = stream.cursor
    if not cursor and tap_stream.finds_new:
        return _INCREMENTAL, None
    if len(cursor) != 1:
        raise ConfigError(
            f"stream {stream.stream.name!r}: the cursor of a tap must be a single top-level field, "
            f"but it is {'.'.join(cursor) or 'none'}",
            guidance="set `cursor_field: [<field>]`",
        )
    return _INCREMENTAL, cursor[0]


def _fields(
    schema: Any, configured: Any, parent: Breadcrumb, *, has_parent: bool = True
) -> Iterator[tuple[Breadcrumb, bool]]:
    """Yield every field of a schema and its objects, with whether the configured schema still has it."""
    own = schema.get("properties") if isinstance(schema, Mapping) else None
    stored = configured.get("properties") if isinstance(configured, Mapping) else None
    for name, part in own.items() if isinstance(own, Mapping) else ():
        path = (*parent, "properties", name)
        has_field = has_parent and (not isinstance(stored, Mapping) or name in stored)
        yield path, has_field
        inner = stored.get(name) if isinstance(stored, Mapping) else None
        yield from _fields(part, inner, path, has_parent=has_field)
