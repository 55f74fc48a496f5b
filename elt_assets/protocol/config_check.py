"""Checks of values by JSON schemas that others wrote, and the violations of a specification by a config.

Used by `runner.config_validation`, `destination.settings`, and connectors that check a config.

jsonschema checks them, with two changes: a schema that a program sent must not make this one read a file or
an address, so references lead into the schema itself and nowhere else; and its patterns end in time
(`specification.Pattern`). A schema may not be a valid one: `find_flaws` says so before it is used. A
connector imports this only if it checks a config: jsonschema takes a fifth of its start.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema import FormatChecker, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry

from elt_assets.protocol.json_schema import local
from elt_assets.protocol.specification import search

Rule = Callable[[Any, Any, Any, Any], "Iterator[ValidationError] | None"]
"""Function that checks a keyword, as jsonschema calls it: with the validator, the value of the keyword, the
value to check, and the schema that has the keyword."""

_REFERENCES = ("$ref", "$recursiveRef", "$dynamicRef")
_IDENTIFIERS = ("$id", "id")
_EXCLUSIVE = ("exclusiveMinimum", "exclusiveMaximum")
_COMMENTS = frozenset(
    {"title", "description", "default", "examples", "format", "$comment", "$schema"}
)
"""Keywords that do not affect whether a value is valid, and so may have any value."""
_DRAFT4: type[Validator] = extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft4Validator,
    # Records do not depend on the dialect: 5.0 is an integer.
    type_checker=jsonschema.Draft7Validator.TYPE_CHECKER,
)


class UnknownReference(LookupError):
    """A reference of a schema leads to nothing in it. The text says which one."""


def make_validator(
    schema: Any,
    rules: Mapping[str, Rule] | None = None,
    formats: FormatChecker | None = None,
    max_references: float = math.inf,
) -> Validator:
    """Return the validator of a schema in its dialect.

    Args:
        schema: the schema. References are resolved from its root, whatever `$id` says.
        rules: rules that replace those of keywords.
        formats: checks `format`, which is a comment without it.
        max_references: the number of references that the validator follows, which may multiply; beyond it,
            it raises a RecursionError.
    """
    kind = dialect(schema)
    if isinstance(schema, Mapping):
        schema = {key: part for key, part in schema.items() if key not in _IDENTIFIERS}
    follow = _reference_rule(schema, max_references)
    checks = {
        **{name: follow for name in _REFERENCES if name in kind.VALIDATORS},
        "pattern": _check_pattern,
        "patternProperties": _check_named,
        "additionalProperties": _additional_rule(kind.VALIDATORS["additionalProperties"]),
        **(rules or {}),
    }
    validator: Validator = extend(kind, checks)(  # type: ignore[no-untyped-call]
        schema, registry=Registry(), format_checker=formats
    )
    return validator


def find_flaws(schema: Any, formats: FormatChecker | None = None) -> Iterator[ValidationError]:
    """Yield why a schema is not valid in its dialect; what is only a comment may be anything.

    Args:
        formats: checks the texts in it, such as patterns.
    """
    kind = dialect(schema)
    for error in kind(kind.META_SCHEMA, format_checker=formats).iter_errors(schema):
        if _COMMENTS.isdisjoint(map(str, error.absolute_path)):
            yield error


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


def _reference_rule(root: Any, limit: float) -> Rule:
    """Return the rule of references. jsonschema's own one ends the process if they are nested too deeply."""
    left = limit

    def follow(validator: Any, reference: str, value: Any, _: object) -> Iterator[ValidationError]:
        nonlocal left
        left -= 1
        if left < 0:
            raise RecursionError
        target = local(root, reference)
        if not isinstance(target, dict | bool):
            raise UnknownReference(f"the reference {reference!r} leads to nothing in it")
        yield from validator.descend(value, target)

    return follow


def _check_pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not search(pattern, value):
        yield ValidationError("does not match")


def _check_named(
    validator: Any, patterns: Mapping[str, Any], value: Any, _: object
) -> Iterator[ValidationError]:
    for pattern, part in patterns.items() if isinstance(value, dict) else ():
        for name in value:
            if search(pattern, name):
                yield from validator.descend(value[name], part, path=name, schema_path=pattern)


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
                if not any(search(pattern, name) for pattern in patterns)
            }
            schema = {key: part for key, part in schema.items() if key != "patternProperties"}
        yield from rule(validator, allowed, value, schema) or ()

    return check


_MAX_VIOLATIONS = 100
"""Maximum number of violations that are listed."""
_MAX_REFERENCES = 20_000
"""Maximum number of references that the check of a config follows."""
_MAX_LINE = 1_000
"""Maximum characters of the line about a violation."""
_MAX_RULE = 300
"""Maximum characters of the value of a schema's rule in that line."""
_PHRASES = {"type": "is not of type", "enum": "is not one of", "pattern": "does not match"}


class InvalidSpecification(ValueError):
    """A specification is not valid JSON Schema, so nothing can be checked by it. The text says why."""


def violations(config: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return the violations of a schema, one line each. No line quotes the config.

    Raises:
        InvalidSpecification: the schema cannot be used.
        RecursionError: the schema or the config is nested too deeply.
    """
    for flaw in find_flaws(schema):
        place = ".".join(map(str, flaw.absolute_path)) or "the schema"
        raise InvalidSpecification(f"{place}: {flaw.message[:_MAX_RULE]}")
    try:
        validator = make_validator(schema, max_references=_MAX_REFERENCES)
        errors = list(itertools.islice(validator.iter_errors(config), _MAX_VIOLATIONS))
    except RecursionError:
        raise
    except Exception as error:  # a reference, a pattern or a number that jsonschema cannot use
        reason = str(error) if isinstance(error, UnknownReference) else None
        if isinstance(error, TimeoutError):
            reason = "a pattern takes too long"
        if isinstance(error, re.error):
            reason = f"a pattern is not valid in Python ({error})"
        reason = reason or f"a rule cannot be applied ({type(error).__name__})"
        raise InvalidSpecification(reason) from error
    ordered_errors = sorted(errors, key=lambda error: list(map(str, error.path)))
    return list(dict.fromkeys(_violation(error)[:_MAX_LINE] for error in ordered_errors))


def _violation(error: jsonschema.ValidationError) -> str:
    violation = f"{'.'.join(['config', *map(str, error.absolute_path)])}: {_description(error)}"
    # If several options are allowed, the violation of the nearest one helps most.
    nearest = best_match([error]) if error.context else None
    if nearest is None or nearest is error:
        return violation
    return f"{violation}; nearest: {_violation(nearest)}"


def _description(error: jsonschema.ValidationError) -> str:
    """Return a description of a violation. The messages of jsonschema contain the value; these do not."""
    rule, expected = error.validator, error.validator_value
    if rule in ("required", "additionalProperties", "dependencies"):
        return str(error.message)  # names properties only
    if rule in ("oneOf", "anyOf"):
        options: list[Any] = list(expected)  # type: ignore[arg-type]
        words = [option if isinstance(option, dict) else {} for option in options]
        titles = [str(option.get("title", option.get("type", "?"))) for option in words]
        fits = "fits none of" if error.context else "fits more than one of"
        return f"{fits}: {', '.join(titles)}"
    rule_value = json.dumps(expected)
    text = rule_value if len(rule_value) <= _MAX_RULE else f"{rule_value[:_MAX_RULE]}…"
    return f"{_PHRASES.get(str(rule), f'violates `{rule}`:')} {text}"
