"""Singer's catalogs: what a tap has, and what of it is wanted, how.

spec: Singer, discovery mode and the catalog's metadata. A tap's own entry travels with its stream, as the
property `singer`, so that `read` can hand it back with nothing changed but the selection.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.airbyte.catalog import (
    FULL_REFRESH,
    INCREMENTAL,
    AirbyteStream,
    Catalog,
    ConfiguredStream,
)
from elt_assets.protocol.singer.messages import key_paths
from elt_assets.protocol.singer.schema import json_schema

ENTRY = "singer"
"""The property of a stream that holds the tap's own entry."""
FULL_TABLE = "FULL_TABLE"
LOG_BASED = "LOG_BASED"

Entry = dict[str, Any]
Breadcrumb = tuple[str, ...]
_STREAM: Breadcrumb = ()


def read_catalog(text: bytes) -> Catalog:
    """What `--discover` printed, as this project's catalog.

    Raises:
        SystemFailure: it is no Singer catalog.
    """
    try:
        entries = json.loads(text)["streams"]
        return Catalog(streams=[_stream(dict(entry)) for entry in entries])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SystemFailure(
            f"the tap's catalog cannot be read: {type(error).__name__}: {error}",
            guidance="its `--discover` must print a JSON object with `streams`, and nothing else",
        ) from None


def _stream(entry: Entry) -> AirbyteStream:
    told = _metadata(entry).get(_STREAM, {})
    key = told.get("table-key-properties") or told.get("view-key-properties")
    is_logged = _is_log_based(entry, told)
    cursor = None if is_logged else _cursor(entry, told)
    return AirbyteStream(
        name=str(entry.get("tap_stream_id") or entry["stream"]),
        json_schema=json_schema(entry.get("schema") or {}),
        supported_sync_modes=_sync_modes(entry, told, cursor),
        source_defined_cursor=True if is_logged else None,
        default_cursor_field=None if cursor is None else [cursor],
        source_defined_primary_key=key_paths(key or entry.get("key_properties")),
        extra={ENTRY: _raw(entry)},
    )


def _raw(entry: Entry) -> Raw:
    return Raw(json.dumps(entry, ensure_ascii=False).encode())


def _metadata(entry: Entry) -> dict[Breadcrumb, dict[str, Any]]:
    """What an entry says of the stream and of its fields, by breadcrumb; none in old taps."""
    given = entry.get("metadata") or []
    return {tuple(one["breadcrumb"]): dict(one.get("metadata") or {}) for one in given}


def _method(entry: Entry, told: Mapping[str, Any]) -> str | None:
    """How the tap says that it replicates the stream."""
    named = (told.get("forced-replication-method"), told.get("replication-method"))
    return next((each for each in (*named, entry.get("replication_method")) if each), None)


def _is_log_based(entry: Entry, told: Mapping[str, Any]) -> bool:
    return _method(entry, told) == LOG_BASED


def _cursor(entry: Entry, told: Mapping[str, Any]) -> str | None:
    """The field that the tap would go by, where it names one."""
    valid = told.get("valid-replication-keys") or []
    only = valid[0] if len(valid) == 1 else None
    found = told.get("replication-key") or entry.get("replication_key") or only
    return None if found is None else str(found)


def _sync_modes(entry: Entry, told: Mapping[str, Any], cursor: str | None) -> list[str]:
    """A tap that names no field leaves the choice to whoever selects the stream, unless it reads it whole
    and nothing else."""
    choices = cursor or told.get("valid-replication-keys")
    is_forced = told.get("forced-replication-method") == FULL_TABLE
    if is_forced or (_method(entry, told) == FULL_TABLE and not choices):
        return [FULL_REFRESH]
    return [FULL_REFRESH, INCREMENTAL]


def selection(streams: Sequence[ConfiguredStream]) -> dict[str, Any]:
    """The catalog that `--catalog` is given: these streams alone, and of each the fields that its schema
    still has.

    Raises:
        ConfigError: a stream is not a tap's, or its cursor is no field of its own.
    """
    return {"streams": [_selected(stream) for stream in streams]}


def stream_names(streams: Sequence[ConfiguredStream]) -> dict[str, str]:
    """What records call a stream → its `tap_stream_id`, where these differ and it is clear which is meant."""
    ids = {stream.stream.name for stream in streams}
    named = [(_entry(stream.stream).get("stream"), stream.stream.name) for stream in streams]
    times = Counter(name for name, _ in named)
    return {
        name: stream_id
        for name, stream_id in named
        if isinstance(name, str) and name not in ids and times[name] == 1
    }


def shared_names(streams: Sequence[ConfiguredStream]) -> dict[str, list[str]]:
    """Return what several entries call their stream → the `tap_stream_id` of each of them."""
    found: dict[str, list[str]] = {}
    for stream in streams:
        called = _entry(stream.stream).get("stream")
        if isinstance(called, str):
            found.setdefault(called, []).append(stream.stream.name)
    own = {stream.stream.name for stream in streams}
    return {name: ids for name, ids in found.items() if len(ids) > 1 and name not in own}


def log_based(stream: AirbyteStream) -> AirbyteStream:
    """Return a tap's stream as one that it reads by `LOG_BASED`, from the log of a database.

    Raises:
        ConfigError: the stream is no tap's, or its tap forces another method.
    """
    entry = _entry(stream)
    told = _metadata(entry)
    of_stream = told.setdefault(_STREAM, {})
    forced = of_stream.get("forced-replication-method")
    if forced not in (None, "", LOG_BASED):
        raise ConfigError(
            f"the tap reads stream {stream.name!r} by {forced} and nothing else",
            guidance="leave out `replication_method`",
        )
    of_stream["replication-method"] = LOG_BASED
    entry["metadata"] = _written(told)
    found = copy.copy(stream)
    found.supported_sync_modes = [FULL_REFRESH, INCREMENTAL]
    found.source_defined_cursor, found.default_cursor_field = True, None
    found.extra = {**stream.extra, ENTRY: _raw(entry)}
    return found


def _entry(stream: AirbyteStream) -> Entry:
    raw = stream.extra.get(ENTRY)
    if raw is None:
        raise ConfigError(
            f"stream {stream.name!r} was not discovered from a Singer tap",
            guidance="write the catalog anew with `elt discover`",
        )
    return dict(json.loads(bytes(raw)))


def _written(told: Mapping[Breadcrumb, Mapping[str, Any]]) -> list[Entry]:
    """Return an entry's metadata as the catalog has it."""
    return [{"breadcrumb": list(at), "metadata": of} for at, of in told.items()]


def _selected(stream: ConfiguredStream) -> Entry:
    entry = copy.deepcopy(_entry(stream.stream))
    told = _metadata(entry)
    is_old = not told
    of_stream = {**told.get(_STREAM, {}), "selected": True}
    for field in ("replication-key", "replication_key"):
        of_stream.pop(field, None)
        entry.pop(field, None)
    method, cursor = _replication(stream, entry, of_stream)
    of_stream["replication-method"] = entry["replication_method"] = method
    if cursor is not None:
        of_stream["replication-key"] = entry["replication_key"] = cursor
    told[_STREAM] = of_stream
    schema = entry.setdefault("schema", {})
    schema["selected"] = entry["selected"] = True  # where taps older than metadata look
    for place, wanted in _fields(schema, stream.stream.json_schema, ()):
        if len(place) > 2 and place not in told:
            continue  # a tap that selects inside of objects says so
        metadata = told.setdefault(place, {})
        if metadata.get("inclusion") not in ("automatic", "unsupported"):
            metadata["selected"] = wanted
        if is_old and isinstance(part := schema["properties"][place[1]], dict):
            part["selected"] = wanted
    entry["metadata"] = _written(told)
    return entry


def _replication(
    stream: ConfiguredStream, entry: Entry, told: Mapping[str, Any]
) -> tuple[str, str | None]:
    """The method, and the replication key where it has one."""
    if stream.sync_mode != INCREMENTAL:
        return FULL_TABLE, None
    if _is_log_based(entry, told):
        return LOG_BASED, None
    cursor = stream.cursor
    if len(cursor) != 1:
        raise ConfigError(
            f"stream {stream.stream.name!r}: a tap's cursor is one field, and none inside of another, "
            f"but it is {'.'.join(cursor) or 'none'}",
            guidance="write `cursor_field: [<field>]`",
        )
    return "INCREMENTAL", cursor[0]


def _fields(
    schema: Any, wanted: Any, above: Breadcrumb, *, rest: bool = True
) -> Iterator[tuple[Breadcrumb, bool]]:
    """Every field of a schema and of the objects in it, with whether the configured one still has it."""
    own = schema.get("properties") if isinstance(schema, Mapping) else None
    kept = wanted.get("properties") if isinstance(wanted, Mapping) else None
    for name, part in own.items() if isinstance(own, Mapping) else ():
        place = (*above, "properties", name)
        is_wanted = rest and (not isinstance(kept, Mapping) or name in kept)
        yield place, is_wanted
        inner = kept.get(name) if isinstance(kept, Mapping) else None
        yield from _fields(part, inner, place, rest=is_wanted)
