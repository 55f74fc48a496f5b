"""Which fields of a stream are stored, and which of them only as hashes.

The rules are a tree over the fields' names; arrays are looked through, so that a path through an
array of objects means each of them. `filters` applies the tree to records, this module to schemas.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from elt_assets.protocol.airbyte.catalog import ConfiguredStream

Path = tuple[str, ...]
UNDECLARED = "_extra"
"""The column of a stream with `on_undeclared: keep`: a JSON object of what its schema does not declare."""
_PARTS = ("items", "oneOf", "anyOf", "allOf")
"""Where a schema describes the same value further, or an array's elements."""


class Verdict(Enum):
    """What becomes of a value as a whole."""

    KEEP = auto()
    DROP = auto()
    HASH = auto()


@dataclass(frozen=True)
class Node:
    """What becomes of an object's fields. `path`: where it stands, dotted; `rest`: whether the
    fields that are not among its children are kept."""

    path: str
    children: Mapping[str, Rule]
    rest: bool

    def of(self, name: str) -> Rule:
        return self.children.get(name, Verdict.KEEP if self.rest else Verdict.DROP)


Rule = Verdict | Node


@dataclass(frozen=True)
class FieldSelection:
    """What a connection says of a stream's fields, joined with what the stream cannot do without.

    Args:
        include: nothing else is kept; None: everything is.
        exclude: not kept; empty where `include` is given.
        hashed: kept as a hash alone.
        key, cursor: in force for the stream, and kept whatever the others say.
        markers: of deletes, kept like the key: without them a delete would be taken for a row of nulls.
    """

    include: tuple[Path, ...] | None = None
    exclude: tuple[Path, ...] = ()
    hashed: tuple[Path, ...] = ()
    key: tuple[Path, ...] = ()
    cursor: Path = ()
    markers: tuple[Path, ...] = field(default=(), repr=False)
    tree: Node = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", _node(self, ()))

    @property
    def kept(self) -> tuple[Path, ...]:
        cursor = (self.cursor,) if self.cursor else ()
        return (*self.key, *cursor, *self.markers)

    def covers(self, path: Path) -> bool:
        """Whether the value at a path is kept, as far as no deeper path says otherwise."""
        if lies_in(path, self.kept):
            return True
        if self.include is not None:
            return lies_in(path, self.include)
        return not lies_in(path, self.exclude)


def lies_in(path: Path, others: Iterable[Path]) -> bool:
    """Whether a path is one of the others, or beneath one."""
    return any(path[: len(other)] == other for other in others)


def dotted(path: Path) -> str:
    return ".".join(path)


def _node(fields: FieldSelection, at: Path) -> Node:
    paths = (*(fields.include or ()), *fields.exclude, *fields.hashed, *fields.kept)
    depth = len(at)
    names = dict.fromkeys(p[depth] for p in paths if len(p) > depth and p[:depth] == at)
    children = {name: _rule(fields, (*at, name)) for name in names}
    return Node(dotted(at), children, rest=fields.covers(at))


def _rule(fields: FieldSelection, at: Path) -> Rule:
    if at in fields.hashed:
        return Verdict.HASH
    node = _node(fields, at)
    alike = Verdict.KEEP if node.rest else Verdict.DROP
    return alike if all(rule is alike for rule in node.children.values()) else node


def notices(fields: FieldSelection | None) -> list[str]:
    """What is kept although it was to be excluded, one line each; for the log of every sync."""
    if fields is None:
        return []
    needed = [("primary key", path) for path in fields.key]
    needed += [("cursor", fields.cursor)] if fields.cursor else []
    needed += [("delete marker", path) for path in fields.markers]
    found = []
    for excluded in fields.exclude:
        for role, path in needed:
            why = f"is the stream's {role}, which is always kept"
            if path == excluded:
                found.append(f"fields.exclude: {dotted(path)!r} is stored all the same: it {why}")
            elif lies_in(path, [excluded]):
                found.append(
                    f"fields.exclude: of {dotted(excluded)!r}, {dotted(path)!r} is stored all the "
                    f"same: it {why}"
                )
            elif lies_in(excluded, [path]):
                found.append(
                    f"fields.exclude: {dotted(excluded)!r} is stored all the same: {dotted(path)!r} {why}"
                )
    return found


def narrowed_schema(json_schema: dict[str, Any], fields: FieldSelection | None) -> dict[str, Any]:
    """A stream's schema without what is not kept: what its connector is asked for."""
    return json_schema if fields is None else _narrowed(json_schema, fields.tree, hashes=False)


def landed_schema(json_schema: dict[str, Any], fields: FieldSelection | None) -> dict[str, Any]:
    """A stream's schema as its records are after the filter: what is not kept is gone, and what is
    hashed is a string."""
    return json_schema if fields is None else _narrowed(json_schema, fields.tree, hashes=True)


def asked(stream: ConfiguredStream, fields: FieldSelection | None) -> ConfiguredStream:
    """The stream with its `narrowed_schema`."""
    return _with_schema(stream, narrowed_schema(stream.stream.json_schema, fields))


def landed(stream: ConfiguredStream, fields: FieldSelection | None) -> ConfiguredStream:
    """The stream with its `landed_schema`."""
    return _with_schema(stream, landed_schema(stream.stream.json_schema, fields))


def with_undeclared(stream: ConfiguredStream) -> ConfiguredStream:
    """The stream with the field that holds what its schema does not declare."""
    schema = stream.stream.json_schema
    field = {
        "type": ["null", "object"],
        "additionalProperties": True,
        "description": "fields of the record that the catalog does not declare",
    }
    return _with_schema(
        stream, {**schema, "properties": {**(schema.get("properties") or {}), UNDECLARED: field}}
    )


def _with_schema(stream: ConfiguredStream, json_schema: dict[str, Any]) -> ConfiguredStream:
    changed = copy.copy(stream)
    changed.stream = copy.copy(stream.stream)
    changed.stream.json_schema = json_schema
    return changed


def properties(schema: Any) -> dict[str, Any]:
    """The fields that a schema describes by name: of an object, of an array's elements, of any of
    its options."""
    if not isinstance(schema, Mapping):
        return {}
    own = schema.get("properties")
    found = dict(own) if isinstance(own, Mapping) else {}
    for key in _PARTS:
        given = schema.get(key)
        for part in given if isinstance(given, list) else [given]:
            found = {**properties(part), **found}
    return found


def _narrowed(schema: Any, rule: Rule, *, hashes: bool) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    if rule is Verdict.HASH and hashes:
        described = {k: schema[k] for k in ("title", "description") if k in schema}
        return {"type": ["null", "string"], **described}
    if not isinstance(rule, Node):
        return schema
    found = dict(schema)
    inner, required = schema.get("properties"), schema.get("required")
    if isinstance(inner, Mapping):
        kept = {name: rule.of(name) for name in inner if rule.of(name) is not Verdict.DROP}
        found["properties"] = {
            name: _narrowed(inner[name], of, hashes=hashes) for name, of in kept.items()
        }
    if isinstance(required, list):
        found["required"] = [name for name in required if rule.of(name) is not Verdict.DROP]
    for key in _PARTS:
        if isinstance(given := schema.get(key), list):
            found[key] = [_narrowed(part, rule, hashes=hashes) for part in given]
        elif key in schema:
            found[key] = _narrowed(given, rule, hashes=hashes)
    return found
