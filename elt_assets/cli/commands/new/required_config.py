"""The required config of a new connection: references to variables for secrets, and examples of the rest."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elt_assets.protocol.specification import Pattern, Place
from elt_assets.runner.references import as_literal, is_reference

Json = dict[str, Any]
VariableName = Callable[[Sequence[str], Collection[str]], str]
"""Returns a name of an environment variable: it is made of a field's path, and is not one that is taken."""

_MAX_NOTE = 150
"""Maximum characters of the description of a field."""
_TEXTS = (
    "example",
    "2024-01-01T00:00:00Z",
    "2024-01-01",
    "2024-01-01T00:00:00.000Z",
    "2024-01-01T00:00:00.000000Z",
    "2024-01-01 00:00:00",
    "01-01-2024",
    "01/01/2024",
    "01/01/2024 00:00",
    "https://example.com",
    "https://example.com/",
    "example.com",
    "someone@example.com",
    "1",
    "123456",
)
"""Example values of fields with a pattern."""
_TAG = re.compile(r"<[^<>]*>")
_FORMATS = {
    "date": "2024-01-01",
    "date-time": "2024-01-01T00:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com",
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@dataclass
class RequiredConfig:
    """A config that has every required field."""

    # The config. Of the fields that were not given, a secret is a reference to an environment variable, and
    # another field is its constant or default value, or else an example.
    config: Json
    # The description of each field that was added, by its path.
    notes: dict[Place, str] = field(default_factory=dict)
    # The path and an example value of the secret of each variable that was added.
    variables: dict[str, tuple[Place, Any]] = field(default_factory=dict)
    # The paths of the fields whose values are examples.
    examples: list[Place] = field(default_factory=list)

    def fill_examples(self, variables: Sequence[str]) -> Json:
        """Return the config with examples instead of the references to these variables."""
        completed = copy.deepcopy(self.config)
        for variable in variables:
            (*outer, name), example = self.variables[variable]
            parent: Any = completed
            for step in outer:
                parent = parent[step]
            parent[name] = example
        return completed


def add_required_config(
    config: Mapping[str, Any], schema: Any, variable_name: VariableName
) -> RequiredConfig:
    """Return a config with every field that a `connectionSpecification` requires.

    Args:
        config: the config that is given, which is kept.
    """
    required = RequiredConfig(copy.deepcopy(dict(config)))

    def fill(inner: Json, schema: Mapping[str, Any], place: Place) -> None:
        """Add the required fields that an object in the config lacks, also in the objects in it."""
        for name, field_schema, is_required in list(_fields(schema, inner)):
            path = (*place, name)
            if name not in inner and is_required:
                add(inner, field_schema, path)
            value = inner.get(name)
            if isinstance(value, dict) and not is_reference(value) and set(value) != {"literal"}:
                fill(value, field_schema, path)

    def add(inner: Json, schema: Mapping[str, Any], place: Place) -> None:
        name, notes = str(place[-1]), [_note(schema)]
        constant = schema.get("const", schema.get("default"))
        options = [schema, *_schemas(schema.get("oneOf")), *_schemas(schema.get("anyOf"))]
        if schema.get("airbyte_secret"):
            variable = variable_name([str(step) for step in place], required.variables)
            inner[name] = {"env": variable}
            required.variables[variable] = (place, as_literal(_example(schema)))
        elif constant is not None:
            inner[name] = as_literal(copy.deepcopy(constant))
        elif any("properties" in option for option in options):
            inner[name] = {}
        else:
            inner[name] = as_literal(_example(schema))
            required.examples.append(place)
            notes.append("replace this example")
        required.notes[place] = "; ".join(filter(None, notes))

    fill(required.config, _as_mapping(schema), ())
    return required


def _fields(
    schema: Mapping[str, Any], config: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Yield the name and the schema of each field of an object, and whether it is required.

    Of several options for the object, the first that fits the config counts. The constants that tell it from
    the others are required.
    """
    options = [
        [
            option
            for option in _schemas(schema.get(keyword))
            if all(config.get(name, value) == value for name, value in _constants(option).items())
        ][:1]
        for keyword in ("oneOf", "anyOf")
    ]
    chosen = [option for alternatives in options for option in alternatives]
    parts = [schema, *_schemas(schema.get("allOf")), *chosen]
    required = [name for part in parts for name in _list(part.get("required"))]
    required += [name for option in chosen for name in _constants(option)]
    known_fields: dict[str, Mapping[str, Any]] = {name: {} for name in map(str, required)}
    for part in parts:
        known_fields |= {
            name: _as_mapping(inner) for name, inner in _as_mapping(part.get("properties")).items()
        }
    for name, inner in known_fields.items():
        yield name, inner, name in required


def _constants(option: Mapping[str, Any]) -> dict[str, Any]:
    properties = {
        name: _as_mapping(inner) for name, inner in _as_mapping(option.get("properties")).items()
    }
    return {name: inner["const"] for name, inner in properties.items() if "const" in inner}


def _note(schema: Mapping[str, Any]) -> str:
    """Return the title and the type of a field, in one line."""
    kind = schema.get("type")
    title = _TAG.sub("", str(schema.get("title") or schema.get("description") or "")).rstrip(". \n")
    parts = [title, kind if isinstance(kind, str) else None]
    parts += ["secret" if schema.get("airbyte_secret") else None]
    titles = [option["title"] for option in _schemas(schema.get("oneOf")) if "title" in option]
    for values in filter(None, (_list(schema.get("enum")), titles)):
        parts.append(f"one of: {', '.join(map(str, values))}")
    text = "; ".join(" ".join(str(part).split()) for part in parts if part)
    text = "".join(character for character in text if character.isprintable())
    return text if len(text) <= _MAX_NOTE else f"{text[: _MAX_NOTE - 1]}…"


def _example(schema: Mapping[str, Any]) -> Any:
    """Return a value that a field may have, as far as the schema shows it."""
    kinds = schema.get("type", "string")
    kind = next((kind for kind in _list(kinds) if kind != "null"), kinds)
    samples = [*_list(schema.get("enum")), *_list(schema.get("examples"))]
    samples = [value for value in samples if isinstance(value, _TYPES.get(str(kind), ()))]
    others: dict[Any, Any] = {
        "boolean": False,
        "integer": schema.get("minimum", 1),
        "number": schema.get("minimum", 1),
        "object": {},
    }
    if kind == "array" and not samples:
        return [_example(_as_mapping(schema.get("items")))] * int(schema.get("minItems", 0))
    if kind in (*others, "array"):
        return next(iter(samples), others.get(kind))
    return _text([*samples, _FORMATS.get(str(schema.get("format")), _TEXTS[0])], schema)


def _text(samples: Sequence[str], schema: Mapping[str, Any]) -> str:
    """Return the first known text that has the pattern of a field, or another text that has it."""
    pattern = schema.get("pattern")
    try:
        search = Pattern(pattern if isinstance(pattern, str) else "").search
        return next((text for text in (*samples, *_TEXTS) if search(text)), samples[0])
    except (re.error, TimeoutError):  # such a pattern is not checked either
        return samples[0]


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _schemas(value: Any) -> list[Mapping[str, Any]]:
    return [option for option in _list(value) if isinstance(option, Mapping)]
