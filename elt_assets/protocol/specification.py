"""What a `connectionSpecification` says of a config: where it is broken, and what in it is secret.

spec: Actor Specification; `airbyte_secret` marks a property whose value is one. Both sides of the
pipe ask: whoever runs a connector, and the connector itself.
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

from elt_assets.protocol.checkable import Checkable, checkable, dialect
from elt_assets.protocol.config_places import Matches, Place, applicable, places

Search = Callable[[str, str], object]
"""Looks for a pattern in a text, as `re.search`; a TimeoutError says that it took too long."""

_MOST = 100
"""Violations that are listed."""
_LINE = 1_000
"""Characters of a line about one of them."""
_WIDTH = 300
"""Characters of what a rule of the schema asks for."""
_JSON_TYPES = {"string", "integer", "number", "boolean", "object", "array", "null"}
_PHRASES = {"type": "is not of type", "enum": "is not one of", "pattern": "does not match"}


@dataclass(frozen=True)
class Inspection:
    """What is wrong with a config, and what of its schema could not be checked; a line each, none of which
    quotes any part of the config."""

    violations: list[str]
    unchecked: list[str]


def violations(config: Any, schema: Mapping[str, Any]) -> list[str]:
    """Every violation of a schema of our own, a line each. None quotes any part of the config."""
    return inspect(config, schema).violations


def inspect(config: Any, schema: Any, search: Search = re.search) -> Inspection:
    """Hold a config against as much of a schema as can be checked; nothing outside the schema is read.

    It may take for ever: the schema is not bounded in what it asks for.

    Raises:
        RecursionError: the schema or the config is nested too deeply.
    """
    kind = dialect(schema)
    part = checkable(schema, kind)
    rules = {"pattern": _pattern_rule(part, search)}
    bounded = extend(kind, rules)  # type: ignore[no-untyped-call]
    errors = bounded(part.schema, registry=Registry()).iter_errors(config)
    first = sorted(itertools.islice(errors, _MOST), key=lambda e: list(map(str, e.path)))
    lines = dict.fromkeys(_violation(error)[:_LINE] for error in first)
    return Inspection(list(lines), part.unchecked)


def _pattern_rule(part: Checkable, search: Search) -> Any:
    """The keyword `pattern`; where a pattern takes too long, the field is left unchecked."""

    def check(
        _: Any, pattern: str, value: Any, schema: Mapping[str, Any]
    ) -> Iterator[jsonschema.ValidationError]:
        if not isinstance(value, str):
            return
        try:
            fits = search(pattern, value)
        except TimeoutError:
            part.leave_out(part.fields.get(id(schema), "config"), "`pattern`", "it takes too long")
            return
        if not fits:
            yield jsonschema.ValidationError("does not match")

    return check


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
    wanted = json.dumps(expected)
    shown = wanted if len(wanted) <= _WIDTH else f"{wanted[:_WIDTH]}…"
    return f"{_PHRASES.get(str(rule), f'breaks `{rule}`:')} {shown}"


def _title(option: Any) -> str:
    words = option if isinstance(option, dict) else {}
    return str(words.get("title", words.get("type", "?")))


def secret_values(config: Any, schema: Any) -> Iterator[str]:
    """Every scalar of a config, valid or not, that stands under an `airbyte_secret` property."""
    return as_texts(value for _, value in secret_places(config, schema))


def as_texts(values: Iterable[Any]) -> Iterator[str]:
    """Secrets as they may show up in a text; null, true, false and the empty text give nothing away."""
    for value in values:
        if value is not None and not isinstance(value, bool) and value != "":
            yield str(value)


def secret_places(
    config: Any, schema: Any, search: Search = re.search
) -> Iterator[tuple[Place, Any]]:
    """As `secret_values`, the values as they are, each with its path; null and false too."""
    for place, value, schemas in places(config, schema, _matching(search)):
        if not isinstance(value, (Mapping, list)) and any(map(_is_secret, schemas)):
            yield place, value


def _is_secret(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("airbyte_secret"))


def _matching(search: Search) -> Matches:
    """A pattern that cannot be evaluated counts as matching: rather mask too much than too little."""

    def matches(pattern: str, name: str) -> bool:
        try:
            return bool(search(pattern, name))
        except (re.error, RecursionError, OverflowError, TimeoutError):
            return True

    return matches


def types_at(config: Any, schema: Any) -> Iterator[tuple[Place, Any, set[str]]]:
    """Every place of a config, its value, and the JSON types that its specification allows there; no type
    where it does not say."""
    for place, value, schemas in places(config, schema, lambda *_: True):
        yield place, value, {name for each in schemas for name in _types(each)}


def _types(schema: Mapping[str, Any]) -> Iterator[str]:
    written = schema.get("type")
    named = written if isinstance(written, list) else [written]
    yield from (name for name in named if isinstance(name, str) and name in _JSON_TYPES)


def unknown_fields(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each field of a config that a specification does not describe, and does not
    explicitly allow: most likely a slip of the pen. None quotes a value.

    Fields whose names begin with two underscores are not looked at: they are for the connector's platform.
    """
    known = _described(schema)
    if not known:
        return []
    found = []
    for name in config:
        if name not in known and not name.startswith("__"):
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
            found.append(f"config.{name}: the connector's specification has no such field; {meant}")
    return found


def _described(schema: Mapping[str, Any]) -> set[str]:
    """Return the names of the fields that a schema describes; none where it says which others may be."""
    found: set[str] = set()
    for each in applicable([schema], schema):
        if "additionalProperties" in each or "patternProperties" in each:
            return set()
        properties = each.get("properties")
        found.update(properties if isinstance(properties, Mapping) else ())
    return found
