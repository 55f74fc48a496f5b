"""The specification of the config, and the rules by which configs are changed and checked."""

from __future__ import annotations

from typing import Annotated, Any

from connectors.declarative.manifest.components.base import Component, Json
from connectors.declarative.manifest.components.records import AddedFieldDefinition
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
