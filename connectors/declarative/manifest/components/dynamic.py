"""Streams that the config or an API defines."""

from __future__ import annotations

from dataclasses import dataclass, field

from connectors.declarative.manifest.components.base import Component, Json, inferred
from connectors.declarative.manifest.components.records import ValueType
from connectors.declarative.manifest.components.streams import (
    AsyncRetriever,
    CustomRetriever,
    DeclarativeStream,
    SimpleRetriever,
    StateDelegatingStream,
)
from connectors.declarative.manifest.template import Template


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ComponentMappingDefinition(Component):
    """A field of the template of a stream, and its value."""

    field_path: tuple[Template, ...]
    value: Template
    value_type: ValueType | None = None
    create_or_update: bool = False
    condition: Template | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HttpComponentsResolver(Component):
    """A stream for each record that a request returns."""

    retriever: SimpleRetriever | AsyncRetriever | CustomRetriever = field(
        metadata=inferred("SimpleRetriever")
    )
    components_mapping: tuple[ComponentMappingDefinition, ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StreamConfig(Component):
    """A list in the config."""

    configs_pointer: tuple[Template, ...]
    default_values: tuple[Json, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConfigComponentsResolver(Component):
    """A stream for each item of lists in the config."""

    stream_config: StreamConfig | tuple[StreamConfig, ...]
    components_mapping: tuple[ComponentMappingDefinition, ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StreamParametersDefinition(Component):
    """Values for the streams, in the manifest."""

    list_of_parameters_for_stream: tuple[Json, ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ParametrizedComponentsResolver(Component):
    """A stream for each mapping of a list in the manifest."""

    stream_parameters: StreamParametersDefinition
    components_mapping: tuple[ComponentMappingDefinition, ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DynamicDeclarativeStream(Component):
    """A template of streams, and what defines the streams.

    Attributes:
        stream_template: the template as it is; its fields may hold placeholders.
    """

    stream_template: DeclarativeStream | StateDelegatingStream = field(
        metadata=inferred("DeclarativeStream")
    )
    components_resolver: (
        HttpComponentsResolver | ConfigComponentsResolver | ParametrizedComponentsResolver
    )
    name: str = ""
    use_parent_parameters: bool = True
