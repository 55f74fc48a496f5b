"""Schemas that an API describes: the fields and their types are values of a response.

Spec: DynamicSchemaLoader, SchemaTypeIdentifier, TypesMap.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from connectors.declarative.cursors.slices import Slice
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.building import build_retriever
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.records import paths
from connectors.declarative.requests.records.selector import record_filter
from connectors.declarative.requests.records.transformations import transformation
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
