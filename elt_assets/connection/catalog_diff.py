"""What has changed between two catalogs of one source: its streams, their columns, how they may be read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from elt_assets.protocol.airbyte.catalog import AirbyteStream, Catalog, StreamId
from elt_assets.sync.selection.fields import dotted, properties

Kind = Literal["stream", "column", "type", "sync_modes", "primary_key", "cursor_field"]

_COLUMN_KEYS = ("format", "airbyte_type", "contentEncoding", "$ref")
"""What of a schema, beside its type, decides which column it becomes."""


@dataclass(frozen=True)
class Change:
    """One difference.

    `field`: its dotted path, for a `column` or a `type`. `before` and `after` are as people read them;
    None: it was not there, or is not there any more.
    """

    stream: StreamId
    kind: Kind
    field: str | None
    before: str | None
    after: str | None

    @property
    def told(self) -> str:
        """As a sentence."""
        if self.kind == "stream":
            return "the source has a new stream" if self.before is None else "the source lost it"
        if self.kind == "column":
            if self.before is None:
                return f"{self.field} is new: {self.after}"
            return f"{self.field} is gone: it was {self.before}"
        what = self.field if self.kind == "type" else self.kind
        return f"{what} was {self.before or 'none'}, and is {self.after or 'none'}"


def changes(old: Catalog, new: Catalog) -> list[Change]:
    """All differences that matter to tables or to how streams are read, in the order of the old catalog,
    what is new at its end. Not those of texts for people, nor of whether a value may be null."""
    found: list[Change] = []
    for stream in old.streams:
        present = new.find(stream.id)
        if present is None:
            found.append(Change(stream.id, "stream", None, str(stream.id), None))
        else:
            found += _of_stream(stream, present)
    added = (stream.id for stream in new.streams if old.find(stream.id) is None)
    return [*found, *(Change(each, "stream", None, None, str(each)) for each in added)]


def _of_stream(old: AirbyteStream, new: AirbyteStream) -> Iterator[Change]:
    before, after = dict(_columns(old.json_schema)), dict(_columns(new.json_schema))
    for path in dict.fromkeys([*before, *after]):
        was, now = before.get(path), after.get(path)
        if was is None or now is None:
            # A field that came or went with the object around it is told with that.
            if not _parent(path) or (_parent(path) in before and _parent(path) in after):
                yield Change(old.id, "column", dotted(path), was, now)
        elif was != now:
            yield Change(old.id, "type", dotted(path), was, now)
    for kind, read in _READ.items():
        if read(old) != read(new):
            yield Change(old.id, kind, None, read(old), read(new))


def _parent(path: tuple[str, ...]) -> tuple[str, ...]:
    return path[:-1]


def _columns(schema: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each field, nested ones too, and its type; arrays are looked through."""
    for name, inner in properties(schema).items():
        path = (*at, name)
        yield path, _type(inner)
        yield from _columns(inner, path)


def _type(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return json.dumps(schema)
    for key in ("oneOf", "anyOf"):
        if isinstance(given := schema.get(key), list):
            return " | ".join(sorted({_type(part) for part in given} - {"null"})) or "any"
    given = schema.get("type")
    kinds = sorted(map(str, given)) if isinstance(given, list) else [str(given or "any")]
    text = " | ".join(kind for kind in kinds if kind != "null") or "null"
    if text == "array" and "items" in schema:
        items = schema["items"]
        text = f"array of {_type(items)}" if isinstance(items, Mapping) else "array"
    beside = [str(schema[key]) for key in _COLUMN_KEYS if key in schema]
    return f"{text} ({', '.join(beside)})" if beside else text


def _modes(stream: AirbyteStream) -> str:
    return ", ".join(sorted(stream.sync_modes))


def _key(stream: AirbyteStream) -> str | None:
    return (
        ", ".join(sorted(dotted(tuple(p)) for p in stream.source_defined_primary_key or [])) or None
    )


def _cursor(stream: AirbyteStream) -> str | None:
    path = dotted(tuple(stream.default_cursor_field or []))
    own = "defined by the source" if stream.source_defined_cursor else ""
    return " ".join(filter(None, [path, f"({own})" if own else ""])) or None


_READ: Mapping[Kind, Any] = {"sync_modes": _modes, "primary_key": _key, "cursor_field": _cursor}
