"""What is wanted, joined with what there is; and all that keeps the two apart."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Sequence
from typing import Any

import yaml

from elt_assets.connection.files import CATALOG_FILE
from elt_assets.connection.models import Connection, Stream
from elt_assets.errors import ConfigError
from elt_assets.paths import DEFINITION_FILE
from elt_assets.protocol.airbyte.catalog import (
    DELETE_MARKERS,
    INCREMENTAL,
    AirbyteStream,
    Catalog,
    ConfiguredStream,
    StreamId,
)
from elt_assets.protocol.airbyte.sync_modes import APPEND
from elt_assets.protocol.singer.catalog import log_based
from elt_assets.sync.selection.fields import (
    UNDECLARED,
    FieldSelection,
    Path,
    dotted,
    landed,
    lies_in,
    properties,
    with_undeclared,
)


def resolve_streams(connection: Connection, catalog: Catalog) -> list[ConfiguredStream]:
    """Join what is wanted with what there is.

    Raises:
        ConfigError: one error that lists every stream that cannot be synced as written, and what to
            write instead.
    """
    problems: list[str] = []
    configured: list[ConfiguredStream] = []
    for wanted in connection.streams:
        stream = catalog.find(wanted.id)
        if stream is None:
            problems.append(_missing(wanted, catalog))
            continue
        if wanted.replication_method is not None:
            try:
                stream = log_based(stream)
            except ConfigError as error:
                problems.append(f"{error.message}; {error.guidance}")
                continue
        configured.append(_configured(wanted, stream))
        found = _overridden(wanted, stream) + _problems(configured[-1])
        found += _misplaced(wanted, configured[-1])
        if wanted.history and not configured[-1].deduplicates:
            found.append(
                "history: versions need a key; write `destination_sync_mode: append_dedup` "
                "or `overwrite_dedup`"
            )
        problems += [f"stream {str(wanted.id)!r}: {text}" for text in found]
    problems += _repeated(connection.streams)
    if connection.read_together:
        problems += _apart(connection)
    if connection.destination is not None:
        problems += _of_the_lake(connection)
    if problems:
        raise ConfigError(
            f"the streams in {DEFINITION_FILE} of connection {connection.name!r} are not valid:\n"
            + "\n".join(f"  - {problem}" for problem in problems)
        )
    return configured


def _apart(connection: Connection) -> list[str]:
    """What streams that are read together cannot have of their own."""
    return [
        f"stream {str(stream.id)!r}: {key}: streams that are read together have none of their own; leave it "
        "out, or move the stream to a connection of its own"
        for stream in connection.streams
        for key in ("partitions", "window")
        if getattr(stream, key) is not None
    ]


def _of_the_lake(connection: Connection) -> list[str]:
    """What streams whose rows are in another destination cannot have."""
    return [
        f"stream {str(stream.id)!r}: {key}: this is done by the tables of the lake, and the connection has "
        "another `destination`; leave it out"
        for stream in connection.streams
        for key, is_set in {
            "history": stream.history,
            "partitions": stream.partitions,
            "window": stream.window,
            "on_undeclared": stream.on_undeclared == "keep",
        }.items()
        if is_set
    ]


def _configured(wanted: Stream, stream: AirbyteStream) -> ConfiguredStream:
    configured = ConfiguredStream(
        stream=stream,
        sync_mode=wanted.sync_mode,
        destination_sync_mode=wanted.destination_sync_mode,
        cursor_field=None if _unused_cursor(wanted, stream) else wanted.cursor_field,
        primary_key=None if _unused_key(wanted, stream) else wanted.primary_key,
    )
    # Connectors read the configured fields, so what is in force is written into them.
    if configured.sync_mode == INCREMENTAL and not configured.cursor_field:
        configured.cursor_field = stream.default_cursor_field
    if not configured.primary_key:
        configured.primary_key = stream.source_defined_primary_key
    return configured


def unused_settings(wanted: Stream, stream: AirbyteStream) -> list[str]:
    """The settings of a stream that its sync ignores, a sentence each; for the log of every sync.

    spec: ConfiguredAirbyteStream: `cursor_field` and `primary_key` are ignored where nothing needs them.
    """
    reasons = {
        "cursor_field": _unused_cursor(wanted, stream),
        "primary_key": _unused_key(wanted, stream),
    }
    name = str(stream.id)
    return [f"stream {name!r}: {key} is ignored: {why}" for key, why in reasons.items() if why]


def _unused_cursor(wanted: Stream, stream: AirbyteStream) -> str | None:
    """Why the stream's `cursor_field` does not count; None where it does, or is not given."""
    if wanted.cursor_field is None or wanted.cursor_field == stream.default_cursor_field:
        return None
    if stream.source_defined_cursor:
        return "the source defines its own cursor"
    if wanted.sync_mode != INCREMENTAL and not wanted.deduplicates:
        return f"a full refresh with `{wanted.destination_sync_mode}` needs no cursor"
    return None


def _unused_key(wanted: Stream, stream: AirbyteStream) -> str | None:
    """Why a `primary_key` that does not fit the stream does not matter; None where it does."""
    if wanted.destination_sync_mode != APPEND or wanted.primary_key is None:
        return None
    fits = not _is_another_key(wanted, stream) and not any(
        _unknown(path, stream) for path in wanted.primary_key
    )
    return None if fits else "`append` needs no key"


def _missing(wanted: Stream, catalog: Catalog) -> str:
    known = [str(stream.id) for stream in catalog.streams]
    near = difflib.get_close_matches(str(wanted.id), known, n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"it has {_some(list(map(repr, known)))}"
    return f"stream {str(wanted.id)!r} is not in the catalog ({CATALOG_FILE}); {meant}"


def _overridden(wanted: Stream, stream: AirbyteStream) -> list[str]:
    """What the source defines for itself, and the YAML says otherwise."""
    if not _is_another_key(wanted, stream) or _unused_key(wanted, stream):
        return []
    own = _yaml(stream.source_defined_primary_key)
    text = "the source defines its own key, which cannot be overridden"
    return [f"primary_key: {text}; write {own}, or leave it out"]


def _is_another_key(wanted: Stream, stream: AirbyteStream) -> bool:
    own, given = stream.source_defined_primary_key, wanted.primary_key
    return bool(own and given and sorted(given) != sorted(own))


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True, allow_unicode=True)).strip()


def _problems(configured: ConfiguredStream) -> list[str]:
    stream, found = configured.stream, []
    if configured.sync_mode not in stream.sync_modes:
        found.append(
            f"sync_mode: {configured.sync_mode!r} is not supported by the source; "
            f"write one of {', '.join(stream.sync_modes)}"
        )
    try:
        cursor = configured.cursor
    except ConfigError as error:
        found.append(f"cursor_field: {error.message}; {error.guidance}")
        cursor = []
    if configured.sync_mode == INCREMENTAL and configured.overwrites:
        found.append(
            "sync_mode: an incremental sync sends what is new, and overwriting would keep that alone; "
            "write `sync_mode: full_refresh`, or `destination_sync_mode: append_dedup` or `append`"
        )
    if configured.deduplicates and not configured.key:
        found.append(
            f"primary_key: {configured.destination_sync_mode} needs one and the source defines none; "
            "write `primary_key: [[<field>]]`"
        )
    paths = [("cursor_field", cursor), *(("primary_key", path) for path in configured.key)]
    found += [_unknown_path(field, path, stream) for field, path in paths if _unknown(path, stream)]
    return found


def _unknown(path: Sequence[str], stream: AirbyteStream) -> bool:
    """Whether the schema has no such field. A schema that lists no properties allows any."""
    return _known_beside(path, stream) is not None


def _unknown_path(field: str, path: Sequence[str], stream: AirbyteStream) -> str:
    depth, known = _known_beside(path, stream) or (0, [])
    near = difflib.get_close_matches(path[depth], known, n=1)
    meant = f"did you mean {dotted((*path[:depth], *near))!r}?" if near else ""
    whose = f"{dotted(tuple(path[:depth]))!r} has" if depth else "it has"
    return (
        f"{field}: the stream has no field {'.'.join(path)!r}; {meant or f'{whose} {_some(known)}'}"
    )


def _some(names: Sequence[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _known_beside(path: Sequence[str], stream: AirbyteStream) -> tuple[int, list[str]] | None:
    """At which step the schema knows of no such field, and the names that it has there."""
    schema: Any = stream.json_schema
    for depth, name in enumerate(path):
        known = properties(schema)
        if not known:
            return None
        if name not in known:
            return depth, list(known)
        schema = known[name]
    return None


def field_selection(connection: Connection, stream: ConfiguredStream) -> FieldSelection | None:
    """What a connection says of the fields of one of its streams; None if it says nothing."""
    return _selection(connection.wanted(stream.id), stream)


def as_landed(
    connection: Connection, configured: ConfiguredStream, stream: AirbyteStream | None = None
) -> ConfiguredStream:
    """One of a connection's streams as its table gets it.

    Args:
        stream: what its source says of it; default, what the catalog says.
    """
    found = configured
    if stream is not None and stream is not configured.stream:
        found = copy.copy(configured)
        found.stream = stream
    wanted = connection.wanted(configured.id)
    found = landed(found, _selection(wanted, configured))
    return with_undeclared(found) if wanted.on_undeclared == "keep" else found


def _selection(wanted: Stream, configured: ConfiguredStream) -> FieldSelection | None:
    written = wanted.fields
    if written is None:
        return None
    return FieldSelection(
        include=None if written.include is None else _paths(written.include),
        exclude=_paths(written.exclude or []),
        hashed=_paths(written.hash or []),
        key=_paths(configured.key),
        cursor=_cursor(configured),
        markers=_markers(configured),
    )


def _paths(written: Sequence[Sequence[str]]) -> tuple[Path, ...]:
    return tuple(map(tuple, written))


def _cursor(configured: ConfiguredStream) -> Path:
    """The cursor, where anything goes by it."""
    if not (configured.sync_mode == INCREMENTAL or configured.deduplicates):
        return ()
    try:
        return tuple(configured.cursor)
    except ConfigError:  # that it has none is told elsewhere
        return ()


def _markers(configured: ConfiguredStream) -> tuple[Path, ...]:
    """The fields that mark a delete, where deletes are applied."""
    known = properties(configured.stream.json_schema) if configured.deduplicates else {}
    return tuple((name,) for name in DELETE_MARKERS if name in known)


def _misplaced(wanted: Stream, configured: ConfiguredStream) -> list[str]:
    """What `fields` and `on_undeclared` say that the stream does not go with."""
    stream, found = configured.stream, []
    if wanted.on_undeclared == "keep" and UNDECLARED in properties(stream.json_schema):
        found.append(
            f"on_undeclared: `keep` stores undeclared fields in a column {UNDECLARED!r}, and the stream has "
            "a field of that name; leave it out"
        )
    fields = _selection(wanted, configured)
    if fields is None:
        return found
    rows = {"include": fields.include or (), "exclude": fields.exclude, "hash": fields.hashed}
    found += [
        _unknown_path(f"fields.{key}", path, stream)
        for key, paths in rows.items()
        for path in paths
        if _unknown(path, stream)
    ]
    unhashable = ((path, _unhashable(path, fields)) for path in fields.hashed)
    return found + [f"fields.hash: {dotted(path)!r} {why}" for path, why in unhashable if why]


def _unhashable(path: Path, fields: FieldSelection) -> str | None:
    """Why a field cannot be stored as a hash; None if it can."""
    cursor, others = fields.cursor, [other for other in fields.hashed if other != path]
    if cursor and _overlap(path, cursor):
        return (
            f"is or holds part of the cursor {dotted(cursor)!r}, and hashes have no order; "
            "leave it out, or write another `cursor_field`"
        )
    if beneath := [key for key in fields.key if key != path and lies_in(key, [path])]:
        return f"holds the primary key {dotted(beneath[0])!r}; write `hash: [{dotted(beneath[0])}]`"
    if excluded := [other for other in fields.exclude if _overlap(path, other)]:
        return f"is both hashed and excluded ({dotted(excluded[0])!r}); keep one of the two"
    if not fields.covers(path):
        return "is not among `include`; write it there too, or leave it out"
    if lies_in(path, others):
        return "lies in another field that is hashed whole; keep one of the two"
    return None


def _overlap(one: Path, other: Path) -> bool:
    return lies_in(one, [other]) or lies_in(other, [one])


def _repeated(streams: Sequence[Stream]) -> list[str]:
    seen: set[StreamId] = set()
    found = []
    for stream in streams:
        if stream.id in seen:
            found.append(f"stream {str(stream.id)!r} is configured twice; remove one")
        seen.add(stream.id)
    return found
