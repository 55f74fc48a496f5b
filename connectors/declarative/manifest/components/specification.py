"""The specification of the config, and the rules by which configs are changed and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from connectors.declarative.manifest.components.base import Component, Custom, Json
from connectors.declarative.manifest.components.records import AddedFieldDefinition
from connectors.declarative.manifest.template import Template, TemplateMap


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OAuthConfigSpecification(Component):
    """The data with which a program lets a user authorize the connector."""

    has_type = False

    oauth_user_input_from_connector_config_specification: Json | None = None
    oauth_connector_input_specification: Json | None = None
    complete_oauth_output_specification: Json | None = None
    complete_oauth_server_input_specification: Json | None = None
    complete_oauth_server_output_specification: Json | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AuthFlow(Component):
    """The condition and the way of authorizing the connector."""

    has_type = False

    auth_flow_type: Literal["oauth2.0", "oauth1.0"] | None = None
    predicate_key: tuple[str, ...] | None = None
    predicate_value: str | None = None
    oauth_config_specification: OAuthConfigSpecification | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConfigRemapField(Component):
    """A value of the config that another one replaces."""

    map: TemplateMap | Template
    field_path: tuple[Template, ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConfigAddFields(Component):
    """Fields that are added to the config, if a condition holds."""

    fields: tuple[AddedFieldDefinition, ...]
    condition: Template = field(default=Template(""))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConfigRemoveFields(Component):
    """Fields that are removed from the config, if a condition holds."""

    field_pointers: tuple[tuple[str, ...], ...]
    condition: Template = field(default=Template(""))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CustomConfigTransformation(Custom):
    """A change of configs, in Python."""


ConfigTransformation = (
    ConfigRemapField | ConfigAddFields | ConfigRemoveFields | CustomConfigTransformation
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConfigMigration(Component):
    """A change of old configs, which is kept."""

    transformations: tuple[ConfigTransformation, ...] = ()
    description: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ValidateAdheresToSchema(Component):
    """A check against a JSON schema."""

    base_schema: TemplateMap | Template


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CustomValidationStrategy(Custom):
    """A check in Python."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DpathValidator(Component):
    """A check of the values at a path of the config."""

    field_path: tuple[Template, ...]
    validation_strategy: ValidateAdheresToSchema | CustomValidationStrategy


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PredicateValidator(Component):
    """A check of a value."""

    value: Template | TemplateMap | Any
    validation_strategy: ValidateAdheresToSchema | CustomValidationStrategy


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConfigNormalizationRules(Component):
    """The changes and checks of a config before it is used."""

    config_migrations: tuple[ConfigMigration, ...] = ()
    transformations: tuple[ConfigTransformation, ...] = ()
    validations: tuple[DpathValidator | PredicateValidator, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Spec(Component):
    """The specification of the config."""

    connection_specification: Json
    documentation_url: str | None = None
    advanced_auth: AuthFlow | None = None
    config_normalization_rules: ConfigNormalizationRules | None = None
