"""Streams that an API defines."""

from __future__ import annotations

from typing import Annotated

from connectors.declarative.manifest.components.base import Component
from connectors.declarative.manifest.components.records import ValueType
from connectors.declarative.manifest.components.streams import AnyRetriever, AnyStream
from connectors.declarative.manifest.template import Template


class ComponentMappingDefinition(Component):
    """A field of the template of a stream, and its value."""

    field_path: tuple[Template, ...]
    value: Template
    value_type: ValueType | None = None
    create_or_update: bool = False
    condition: Template | None = None


class HttpComponentsResolver(Component):
    """A stream for each record that a request returns."""

    retriever: AnyRetriever
    components_mapping: tuple[ComponentMappingDefinition, ...]


class DynamicDeclarativeStream(Component):
    """A template of streams, and what defines the streams.

    Attributes:
        stream_template: the template as it is; its fields may hold placeholders.
    """

    stream_template: AnyStream
    components_resolver: Annotated[
        HttpComponentsResolver, "ConfigComponentsResolver", "ParametrizedComponentsResolver"
    ]
    name: str = ""
    use_parent_parameters: bool = True
