"""Which fields of a stream are stored, which only as hashes, and by which names; applied to schemas.

`connection` makes the rules, `pipeline.stream` has them applied to the schema of a stream, and
`record_filter` applies them to records. First `FieldSelection`, whose rules are a tree over the names of the
fields; then the functions that apply it to a schema; then `Renames`. `connection` also compares catalogs with
it, and `pipeline`, `lake`, `orchestration.metadata`, `destination` and `elt preview` take types and names of
fields from it.

Arrays have no level of their own: a path through an array of objects applies to each of them.

A rule also applies to a field whose name differs in case only, because that is the same column
(`lake.columns.names`): a source that renames `ssn` to `SSN` does not get around `exclude: [ssn]`. It does not
apply to a field that has a rule of its own, or that the catalog declares beside the other one.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import Any, Literal, TypeVar

from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.protocol.message_rules import FIELD, FIELD_SCHEMA

OnSchemaChange = Literal["evolve", "freeze", "fail"]
"""The reaction to a changed schema: the table follows it, the table keeps its columns, or the sync fails."""


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
    """Return a path as people write it: names with dots between them."""
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


T = TypeVar("T")
_OPTIONS = ("oneOf", "anyOf")


@dataclass(frozen=True)
class Renames:
    """The new names of a stream's top-level fields: of its schema, key and cursor, and of its records.

    All rules for fields, keys and cursors name them as the source does. What is stored has the new names. A
    field of a record whose name differs from a renamed one in case only is that field, as everywhere
    (`lake.columns.names`), unless the catalog declares it beside the other one.
    """

    names: Mapping[str, str]  # the new name of each field that has one, by its name in the source
    declared: Collection[str] = ()  # the fields that the catalog declares

    @cached_property
    def _sources(self) -> Mapping[str, str]:
        """The renamed fields by their names in lower case."""
        return {name.lower(): name for name in reversed(list(self.names))}

    @cached_property
    def _targets(self) -> frozenset[str]:
        return frozenset(name.lower() for name in self.names.values())

    def __getitem__(self, name: str) -> str:
        """Return the name under which a declared field is stored."""
        return self.names.get(name, name)

    def rename_fields(self, fields: Mapping[str, T]) -> dict[str, T]:
        """Return the fields of an object by their new names, in the same order.

        An undeclared field that has the new name of another one is left out: it would be taken for that one.
        """
        renamed = ((self._name_in(fields, name), value) for name, value in fields.items())
        return {name: value for name, value in renamed if name is not None}

    def _name_in(self, fields: Mapping[str, object], name: str) -> str | None:
        if name in self.names:
            return self.names[name]
        if name in self.declared:
            return name
        source = self._sources.get(name.lower())
        if source is not None and source not in fields:
            return self.names[source]
        return None if name.lower() in self._targets else name

    def rename_path(self, path: str) -> str:
        """Return the path of a field, with dots between its names, by the new names."""
        if path in self.names:
            return self.names[path]
        first, dot, rest = path.partition(".")
        return f"{self[first]}{dot}{rest}"

    def rename_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of an object with the new names of its fields."""
        renamed = dict(schema)
        if isinstance(inner := schema.get("properties"), Mapping):
            renamed["properties"] = self.rename_fields(inner)
        if isinstance(required := schema.get("required"), list):
            renamed["required"] = [
                self[name] if isinstance(name, str) else name for name in required
            ]
        for key in _OPTIONS:
            if isinstance(options := schema.get(key), list):
                renamed[key] = [
                    self.rename_schema(option) if isinstance(option, dict) else option
                    for option in options
                ]
        return renamed

    def rename_stream(self, stream: ConfiguredStream) -> ConfiguredStream:
        """Return a stream as it is stored: its schema, key and cursor have the new names."""
        renamed, described = copy.copy(stream), copy.copy(stream.stream)
        described.json_schema = self.rename_schema(described.json_schema)
        described.default_cursor_field = self._rename_steps(described.default_cursor_field)
        described.source_defined_primary_key = self._rename_all(
            described.source_defined_primary_key
        )
        renamed.stream = described
        renamed.cursor_field = self._rename_steps(stream.cursor_field)
        renamed.primary_key = self._rename_all(stream.primary_key)
        return renamed

    def _rename_steps(self, path: list[str] | None) -> list[str] | None:
        return path and [self[path[0]], *path[1:]]

    def _rename_all(self, paths: Sequence[list[str]] | None) -> list[list[str]] | None:
        return None if paths is None else [self._rename_steps(path) or [] for path in paths]
