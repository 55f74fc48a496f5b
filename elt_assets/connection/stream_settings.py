"""Checks and resolution of settings that name fields of a stream: `include_files`, `rename` and `filter`.

First the lookup of fields in the schema of the catalog, then the settings. `resolution` checks each stream
with them; `pipeline.stream` resolves new names and conditions; `default_attributes` takes `drop_undeclared`.
"""

from __future__ import annotations

import copy
import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from elt_assets.connection.connection import Connection
from elt_assets.connection.stream import Condition, Stream
from elt_assets.protocol.catalog import DELETE_MARKERS, AirbyteStream, Catalog
from elt_assets.protocol.message_rules import FIELD
from elt_assets.sync.field_selection import (
    UNDECLARED,
    Action,
    FieldSelection,
    Renames,
    join_path,
    properties,
)

_MAX_NAMES = 20
"""Maximum number of names that an error lists."""


def is_unknown(path: Sequence[str], stream: AirbyteStream) -> bool:
    """Return whether the schema has no such field. A schema without properties allows any field."""
    return _find_unknown(path, stream) is not None


def describe_unknown(
    setting: str,
    fields: Iterable[Sequence[str]],
    stream: AirbyteStream,
    *,
    must_be_declared: bool = False,
) -> Iterator[str]:
    """Yield a message for each field in a setting that the schema does not have.

    Args:
        must_be_declared: a schema without properties has none of the fields; otherwise it allows any.
    """
    for path in fields:
        unknown = _find_unknown(path, stream)
        if must_be_declared and not properties(stream.json_schema):
            unknown = 0, []
        if unknown is None:
            continue
        depth, names = unknown
        near = difflib.get_close_matches(path[depth], names, n=1)
        parent = f"{join_path(tuple(path[:depth]))!r} has" if depth else "it has"
        hint = f"{parent} {join_names(names)}"
        if near:
            hint = f"did you mean {join_path((*path[:depth], *near))!r}?"
        yield f"{setting}: the stream has no field {'.'.join(path)!r}; {hint}"


def join_names(names: Sequence[str]) -> str:
    """Return names for a message: the first ones, and the number of the others."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def _find_unknown(path: Sequence[str], stream: AirbyteStream) -> tuple[int, list[str]] | None:
    """Return the first step of a path that the schema does not have, and the names that it has there.

    Returns:
        The index of the step, and the names. None if the schema allows the path.
    """
    schema: Any = stream.json_schema
    for depth, name in enumerate(path):
        declared = properties(schema)
        if not declared:
            return None
        if name not in declared:
            return depth, list(declared)
        schema = declared[name]
    return None


def drop_undeclared(stream: AirbyteStream) -> AirbyteStream:
    """Return a stream of files without the key and the cursor of its source that its schema does not declare.

    airbyte-cdk gives a stream of files the key and the cursor that it has if the contents of the files are
    read, and not the schema: no record has these fields.
    """
    if not stream.is_file_based:
        return stream
    stream = copy.copy(stream)
    if any(is_unknown(path, stream) for path in stream.source_defined_primary_key or []):
        stream.source_defined_primary_key = None
    cursor = stream.default_cursor_field
    if cursor and stream.source_defined_cursor and is_unknown(cursor, stream):
        stream.default_cursor_field = None
    return stream


def includes_documents(settings: Stream, stream: AirbyteStream) -> bool | None:
    """Return whether documents are requested; None for a stream that has none."""
    if not stream.is_file_based:
        return None
    return settings.include_files is not False


def find_document_problems(
    settings: Stream, stream: AirbyteStream, renames: Renames | None
) -> Iterator[str]:
    """Yield the problems of `include_files` with a stream. `renames`: the new names of its fields."""
    if settings.include_files and not stream.is_file_based:
        yield (
            "include_files: the catalog does not have the stream as one of files (`is_file_based`); "
            "configure the source to deliver files and run `elt discover`, or leave it out"
        )
    elif includes_documents(settings, stream):
        declared = properties(stream.json_schema)
        stored = [name if renames is None else renames[name] for name in declared]
        if FIELD in map(str.lower, stored):
            yield (
                f"include_files: the place of a record's document is stored in the field {FIELD!r}, and the "
                "stream has a field of that name; `rename` that one, or write `include_files: false`"
            )


def resolve_renames(
    connection: Connection, settings: Stream, stream: AirbyteStream
) -> Renames | None:
    """Return the new names of a stream's fields; None if all keep their names.

    Those of the connection are for the streams that have the field; those of the stream take precedence.
    """
    if not (connection.rename or settings.rename):
        return None
    declared = properties(stream.json_schema)
    names = {**(connection.rename or {}), **(settings.rename or {})}
    changed = {old: new for old, new in names.items() if old in declared and old != new}
    return Renames(changed, frozenset(declared)) if changed else None


def resolve_conditions(
    connection: Connection, settings: Stream, stream: AirbyteStream
) -> list[Condition]:
    """Return the conditions that the records of a stream must meet to be stored.

    Those of the connection are for the streams that have the field.
    """
    if not (connection.filter or settings.filter):
        return []
    declared = properties(stream.json_schema)
    shared = [condition for condition in connection.filter or [] if condition.field[0] in declared]
    return [*shared, *(settings.filter or [])]


def find_row_problems(
    connection: Connection,
    settings: Stream,
    stream: AirbyteStream,
    fields: FieldSelection | None,
) -> Iterator[str]:
    """Yield the problems of `rename` and `filter` with a stream. `fields`: its selection of fields."""
    renames = resolve_renames(connection, settings, stream)
    if not (settings.rename or settings.filter or renames):
        return
    named = [[name] for name in settings.rename or {}]
    yield from describe_unknown("rename", named, stream, must_be_declared=True)
    tested = [condition.field for condition in settings.filter or []]
    yield from describe_unknown("filter", tested, stream, must_be_declared=True)
    if renames is not None:
        problems = _find_rename_problems(settings, renames, fields)
        yield from (f"rename: {problem}" for problem in problems)


def _find_rename_problems(
    settings: Stream, renames: Renames, fields: FieldSelection | None
) -> Iterator[str]:
    stored = [
        name
        for name in renames.declared
        if fields is None or fields.tree.rule_for(name) is not Action.DROP
    ]
    own_columns = [UNDECLARED] if settings.on_undeclared == "keep" else []
    count = Counter(renames[name].lower() for name in [*stored, *own_columns])
    for old, new in renames.names.items():
        if not {old, new}.isdisjoint(DELETE_MARKERS):
            yield f"{old!r}: delete markers keep their names; leave it out"
        elif old not in stored and old in (settings.rename or {}):
            yield f"{old!r} is not stored, because of `fields`; leave it out"
        elif old in stored and count[new.lower()] > 1:
            others = sorted(
                name for name in stored if name != old and renames[name].lower() == new.lower()
            )
            rival = f"the field {others[0]!r}" if others else "the column of undeclared fields"
            yield (
                f"{old!r} would have the name of {rival}, {new!r}; write another name, or "
                "rename that field too"
            )


def find_unused_settings(connection: Connection, catalog: Catalog) -> Iterator[str]:
    """Yield the fields in `rename` and `filter` of a connection that no stream of its catalog has."""
    named = [("rename", name) for name in connection.rename or {}]
    named += [("filter", condition.field[0]) for condition in connection.filter or []]
    if not named:
        return
    declared = {name for stream in catalog.streams for name in properties(stream.json_schema)}
    for key, name in named:
        if name not in declared:
            yield (
                f"{key}: no stream in the catalog has a field {name!r}; correct the name, or leave it out"
            )
