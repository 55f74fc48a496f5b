"""The part of a JSON schema that can be checked.

Connectors' specifications hold keywords that no dialect of JSON Schema has in that form, patterns that are
not Python's, references to other documents and references that never end. Each such part is left out, and
named; the rest of the schema is checked.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema
from jsonschema.protocols import Validator

from elt_assets.protocol.config_places import local

_MOST = 100
"""Parts that cannot be checked of which each is named."""
_REFERENCES = ("$ref", "$recursiveRef", "$dynamicRef")
_IDENTIFIERS = ("$id", "id")
# Keywords whose schemas apply to the value itself, and those whose schemas apply to a part of it.
_OWN_LISTS = ("allOf", "anyOf", "oneOf")
_OWN = ("not", "if", "then", "else")
_OWN_BY_NAME = ("dependencies", "dependentSchemas")
_PARTS_BY_NAME = ("properties", "patternProperties")
_PARTS = (
    *("additionalProperties", "propertyNames", "unevaluatedProperties"),
    *("items", "additionalItems", "contains", "unevaluatedItems", "prefixItems"),
)
# Keywords that say nothing about whether a value is valid: a wrong one is not worth a warning.
_ANNOTATIONS = {
    *("title", "description", "default", "examples", "format", "readOnly", "writeOnly"),
    *("$comment", "$schema", *_IDENTIFIERS),
}


@dataclass
class Checkable:
    """A schema's checkable part.

    `unchecked`: what was left out, a sentence each; `fields`: of each subschema, by its `id()`, the place of
    the config that it speaks of.
    """

    schema: Any
    unchecked: list[str] = field(default_factory=list)
    fields: dict[int, str] = field(default_factory=dict)

    def leave_out(self, place: str, what: str, why: str) -> None:
        sentence = f"{place}: {what} is not checked: {why}"
        if len(self.unchecked) < _MOST and sentence not in self.unchecked:
            self.unchecked.append(sentence)


def dialect(schema: Any) -> type[Validator]:
    """The dialect that a schema names, if there is one of that name; else Draft 7, as the protocol has it."""
    named = isinstance(schema, Mapping) and isinstance(schema.get("$schema"), str)
    default = jsonschema.Draft7Validator
    return jsonschema.validators.validator_for(schema, default) if named else default


def checkable(schema: Any, kind: type[Validator]) -> Checkable:
    """The part of a schema that a dialect can check."""
    found = Checkable(copy.deepcopy(schema))
    _Cleaning(found, kind).run()
    return found


class _Cleaning:
    """Removes from a schema, in place, what cannot be checked."""

    def __init__(self, found: Checkable, kind: type[Validator]):
        self._found = found
        self._kind = kind
        self._visited: set[int] = set()
        self._waiting: list[tuple[str, Any]] = [("config", found.schema)]

    def run(self) -> None:
        self._remove_invalid("config", self._found.schema)
        while self._waiting:
            place, schema = self._waiting.pop()
            self._visit(place, schema, frozenset())

    def _remove_invalid(self, place: str, schema: Any) -> None:
        """Remove the keywords that the dialect's metaschema refuses."""
        for error in list(self._kind(self._kind.META_SCHEMA).iter_errors(schema)):
            for path in _paths(error):
                self._remove(place, schema, path)

    def _remove(self, place: str, schema: Any, path: Sequence[str | int]) -> None:
        *outer, keyword = path or [""]
        above = schema
        for step in outer:
            above = _step(above, step)
        if isinstance(above, dict) and keyword in above:
            del above[keyword]
            if keyword not in _ANNOTATIONS:
                at = ".".join([place, *_properties(path)])
                self._found.leave_out(at, f"`{keyword}`", "its value is not valid JSON Schema")

    def _visit(self, place: str, schema: Any, chain: frozenset[int]) -> None:
        """Clean a subschema, and all that applies to the same value.

        Args:
            chain: the subschemas through which this one came to apply to the value.
        """
        if not isinstance(schema, dict) or id(schema) in self._visited:
            return
        self._visited.add(id(schema))
        self._found.fields[id(schema)] = place
        chain |= {id(schema)}
        for identifier in _IDENTIFIERS:  # references are resolved from the schema's root
            schema.pop(identifier, None)
        self._follow(place, schema, chain)
        self._drop_patterns(place, schema)
        for inner in _applied(schema):
            if id(inner) in chain:
                self._found.leave_out(place, "a subschema", "it refers to itself")
                inner.clear()
            self._visit(place, inner, chain)
        self._waiting += ((f"{place}.{step}", inner) for step, inner in _inner(schema))

    def _follow(self, place: str, schema: dict[str, Any], chain: frozenset[int]) -> None:
        for keyword in _REFERENCES:
            reference = schema.get(keyword)
            if reference is None:
                continue
            target = local(self._found.schema, reference) if isinstance(reference, str) else None
            if not isinstance(target, (dict, bool)):
                self._found.leave_out(place, f"`{keyword}`", "it names no part of this schema")
                schema.clear()
            elif id(target) in chain:
                self._found.leave_out(place, f"`{keyword}`", "it refers to itself")
                schema.clear()
            else:
                if id(target) not in self._visited:
                    self._remove_invalid(place, target)
                self._visit(place, target, chain)

    def _drop_patterns(self, place: str, schema: dict[str, Any]) -> None:
        reason = _unusable(schema.get("pattern"))
        if reason is not None:
            del schema["pattern"]
            self._found.leave_out(place, "`pattern`", reason)
        forms = schema.get("patternProperties") or {}
        for form in [form for form in forms if _unusable(form) is not None]:
            del forms[form]
            # What it would have matched is no longer known to be additional.
            schema.pop("additionalProperties", None)
            self._found.leave_out(place, "`patternProperties`", str(_unusable(form)))


def _paths(error: jsonschema.ValidationError) -> Iterator[Sequence[str | int]]:
    """The keywords that are wrong. Where a keyword takes a schema or something else, what is wrong is within
    that schema, if anything is."""
    path = _keyword(error.absolute_path)
    inner = [_keyword(each.absolute_path) for each in error.context or ()]
    deeper = [each for each in inner if len(each) > len(path)]
    yield from deeper or [path]


def _keyword(path: Sequence[str | int]) -> list[str | int]:
    """A path without the numbers at its end: of a keyword that lists, all goes, since one option less would
    refuse what the schema means to allow."""
    steps = list(path)
    while steps and isinstance(steps[-1], int):
        steps.pop()
    return steps


def _step(value: Any, step: str | int) -> Any:
    try:
        return value[step]
    except (KeyError, IndexError, TypeError):  # it was removed before
        return None


def _properties(path: Sequence[str | int]) -> Iterator[str]:
    """The names of properties on a path through a schema, but for its last step."""
    steps = iter(path[:-1])
    for step in steps:
        if step == "properties":
            name = next(steps, None)
            if name is not None:
                yield str(name)


def _applied(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The subschemas that apply to the same value."""
    found = [schema.get(keyword) for keyword in _OWN]
    for keyword in _OWN_LISTS:
        found += schema.get(keyword) or ()
    for keyword in _OWN_BY_NAME:
        found += (schema.get(keyword) or {}).values()
    return [each for each in found if isinstance(each, dict)]


def _inner(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The subschemas that apply to parts of the value, each with the part's name."""
    for keyword in _PARTS_BY_NAME:
        yield from (schema.get(keyword) or {}).items()
    for keyword in _PARTS:
        part = schema.get(keyword)
        yield from (("*", each) for each in (part if isinstance(part, list) else [part]))


def _unusable(pattern: Any) -> str | None:
    """Why a pattern cannot be checked; None if it can."""
    if isinstance(pattern, str):
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            return f"it is no pattern of Python's ({error})"
    return None
