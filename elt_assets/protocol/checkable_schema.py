"""The part of a JSON schema that can be checked.

Specifications of connectors contain keywords that are not valid in any dialect of JSON Schema, patterns that
Python does not support, references to other documents, and references that never end. Each such part is
removed and reported. The rest of the schema is checked.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema
from jsonschema.protocols import Validator

from elt_assets.protocol.airbyte.json_schema import local

_MAX_UNCHECKED = 100
"""Maximum number of unchecked parts that are reported."""
_REFERENCES = ("$ref", "$recursiveRef", "$dynamicRef")
_IDENTIFIERS = ("$id", "id")
# Keywords whose schemas apply to the value itself, and keywords whose schemas apply to a part of it.
_OWN_LISTS = ("allOf", "anyOf", "oneOf")
_OWN = ("not", "if", "then", "else")
_OWN_BY_NAME = ("dependencies", "dependentSchemas")
_PARTS_BY_NAME = ("properties", "patternProperties")
_PARTS = (
    *("additionalProperties", "propertyNames", "unevaluatedProperties"),
    *("items", "additionalItems", "contains", "unevaluatedItems", "prefixItems"),
)
_EXCLUSIVE = ("exclusiveMinimum", "exclusiveMaximum")
_DRAFT4: type[Validator] = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft4Validator,
    # Records do not depend on the dialect: 5.0 is an integer.
    type_checker=jsonschema.Draft7Validator.TYPE_CHECKER,
)
# Keywords that do not affect whether a value is valid: an invalid one needs no warning.
_ANNOTATIONS = {
    *("title", "description", "default", "examples", "format", "readOnly", "writeOnly"),
    *("$comment", "$schema", *_IDENTIFIERS),
}


@dataclass
class Checkable:
    """The checkable part of a schema.

    `unchecked`: the parts that are not checked, one sentence each. `fields`: the place of the config that
    each subschema describes, by the `id()` of the subschema.
    """

    schema: Any
    unchecked: list[str] = field(default_factory=list)
    fields: dict[int, str] = field(default_factory=dict)

    def exclude(self, place: str, what: str, why: str) -> None:
        sentence = f"{place}: {what} is not checked: {why}"
        if len(self.unchecked) < _MAX_UNCHECKED and sentence not in self.unchecked:
            self.unchecked.append(sentence)


def dialect(schema: Any) -> type[Validator]:
    """Return the dialect that a schema names, if it exists; else Draft 7, which the protocol prescribes, or
    Draft 4, in which old taps write, if the schema has a limit as only Draft 4 writes it."""
    default = _DRAFT4 if _has_limits_of_draft_4(schema) else jsonschema.Draft7Validator
    named = isinstance(schema, Mapping) and isinstance(schema.get("$schema"), str)
    return jsonschema.validators.validator_for(schema, default) if named else default


def _has_limits_of_draft_4(schema: Any) -> bool:
    """Return whether a limit is exclusive by a boolean beside it; from Draft 6 on, it is a number itself."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            if any(isinstance(part.get(name), bool) for name in _EXCLUSIVE):
                return True
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return False


def checkable(schema: Any, kind: type[Validator]) -> Checkable:
    """Return the part of a schema that a dialect can check."""
    found = Checkable(copy.deepcopy(schema))
    _Cleaning(found, kind).run()
    return found


class _Cleaning:
    """Removes the parts of a schema, in place, that cannot be checked."""

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
        """Remove the keywords that are invalid in the dialect's metaschema."""
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
                self._found.exclude(at, f"`{keyword}`", "its value is not valid JSON Schema")

    def _visit(self, place: str, schema: Any, chain: frozenset[int]) -> None:
        """Clean a subschema, and all subschemas that apply to the same value.

        Args:
            chain: the subschemas that lead from the value's own schema to this one.
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
                self._found.exclude(place, "a subschema", "it refers to itself")
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
                self._found.exclude(place, f"`{keyword}`", "it refers to nothing in this schema")
                schema.clear()
            elif id(target) in chain:
                self._found.exclude(place, f"`{keyword}`", "it refers to itself")
                schema.clear()
            else:
                if id(target) not in self._visited:
                    self._remove_invalid(place, target)
                self._visit(place, target, chain)

    def _drop_patterns(self, place: str, schema: dict[str, Any]) -> None:
        reason = _unusable(schema.get("pattern"))
        if reason is not None:
            del schema["pattern"]
            self._found.exclude(place, "`pattern`", reason)
        forms = schema.get("patternProperties") or {}
        for form in [form for form in forms if _unusable(form) is not None]:
            del forms[form]
            # A field that the pattern matches is not additional, but this can no longer be checked.
            schema.pop("additionalProperties", None)
            self._found.exclude(place, "`patternProperties`", str(_unusable(form)))


def _paths(error: jsonschema.ValidationError) -> Iterator[Sequence[str | int]]:
    """Yield the paths of the invalid keywords. If a keyword may have a schema or another value, these are the
    paths inside that schema, if there are any."""
    path = _keyword(error.absolute_path)
    inner = [_keyword(each.absolute_path) for each in error.context or ()]
    deeper = [each for each in inner if len(each) > len(path)]
    yield from deeper or [path]


def _keyword(path: Sequence[str | int]) -> list[str | int]:
    """Return a path without the numbers at its end. A keyword with a list is thus removed as a whole: without
    one of its options the schema would refuse values that it is meant to allow."""
    steps = list(path)
    while steps and isinstance(steps[-1], int):
        steps.pop()
    return steps


def _step(value: Any, step: str | int) -> Any:
    try:
        return value[step]
    except (KeyError, IndexError, TypeError):  # already removed
        return None


def _properties(path: Sequence[str | int]) -> Iterator[str]:
    """Yield the names of the properties on a path through a schema, except for its last step."""
    steps = iter(path[:-1])
    for step in steps:
        if step == "properties":
            name = next(steps, None)
            if name is not None:
                yield str(name)


def _applied(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the subschemas that apply to the same value."""
    found = [schema.get(keyword) for keyword in _OWN]
    for keyword in _OWN_LISTS:
        found += schema.get(keyword) or ()
    for keyword in _OWN_BY_NAME:
        found += (schema.get(keyword) or {}).values()
    return [each for each in found if isinstance(each, dict)]


def _inner(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the subschemas that apply to parts of the value, each with the name of the part."""
    for keyword in _PARTS_BY_NAME:
        yield from (schema.get(keyword) or {}).items()
    for keyword in _PARTS:
        part = schema.get(keyword)
        yield from (("*", each) for each in (part if isinstance(part, list) else [part]))


def _unusable(pattern: Any) -> str | None:
    """Return the reason why a pattern cannot be checked; None if it can be checked."""
    if isinstance(pattern, str):
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            return f"it is not valid in Python ({error})"
    return None
