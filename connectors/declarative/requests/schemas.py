"""JSON schemas of streams: in the manifest, in files beside it, or described by an API.

Spec: InlineSchemaLoader, JsonFileSchemaLoader, DynamicSchemaLoader, SchemaTypeIdentifier, TypesMap.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

from connectors.declarative import paths
from connectors.declarative.cursors.slices import Slice
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.building import build_retriever
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.expressions import text
from connectors.declarative.requests.records.normalization import find_definition
from connectors.declarative.requests.records.selector import record_filter
from connectors.declarative.requests.records.transformations import transformation
from connectors.sdk.reports import report_warning
from elt_assets.errors import ConfigError, SystemFailure

_NULLABLE_TEXT = ("null", "string")
_TYPES: Mapping[str, Mapping[str, Any]] = {
    **{
        name: {"type": ["null", name]}
        for name in ("string", "boolean", "integer", "number", "array", "object")
    },
    "date": {"type": [*_NULLABLE_TEXT], "format": "date"},
    "timestamp_with_timezone": {"type": [*_NULLABLE_TEXT], "format": "date-time"},
    **{
        f"{kind}_{zone}_timezone": {
            "type": [*_NULLABLE_TEXT],
            "format": "date-time" if kind == "timestamp" else "time",
            "airbyte_type": f"{kind}_{zone}_timezone",
        }
        for kind, zone in (("timestamp", "without"), ("time", "with"), ("time", "without"))
    },
}
"""The types that a manifest may name, and their JSON schemas."""
_DEFAULT_TYPE = "string"


class DynamicSchema:
    """Loads the schema of a stream from an API.

    Args:
        component: a DynamicSchemaLoader.
        environment: what the requesters of the source share.
    """

    def __init__(self, component: components.DynamicSchemaLoader, environment: Environment):
        self._component = component
        self._variables = {"config": environment.config}
        self._retriever = build_retriever(
            component.retriever, environment, name="dynamic_properties", use_cache=True
        )
        self._changes = [transformation(part) for part in component.schema_transformations or ()]

    def load(self) -> dict[str, Any]:
        """Return the JSON schema.

        Raises:
            ConfigError: the API names a type that the manifest does not know.
            EltError: the request fails.
        """
        identifier = self._component.schema_type_identifier
        pages = self._retriever.pages(Slice())
        record = next(itertools.chain.from_iterable(pages), None)
        described = self._at(record, identifier.schema_pointer, []) if record else []
        if not isinstance(described, list):
            raise self._unexpected("the description of the fields is not a list")
        properties = [{self._name(field): self._type(field) for field in described}]
        self._filter(properties)
        for change in self._changes:
            change(properties, self._variables)
        return {
            "$schema": "https://json-schema.org/draft-07/schema#",
            "type": "object",
            "additionalProperties": True,
            "properties": properties[0],
        }

    def _filter(self, properties: list[dict[str, Any]]) -> None:
        schema_filter = self._component.schema_filter
        if schema_filter is None:
            return
        fields = [{name: schema} for name, schema in properties[0].items()]
        scope = {"stream_slice": {}, "next_page_token": None, **self._variables}
        for step in record_filter(schema_filter):
            step(fields, scope)
        properties[0] = {name: schema for field in fields for name, schema in field.items()}

    def _name(self, field: Any) -> str:
        name = self._at(field, self._component.schema_type_identifier.key_pointer, None)
        if not isinstance(name, str):
            raise self._unexpected("a field has no name, or one that is not a text")
        return name

    def _type(self, field: Any) -> Any:
        identifier = self._component.schema_type_identifier
        type_name: Any = _DEFAULT_TYPE
        if identifier.type_pointer:
            type_name = self._at(field, identifier.type_pointer, _DEFAULT_TYPE)
        for mapping in identifier.types_mapping or ():
            if type_name == _plain(mapping.current_type) and self._holds(mapping.condition, field):
                return self._schema(mapping.target_type)
        return self._schema(type_name)

    def _holds(self, condition: Template | None, field: Any) -> bool:
        return condition is None or condition.is_true({**self._variables, "raw_schema": field})

    def _schema(self, kind: Any) -> dict[str, Any]:
        """Return the JSON schema of a type that the manifest or the API names."""
        if isinstance(kind, components.ComplexFieldType):
            schema = self._schema(kind.field_type)
            if kind.items is not None:
                schema["items"] = self._schema(kind.items)
            return schema
        if isinstance(kind, tuple | list) and len(kind) == 2:
            return {"oneOf": [self._schema(part) for part in kind]}
        if not isinstance(kind, str) or kind not in _TYPES:
            raise ConfigError(
                f"{self._component.place}: the API names a type of field that the manifest does not know: "
                f"{kind!r}",
                guidance="add it to `types_mapping`",
            )
        return deepcopy(dict(_TYPES[kind]))

    def _at(self, value: Any, pointer: Sequence[Template], default: Any) -> Any:
        path = tuple(part.text_of(self._variables) for part in pointer)
        return paths.value_at(value, path, default)

    def _unexpected(self, what: str) -> SystemFailure:
        return SystemFailure(
            f"the schema of {self._component.place} cannot be loaded: {what}",
            guidance="correct the pointers of `schema_type_identifier`",
        )


def _plain(template: Any) -> Any:
    return list(template) if isinstance(template, tuple) else template


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
    target = find_definition(whole, f"#{pointer}")
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
