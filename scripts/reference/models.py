"""The reference of settings: tables of the keys of pydantic models, from their JSON schemas."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

Schema = Mapping[str, Any]

_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "minItems": "at least {} item(s)",
    "minLength": "at least {} character(s)",
    "pattern": "`{}`",
}
_UNITS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}


def describe_model(model: type[BaseModel], variable_prefix: str | None = None) -> str:
    """Return a section of Markdown for a model, and for each model that it refers to.

    Args:
        variable_prefix: prefix of the environment variables that override the keys; None if there are none.
    """
    schema = model.model_json_schema()
    sections = [(model.__name__, schema, "")]
    for name, path in _nested(schema):
        sections.append((name, schema["$defs"][name], path))
    return "\n".join(_section(*section, variable_prefix) for section in sections)


def _nested(schema: Schema) -> Iterator[tuple[str, str]]:
    """Return each model that a schema refers to, and the path of its first key; nearest models first."""
    seen: set[str] = set()
    queue = [(schema, "")]
    while queue:
        current, path = queue.pop(0)
        for key, value in current.get("properties", {}).items():
            for name in _references(value):
                if name not in seen:
                    seen.add(name)
                    inner = f"{path}.{key}".lstrip(".")
                    queue.append((schema["$defs"][name], inner))
                    yield name, inner


def _references(value: Any) -> Iterator[str]:
    """Return the names of the models to which a part of a schema refers."""
    if isinstance(value, Mapping):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for key, inner in value.items():
            if key != "default":
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _section(name: str, schema: Schema, path: str, variable_prefix: str | None) -> str:
    required = schema.get("required", [])
    head = ["key", "type", "default", "limits", "meaning"]
    if variable_prefix is not None:
        head.insert(1, "variable")
    lines = [f"## {title(name)}", "", schema.get("description", ""), ""]
    if path:
        lines += [f"Key: `{path}`", ""]
    lines += [table_row(head), table_row(["---"] * len(head))]
    properties = schema.get("properties", {})
    for key in sorted(properties, key=lambda key: key not in required):
        value = properties[key]
        cells = [
            f"`{key}`",
            _type(value),
            "**required**" if key in required else _default(value),
            "; ".join(_limits(value)),
            value.get("description", ""),
        ]
        if variable_prefix is not None:
            cells.insert(1, f"`{variable_prefix}{key.upper()}`")
        lines.append(table_row(cells))
    return "\n".join([*lines, ""])


def title(name: str) -> str:
    """Return the name of a class as words, which is the heading of its section."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()


def table_row(cells: list[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _type(schema: Schema) -> str:
    """Return the type of a value in words, with a link to the section of each model."""
    if "$ref" in schema:
        words = title(schema["$ref"].rpartition("/")[2])
        return f"[{words}](#{words.lower().replace(' ', '-')})"
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            types = dict.fromkeys(_type(part) for part in schema[union])
            return " or ".join(text for text in types if text != "null")
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any value")
    if isinstance(kind, list):
        return " or ".join(name for name in kind if name != "null")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"mapping to {_type(schema['additionalProperties'])}"
    return "mapping" if kind == "object" else str(kind)


def _limits(schema: Schema) -> Iterator[str]:
    """Return the limits of a value, and an example where its type alone does not say how it is written."""
    for key, text in _LIMITS.items():
        if key in schema:
            yield text.format(schema[key])
    if examples := schema.get("examples"):
        yield "as " + ", ".join(f"`{example}`" for example in examples)
    for part in schema.get("anyOf", []):
        yield from _limits(part)


def _default(schema: Schema) -> str:
    default = schema.get("default")
    if default is None:
        return "none"
    if default in ([], {}):
        return "empty"
    if isinstance(default, str):
        return f"`{_duration(default)}`"
    if isinstance(default, Mapping):
        return "its defaults" if any(_references(schema)) else f"`{json.dumps(default)}`"
    return f"`{json.dumps(default)}`"


def _duration(text: str) -> str:
    """Return a duration of ISO 8601 as `defs.yaml` has it, such as `1h` for PT1H; other texts unchanged."""
    if not re.fullmatch(r"P(\d+\w)*(T[\d.HMS]+)?", text):
        return text
    seconds = TypeAdapter(dt.timedelta).validate_python(text).total_seconds()
    unit = next(unit for unit, length in _UNITS.items() if seconds % length == 0)
    return f"{seconds / _UNITS[unit]:g}{unit}"
