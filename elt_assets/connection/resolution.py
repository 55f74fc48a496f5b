"""Join the settings of streams with the catalog, check them, and say what of a stream its table gets.

`pipeline.validation` uses `join_streams`, and adds what needs the types of columns; `default_attributes` and
`cli.lookup` resolve single streams. `pipeline.stream` and `orchestration.translator` take `as_landed`, the
stream as its table gets it, and `pipeline.connection_read` the warnings for the log of a sync.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Sequence
from itertools import chain

import yaml

from elt_assets.connection.connection import Connection
from elt_assets.connection.files import collect_problems
from elt_assets.connection.places import CATALOG_FILE
from elt_assets.connection.stream import Stream
from elt_assets.connection.stream_settings import (
    describe_unknown,
    drop_undeclared,
    find_document_problems,
    find_row_problems,
    find_unused_settings,
    includes_documents,
    is_unknown,
    join_names,
    resolve_renames,
)
from elt_assets.errors import ConfigError, Problems
from elt_assets.protocol.catalog import (
    APPEND,
    DELETE_MARKERS,
    INCREMENTAL,
    AirbyteStream,
    Catalog,
    ConfiguredStream,
)
from elt_assets.protocol.json_schema import broken_references
from elt_assets.protocol.singer_catalog import attach_all_entries, make_log_based
from elt_assets.sync.field_selection import (
    UNDECLARED,
    FieldSelection,
    Path,
    case_variants,
    declare_document,
    join_path,
    keep_undeclared,
    land_stream,
    lies_in,
    properties,
)

_AMBIGUOUS = (
    "the source has several streams of this name, whose records cannot be separated; report it to the "
    "maintainer of the connector"
)


def resolve_streams(connection: Connection, catalog: Catalog) -> list[ConfiguredStream]:
    """Join the settings of each stream of a connection with its catalog.

    Raises:
        ConfigError: a stream cannot be synced as configured. The error lists all problems of all streams, and
            what to write instead.
    """
    problems = collect_problems(connection.name)
    streams = join_streams(connection, catalog, problems)
    problems.raise_all()
    return streams


def join_streams(
    connection: Connection, catalog: Catalog, problems: Problems
) -> list[ConfiguredStream]:
    """Return the streams of a connection that fit its catalog, and add what does not to `problems`."""
    catalog = attach_all_entries(catalog)
    ambiguous, by_id = catalog.repeated, catalog.index_streams()
    configured: list[ConfiguredStream] = []
    for settings in connection.streams:
        stream, count_before = by_id.get(settings.id), len(problems)
        name = f"stream {str(settings.id)!r}"
        if stream is None:
            problems.add([f"{name} {_explain_missing(settings, catalog)}"])
        elif settings.id in ambiguous:
            problems.add([f"{name}: {_AMBIGUOUS}"])
        else:
            joined = _join(connection, settings, stream, problems)
        if len(problems) == count_before:
            configured.append(joined)
    problems.add(find_unused_settings(connection, catalog))
    return configured


def _join(
    connection: Connection, settings: Stream, stream: AirbyteStream, problems: Problems
) -> ConfiguredStream:
    """Return a stream as it is configured, and add what is not valid to `problems`."""
    stream = drop_undeclared(stream)
    if settings.replication_method is not None:
        try:
            stream = make_log_based(stream)
        except ConfigError as error:
            problems.add([f"{error.message}; {error.guidance}"])
            return _configure(settings, stream)
    configured = _configure(settings, stream)
    fields = _selection(settings, configured)
    renames = resolve_renames(connection, settings, stream)
    texts = chain(
        _find_mode_problems(settings, configured),
        _find_field_problems(settings, stream, fields),
        find_row_problems(connection, settings, stream, fields),
        find_document_problems(settings, stream, renames),
    )
    problems.add(f"stream {str(settings.id)!r}: {text}" for text in texts)
    return configured


def _configure(settings: Stream, stream: AirbyteStream) -> ConfiguredStream:
    configured = ConfiguredStream(
        stream=stream,
        sync_mode=settings.sync_mode,
        destination_sync_mode=settings.destination_sync_mode,
        cursor_field=None if _explain_unused_cursor(settings, stream) else settings.cursor_field,
        primary_key=None if _explain_unused_key(settings, stream) else settings.primary_key,
        include_files=includes_documents(settings, stream),
    )
    # Connectors read the configured fields, so these get the cursor and the key that are in force.
    if configured.sync_mode == INCREMENTAL and not configured.cursor_field:
        configured.cursor_field = stream.default_cursor_field
    if not configured.primary_key:
        configured.primary_key = stream.source_defined_primary_key
    return configured


def describe_unused_settings(settings: Stream, stream: AirbyteStream) -> list[str]:
    """Return a message for each setting of a stream that its sync ignores, for the log of every sync.

    Spec: ConfiguredAirbyteStream: `cursor_field` and `primary_key` are ignored where nothing needs them.
    """
    reasons = {
        "cursor_field": _explain_unused_cursor(settings, stream),
        "primary_key": _explain_unused_key(settings, stream),
    }
    name = str(stream.id)
    return [f"stream {name!r}: {key} is ignored: {why}" for key, why in reasons.items() if why]


def describe_broken_fields(stream: AirbyteStream) -> list[str]:
    """Return a message for each reference of a stream's schema to another document or to nothing, for the log
    of every sync."""
    return [
        f"stream {str(stream.id)!r}: the schema refers to {reference!r}, which is not in it, so "
        + (f"the field {field!r} is stored as JSON text" if field else "fields may be missing")
        for field, reference in broken_references(stream.json_schema)
    ]


def _explain_unused_cursor(settings: Stream, stream: AirbyteStream) -> str | None:
    """Return why the `cursor_field` of a stream is ignored; None if it is used or not set."""
    if settings.cursor_field is None or settings.cursor_field == stream.default_cursor_field:
        return None
    if stream.source_defined_cursor:
        return "the source defines its own cursor"
    if settings.sync_mode != INCREMENTAL and not settings.deduplicates:
        return f"a full refresh with `{settings.destination_sync_mode}` needs no cursor"
    return None


def _explain_unused_key(settings: Stream, stream: AirbyteStream) -> str | None:
    """Return why a `primary_key` that does not fit the stream is ignored; None otherwise."""
    if settings.destination_sync_mode != APPEND or settings.primary_key is None:
        return None
    fits = not _is_another_key(settings, stream) and not any(
        is_unknown(path, stream) for path in settings.primary_key
    )
    return None if fits else "`append` needs no key"


def _explain_missing(settings: Stream, catalog: Catalog) -> str:
    names = [str(stream.id) for stream in catalog.streams]
    near = difflib.get_close_matches(str(settings.id), names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {join_names(list(map(repr, names)))}"
    return f"is not in the catalog ({CATALOG_FILE}); {hint}"


def _is_another_key(settings: Stream, stream: AirbyteStream) -> bool:
    defined, configured = stream.source_defined_primary_key, settings.primary_key
    return bool(defined and configured and sorted(configured) != sorted(defined))


def _find_mode_problems(settings: Stream, configured: ConfiguredStream) -> Iterator[str]:
    """Yield the problems of sync modes, key and cursor with the stream."""
    stream = configured.stream
    if _is_another_key(settings, stream) and not _explain_unused_key(settings, stream):
        own = yaml.safe_dump(
            stream.source_defined_primary_key, default_flow_style=True, allow_unicode=True
        )
        yield (
            "primary_key: the source defines its own key, which cannot be overridden; write "
            f"{own.strip()}, or leave it out"
        )
    if configured.sync_mode not in stream.sync_modes:
        yield (
            f"sync_mode: {configured.sync_mode!r} is not supported by the source; "
            f"write one of {', '.join(stream.sync_modes)}"
        )
    if configured.lacks_cursor:
        yield (
            "cursor_field: the stream is incremental, but neither the connection nor the source names a "
            "cursor field; set `cursor_field: [<field>]`, or `sync_mode: full_refresh`"
        )
    if configured.sync_mode == INCREMENTAL and configured.overwrites:
        yield (
            "sync_mode: an incremental sync reads only new records, and overwriting would keep only these; "
            "write `sync_mode: full_refresh`, or `destination_sync_mode: append_dedup` or `append`"
        )
    if configured.deduplicates and not configured.key:
        yield (
            f"primary_key: {configured.destination_sync_mode} needs one and the source defines none; "
            "write `primary_key: [[<field>]]`"
        )
    yield from describe_unknown("cursor_field", [configured.cursor], stream)
    yield from describe_unknown("primary_key", configured.key, stream)


def field_selection(connection: Connection, stream: ConfiguredStream) -> FieldSelection | None:
    """Return the field selection that a connection has for one of its streams; None if it has none."""
    return _selection(connection.settings_of(stream.id), stream)


def as_landed(
    connection: Connection, configured: ConfiguredStream, stream: AirbyteStream | None = None
) -> ConfiguredStream:
    """Return a stream of a connection as its table gets it: with the selected fields, by their new names, the
    field of documents, and the column of undeclared fields if these are kept.

    Args:
        stream: the source's description of the stream; default: that of the catalog.
    """
    described = configured
    if stream is not None and stream is not configured.stream:
        described = copy.copy(configured)
        described.stream = stream
    settings = connection.settings_of(configured.id)
    described = land_stream(described, _selection(settings, configured))
    renames = resolve_renames(connection, settings, configured.stream)
    described = described if renames is None else renames.rename_stream(described)
    described = described if connection.destination is not None else declare_document(described)
    return keep_undeclared(described) if settings.on_undeclared == "keep" else described


def _selection(settings: Stream, configured: ConfiguredStream) -> FieldSelection | None:
    fields = settings.fields
    if fields is None:
        return None
    rules = [*(fields.include or []), *(fields.exclude or []), *(fields.hash or [])]
    uses_cursor = configured.sync_mode == INCREMENTAL or configured.deduplicates
    declared = properties(configured.stream.json_schema) if configured.deduplicates else {}
    return FieldSelection(
        include=None if fields.include is None else _paths(fields.include),
        exclude=_paths(fields.exclude or []),
        hashed=_paths(fields.hash or []),
        distinct=case_variants(configured.stream.json_schema, _paths(rules)),
        key=_paths(configured.key),
        # the cursor is empty if the sync does not use it, and markers if it applies no deletes
        cursor=tuple(configured.cursor) if uses_cursor else (),
        markers=tuple((name,) for name in DELETE_MARKERS if name in declared),
    )


def _paths(lists: Sequence[Sequence[str]]) -> tuple[Path, ...]:
    return tuple(map(tuple, lists))


def _find_field_problems(
    settings: Stream, stream: AirbyteStream, fields: FieldSelection | None
) -> Iterator[str]:
    """Yield the problems of `fields` and `on_undeclared` with the stream."""
    if settings.on_undeclared == "keep" and UNDECLARED in properties(stream.json_schema):
        yield (
            f"on_undeclared: `keep` stores undeclared fields in a column {UNDECLARED!r}, and the stream has "
            "a field of that name; leave `on_undeclared` out"
        )
    if fields is None:
        return
    yield from describe_unknown("fields.include", fields.include or (), stream)
    yield from describe_unknown("fields.exclude", fields.exclude, stream)
    yield from describe_unknown("fields.hash", fields.hashed, stream)
    for path in fields.hashed:
        if (reason := _explain_unhashable(path, fields)) is not None:
            yield f"fields.hash: {join_path(path)!r} {reason}"


def _explain_unhashable(path: Path, fields: FieldSelection) -> str | None:
    """Return why a field cannot be stored as a hash; None if it can."""
    cursor, others = fields.cursor, [other for other in fields.hashed if other != path]
    if cursor and _overlaps(path, cursor):
        return (
            f"is or holds part of the cursor {join_path(cursor)!r}, and hashes have no order; "
            "leave it out, or write another `cursor_field`"
        )
    if beneath := [key for key in fields.key if key != path and lies_in(key, [path])]:
        return f"holds the primary key {join_path(beneath[0])!r}; write `hash: [{join_path(beneath[0])}]`"
    if excluded := [other for other in fields.exclude if _overlaps(path, other)]:
        return f"is both hashed and excluded ({join_path(excluded[0])!r}); keep one of the two"
    if not fields.covers(path):
        return "is not among `include`; write it there too, or leave it out"
    if lies_in(path, others):
        return "lies in another field that is hashed whole; keep one of the two"
    return None


def _overlaps(first: Path, second: Path) -> bool:
    return lies_in(first, [second]) or lies_in(second, [first])
