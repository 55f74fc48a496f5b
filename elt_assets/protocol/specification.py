"""Checks of a config against a `connectionSpecification`: its violations, and the secrets in the config.

Spec: Actor Specification; `airbyte_secret` marks a property whose value is a secret. The program that runs a
connector uses this module, and so does the connector itself.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match
from jsonschema.validators import extend
from referencing import Registry

from elt_assets.protocol.checkable_schema import Checkable, checkable, dialect
from elt_assets.protocol.schema_places import Matches, Place, applicable, places

Search = Callable[[str, str], object]
"""Function that searches for a pattern in a text, like `re.search`. It may raise TimeoutError."""

_MAX_VIOLATIONS = 100
"""Maximum number of violations that are listed."""
_MAX_REFERENCES = 20_000
"""Maximum number of references that a check follows."""
_MAX_LINE = 1_000
"""Maximum characters of the line about a violation."""
_MAX_RULE = 300
"""Maximum characters of the value of a schema's rule in that line."""
_JSON_TYPES = {"string", "integer", "number", "boolean", "object", "array", "null"}
_PHRASES = {"type": "is not of type", "enum": "is not one of", "pattern": "does not match"}


@dataclass(frozen=True)
class Inspection:
    """The violations of a config, and the parts of its schema that could not be checked: one line each. No
    line quotes any part of the config."""

    violations: list[str]
    unchecked: list[str]


def violations(config: Any, schema: Mapping[str, Any], search: Search = re.search) -> list[str]:
    """Return the violations of a schema, one line each. No line quotes the config."""
    return inspect(config, schema, search).violations


def inspect(config: Any, schema: Any, search: Search = re.search) -> Inspection:
    """Check a config against the part of a schema that can be checked. Nothing outside the schema is read.

    Raises:
        RecursionError: the schema or the config is nested too deeply, or references of the schema multiply.
    """
    kind = dialect(schema)
    part = checkable(schema, kind)
    rules = {
        "$ref": _reference_rule(kind),
        "pattern": _pattern_rule(part, search),
        "patternProperties": _named_rule(_matching(search)),
        "additionalProperties": _additional_rule(kind, _matching(search)),
    }
    bounded = extend(kind, rules)  # type: ignore[no-untyped-call]
    errors = bounded(part.schema, registry=Registry()).iter_errors(config)
    first = sorted(itertools.islice(errors, _MAX_VIOLATIONS), key=lambda e: list(map(str, e.path)))
    lines = dict.fromkeys(_violation(error)[:_MAX_LINE] for error in first)
    return Inspection(list(lines), part.unchecked)


def _pattern_rule(part: Checkable, search: Search) -> Any:
    """Return the rule of the keyword `pattern`. If a pattern takes too long, the field is not checked."""

    def check(
        _: Any, pattern: str, value: Any, schema: Mapping[str, Any]
    ) -> Iterator[jsonschema.ValidationError]:
        if not isinstance(value, str):
            return
        try:
            fits = search(pattern, value)
        except (TimeoutError, re.error):
            part.exclude(part.fields.get(id(schema), "config"), "`pattern`", "it takes too long")
            return
        if not fits:
            yield jsonschema.ValidationError("does not match")

    return check


def _reference_rule(kind: Any) -> Any:
    """Return the rule of the keyword `$ref`: the dialect's, which is used a limited number of times."""
    rule, uses = kind.VALIDATORS.get("$ref"), itertools.count()

    def check(*args: Any) -> Iterator[jsonschema.ValidationError]:
        if next(uses) >= _MAX_REFERENCES:
            raise RecursionError
        yield from rule(*args) or ()

    return check


def _named_rule(matches: Matches) -> Any:
    """Return the rule of the keyword `patternProperties`."""

    def check(
        validator: Any, patterns: Mapping[str, Any], value: Any, _: Mapping[str, Any]
    ) -> Iterator[jsonschema.ValidationError]:
        if not isinstance(value, dict):
            return
        for pattern, schema in patterns.items():
            for name in [name for name in value if matches(pattern, name)]:
                yield from validator.descend(value[name], schema, path=name, schema_path=pattern)

    return check


def _additional_rule(kind: Any, matches: Matches) -> Any:
    """Return the rule of the keyword `additionalProperties`: the dialect's, which sees only the properties
    that no pattern matches."""
    rule = kind.VALIDATORS["additionalProperties"]

    def check(
        validator: Any, allowed: Any, value: Any, schema: Mapping[str, Any]
    ) -> Iterator[jsonschema.ValidationError]:
        patterns = schema.get("patternProperties")
        if patterns and isinstance(value, dict):
            value = {
                name: each
                for name, each in value.items()
                if not any(matches(pattern, name) for pattern in patterns)
            }
            schema = {key: each for key, each in schema.items() if key != "patternProperties"}
        yield from rule(validator, allowed, value, schema) or ()

    return check


def _violation(error: jsonschema.ValidationError) -> str:
    if error.context:  # several options are allowed: the violation of the nearest one helps most
        nearest = best_match([error])
        if nearest is not None and nearest is not error:
            return f"{_place(error)}: {_description(error)}; nearest: {_violation(nearest)}"
    return f"{_place(error)}: {_description(error)}"


def _place(error: jsonschema.ValidationError) -> str:
    return ".".join(["config", *map(str, error.absolute_path)])


def _description(error: jsonschema.ValidationError) -> str:
    """Return a description of a violation. The messages of jsonschema contain the value; these do not."""
    rule, expected = error.validator, error.validator_value
    if rule in ("required", "additionalProperties", "dependencies"):
        return str(error.message)  # names properties only
    if rule in ("oneOf", "anyOf"):
        options: list[Any] = list(expected)  # type: ignore[arg-type]
        fits = "fits none of" if error.context else "fits more than one of"
        return f"{fits}: {', '.join(map(_title, options))}"
    rule_value = json.dumps(expected)
    shown = rule_value if len(rule_value) <= _MAX_RULE else f"{rule_value[:_MAX_RULE]}…"
    return f"{_PHRASES.get(str(rule), f'violates `{rule}`:')} {shown}"


def _title(option: Any) -> str:
    words = option if isinstance(option, dict) else {}
    return str(words.get("title", words.get("type", "?")))


def secret_values(config: Any, schema: Any, search: Search = re.search) -> Iterator[str]:
    """Yield the text of every scalar under an `airbyte_secret` property of a config, valid or not."""
    return as_texts(value for _, value in secret_places(config, schema, search))


def as_texts(values: Iterable[Any]) -> Iterator[str]:
    """Yield secrets as they may occur in a text. Null, true, false and the empty text reveal nothing."""
    for value in values:
        if value is not None and not isinstance(value, bool) and value != "":
            yield str(value)


def secret_places(
    config: Any, schema: Any, search: Search = re.search
) -> Iterator[tuple[Place, Any]]:
    """Yield the path and the value of every secret in a config, also of null and false."""
    for place, value, schemas in places(config, schema, _matching(search)):
        if not isinstance(value, (Mapping, list)) and any(map(_is_secret, schemas)):
            yield place, value


def _is_secret(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("airbyte_secret"))


def _matching(search: Search) -> Matches:
    """Return a function in which a pattern that cannot be evaluated matches, so that no secret is missed."""

    def matches(pattern: str, name: str) -> bool:
        try:
            return bool(search(pattern, name))
        except (re.error, RecursionError, OverflowError, TimeoutError):
            return True

    return matches


def types_at(config: Any, schema: Any) -> Iterator[tuple[Place, Any, set[str]]]:
    """Yield every place of a config, its value, and the JSON types that the specification allows there; no
    type if the specification does not restrict it."""
    for place, value, schemas in places(config, schema, lambda *_: True):
        yield place, value, {name for each in schemas for name in _types(each)}


def _types(schema: Mapping[str, Any]) -> Iterator[str]:
    written = schema.get("type")
    named = written if isinstance(written, list) else [written]
    yield from (name for name in named if isinstance(name, str) and name in _JSON_TYPES)


def unknown_fields(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each field of a config that a specification neither describes nor explicitly
    allows. Such a field is probably a typing error. No sentence quotes a value.

    Fields whose names begin with two underscores are ignored: they are for the connector's platform.
    """
    known = _described(schema)
    if not known:
        return []
    found = []
    for name in config:
        if name not in known and not name.startswith("__"):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
            found.append(f"config.{name}: the connector's specification has no such field; {hint}")
    return found


def _described(schema: Mapping[str, Any]) -> set[str]:
    """Return the names of the fields that a schema describes; none if it has rules for other fields."""
    found: set[str] = set()
    for each in applicable([schema], schema):
        if "additionalProperties" in each or "patternProperties" in each:
            return set()
        properties = each.get("properties")
        found.update(properties if isinstance(properties, Mapping) else ())
    return found
