"""The secrets, the types and the unknown fields of a config, as its `connectionSpecification` describes them.

Spec: Actor Specification; `airbyte_secret` marks a property whose value is a secret. The program that runs a
connector uses this module, and so does the connector itself. `config_check` has the violations.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from elt_assets.protocol.airbyte.json_schema import list_properties, list_types
from elt_assets.protocol.patterns import matches
from elt_assets.protocol.schema_places import Place, applicable, places

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
