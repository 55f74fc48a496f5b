"""The components are those of the component schema that airbyte-cdk 7.39.1 has, with the differences below.

What a manifest may have and this engine does not know is a difference here, so that it is run by Airbyte's
engine, or left out for a reason, and never only a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from connectors.declarative.__main__ import main
from connectors.declarative.manifest import components
from connectors.declarative.manifest.components import Component
from connectors.declarative.manifest.loader import find_refusal, load, refuse_for_all_engines
from connectors.declarative.manifest.report import ManifestError
from connectors.declarative.manifest.shapes import TYPES, fields, types_without_class
from elt_assets.errors import NEEDS_AIRBYTE
from tests.connectors.declarative.manifest.component_schema import read_extract
from tests.connectors.declarative.test_refused_streams import GOOD, manifest, stream

Json = dict[str, Any]

INLINE: Mapping[str, type[Component]] = {
    "DatetimeBasedCursor.clamping": components.Clamping,
    "OAuthAuthenticator.refresh_token_updater": components.RefreshTokenUpdater,
    "Spec.config_normalization_rules": components.ConfigNormalizationRules,
}
"""The types that the schema defines in a field."""
WITHIN: Mapping[str, str] = {
    "DeclarativeStream.file_uploader": "FileUploader",
    "GroupByKeyMergeStrategy": "QueryProperties",
    "JsonSchemaPropertySelector": "QueryProperties",
    "JwtAuthenticator.jwt_headers": "JwtAuthenticator",
    "JwtAuthenticator.jwt_payload": "JwtAuthenticator",
    "PageSizeReduction": "SimpleRetriever.page_size_reduction",
    "PaginationResetLimits": "PaginationReset",
    "ParentFieldPath": "RecordExpander",
    "PropertyChunking": "QueryProperties",
    "QuotaStatusSource": "RateLimitedMultipleTokenAuthenticator",
    "RequestWindowSplitting": "SimpleRetriever.request_window_splitting",
    "StreamConfig": "ConfigComponentsResolver",
    "StreamParametersDefinition": "ParametrizedComponentsResolver",
    "TokenQuota": "RateLimitedMultipleTokenAuthenticator",
}
"""The types that stand only in others, or in a field, that Airbyte's engine runs."""
PASSED_ON = "it is passed on to the platform as it is"
NO_EFFECT = "the field that has it is without effect"
DIFFERENCES: Mapping[str, str] = {
    "HttpResponseFilter.action=REDUCE_PAGE_SIZE": "Airbyte's engine runs it",
    "HttpResponseFilter.action=RESET_PAGINATION": "Airbyte's engine runs it",
    "HttpResponseFilter.action=SPLIT_REQUEST_WINDOW": "Airbyte's engine runs it",
    "AuthFlow": PASSED_ON,
    "OAuthConfigSpecification": PASSED_ON,
    "StreamGroup": NO_EFFECT,
    "BlockSimultaneousSyncsAction": NO_EFFECT,
    "RequestBodyGraphQlQuery": "`value` of RequestBodyGraphQL is any mapping of templates",
    "CustomIncrementalSync (ours)": "manifests for CDKs before 7 have it",
}


def differences() -> Iterator[str]:
    theirs = read_extract()
    classes = {**TYPES, **INLINE}
    ours = classes.keys() | types_without_class() | WITHIN.keys()
    missing = theirs.keys() - ours
    yield from (name for name in sorted(missing) if name.rpartition(".")[0] not in missing)
    inline = {cls.__name__ for cls in INLINE.values()} | set(WITHIN.values())
    yield from (f"{name} (ours)" for name in sorted(ours - theirs.keys() - inline))
    for name in sorted(theirs.keys() & classes.keys()):
        yield from _differences_of_fields(name, classes[name], theirs[name])


def _differences_of_fields(
    name: str, cls: type[Component], theirs: Mapping[str, frozenset[str]]
) -> Iterator[str]:
    ours = fields(cls)
    yield from (f"{name}.{field}" for field in sorted(theirs.keys() - ours.keys()))
    yield from (f"{name}.{field} (ours)" for field in sorted(ours.keys() - theirs.keys()))
    for field in sorted(ours.keys() & theirs.keys()):
        shape = ours[field].shape
        texts = frozenset(shape.choices or (() if shape.item is None else shape.item.choices))
        yield from (f"{name}.{field}={text}" for text in sorted(theirs[field] - texts))
        yield from (f"{name}.{field}={text} (ours)" for text in sorted(texts - theirs[field]))


def test_the_components_are_those_of_the_cdk_with_the_differences_that_are_listed() -> None:
    assert sorted(differences()) == sorted(DIFFERENCES)


# --- what only Airbyte's engine runs ---------------------------------------------------------------


def change_retriever(**parts: Any) -> Json:
    changed = stream("refused")
    changed["retriever"] |= parts
    return changed


def set_extractor(**extractor: Any) -> Json:
    return change_retriever(record_selector={"type": "RecordSelector", "extractor": extractor})


def set_action(action: str) -> Json:
    filters = [{"type": "HttpResponseFilter", "http_codes": [502], "action": action}]
    handler = {"type": "DefaultErrorHandler", "response_filters": filters}
    return stream("refused", error_handler=handler)


ROUTER = "retriever.partition_router"
HANDLER = "retriever.requester.error_handler.response_filters[0].action"
PROPERTIES = {"type": "QueryProperties", "property_list": ["id"]}
STREAMS: Mapping[str, tuple[Json, str]] = {
    "CombinedExtractor": (
        set_extractor(type="CombinedExtractor", extractors=[]),
        "retriever.record_selector.extractor",
    ),
    "ConditionalStreams": (
        {"type": "ConditionalStreams", "condition": "{{ true }}", "streams": [GOOD]},
        "",
    ),
    "FileUploader": ({**stream("refused"), "file_uploader": {"requester": {}}}, "file_uploader"),
    "GroupingPartitionRouter": (
        change_retriever(partition_router={"type": "GroupingPartitionRouter", "group_size": 2}),
        ROUTER,
    ),
    "JsonItemsDecoder": (
        change_retriever(decoder={"type": "JsonItemsDecoder", "items_path": "a"}),
        "retriever.decoder",
    ),
    "JwtAuthenticator": (
        stream("refused", authenticator={"type": "JwtAuthenticator", "secret_key": "x"}),
        "retriever.requester.authenticator",
    ),
    "LegacySessionTokenAuthenticator": (
        stream("refused", authenticator={"type": "LegacySessionTokenAuthenticator"}),
        "retriever.requester.authenticator",
    ),
    "PaginationReset": (
        change_retriever(pagination_reset={"type": "PaginationReset", "action": "RESET"}),
        "retriever.pagination_reset",
    ),
    "PropertiesFromEndpoint": (
        stream("refused", fetch_properties_from_endpoint={"property_field_path": ["name"]}),
        "retriever.requester.fetch_properties_from_endpoint",
    ),
    "QueryProperties": (
        stream("refused", request_parameters={"fields": PROPERTIES}),
        "retriever.requester.request_parameters.fields",
    ),
    "RateLimitedMultipleTokenAuthenticator": (
        stream("refused", authenticator={"type": "RateLimitedMultipleTokenAuthenticator"}),
        "retriever.requester.authenticator",
    ),
    "RecordExpander": (
        set_extractor(
            type="DpathExtractor",
            field_path=["data"],
            record_expander={"expand_records_from_field": ["lines"]},
        ),
        "retriever.record_selector.extractor.record_expander",
    ),
    "StateDelegatingStream": (
        {
            "type": "StateDelegatingStream",
            "name": "refused",
            "full_refresh_stream": GOOD,
            "incremental_stream": GOOD,
        },
        "",
    ),
    "UnionPartitionRouter": (
        change_retriever(partition_router=[{"type": "UnionPartitionRouter"}]),
        f"{ROUTER}[0]",
    ),
    "ZipfileDecoder": (
        change_retriever(decoder={"type": "ZipfileDecoder", "decoder": {"type": "CsvDecoder"}}),
        "retriever.decoder",
    ),
    "`page_size_reduction` of SimpleRetriever": (
        change_retriever(page_size_reduction={"type": "PageSizeReduction"}),
        "retriever.page_size_reduction",
    ),
    "`request_window_splitting` of SimpleRetriever": (
        change_retriever(request_window_splitting={"type": "RequestWindowSplitting"}),
        "retriever.request_window_splitting",
    ),
    "`use_profile_assertion` of OAuthAuthenticator": (
        stream(
            "refused", authenticator={"type": "OAuthAuthenticator", "use_profile_assertion": True}
        ),
        "retriever.requester.authenticator.use_profile_assertion",
    ),
    "REDUCE_PAGE_SIZE": (set_action("REDUCE_PAGE_SIZE"), HANDLER),
    "RESET_PAGINATION": (set_action("RESET_PAGINATION"), HANDLER),
    "SPLIT_REQUEST_WINDOW": (set_action("SPLIT_REQUEST_WINDOW"), HANDLER),
}
"""A stream with each of them, and the place in the stream that the reason names."""
RESOLVERS = ("ConfigComponentsResolver", "ParametrizedComponentsResolver")


def elsewhere(name: str) -> tuple[str, str]:
    """A manifest with a component that stands outside of streams, and its place."""
    if name in RESOLVERS:
        dynamic = {"stream_template": GOOD, "components_resolver": {"type": name}}
        return manifest(GOOD, dynamic_streams=[dynamic]), "dynamic_streams[0].components_resolver"
    rules = {"transformations": [{"type": name, "map": {}, "field_path": ["a"]}]}
    spec = {"connection_specification": {}, "config_normalization_rules": rules}
    return manifest(GOOD, spec=spec), "spec.config_normalization_rules.transformations[0]"


def whole(name: str) -> tuple[str, str]:
    """A manifest with a component, and the place of it."""
    if name not in STREAMS:
        return elsewhere(name)
    refused, place = STREAMS[name]
    return manifest(GOOD, refused), ".".join(filter(None, ("streams[1]", place)))


NAMES = [*STREAMS, *RESOLVERS, "ConfigRemapField"]


def test_each_component_without_a_class_is_tried() -> None:
    others = {name for name in types_without_class() if not name.startswith("Custom")}
    assert others == {name for name in NAMES if name.isalpha()}


@pytest.mark.parametrize("name", NAMES)
def test_what_hardly_any_manifest_has_is_for_the_engine_of_airbyte_and_the_reason_says_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program that starts this one installs that engine, and tries again."""
    text, place = whole(name)
    file = tmp_path / "manifest.yaml"
    file.write_text(text)
    assert main(["--manifest", str(file), "spec"]) == NEEDS_AIRBYTE
    told = capsys.readouterr().err
    assert f"{place}: {name} is not supported by this engine, but by Airbyte's" in told
    refuse_for_all_engines(text, [])


@pytest.mark.parametrize("name", STREAMS)
def test_with_the_engine_of_this_project_it_refuses_the_stream_that_uses_it(name: str) -> None:
    loaded = load(whole(name)[0])
    assert [entry.name for entry in loaded.source.streams] == ["good"]
    error = find_refusal(loaded.refusals, "refused")
    assert error is not None and name in str(error) and "engine: airbyte" in str(error.guidance)


@pytest.mark.parametrize("name", ["QueryProperties", "StateDelegatingStream"])
def test_python_in_it_or_in_the_parameters_that_reach_it_must_be_trusted(name: str) -> None:
    refused = STREAMS[name][0] | {"$parameters": {"reader": {"class_name": "x.Inner"}}}
    text = manifest(GOOD, refused)
    with pytest.raises(ManifestError, match=r"the class 'x\.Inner' is Python; it runs only"):
        refuse_for_all_engines(text, [])
    refuse_for_all_engines(text, ["x"])
