"""Streams that the config or an API defines."""

from __future__ import annotations

from connectors.declarative.manifest.components.base import Component, Json, Usual
from connectors.declarative.manifest.components.records import ValueType
from connectors.declarative.manifest.components.streams import (
    AsyncRetriever,
    CustomRetriever,
    DeclarativeStream,
    SimpleRetriever,
    StateDelegatingStream,
)
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

    retriever: Usual[SimpleRetriever] | AsyncRetriever | CustomRetriever
    components_mapping: tuple[ComponentMappingDefinition, ...]


class StreamConfig(Component):
    """A list in the config."""

    configs_pointer: tuple[Template, ...]
    default_values: tuple[Json, ...] | None = None


class ConfigComponentsResolver(Component):
    """A stream for each item of lists in the config."""

    stream_config: StreamConfig | tuple[StreamConfig, ...]
    components_mapping: tuple[ComponentMappingDefinition, ...]


class StreamParametersDefinition(Component):
    """Values for the streams, in the manifest."""

    list_of_parameters_for_stream: tuple[Json, ...]


class ParametrizedComponentsResolver(Component):
    """A stream for each mapping of a list in the manifest."""

    stream_parameters: StreamParametersDefinition
    components_mapping: tuple[ComponentMappingDefinition, ...]


class DynamicDeclarativeStream(Component):
    """A template of streams, and what defines the streams.

    Attributes:
        stream_template: the template as it is; its fields may hold placeholders.
    """

    stream_template: Usual[DeclarativeStream] | StateDelegatingStream
    components_resolver: (
        HttpComponentsResolver | ConfigComponentsResolver | ParametrizedComponentsResolver
    )
    name: str = ""
    use_parent_parameters: bool = True
