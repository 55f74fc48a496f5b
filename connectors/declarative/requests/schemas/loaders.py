"""Schema loaders: the JSON schema of a stream.

Spec: InlineSchemaLoader, JsonFileSchemaLoader, DynamicSchemaLoader, and lists of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.expressions import text
from connectors.declarative.requests.schemas.dynamic import DynamicSchema
from connectors.sdk.reports import report_warning
from elt_assets.errors import ConfigError

Schema = dict[str, Any]
MAX_REFERENCES = 50
"""Depth of references from one schema file to another."""
MAX_PARTS = 200_000
"""Number of parts of a schema whose references are resolved."""


def load_schema(component: Any, environment: Environment, name: str) -> Schema:
    """Return the JSON schema of a stream. An object with any fields is the schema of a stream without one.

    Args:
        component: a schema loader, several of them, or None for the file with the name of the stream. Of
            several, the first one that has a property wins.
        environment: what the requesters of the source share; it has the folder of the manifest.
        name: the name of the stream.

    Raises:
        ConfigError: the file of the loader is not JSON.
        EltError: the API does not return the schema.
    """
    if component is None:
        return _default(environment, name)
    if isinstance(component, tuple | list):
        return _merged([load_schema(loader, environment, name) for loader in component])
    if isinstance(component, components.InlineSchemaLoader):
        return dict(component.schema or {})
    if isinstance(component, components.JsonFileSchemaLoader):
        if component.file_path is None or not component.file_path.text:
            return _default(environment, name)
        return _of_file(component.file_path, environment, component.place, name)
    return DynamicSchema(component, environment).load()


def open_schema() -> Schema:
    """Return the schema of a stream if nothing is known about it."""
    return {"type": "object", "additionalProperties": True, "properties": {}}


def _merged(schemas: Sequence[Mapping[str, Any]]) -> Schema:
    properties: dict[str, Any] = {}
    for schema in schemas:
        for name, schema_of_property in (schema.get("properties") or {}).items():
            properties.setdefault(name, schema_of_property)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": ["null", "object"],
        "properties": properties,
    }


def _default(environment: Environment, name: str) -> Schema:
    """Return the schema in the file with the name of the stream; an open one if there is none."""
    for path in (f"schemas/{name}.json", f"{name}.json"):
        file = _file(environment.folder, path)
        if name and file is not None:
            return _schema(file)
    return open_schema()


def _of_file(component: Any, environment: Environment, place: str, name: str) -> Schema:
    variables = {"config": environment.config, "parameters": {**component.parameters}}
    variables["parameters"].setdefault("name", name)
    path = text(component, variables)
    file = _file(environment.folder, path)
    if file is None:
        report_warning(
            f"{place}.file_path: there is no file {path!r} beside the manifest, so the fields of the stream "
            "are not known; put the file there, or write the schema into the manifest with InlineSchemaLoader"
        )
        return open_schema()
    return _schema(file)


def _file(folder: Path | None, path: str) -> Path | None:
    """Return a file below the folder of the manifest; None if there is none.

    A path may begin with the name of that folder, because connectors write paths from the folder above it.
    """
    if folder is None:
        return None
    root = folder.resolve()
    parts = [part for part in Path(path).parts if part != "."]
    shorter = parts[1:] if parts[:1] == [root.name] else []
    for names in (parts, shorter):
        candidate = root.joinpath(*names).resolve()
        if names and candidate.is_relative_to(root) and candidate.is_file():
            return candidate
    return None


def _schema(file: Path) -> Schema:
    """Return the schema in a file, with what it refers to in other files.

    Raises:
        ConfigError: the file is not a JSON object, or the references do not end.
    """
    schema = _content(file)
    if not isinstance(schema, dict):
        raise ConfigError(
            f"the schema file {file.name} is not an object, or refers to itself",
            guidance="correct the file",
        )
    resolved = _resolved(schema, schema, file.parent, 0, count())
    resolved.pop("definitions", None)
    return dict(resolved)


def _resolved(value: Any, whole: Schema, root: Path, depth: int, parts: Iterator[int]) -> Any:
    if next(parts) > MAX_PARTS:
        raise ConfigError(
            f"a schema file has more than {MAX_PARTS} parts when its references are resolved",
            guidance="correct the file: its references may multiply",
        )
    if isinstance(value, list):
        return [_resolved(item, whole, root, depth, parts) for item in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if not isinstance(reference, str):
        return {name: _resolved(item, whole, root, depth, parts) for name, item in value.items()}
    if depth > MAX_REFERENCES:
        raise ConfigError(
            f"the reference {reference!r} of a schema file leads to itself",
            guidance="correct the file",
        )
    name, _, pointer = reference.partition("#")
    if name:
        whole = _other(name, root)
    target: Any = whole
    for part in filter(None, pointer.split("/")):
        target = target.get(part) if isinstance(target, dict) else None
    if target is None:
        raise ConfigError(
            f"the reference {reference!r} of a schema file leads nowhere",
            guidance="correct the file",
        )
    return _resolved(target, whole, root, depth + 1, parts)


def _other(name: str, root: Path) -> Schema:
    """Return the schema in another file; that of several streams is in the folder `shared`."""
    for path in (f"shared/{name}", name):
        file = _file(root, path)
        if file is not None:
            document = _content(file)
            return document if isinstance(document, dict) else {}
    raise ConfigError(
        f"a schema file refers to {name!r}, which is not there", guidance="add the file"
    )


def _content(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the schema file {file.name} cannot be read: {error}", guidance="correct the file"
        ) from None
