"""The secrets, types and unknown fields of a config by its specification, for runner, `elt` and connectors.

First patterns that end in time (`Pattern`), then the search for the parts of a schema that describe each
place of a config (`places`), then what is read from them, and at the end the comparison of two
specifications. The program that runs a connector uses this module, and so does the connector itself.
`config_check` has the violations.

Specifications, and the manifests whose patterns are searched here, may come from anywhere, so the work is
limited: each part of a schema is visited once for each place of the config, however references and branches
multiply; and patterns are searched by a library that ends in time, since one such as `^(a+)+$` takes twice as
long with each character of a text that it almost matches.

Spec: Actor Specification; `airbyte_secret` marks a property whose value is a secret.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from elt_assets.protocol.json_schema import list_properties, list_types, local

PATTERN_SECONDS = 1.0
"""Processor time in which a pattern must be found in a text or not."""
MAX_PATTERN = 10_000
"""Number of characters of the longest pattern."""
MAX_SIZE = 100_000
"""Number of characters that a pattern may have with its repetitions, as `(a{9}){9}` has 81."""
_UNLIMITED = 1 << 31


class Pattern:
    """A regular expression of Python.

    Args:
        text: the regular expression.

    Raises:
        re.error: it is not valid.
    """

    def __init__(self, text: str):
        self._pattern = _compile(text)

    def search(self, text: str) -> Any:
        """Return the first match, as `re.search`.

        Raises:
            TimeoutError: it takes more than `PATTERN_SECONDS`.
        """
        return self._pattern.search(text, timeout=PATTERN_SECONDS)

    def match(self, text: str) -> Any:
        """Return the match at the start, as `re.match`; errors are those of `search`."""
        return self._pattern.match(text, timeout=PATTERN_SECONDS)

    def replace(self, text: str, replacement: str) -> str:
        """Return a text with all matches replaced, as `re.sub`; errors are those of `search`."""
        new_text: str = self._pattern.sub(replacement, text, timeout=PATTERN_SECONDS)
        return new_text


def search(pattern: str, text: str) -> Any:
    """Return the first match of a pattern in a text, as `re.search`.

    Raises:
        re.error: the pattern is not valid.
        TimeoutError: the search takes more than `PATTERN_SECONDS`.
    """
    return Pattern(pattern).search(text)


def matches(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a name. One that cannot be evaluated does, so that no secret is
    missed."""
    try:
        return bool(search(pattern, name))
    except (re.error, RecursionError, OverflowError, TimeoutError):
        return True


@lru_cache(maxsize=1024)  # a source may send other patterns with each schema
def _compile(text: str) -> Any:
    if len(text) > MAX_PATTERN:
        raise re.error(f"it has more than {MAX_PATTERN} characters")
    re.compile(text)  # what Python does not accept is not accepted here
    parser = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
    if _size(parser.parse(text)) > MAX_SIZE:
        raise re.error(f"its repetitions make it longer than {MAX_SIZE} characters")
    regex = import_module("regex")  # few sources use patterns, and the import is slow
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about syntax that may change its meaning
        try:
            return regex.compile(text)
        except regex.error as error:
            raise re.error(str(error)) from None


def _size(parsed: Any) -> int:
    """Return the number of the parts of a parsed pattern, where what is repeated a given number of times
    counts as often: so long it becomes when it is compiled."""
    size = 0
    for operation, argument in parsed:
        times = 1
        if str(operation).endswith("REPEAT"):
            low, high = int(argument[0]), int(argument[1])
            times = max(1, low if high >= _UNLIMITED else high)
        size += times * (1 + sum(map(_size, _parts(argument))))
    return size


def _parts(argument: Any) -> Iterator[Any]:
    """Yield the patterns in the argument of an operation."""
    if hasattr(argument, "getwidth"):
        yield argument
    elif isinstance(argument, list | tuple):
        for part in argument:
            yield from _parts(part)


Place = tuple[str | int, ...]
"""The path to a value in a config: names of properties, and indexes of items."""

Matches = Callable[[str, str], bool]
"""Function that returns whether a pattern of the schema matches the name of a property."""

_SECRET = {"airbyte_secret": True}
_BRANCHES = ("oneOf", "anyOf", "allOf")
_CONDITIONS = ("if", "then", "else")


def places(
    config: Any, schema: Any, matches: Matches
) -> Iterator[tuple[Place, Any, list[Mapping[str, Any]]]]:
    """Yield every place of a config, from the outermost on, its value, and the subschemas that may apply.

    Every value inside a secret is a secret.
    """
    waiting: list[tuple[Place, Any, list[Mapping[str, Any]]]]
    waiting = [((), config, applicable([schema], schema))]
    while waiting:
        place, value, schemas = waiting.pop()
        yield place, value, schemas
        steps: list[tuple[str | int, Any]] = []
        if isinstance(value, Mapping):
            steps += value.items()
        elif isinstance(value, list):
            steps += enumerate(value)
        for step, inner in reversed(steps):
            subschemas = [part for outer in schemas for part in _inner(outer, step, matches)]
            waiting.append(((*place, step), inner, applicable(subschemas, schema)))


def applicable(schemas: Iterable[Any], root: Any) -> list[Mapping[str, Any]]:
    """Return these schemas and all that they apply to the same value: by reference, branch or condition."""
    schemas_by_id: dict[int, Mapping[str, Any]] = {}
    waiting = list(schemas)
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping) or id(schema) in schemas_by_id:
            continue
        schemas_by_id[id(schema)] = schema
        reference = schema.get("$ref")
        if isinstance(reference, str):
            waiting.append(local(root, reference))
        for branch in _BRANCHES:
            options = schema.get(branch)
            waiting += options if isinstance(options, list) else ()
        waiting += (schema.get(condition) for condition in _CONDITIONS)
    return list(schemas_by_id.values())


def _inner(schema: Mapping[str, Any], step: str | int, matches: Matches) -> Iterator[Any]:
    """Yield the subschemas that a schema has for a property or an item."""
    if schema.get("airbyte_secret"):
        yield _SECRET
    if isinstance(step, int):
        items = schema.get("items")
        yield from items[step : step + 1] if isinstance(items, list) else [items]
        return
    yield list_properties(schema).get(step, schema.get("additionalProperties"))
    patterns = schema.get("patternProperties")
    if isinstance(patterns, Mapping):
        yield from (part for form, part in patterns.items() if matches(form, step))


_MASK = re.compile(r"\*{3,}")
_JSON_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})


def is_mask(text: str) -> bool:
    """Return whether a text stands for a secret, as in messages and in dumps of configs."""
    return _MASK.fullmatch(text) is not None


def secret_values(config: Any, schema: Any) -> Iterator[str]:
    """Yield the text of every scalar under an `airbyte_secret` property of a config, valid or not."""
    return as_texts(value for _, value in secret_places(config, schema))


def as_texts(values: Iterable[Any]) -> Iterator[str]:
    """Yield secrets as they may occur in a text. Null, true, false and the empty text reveal nothing."""
    for value in values:
        if value is not None and not isinstance(value, bool) and value != "":
            yield str(value)


def secret_places(config: Any, schema: Any) -> Iterator[tuple[Place, Any]]:
    """Yield the path and the value of every secret in a config, also of null and false."""
    for place, value, schemas in places(config, schema, matches):
        is_secret = any(schema.get("airbyte_secret") for schema in schemas)
        if is_secret and not isinstance(value, (Mapping, list)):
            yield place, value


def types_at(config: Any, schema: Any) -> Iterator[tuple[Place, Any, set[str]]]:
    """Yield every place of a config, its value, and the JSON types that the specification allows there; no
    type if the specification does not restrict it."""
    for place, value, schemas in places(config, schema, lambda *_: True):
        yield place, value, {name for part in schemas for name in list_types(part)} & _JSON_TYPES


def unknown_fields(config: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each field of a config that a specification neither describes nor explicitly
    allows. Such a field is probably a typing error. No sentence quotes a value.

    Fields whose names begin with two underscores are ignored: they are for the connector's platform.
    """
    declared: set[str] = set()
    for part in applicable([schema], schema):
        if "additionalProperties" in part or "patternProperties" in part:
            return []
        declared.update(list_properties(part))
    warnings = []
    for name in config:
        if declared and name not in declared and not name.startswith("__"):
            near = difflib.get_close_matches(name, declared, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(declared))}"
            warnings.append(
                f"config.{name}: the connector's specification has no such field; {hint}"
            )
    return warnings


_TEXTS = ("title", "description", "examples", "order", "group", "always_show", "pattern_descriptor")
"""Keywords that do not change which configs are valid, or what they mean."""


@dataclass(frozen=True)
class ConfigChange:
    """One difference."""

    field: str  # the dotted path
    change: str  # what happened to it


def compare_specifications(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str = ""
) -> list[ConfigChange]:
    """Return the differences between two schemas of a config, without those of titles and descriptions.

    Args:
        path: what the names of the fields begin with.
    """
    before, after = _list_fields(old), _list_fields(new)
    changes = [ConfigChange(f"{path}{name}", "is gone") for name in before if name not in after]
    for name, (schema, is_required) in after.items():
        field = f"{path}{name}"
        if name not in before:
            changes.append(ConfigChange(field, "is new and required" if is_required else "is new"))
            continue
        old_schema, was_required = before[name]
        if is_required != was_required:
            change = "is required now" if is_required else "is optional now"
            changes.append(ConfigChange(field, change))
        keywords = {keyword for keyword, _ in _keywords(old_schema) ^ _keywords(schema)}
        if keywords:
            changes.append(ConfigChange(field, f"has another {', '.join(sorted(keywords))}"))
        changes += compare_specifications(old_schema, schema, f"{field}.")
    return changes


def _list_fields(schema: Mapping[str, Any]) -> dict[str, tuple[Mapping[str, Any], bool]]:
    """Return the schema of each field, and whether the field is required."""
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    fields = list_properties(schema).items()
    return {name: (part, name in names) for name, part in fields if isinstance(part, Mapping)}


def _keywords(schema: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the keywords of a field with their values as texts, without those that are compared apart."""
    apart = ("properties", "required", *_TEXTS)
    return {
        (name, json.dumps(value, sort_keys=True))
        for name, value in schema.items()
        if name not in apart
    }
