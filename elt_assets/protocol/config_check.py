"""The violations of a `connectionSpecification` by a config.

A connector imports this only if it checks a config: jsonschema takes a fifth of its start.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match

from elt_assets.protocol.schema_check import UnknownReference, find_flaws, make_validator

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
