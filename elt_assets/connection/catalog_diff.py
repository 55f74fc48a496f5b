"""Differences between two catalogs of a source: streams, columns, sync modes, keys and cursors.

For `elt discover`, `elt upgrade` and the job that watches for drift (`orchestration.source_jobs`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from elt_assets.protocol.catalog import AirbyteStream, Catalog, StreamId
from elt_assets.sync.field_selection import join_path, properties

Kind = Literal[
    "stream", "column", "type", "sync_modes", "primary_key", "cursor_field", "is_file_based"
]

_COLUMN_KEYS = ("format", "airbyte_type", "contentEncoding", "$ref")
"""Keywords of a JSON schema that, besides its type, determine the column type."""


@dataclass(frozen=True)
class Change:
    """One difference between two catalogs."""

    stream: StreamId
    kind: Kind
    field: str | None  # dotted path of the field, if `kind` is `column` or `type`
    before: str | None  # readable text, as `after`; None if there was or is no value
    after: str | None

    @property
    def description(self) -> str:
        """Description of the change, for people."""
        if self.kind == "stream":
            return (
                "the source has a new stream"
                if self.before is None
                else "the source no longer has the stream"
            )
        if self.kind == "column":
            if self.before is None:
                return f"{self.field} is new: {self.after}"
            return f"{self.field} is gone: it was {self.before}"
        what = self.field if self.kind == "type" else self.kind
        return f"{what} was {self.before or 'none'}, and is {self.after or 'none'}"


def changes(old: Catalog, new: Catalog) -> list[Change]:
    """Return the differences that affect tables or reads, in the order of the old catalog; new streams are
    last. Differences in titles, descriptions and nullability are ignored."""
    differences: list[Change] = []
    before, after = old.index_streams(), new.index_streams()
    for stream in old.streams:
        present = after.get(stream.id)
        if present is None:
            differences.append(Change(stream.id, "stream", None, str(stream.id), None))
        else:
            differences += _stream_changes(stream, present)
    added = (stream.id for stream in new.streams if stream.id not in before)
    return [*differences, *(Change(stream, "stream", None, None, str(stream)) for stream in added)]


def _stream_changes(old: AirbyteStream, new: AirbyteStream) -> Iterator[Change]:
    before, after = dict(_columns(old.json_schema)), dict(_columns(new.json_schema))
    for path in dict.fromkeys([*before, *after]):
        was_type, is_type = before.get(path), after.get(path)
        if was_type is None or is_type is None:
            # A field that was added or removed with its parent object is reported with the parent.
            parent = path[:-1]
            if not parent or (parent in before and parent in after):
                yield Change(old.id, "column", join_path(path), was_type, is_type)
        elif was_type != is_type:
            yield Change(old.id, "type", join_path(path), was_type, is_type)
    for kind, read in _READ.items():
        if read(old) != read(new):
            yield Change(old.id, kind, None, read(old), read(new))


def _columns(schema: Any, parent: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and type of each field, including nested fields and fields of array elements."""
    for name, inner in properties(schema).items():
        path = (*parent, name)
        yield path, _type(inner)
        yield from _columns(inner, path)


def _type(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return json.dumps(schema)
    for key in ("oneOf", "anyOf"):
        if isinstance(kinds := schema.get(key), list):
            return " | ".join(sorted({_type(part) for part in kinds} - {"null"})) or "any"
    kinds = schema.get("type")
    kinds = sorted(map(str, kinds)) if isinstance(kinds, list) else [str(kinds or "any")]
    text = " | ".join(kind for kind in kinds if kind != "null") or "null"
    if text == "array" and "items" in schema:
        items = schema["items"]
        text = f"array of {_type(items)}" if isinstance(items, Mapping) else "array"
    beside = [str(schema[key]) for key in _COLUMN_KEYS if key in schema]
    return f"{text} ({', '.join(beside)})" if beside else text


def _key(stream: AirbyteStream) -> str | None:
    paths = stream.source_defined_primary_key or []
    return ", ".join(sorted(join_path(tuple(path)) for path in paths)) or None


def _cursor(stream: AirbyteStream) -> str | None:
    path = join_path(tuple(stream.default_cursor_field or []))
    own = "defined by the source" if stream.source_defined_cursor else ""
    return " ".join(filter(None, [path, f"({own})" if own else ""])) or None


_READ: Mapping[Kind, Callable[[AirbyteStream], str | None]] = {
    "sync_modes": lambda stream: ", ".join(sorted(stream.sync_modes)),
    "primary_key": _key,
    "cursor_field": _cursor,
    "is_file_based": lambda stream: "true" if stream.is_file_based else None,
}
