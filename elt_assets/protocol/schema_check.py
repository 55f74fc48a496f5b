"""Checks of values by JSON schemas of others, which may be invalid in part.

Specifications and catalogs contain keywords whose values are not valid in any dialect of JSON Schema,
patterns that Python does not support, and references that lead to other documents, to nothing, or back to
themselves. Such a keyword is skipped and reported, and all others are checked. Nothing outside the schema is
read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema import FormatChecker, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry

from elt_assets.protocol.airbyte.json_schema import local
from elt_assets.protocol.patterns import Pattern, matches, search
from elt_assets.protocol.schema_places import places

Rule = Callable[[Any, Any, Any, Any], "Iterator[ValidationError] | None"]
"""Function that checks a keyword, as jsonschema calls it: with the validator, the value of the keyword, the
value to check, and the schema that has the keyword."""

_MAX_SKIPPED = 100
"""Maximum number of skipped keywords that are reported."""
MAX_REFERENCES = 20_000
"""Maximum number of references that the check of a config follows."""
_REFERENCES = ("$ref", "$recursiveRef", "$dynamicRef")
_IDENTIFIERS = ("$id", "id")
_LISTS = ("required", "enum")
"""Keywords with a list. If it is a text, jsonschema takes it for the list of its characters."""
_EXCLUSIVE = ("exclusiveMinimum", "exclusiveMaximum")
_DRAFT4: type[Validator] = extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft4Validator,
    # Records do not depend on the dialect: 5.0 is an integer.
    type_checker=jsonschema.Draft7Validator.TYPE_CHECKER,
)


class SchemaCheck:
    """A schema by which values are checked.

    Args:
        schema: the schema. References are resolved from its root, whatever `$id` says.
        rules: rules that replace those of keywords.
        formats: checks `format`, which is a comment without it.
        max_references: number of references that the check of a value follows: they may multiply.
    """

    def __init__(
        self,
        schema: Any,
        rules: Mapping[str, Rule] | None = None,
        formats: FormatChecker | None = None,
        max_references: float = MAX_REFERENCES,
    ):
        if isinstance(schema, Mapping):
            schema = {key: part for key, part in schema.items() if key not in _IDENTIFIERS}
        kind = dialect(schema)
        self._root = schema
        self._max_references = max_references
        self._references = 0
        self._followed: set[tuple[str, int]] = set()
        self._skipped: dict[tuple[int, str], str] = {}
        keywords: dict[str, Rule] = {
            **kind.VALIDATORS,
            **{name: self._follow for name in _REFERENCES if name in kind.VALIDATORS},
            "pattern": _check_pattern,
            "properties": self._properties_rule(kind.VALIDATORS["properties"]),
            "patternProperties": self._check_named,
            "additionalProperties": _additional_rule(kind.VALIDATORS["additionalProperties"]),
            **(rules or {}),
        }
        lenient = {keyword: self._make_lenient(keyword, rule) for keyword, rule in keywords.items()}
        self._validator: Validator = extend(kind, lenient)(  # type: ignore[no-untyped-call]
            schema, registry=Registry(), format_checker=formats
        )

    def errors(self, value: Any) -> Iterator[ValidationError]:
        """Yield the violations of the schema by a value.

        Raises:
            RecursionError: the schema or the value is nested too deeply, or references multiply.
        """
        self._references = 0
        yield from self._validator.iter_errors(value)

    def list_skipped_keywords(self, value: Any) -> list[str]:
        """Return a sentence for each keyword that was not checked for a value whose errors were listed. No
        sentence quotes the value."""
        if not self._skipped:
            return []
        paths: dict[int, str] = {}
        for place, _, schemas in places(value, self._root, matches):
            for schema in schemas:
                paths.setdefault(id(schema), ".".join(["config", *map(str, place)]))
        sentences = [
            f"{paths.get(schema, 'config')}: `{keyword}` is not checked: {reason}"
            for (schema, keyword), reason in self._skipped.items()
        ]
        return list(dict.fromkeys(sentences))[:_MAX_SKIPPED]

    def _make_lenient(self, keyword: str, rule: Rule) -> Rule:
        """Return a rule that skips the keyword if its value is not what the rule expects."""

        def check(
            validator: Any, expected: Any, value: Any, schema: Any
        ) -> Iterator[ValidationError]:
            if keyword in _LISTS and not isinstance(expected, list):
                self._skip(schema, keyword, TypeError())
                return
            try:
                yield from rule(validator, expected, value, schema) or ()
            except RecursionError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever an invalid schema causes
                self._skip(schema, keyword, error)

        return check

    def _skip(self, schema: Any, keyword: str, error: Exception) -> None:
        self._skipped.setdefault((id(schema), keyword), _reason(error))

    def _follow(
        self, validator: Any, reference: str, value: Any, _: object
    ) -> Iterator[ValidationError]:
        self._references += 1
        if self._references > self._max_references:
            raise RecursionError
        target = local(self._root, reference)
        if not _is_schema(target):
            raise _Unusable("it refers to nothing in this schema")
        step = (reference, id(value))
        if step in self._followed:
            raise _Unusable("it refers to itself")
        self._followed.add(step)
        try:
            yield from validator.descend(value, target)
        finally:
            self._followed.discard(step)

    def _properties_rule(self, rule: Rule) -> Rule:
        """Return the dialect's rule of `properties`, which sees only the properties that have a schema."""

        def check(
            validator: Any, properties: Mapping[str, Any], value: Any, schema: Any
        ) -> Iterator[ValidationError]:
            usable = {name: part for name, part in properties.items() if _is_schema(part)}
            for name in properties:
                if name not in usable:
                    self._skip(schema, name, TypeError())
            yield from rule(validator, usable, value, schema) or ()

        return check

    def _check_named(
        self, validator: Any, patterns: Mapping[str, Any], value: Any, schema: Any
    ) -> Iterator[ValidationError]:
        for pattern, part in patterns.items() if isinstance(value, dict) else ():
            try:
                Pattern(pattern)
            except re.error as error:
                self._skip(schema, "patternProperties", error)
                continue
            for name in [name for name in value if matches(pattern, name)]:
                yield from validator.descend(value[name], part, path=name, schema_path=pattern)


class _Unusable(Exception):
    """A keyword cannot be checked. The argument is the reason."""


def _is_schema(part: Any) -> bool:
    return isinstance(part, dict | bool)


def _reason(error: Exception) -> str:
    if isinstance(error, _Unusable):
        return str(error)
    if isinstance(error, TimeoutError):
        return "it takes too long"
    if isinstance(error, re.error | OverflowError):
        return f"it is not valid in Python ({error})"
    return "its value is not valid JSON Schema"


def dialect(schema: Any) -> type[Validator]:
    """Return the dialect that a schema names, if it exists; else Draft 7, which the protocol prescribes, or
    Draft 4, in which old taps write, if the schema has a limit as only Draft 4 writes it."""
    default = _DRAFT4 if _has_limits_of_draft_4(schema) else jsonschema.Draft7Validator
    if isinstance(schema, Mapping) and isinstance(schema.get("$schema"), str):
        return jsonschema.validators.validator_for(schema, default)
    return default


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


def _check_pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not search(pattern, value):
        yield ValidationError("does not match")


def _additional_rule(rule: Rule) -> Rule:
    """Return the dialect's rule of `additionalProperties`, which sees only the properties that no pattern
    matches."""

    def check(
        validator: Any, allowed: Any, value: Any, schema: Mapping[str, Any]
    ) -> Iterator[ValidationError]:
        patterns = schema.get("patternProperties")
        if patterns and isinstance(value, dict):
            value = {
                name: part
                for name, part in value.items()
                if not any(matches(pattern, name) for pattern in patterns)
            }
            schema = {key: part for key, part in schema.items() if key != "patternProperties"}
        yield from rule(validator, allowed, value, schema) or ()

    return check
