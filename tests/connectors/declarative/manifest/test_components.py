"""The component classes, which are the schema of manifests."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from connectors.declarative.manifest import components
from connectors.declarative.manifest.components import (
    Component,
    Custom,
    DeclarativeStream,
    HttpRequester,
    RequestOption,
)
from connectors.declarative.manifest.shapes import (
    NAMES,
    TYPES,
    choices,
    classes,
    components_in_templates,
    describe,
    is_map,
    item,
    members,
    plain,
    shape,
    usual,
)
from connectors.declarative.manifest.template import Template

USED = """
    RecordSelector SimpleRetriever DeclarativeStream CheckStream HttpRequester DpathExtractor
    DeclarativeSource Spec InlineSchemaLoader RequestOption DefaultPaginator DatetimeBasedCursor
    MinMaxDatetime SubstreamPartitionRouter ParentStreamConfig CursorPagination PageIncrement
    BearerAuthenticator DefaultErrorHandler ApiKeyAuthenticator AddFields CompositeErrorHandler
    HttpResponseFilter OffsetIncrement BasicHttpAuthenticator RequestPath OAuthAuthenticator
    JsonDecoder ExponentialBackoffStrategy RemoveFields ConstantBackoffStrategy ListPartitionRouter
    NoPagination RecordFilter WaitTimeFromHeader SelectiveAuthenticator ConcurrencyLevel NoAuth
    SessionTokenAuthenticator HTTPAPIBudget MovingWindowCallRatePolicy JsonFileSchemaLoader
    DynamicDeclarativeStream DynamicSchemaLoader StateDelegatingStream
    LegacyToPerPartitionStateMigration WaitUntilTimeFromHeader TypesMap ConfigAddFields
    ConfigMigration SchemaTypeIdentifier DpathFlattenFields ConfigComponentsResolver GzipDecoder
    AsyncRetriever CheckDynamicStream HttpComponentsResolver DpathValidator QueryProperties
    PropertyChunking GroupingPartitionRouter JwtAuthenticator KeysReplace KeysToLower CsvDecoder
    JsonlDecoder IterableDecoder ZipfileDecoder XmlDecoder
""".split()  # noqa: SIM905 - as a list it has seventy lines
"""The types that real manifests use, the most used ones first."""


@pytest.mark.parametrize("name", USED)
def test_a_type_that_manifests_use_has_a_class_of_its_name(name: str) -> None:
    assert TYPES[name] is getattr(components, name)


@pytest.mark.parametrize("cls", TYPES.values(), ids=str)
def test_the_annotations_of_a_class_can_be_read(cls: type[Component]) -> None:
    for field in shape(cls).values():
        hint = field.hint
        assert Any in members(hint) or describe(hint)
        assert usual(hint) is None or usual(hint) in classes(hint)
        assert all(NAMES[inner] in TYPES for inner in (*classes(hint), *classes(item(hint))))


@pytest.mark.parametrize("of", TYPES.values(), ids=str)
def test_components_cannot_be_changed(of: type[Component]) -> None:
    assert dataclasses.is_dataclass(of)
    values = {field.name: None for field in shape(of).values() if field.required}
    built = of(**values, place="here")  # type: ignore[arg-type]
    assert hash(built) == hash(built)
    assert "here" in repr(built)
    with pytest.raises(dataclasses.FrozenInstanceError):
        built.place = "there"  # type: ignore[misc]


def test_every_custom_component_keeps_its_options() -> None:
    custom = [of for name, of in TYPES.items() if name.startswith("Custom")]
    assert len(custom) > 15
    assert all(issubclass(of, Custom) and "class_name" in shape(of) for of in custom)


def test_the_types_of_fields_are_those_of_the_annotations() -> None:
    fields = shape(HttpRequester)
    assert choices(fields["http_method"].hint) == ("GET", "POST")
    assert members(fields["url_base"].hint) == (Template,)
    assert not fields["url_base"].required
    parameters = fields["request_parameters"].hint
    assert Template in members(parameters) and is_map(parameters)
    assert components_in_templates(parameters) is components.QueryProperties
    stream = shape(DeclarativeStream)
    assert stream["retriever"].required
    assert usual(stream["retriever"].hint) is components.SimpleRetriever
    keys = stream["primary_key"].hint
    assert plain(keys) == (str,) and item(item(keys)) is str
    assert shape(RequestOption)["inject_into"].required


def test_defaults_are_those_of_the_schema() -> None:
    option = RequestOption(inject_into="header", field_name=Template("x"))
    assert option.field_path is None
    assert (option.place, option.parameters) == ("", {})
    assert components.OffsetIncrement().inject_on_first_request is False
    assert components.HTTPAPIBudget(policies=()).status_codes_for_ratelimit_hit == (429,)
    assert components.CsvDecoder().delimiter == ","
