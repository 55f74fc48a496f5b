"""The components are those of the component schema that airbyte-cdk 7.39.1 has, with the differences below.

What a manifest may have and this engine does not know is a difference here, so that it is refused, or left
out for a reason, and never only a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from connectors.declarative.manifest import components
from connectors.declarative.manifest.components import Component, Unsupported
from connectors.declarative.manifest.loader import find_refusal, load
from connectors.declarative.manifest.shapes import TYPES, choices, item, shape
from tests.connectors.declarative.manifest.component_schema import read_extract
from tests.connectors.declarative.test_refused_streams import GOOD, manifest, stream

INLINE: Mapping[str, type[Component]] = {
    "DatetimeBasedCursor.clamping": components.Clamping,
    "DeclarativeStream.file_uploader": components.FileUploader,
    "JwtAuthenticator.jwt_headers": components.JwtHeaders,
    "JwtAuthenticator.jwt_payload": components.JwtPayload,
    "OAuthAuthenticator.refresh_token_updater": components.RefreshTokenUpdater,
    "Spec.config_normalization_rules": components.ConfigNormalizationRules,
}
"""The types that the schema defines in a field."""
REFUSED = "the streams that use it are refused"
PASSED_ON = "it is passed on to the platform as it is"
NO_EFFECT = "the field that has it is without effect"
DIFFERENCES: Mapping[str, str] = {
    "PageSizeReduction": REFUSED,
    "RequestWindowSplitting": REFUSED,
    "SimpleRetriever.page_size_reduction (refused)": REFUSED,
    "SimpleRetriever.request_window_splitting (refused)": REFUSED,
    "HttpResponseFilter.action=REDUCE_PAGE_SIZE": REFUSED,
    "HttpResponseFilter.action=SPLIT_REQUEST_WINDOW": REFUSED,
    "RateLimitedMultipleTokenAuthenticator (refused)": REFUSED,
    "TokenQuota": "it stands in a RateLimitedMultipleTokenAuthenticator only",
    "QuotaStatusSource": "it stands in a RateLimitedMultipleTokenAuthenticator only",
    "AuthFlow": PASSED_ON,
    "OAuthConfigSpecification": PASSED_ON,
    "StreamGroup": NO_EFFECT,
    "BlockSimultaneousSyncsAction": NO_EFFECT,
    "RequestBodyGraphQlQuery": "`value` of RequestBodyGraphQL is any mapping of templates",
    "CustomIncrementalSync (ours)": "manifests for CDKs before 7 have it",
    "CustomPartitionRouter.parent_stream_configs (ours)": "manifests give it to the class",
}


def differences() -> Iterator[str]:
    theirs = read_extract()
    classes = {**TYPES, **INLINE}
    missing = theirs.keys() - classes.keys()
    yield from (name for name in sorted(missing) if name.rpartition(".")[0] not in missing)
    inline = {cls.__name__ for cls in INLINE.values()}
    yield from (f"{name} (ours)" for name in sorted(TYPES.keys() - theirs.keys() - inline))
    for name in sorted(theirs.keys() & classes.keys()):
        if not classes[name].is_supported:
            yield f"{name} (refused)"
        else:
            yield from _differences_of_fields(name, classes[name], theirs[name])


def _differences_of_fields(
    name: str, cls: type[Component], theirs: Mapping[str, frozenset[str]]
) -> Iterator[str]:
    ours = shape(cls)
    yield from (f"{name}.{field}" for field in sorted(theirs.keys() - ours.keys()))
    yield from (f"{name}.{field} (ours)" for field in sorted(ours.keys() - theirs.keys()))
    for field in sorted(ours.keys() & theirs.keys()):
        hint = ours[field].type
        if hint is Unsupported:
            yield f"{name}.{field} (refused)"
        texts = frozenset(choices(hint) or choices(item(hint)))
        yield from (f"{name}.{field}={text}" for text in sorted(theirs[field] - texts))
        yield from (f"{name}.{field}={text} (ours)" for text in sorted(texts - theirs[field]))


def test_the_components_are_those_of_the_cdk_with_the_differences_that_are_listed() -> None:
    assert sorted(differences()) == sorted(DIFFERENCES)


def change_retriever(**fields: Any) -> dict[str, Any]:
    changed = stream("refused")
    changed["retriever"] |= fields
    return changed


def set_action(action: str) -> dict[str, Any]:
    filters = [{"type": "HttpResponseFilter", "http_codes": [502], "action": action}]
    handler = {"type": "DefaultErrorHandler", "response_filters": filters}
    return stream("refused", error_handler=handler)


@pytest.mark.parametrize(
    ("refused", "name"),
    [
        (
            change_retriever(page_size_reduction={"type": "PageSizeReduction"}),
            "page_size_reduction",
        ),
        (
            change_retriever(request_window_splitting={"type": "RequestWindowSplitting"}),
            "request_window_splitting",
        ),
        (set_action("REDUCE_PAGE_SIZE"), "REDUCE_PAGE_SIZE"),
        (set_action("SPLIT_REQUEST_WINDOW"), "SPLIT_REQUEST_WINDOW"),
        (
            stream("refused", authenticator={"type": "RateLimitedMultipleTokenAuthenticator"}),
            "RateLimitedMultipleTokenAuthenticator",
        ),
    ],
)
def test_what_this_engine_does_not_have_refuses_the_stream_that_uses_it(
    refused: dict[str, Any], name: str
) -> None:
    loaded = load(manifest(GOOD, refused))
    assert len(loaded.source.streams) == 1
    error = find_refusal(loaded.refusals, "refused")
    assert error is not None and name in str(error) and "engine: airbyte" in str(error.guidance)
