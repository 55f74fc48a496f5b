"""Resolution of `rename` and `filter` of a connection and its streams, checked with the catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from elt_assets.connection.connection_model import Connection
from elt_assets.connection.field_lookup import describe_unknown
from elt_assets.connection.rows import Condition
from elt_assets.connection.stream_model import Stream
from elt_assets.protocol.catalog import DELETE_MARKERS, AirbyteStream, Catalog
from elt_assets.sync.selection.fields import UNDECLARED, Action, FieldSelection, properties
from elt_assets.sync.selection.renames import Renames


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
