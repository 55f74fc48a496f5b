"""Search for the parts of a `connectionSpecification` that describe each place of a config.

The schema comes from a connector, so the work is limited: each part of the schema is visited once for each
place of the config, however references and branches multiply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from elt_assets.protocol.airbyte.json_schema import list_properties, local

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
