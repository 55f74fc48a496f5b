"""Composition of the JSON schemas of streams: one schema instead of `$ref`, `allOf`, `anyOf` and `oneOf`.

`catalog`, `singer` and `singer_catalog` compose what they read; `codec`, `config_check`, `specification`,
`connection.resolution`, `lake` (`columns.from_json_schema`, `write.sync_columns`) and `connectors`
(`declarative`, `testing`) look at schemas with it, or explain problems.

A schema may describe one value in several places. `compose_schema` returns an equal schema that describes
each field in one place, so that nothing else in this project needs to know how JSON Schema composes:

- A `$ref` into the schema is replaced by its target, and `allOf` by one schema: a value has a type that all
  parts allow, and the properties of all parts. Keywords beside a `$ref` count (as of 2019-09).
- `anyOf` and `oneOf` of a field stay. Each of their options gets the types and properties beside it; an
  option without any does not describe fields. If no type stands beside a union, an option that has none
  either allows any value. A record is an object, so the fields of a stream are those of all options.
- A `$ref` stays, and stands for any JSON, if it leads to another document, to nothing, or to a schema that
  contains itself: its fields would never end. So does what would be nested deeper than `MAX_STEPS`, or come
  after the first `_MAX_REPEATED` copies; there the schema is empty.

A schema without these keywords is unchanged.

Spec: JSON Schema, draft-07 and 2020-12, `$ref`, `$defs`, `allOf`, `anyOf`, `oneOf`, `if`; RFC 6901.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import prod
from typing import Any, TypeAlias
from urllib.parse import unquote

MAX_STEPS = 64
"""Maximum number of properties, items and options on the way to a part of a schema."""
MAX_LEVELS = 200
"""Maximum number of levels of arrays and objects in the JSON text of a catalog."""
_MAX_REPEATED = 50_000
"""Maximum number of parts that a schema gets by references and merges, which may multiply."""
_MAX_COMBINATIONS = 64
"""Maximum number of combinations of the options of several unions of one value."""

WELL_KNOWN = "WellKnownTypes.json#/definitions/"
"""The beginning of a reference to a type of the Airbyte Protocol."""

Schema: TypeAlias = Mapping[str, Any]
_UNIONS = ("anyOf", "oneOf")
_COMPOSING = frozenset({"$ref", "allOf", *_UNIONS})
_OF_DOCUMENT = frozenset({"definitions", "$defs", "$id", "id", "$schema", "$anchor"})
"""Keywords of a whole document, which a copy of a part does not need."""
_NOTES = ("title", "description")
_SHAPE = (
    *("type", "properties", "items", "enum", "const"),
    *("format", "airbyte_type", "contentEncoding", "multipleOf", "maximum"),
)
"""Keywords on which the column of a field depends."""
_TYPING = frozenset({"type", "properties", "items", "enum", *_COMPOSING})
"""Keywords by which an option describes a type. `required` and `const` do not: all options of a union often
have nothing else."""
_KEYWORDS = frozenset(
    {
        *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"),
        *(
            "items",
            "additionalItems",
            "unevaluatedItems",
            "contains",
            "dependencies",
            "dependentSchemas",
        ),
        *("not", "if", "then", "else", "properties", "definitions", "$defs"),
    }
)
"""Keywords whose values are schemas. Another name of a schema at the top level is that of a field that is not
under `properties`."""
_NESTED = frozenset({"object", "array", "properties", "items", *_UNIONS})
"""Types and keywords of values that have fields or elements."""
_ANYTHING: dict[str, Any] = {}
_IMPOSSIBLE: list[str] = []
_CONSTANTS: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
"""The type of a JSON value, by its Python type."""
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def compose_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a stream's records with its parts composed; the same object if it has none."""
    plain: dict[str, Any] = _Composition(schema).record()
    return plain


def explain_lost_fields(schema: Schema) -> str | None:
    """Return why none of the fields of a stream can be found, although its composed schema declares some;
    None if it declares none."""
    declared, reference = schema.get("properties"), schema.get("$ref")
    if isinstance(declared, Mapping) and declared:
        return None
    if reference is not None:
        return f"it refers to {str(reference)!r}, which is not in the schema"
    if declared and not isinstance(declared, Mapping):
        return "its `properties` are not an object"
    items = schema.get("items")
    if isinstance(items, Mapping) and items.get("properties"):
        return "it describes an array, and a record is an object"
    fields = [name for name in schema if name not in _KEYWORDS and _is_typed(schema[name])]
    return f"{fields[0]!r} is not under `properties`" if fields else None


def broken_references(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield the fields of a composed schema that refer to another document or to nothing: the name of the
    field, with dots between the levels, and the reference."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while waiting:
        path, part = waiting.pop()
        if not isinstance(part, Mapping):
            continue
        reference = part.get("$ref")
        if (
            isinstance(reference, str)
            and WELL_KNOWN not in reference
            and _target(schema, reference) is None
        ):
            yield ".".join(path), reference
        waiting += [((*path, name), inner) for name, inner in list_properties(part).items()]
        waiting += [(path, inner) for inner in _same_field(part)]


def local(root: Any, reference: str) -> Any:
    """Return the part of a schema that a local reference (`#/definitions/x`) names; None if there is none."""
    if not reference.startswith("#"):
        return None
    part = root
    for step in unquote(reference[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(part, Mapping):
            part = part.get(name)
        elif isinstance(part, list) and name.isdecimal() and int(name) < len(part):
            part = part[int(name)]
        else:
            return None
    return part


def shallow(text: bytes) -> bytes:
    """Return a JSON text in which arrays and objects at the level `MAX_LEVELS` are empty. Text that is not
    JSON is unchanged."""
    brackets = text.translate(None, _NO_BRACKETS)
    for _ in range(MAX_LEVELS // 2):  # each removes at most two levels
        if not brackets:
            return text
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    parts, depth, end = [], 0, 0
    for token in _TOKENS.finditer(text):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == MAX_LEVELS:
                parts.append(text[end : token.end()])
        elif token[0] in (b"]", b"}"):
            if depth == MAX_LEVELS:
                end = token.start()
            depth -= 1
    return b"".join([*parts, text[end:]]) if depth == 0 else text


class _Merge(dict[str, Any]):
    """An `allOf` that the source did not write."""


class _NoValue(dict[str, Any]):
    """A composed schema to which no value conforms: its parts have no type in common."""


class _Composition:
    """The composition of one schema."""

    def __init__(self, root: dict[str, Any]):
        self._root = root
        self._remaining = _MAX_REPEATED
        self._edges: dict[int, list[Schema]] = {}
        self._endless: dict[int, bool] = {}

    def record(self) -> Any:
        root = self._root
        if _COMPOSING.isdisjoint(root) and "if" not in root:
            return self.compose_inner(root, 0)
        base, declared, reference = self.find_fields(root, frozenset({id(root)}), 0)
        if reference is not None:
            base["$ref"] = reference
        if declared:
            fields = {name: self.compose(part, 1, is_copy=True) for name, part in declared.items()}
            base |= {"type": base.get("type", "object"), "properties": fields}
        return base

    def find_fields(
        self, schema: Schema, followed: AbstractSet[int], steps: int
    ) -> tuple[dict[str, Any], dict[str, Any], str | None]:
        """Return the schema of a record without unions that declare fields, its fields, and a reference that
        cannot be followed. `followed`: the targets of references that led to it."""
        if steps > MAX_STEPS:
            return {}, {}, None
        parts, reference, followed = self.list_parts(schema, followed)
        base, unions = _merge_parts(parts)
        conditional = (part for part in parts if "if" in part)
        unions += (("if", [part.get("then", True), part.get("else", True)]) for part in conditional)
        declared = dict(list_properties(base))
        for keyword, options in unions:
            records: list[Schema] = []
            for option in options:
                if not isinstance(option, Mapping):
                    records += [{}] if option is True else []
                    continue
                own, fields, broken = self.find_fields(option, followed, steps + 1)
                reference = reference or broken
                if "object" in (list_types(own) or ["object"]):
                    records.append(fields)
            if any(records):
                declared = _unite_fields(declared, records)
                for condition in ("if", "then", "else") if keyword == "if" else ():
                    base.pop(condition, None)
            elif keyword != "if":
                base.setdefault(keyword, options)
        return base, declared, reference

    def compose(self, schema: Any, steps: int, *, is_copy: bool) -> Any:
        """Return the composed schema of a value.

        Args:
            steps: number of properties, items and options on the way to it.
            is_copy: whether a reference or a merge repeats the schema here. Then it counts as one of the
                `_MAX_REPEATED` parts.
        """
        if not isinstance(schema, Mapping):
            return schema
        self._remaining -= is_copy
        if steps > MAX_STEPS or self._remaining < 0:
            return _ANYTHING
        if _COMPOSING.isdisjoint(schema):
            return self.compose_inner(schema, steps, is_copy=is_copy)
        plain = self.compose_parts(schema, steps, is_copy=is_copy)
        return schema if plain == schema else plain

    def compose_parts(self, schema: Schema, steps: int, *, is_copy: bool) -> Any:
        """Return the composed schema of a value that is described in several places."""
        parts, reference, _ = self.list_parts(schema)
        base, unions = _merge_parts(parts)
        kind = _NoValue if base.get("type") is _IMPOSSIBLE else dict[str, Any]
        if reference is not None:
            beside = schema if "$ref" in schema else {k: schema[k] for k in _NOTES if k in schema}
            return kind({**beside, "$ref": reference})
        if kind is _NoValue or _is_wrapped_scalar(parts, base):
            return kind({keyword: base[keyword] for keyword in _NOTES if keyword in base})
        for keyword, options in unions:
            if not any(map(_is_typed, options)):
                base.setdefault(keyword, options)
        typed = [(key, options) for key, options in unions if any(map(_is_typed, options))]
        if not typed:
            return self.compose_inner(base, steps, is_copy=True)
        return self.unite(base, typed, steps, is_copy=is_copy or len(parts) > 1)

    def unite(
        self,
        base: dict[str, Any],
        unions: Sequence[tuple[str, list[Schema]]],
        steps: int,
        *,
        is_copy: bool,
    ) -> Any:
        """Return the schema of a value that has one of the options of each union, and what is in `base`."""
        shape = {keyword: base[keyword] for keyword in _SHAPE if keyword in base}
        if len(unions) > 1 and prod(len(options) for _, options in unions) > _MAX_COMBINATIONS:
            return _ANYTHING
        beside = [shape] if _is_typed(shape) else []
        described: list[Any] = []
        for options in itertools.product(*(map(_add_type, options) for _, options in unions)):
            parts = [*beside, *options]
            if False in options:  # it allows no value
                continue
            if not any(map(_is_typed, parts)):
                return _ANYTHING
            if len(parts) == 1:
                described.append(self.compose(parts[0], steps + 1, is_copy=is_copy))
            else:
                combined = self.compose(_Merge(allOf=parts), steps + 1, is_copy=True)
                described += [] if isinstance(combined, _NoValue) else [combined]
        if not described or any(option is _ANYTHING for option in described):
            return _ANYTHING
        return {**base, unions[0][0]: described}

    def compose_inner(self, schema: Schema, steps: int, *, is_copy: bool = False) -> Any:
        """Return a schema with its properties and items composed; the same object if none changes."""
        changed: dict[str, Any] = {}
        declared, items = list_properties(schema), schema.get("items")
        fields = {
            name: self.compose(part, steps + 1, is_copy=is_copy) for name, part in declared.items()
        }
        if any(fields[name] is not declared[name] for name in declared):
            changed["properties"] = fields
        if isinstance(items, list):
            elements = [self.compose(part, steps + 1, is_copy=is_copy) for part in items]
            if any(new is not old for new, old in zip(elements, items, strict=True)):
                changed["items"] = elements
        elif (element := self.compose(items, steps + 1, is_copy=is_copy)) is not items:
            changed["items"] = element
        return {**schema, **changed} if changed else schema

    def list_parts(
        self, schema: Schema, followed: AbstractSet[int] | None = None
    ) -> tuple[list[Schema], str | None, AbstractSet[int]]:
        """Return the schemas that all apply to a value, a reference that cannot be followed, and the targets
        of those that are. Without `followed`, a schema that contains itself is not followed."""
        parts: list[Schema] = []
        broken: str | None = None
        targets = set(followed or ())
        waiting: list[Any] = [schema]
        while waiting:
            part = waiting.pop()
            if not isinstance(part, Mapping):
                continue
            self._remaining -= bool(parts)
            parts.append(part)
            reference, further = part.get("$ref"), _list(part.get("allOf"))
            if isinstance(reference, str):
                target = _target(self._root, reference)
                if (
                    target is None
                    or self._remaining < 0
                    or (followed is None and self.contains_itself(target))
                ):
                    broken = broken or reference
                elif id(target) not in targets:
                    targets.add(id(target))
                    further = [target, *further]
            waiting += reversed(further)
        return parts, broken, targets

    def contains_itself(self, target: Schema) -> bool:
        """Return whether the references in a schema lead back to it."""
        if id(target) not in self._endless:
            seen: dict[int, Schema] = {}
            waiting = self.find_targets(target)
            while waiting:
                part = waiting.pop()
                if id(part) not in seen:
                    seen[id(part)] = part
                    waiting += self.find_targets(part)
            self._endless[id(target)] = id(target) in seen
        return self._endless[id(target)]

    def find_targets(self, schema: Schema) -> list[Schema]:
        """Return the targets of the references in a part of the schema."""
        if id(schema) not in self._edges:
            targets: dict[int, Schema] = {}
            waiting: list[Any] = [schema]
            while waiting:
                part = waiting.pop()
                if not isinstance(part, Mapping):
                    continue
                reference = part.get("$ref")
                target = _target(self._root, reference) if isinstance(reference, str) else None
                if target is not None:
                    targets[id(target)] = target
                waiting += list_properties(part).values()
                waiting += _same_field(part)
            self._edges[id(schema)] = list(targets.values())
        return [*self._edges[id(schema)]]


def _target(root: Schema, reference: str) -> Schema | None:
    """Return the schema that a reference names, also by the identifier of the document."""
    name = root.get("$id", root.get("id"))
    if isinstance(name, str):
        reference = reference.removeprefix(name.rstrip("#"))
    target = local(root, reference)
    if isinstance(target, bool):
        return _ANYTHING
    return target if isinstance(target, Mapping) else None


def _merge_parts(parts: Sequence[Schema]) -> tuple[dict[str, Any], list[tuple[str, list[Any]]]]:
    """Return one schema for a value to which several apply, and the unions among them. If no type is allowed
    by all, it is `_IMPOSSIBLE`. Of keywords without a rule, the first value counts."""
    base: dict[str, Any] = {}
    unions: list[tuple[str, list[Any]]] = []
    for number, part in enumerate(parts):
        for keyword, value in part.items():
            if keyword in ("$ref", "allOf") or (number and keyword in _OF_DOCUMENT):
                continue
            if keyword in _UNIONS:
                unions.append((keyword, _list(value)))
            elif keyword not in base:
                base[keyword] = value
            elif keyword in _RULES:
                base[keyword] = _RULES[keyword](base[keyword], value)
    return base, unions


def _is_wrapped_scalar(parts: Sequence[Schema], base: Schema) -> bool:
    """Return whether only `allOf` gives a value its type, and the type has no fields or elements. Tables have
    JSON text for such a value: another form of the same column would mix with what they hold."""
    wrapped = any(
        "allOf" in part and "type" not in part and not isinstance(part, _Merge) for part in parts
    )
    return wrapped and _NESTED.isdisjoint({*base, *list_types(base)})


def _both(first: Any, second: Any) -> Any:
    """Return the schema of values to which two schemas apply."""
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return first if isinstance(first, Mapping) else second
    return first if first == second else _Merge(allOf=[first, second])


def _all_properties(first: Any, second: Any) -> Any:
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return first if isinstance(first, Mapping) else second
    return {**first, **{name: _both(first.get(name), part) for name, part in second.items()}}


def _common_types(first: Any, second: Any) -> Any:
    """Return the types that two values of `type` have in common. An integer is a number."""
    kinds, second_kinds = _list_texts(first), _list_texts(second)
    if first is _IMPOSSIBLE or not second_kinds:
        return first
    if not kinds:
        return second
    common = [
        kind
        for kind in kinds
        if kind in second_kinds or (kind == "integer" and "number" in second_kinds)
    ]
    if "number" in kinds and "integer" in second_kinds and not {"integer", "number"} & {*common}:
        common.append("integer")
    if common == kinds:
        return first
    return (common[0] if len(common) == 1 else common) if common else _IMPOSSIBLE


_RULES: Mapping[str, Callable[[Any, Any], Any]] = {
    "type": _common_types,
    "properties": _all_properties,
    "items": _both,
    "enum": lambda first, second: [value for value in _list(first) if value in _list(second)],
    "required": lambda first, second: [*_list(first), *_list(second)],
}
"""Rules that make one value of two values of a keyword that both apply."""


def _unite_fields(declared: Schema, records: Sequence[Schema]) -> dict[str, Any]:
    """Return the fields of a record that has those that are declared and those of one of several records."""
    fields = dict(declared)
    for name in dict.fromkeys(name for record in records for name in record):
        options: list[Any] = []
        for record in records:
            if name in record and record[name] not in options:
                options.append(record[name])
        option = options[0] if len(options) == 1 else {"anyOf": options}
        if name not in declared:
            fields[name] = option
        elif all(name in record for record in records):
            fields[name] = _both(declared[name], option)
    return fields


def _same_field(schema: Schema) -> Iterator[Any]:
    """Yield the parts of a schema that describe the same field, or the elements of its arrays."""
    for keyword in ("items", "allOf", *_UNIONS):
        part = schema.get(keyword)
        yield from part if isinstance(part, list) else [part]


def list_types(schema: Schema) -> list[str]:
    """Return the JSON types that a schema allows; none if it does not restrict them."""
    return _list_texts(schema.get("type"))


def _list_texts(value: Any) -> list[str]:
    texts = value if isinstance(value, list) else [value]
    return [text for text in texts if isinstance(text, str)]


def _is_typed(schema: Any) -> bool:
    return isinstance(schema, Mapping) and not _TYPING.isdisjoint(schema)


def _add_type(option: Any) -> Any:
    """Return an option of a union; one that is a constant, with the type of it."""
    if isinstance(option, Mapping) and "const" in option and not _is_typed(option):
        return {**option, "type": _CONSTANTS[type(option["const"])]}
    return option


def list_properties(schema: Schema) -> Schema:
    """Return the schemas of the properties of an object, by name; none if it has no valid ones."""
    declared = schema.get("properties")
    return declared if isinstance(declared, Mapping) else {}


def _list(value: Any) -> list[Any]:
    """Return a list as it is, and [] for anything else: a malformed schema may have another value there."""
    return value if isinstance(value, list) else []
