"""What a `connectionSpecification` says of a config: where it is broken, and what in it is secret.

spec: Actor Specification; `airbyte_secret` marks a property whose value is one. Both sides of the
pipe ask: whoever runs a connector, and the connector itself.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match
from referencing.exceptions import Unresolvable

Place = tuple[str | int, ...]
"""Where in a config: names of properties, and numbers of items."""

_BRANCHES = ("oneOf", "anyOf", "allOf")
_CONDITIONS = ("if", "then", "else")
_PHRASES = {"type": "is not of type", "enum": "is not one of", "pattern": "does not match"}


def violations(config: Any, schema: Mapping[str, Any]) -> list[str]:
    """Every violation, a line each. None quotes any part of the config, which may be secret.

    Raises:
        ValueError: the schema is no JSON schema.
    """
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft7Validator)
    try:
        kind.check_schema(dict(schema))
        found = sorted(kind(schema).iter_errors(config), key=lambda e: list(map(str, e.path)))
    except (jsonschema.SchemaError, Unresolvable, re.error) as error:
        reason = error.message if isinstance(error, jsonschema.SchemaError) else str(error)
        raise ValueError(reason) from None
    return [_violation(error) for error in found]


def _violation(error: jsonschema.ValidationError) -> str:
    if error.context:  # one of several forms was meant: the nearest one's complaint is what helps
        nearest = best_match([error])
        if nearest is not None and nearest is not error:
            return f"{_place(error)}: {_complaint(error)}; nearest: {_violation(nearest)}"
    return f"{_place(error)}: {_complaint(error)}"


def _place(error: jsonschema.ValidationError) -> str:
    return ".".join(["config", *map(str, error.absolute_path)])


def _complaint(error: jsonschema.ValidationError) -> str:
    """jsonschema's own words hold the value; these do not."""
    rule, expected = error.validator, error.validator_value
    if rule in ("required", "additionalProperties", "dependencies"):
        return str(error.message)  # names properties only
    if rule in ("oneOf", "anyOf"):
        options: list[Any] = list(expected)  # type: ignore[arg-type]
        fits = "fits none of" if error.context else "fits more than one of"
        return f"{fits}: {', '.join(map(_title, options))}"
    return f"{_PHRASES.get(str(rule), f'breaks `{rule}`:')} {json.dumps(expected)}"


def _title(option: Any) -> str:
    words = option if isinstance(option, dict) else {}
    return str(words.get("title", words.get("type", "?")))


def secret_values(config: Any, schema: Any) -> Iterator[str]:
    """Every scalar of a config, valid or not, that stands under an `airbyte_secret` property."""
    for _, value in secret_places(config, schema):
        if value is not None and not isinstance(value, bool) and value != "":
            yield str(value)


def secret_places(config: Any, schema: Any) -> Iterator[tuple[Place, Any]]:
    """As `secret_values`, the values as they are, each with its path; null and false too."""
    yield from _secrets(config, schema, schema, ())


def _secrets(
    config: Any, schema: Any, root: Any, followed: tuple[str, ...], at: Place = ()
) -> Iterator[tuple[Place, Any]]:
    if not isinstance(schema, Mapping):
        return
    if schema.get("airbyte_secret"):
        yield from _scalars(config, at)
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in followed:
        yield from _secrets(config, _resolved(root, reference), root, (*followed, reference), at)
    for option in _alternatives(schema):
        yield from _secrets(config, option, root, followed, at)
    for step, value, inner in _parts(config, schema):
        yield from _secrets(value, inner, root, (), (*at, step))


def _alternatives(schema: Mapping[str, Any]) -> Iterator[Any]:
    for branch in _BRANCHES:
        options = schema.get(branch)
        yield from options if isinstance(options, list) else ()
    yield from (schema.get(condition) for condition in _CONDITIONS)


def _parts(config: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str | int, Any, Any]]:
    """A config's properties or items: name or number, value, and what the schema says of it."""
    if isinstance(config, Mapping):
        known = schema.get("properties") or {}
        patterns = schema.get("patternProperties") or {}
        for key, value in config.items():
            yield key, value, known.get(key, schema.get("additionalProperties"))
            yield from ((key, value, of) for form, of in patterns.items() if re.search(form, key))
    elif isinstance(config, list):
        items = schema.get("items")
        for position, value in enumerate(config):
            own = items[position : position + 1] if isinstance(items, list) else [items]
            yield from ((position, value, inner) for inner in own)


def _resolved(root: Any, reference: str) -> Any:
    """A part of the same schema, `#/definitions/x`; None for any other reference."""
    if not reference.startswith("#"):
        return None
    found = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _scalars(value: Any, at: Place) -> Iterator[tuple[Place, Any]]:
    inner: Any = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    else:
        yield at, value
    for step, item in inner:
        yield from _scalars(item, (*at, step))


def unknown_fields(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each field of a config that a specification does not describe, and does not
    explicitly allow: most likely a slip of the pen. None quotes a value.

    Fields whose names begin with two underscores are not looked at: they are for the connector's platform.
    """
    known = _described(schema, schema, ())
    if not known:
        return []
    found = []
    for name in config:
        if name not in known and not name.startswith("__"):
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
            found.append(f"config.{name}: the connector's specification has no such field; {meant}")
    return found


def _described(schema: Any, root: Any, followed: tuple[str, ...]) -> set[str] | None:
    """Return the names of the fields that a schema describes; None where it says which others may be."""
    if not isinstance(schema, Mapping):
        return set()
    if "additionalProperties" in schema or "patternProperties" in schema:
        return None
    branches = list(_alternatives(schema))
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in followed:
        branches.append(_resolved(root, reference))
        followed = (*followed, reference)
    found = set(schema.get("properties") or ())
    for branch in branches:
        names = _described(branch, root, followed)
        if names is None:
            return None
        found |= names
    return found
