"""The selection of a stream's fields that are stored, and of those that are stored only as hashes.

The rules are a tree over the names of the fields. Arrays have no level of their own: a path through an array
of objects applies to each of them. `filters` applies the tree to records, this module to schemas.

A rule also applies to a field whose name differs in case only, because that is the same column
(`lake.schema.names`): a source that renames `ssn` to `SSN` does not get around `exclude: [ssn]`. It does not
apply to a field that has a rule of its own, or that the catalog declares beside the other one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import Any

from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.message_rules import FIELD, FIELD_SCHEMA

Path = tuple[str, ...]
UNDECLARED = "_extra"
"""The column of the undeclared fields of a stream with `on_undeclared: keep`, as a JSON object."""
_PARTS = ("items", "oneOf", "anyOf")
"""The keywords of a schema that describe the same value further, or the elements of an array."""


class Action(Enum):
    """The treatment of a whole value."""

    KEEP = auto()
    DROP = auto()
    HASH = auto()


@dataclass(frozen=True)
class Node:
    """The rules for the fields of an object."""

    path: str  # of the object, with dots between the names
    children: Mapping[str, Rule]
    keeps_others: bool  # whether fields without a rule in `children` are kept

    @cached_property
    def _of_lower_case(self) -> Mapping[str, Rule]:
        return {name.lower(): rule for name, rule in reversed(list(self.children.items()))}

    def rule_for(self, name: str) -> Rule:
        rule = self.children.get(name)
        if rule is not None:
            return rule
        default = Action.KEEP if self.keeps_others else Action.DROP
        return self._of_lower_case.get(name.lower(), default)


Rule = Action | Node


@dataclass(frozen=True)
class FieldSelection:
    """The field settings of a stream, with the fields that the stream needs."""

    include: tuple[Path, ...] | None = None  # only these fields are kept; None: all fields
    exclude: tuple[Path, ...] = ()  # these fields are not kept; empty if `include` is given
    hashed: tuple[Path, ...] = ()  # only the hashes of these fields are kept
    # `key`, `cursor`: of the stream; always kept, whatever the other settings are
    key: tuple[Path, ...] = ()
    cursor: Path = ()
    # delete markers; always kept, because a delete without its marker would be stored as a row of
    # nulls
    markers: tuple[Path, ...] = field(default=(), repr=False)
    # fields that the catalog declares, and whose names differ from that of a rule in case only
    distinct: tuple[Path, ...] = field(default=(), repr=False)
    tree: Node = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", _node(self, ()))

    @property
    def always_kept(self) -> tuple[Path, ...]:
        cursor = (self.cursor,) if self.cursor else ()
        return (*self.key, *cursor, *self.markers)

    def covers(self, path: Path) -> bool:
        """Return whether the value at a path is kept, apart from parts with a rule of their own."""
        if lies_in(path, self.always_kept):
            return True
        if self.include is not None:
            return lies_in(path, self.include)
        return not lies_in(path, self.exclude)


def lies_in(path: Path, others: Iterable[Path]) -> bool:
    """Return whether a path is one of the others, or lies below one."""
    return any(path[: len(other)] == other for other in others)


def join_path(path: Path) -> str:
    return ".".join(path)


def _node(fields: FieldSelection, path: Path) -> Node:
    rules = (*(fields.include or ()), *fields.exclude, *fields.hashed, *fields.always_kept)
    paths = (*rules, *fields.distinct)
    depth = len(path)
    names = dict.fromkeys(p[depth] for p in paths if len(p) > depth and p[:depth] == path)
    children = {name: _rule(fields, (*path, name)) for name in names}
    return Node(join_path(path), children, keeps_others=fields.covers(path))


def _rule(fields: FieldSelection, path: Path) -> Rule:
    if path in fields.hashed:
        return Action.HASH
    node = _node(fields, path)
    action = Action.KEEP if node.keeps_others else Action.DROP
    return action if all(rule is action for rule in node.children.values()) else node


def describe_kept_fields(fields: FieldSelection | None) -> list[str]:
    """Return a line for each field that is kept although it is excluded, for the log of every sync."""
    if fields is None:
        return []
    needed = [("primary key", path) for path in fields.key]
    needed += [("cursor", fields.cursor)] if fields.cursor else []
    needed += [("delete marker", path) for path in fields.markers]
    messages = []
    for excluded in fields.exclude:
        for role, path in needed:
            reason = f"is the stream's {role}, which is always kept"
            if path == excluded:
                messages.append(f"fields.exclude: {join_path(path)!r} is still stored: it {reason}")
            elif lies_in(path, [excluded]):
                messages.append(
                    f"fields.exclude: {join_path(path)!r} in {join_path(excluded)!r} is still stored: "
                    f"it {reason}"
                )
            elif lies_in(excluded, [path]):
                messages.append(
                    f"fields.exclude: {join_path(excluded)!r} is still stored: {join_path(path)!r} {reason}"
                )
    return messages


def case_variants(json_schema: Any, paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the fields that a schema declares whose names differ from a part of a path in case only."""
    variants: dict[Path, None] = {}
    for path in paths:
        schema = json_schema
        for depth, name in enumerate(path):
            declared = properties(schema)
            same = (other for other in declared if other != name and other.lower() == name.lower())
            variants |= dict.fromkeys((*path[:depth], variant) for variant in same)
            schema = declared.get(name)
    return tuple(variants)


def narrow_schema(json_schema: dict[str, Any], fields: FieldSelection | None) -> dict[str, Any]:
    """Return the schema that is requested from a connector: without the fields that are not kept."""
    return json_schema if fields is None else _narrow(json_schema, fields.tree, hashes=False)


def land_schema(json_schema: dict[str, Any], fields: FieldSelection | None) -> dict[str, Any]:
    """Return the schema of a stream's records after the filter.

    Fields that are not kept are removed; a hashed field is a string.
    """
    return json_schema if fields is None else _narrow(json_schema, fields.tree, hashes=True)


def narrow_stream(stream: ConfiguredStream, fields: FieldSelection | None) -> ConfiguredStream:
    """Return the stream with its `narrow_schema`."""
    return _replace_schema(stream, narrow_schema(stream.stream.json_schema, fields))


def land_stream(stream: ConfiguredStream, fields: FieldSelection | None) -> ConfiguredStream:
    """Return the stream with its `land_schema`."""
    return _replace_schema(stream, land_schema(stream.stream.json_schema, fields))


def keep_undeclared(stream: ConfiguredStream) -> ConfiguredStream:
    """Return the stream with the field `UNDECLARED` for the fields that its schema does not declare."""
    schema = stream.stream.json_schema
    field = {
        "type": ["null", "object"],
        "additionalProperties": True,
        "description": "fields of the record that the catalog does not declare",
    }
    return _replace_schema(
        stream, {**schema, "properties": {**(schema.get("properties") or {}), UNDECLARED: field}}
    )


def declare_document(stream: ConfiguredStream) -> ConfiguredStream:
    """Return the stream with the field for the place of each record's document, if its documents are stored.

    The field takes the place of one of this name.
    """
    if not stream.has_documents:
        return stream
    schema = stream.stream.json_schema
    others = {
        name: field
        for name, field in (schema.get("properties") or {}).items()
        if name.lower() != FIELD
    }
    return _replace_schema(stream, {**schema, "properties": {**others, FIELD: FIELD_SCHEMA}})


def _replace_schema(stream: ConfiguredStream, json_schema: dict[str, Any]) -> ConfiguredStream:
    changed = copy.copy(stream)
    changed.stream = copy.copy(stream.stream)
    changed.stream.json_schema = json_schema
    return changed


def properties(schema: Any) -> dict[str, Any]:
    """Return the fields that a schema declares by name: of an object, an array's elements or any option."""
    if not isinstance(schema, Mapping):
        return {}
    own = schema.get("properties")
    merged = dict(own) if isinstance(own, Mapping) else {}
    for key in _PARTS:
        parts = schema.get(key)
        for part in parts if isinstance(parts, list) else [parts]:
            merged = {**properties(part), **merged}
    return merged


def _narrow(schema: Any, rule: Rule, *, hashes: bool) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    if rule is Action.HASH and hashes:
        described = {k: schema[k] for k in ("title", "description") if k in schema}
        return {"type": ["null", "string"], **described}
    if not isinstance(rule, Node):
        return schema
    narrowed = dict(schema)
    inner, required = schema.get("properties"), schema.get("required")
    if isinstance(inner, Mapping):
        stored_properties = {
            name: rule.rule_for(name) for name in inner if rule.rule_for(name) is not Action.DROP
        }
        narrowed["properties"] = {
            name: _narrow(inner[name], part, hashes=hashes)
            for name, part in stored_properties.items()
        }
    if isinstance(required, list):
        narrowed["required"] = [name for name in required if rule.rule_for(name) is not Action.DROP]
    for key in _PARTS:
        if isinstance(parts := schema.get(key), list):
            narrowed[key] = [_narrow(part, rule, hashes=hashes) for part in parts]
        elif key in schema:
            narrowed[key] = _narrow(parts, rule, hashes=hashes)
    return narrowed
