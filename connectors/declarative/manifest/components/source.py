"""The source: the specification of its config, its dynamic streams, and the check of its connection."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import field

from connectors.declarative.manifest.components.base import Component, Json, Usual
from connectors.declarative.manifest.components.requests import HTTPAPIBudget
from connectors.declarative.manifest.components.streams import (
    AddedFieldDefinition,
    AnyRetriever,
    AnyStream,
    ValueType,
)
from connectors.declarative.manifest.template import Template, TemplateMap


class ConfigAddFields(Component):
    """Fields that are added to the config, if a condition holds."""

    fields: tuple[AddedFieldDefinition, ...]
    condition: Template = Template("")


class ConfigRemoveFields(Component):
    """Fields that are removed from the config, if a condition holds."""

    field_pointers: tuple[tuple[str, ...], ...]
    condition: Template = Template("")


ConfigTransformation = Annotated[
    ConfigAddFields | ConfigRemoveFields, "ConfigRemapField", "CustomConfigTransformation"
]


class ConfigMigration(Component):
    """A change of old configs, which is kept."""

    transformations: tuple[ConfigTransformation, ...] = ()
    description: str | None = None


class ValidateAdheresToSchema(Component):
    """A check against a JSON schema."""

    base_schema: TemplateMap | Template


class DpathValidator(Component):
    """A check of the values at a path of the config."""

    field_path: tuple[Template, ...]
    validation_strategy: Annotated[ValidateAdheresToSchema, "CustomValidationStrategy"]


class PredicateValidator(Component):
    """A check of a value."""

    value: Template | TemplateMap | Any
    validation_strategy: Annotated[ValidateAdheresToSchema, "CustomValidationStrategy"]


class ConfigNormalizationRules(Component):
    """The changes and checks of a config before it is used."""

    config_migrations: tuple[ConfigMigration, ...] = ()
    transformations: tuple[ConfigTransformation, ...] = ()
    validations: tuple[DpathValidator | PredicateValidator, ...] = ()


class Spec(Component):
    """The specification of the config."""

    connection_specification: Json
    documentation_url: str | None = None
    advanced_auth: Json | None = None
    config_normalization_rules: ConfigNormalizationRules | None = None


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


class DynamicStreamCheckConfig(Component):
    """The number of streams of a template that are checked; all without a number."""

    dynamic_stream_name: str
    stream_count: int | None = None


class CheckStream(Component):
    """A check that reads a record of each of some streams."""

    stream_names: tuple[str, ...] | None = None
    dynamic_streams_check_configs: tuple[DynamicStreamCheckConfig, ...] | None = None
    config_overrides: Json | None = None


class CheckDynamicStream(Component):
    """A check that lists dynamic streams and reads some of them."""

    stream_count: int
    use_check_availability: bool = True
    config_overrides: Json | None = None


class ConcurrencyLevel(Component):
    """The number of slices that are read at the same time."""

    default_concurrency: int | Template
    max_concurrency: int | None = None


class DeclarativeSource(Component):
    """A manifest.

    Attributes:
        schemas: JSON schemas by stream name.
        definitions: what references point to; not checked.
    """

    check: Usual[CheckStream] | CheckDynamicStream
    version: str = ""
    streams: tuple[Annotated[AnyStream, "ConditionalStreams"], ...] = ()
    dynamic_streams: tuple[DynamicDeclarativeStream, ...] = ()
    schemas: Json = field(default_factory=dict)
    definitions: Any = None
    spec: Spec | None = None
    concurrency_level: ConcurrencyLevel | None = None
    api_budget: HTTPAPIBudget | None = None
    stream_groups: Json | None = None  # without effect
    max_concurrent_async_job_count: int | Template | None = None
    metadata: Json | None = None
    description: str | None = None
