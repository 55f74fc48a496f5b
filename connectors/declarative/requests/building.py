"""Makes retrievers, requesters and authenticators of the components of a manifest."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial, singledispatch
from typing import Any

from connectors.declarative.cursors.slices import Slice
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.auth.oauth import OAuth
from connectors.declarative.requests.auth.session import (
    LegacySession,
    Session,
    SignedToken,
    no_session_token,
)
from connectors.declarative.requests.auth.tokens import (
    AUTHORIZATION,
    Absent,
    Credentials,
    Fixed,
    Place,
)
from connectors.declarative.requests.decoding.decoders import decoder
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.expressions import text
from connectors.declarative.requests.jobs.building import build_job_retriever
from connectors.declarative.requests.options import HEADER
from connectors.declarative.requests.pages.paginator import Paginator
from connectors.declarative.requests.properties import Properties
from connectors.declarative.requests.records import paths
from connectors.declarative.requests.records.selector import LoadSchema, Selector
from connectors.declarative.requests.requester import Requester, before_first_use
from connectors.declarative.requests.retriever import Retriever
from connectors.sdk.durations import parse_duration
from connectors.sdk.http.authenticators import basic, bearer
from connectors.sdk.http.client import is_ignored
from connectors.sdk.items import Record
from elt_assets.errors import ConfigError, SystemFailure

_POSITION = frozenset({"place", "parameters"})
_APPENDS_PATHS = "LegacySessionTokenAuthenticator"
"""Part of the key of an authenticator that depends on the URL of its requester."""


def build_retriever(
    component: Any,
    environment: Environment,
    *,
    name: str = "",
    transformations: Sequence[Any] = (),
    schema: LoadSchema | None = None,
    is_client_side: bool = False,
    use_cache: bool = False,
) -> Retriever:
    """Return the retriever that a component describes.

    Args:
        component: a SimpleRetriever or an AsyncRetriever.
        environment: what the requesters of the source share.
        name: the name of the stream.
        transformations: the components that transform the records of the stream.
        schema: returns the JSON schema of the stream, for schema normalization.
        is_client_side: whether the records are filtered by their cursor values.
        use_cache: whether responses are kept, unless the requester says it.

    Raises:
        ConfigError: a component is not supported, or contradicts itself.
    """
    if not isinstance(component, components.SimpleRetriever | components.AsyncRetriever):
        raise ConfigError(
            f"{getattr(component, 'place', 'the retriever')}: {type(component).__name__} is not supported",
            guidance="use SimpleRetriever or AsyncRetriever",
        )
    decodes = decoder(component.decoder)

    def retrieve(template: Any) -> Callable[[Record], Iterator[Record]]:
        retriever = build_retriever(template, environment, name=name)
        return lambda record: itertools.chain.from_iterable(
            retriever.pages(Slice({"parent_record": record}))
        )

    selector = Selector(
        component.record_selector,
        environment.config,
        decodes,
        transformations=transformations,
        schema=schema,
        is_client_side=is_client_side,
        retrieve=retrieve,
    )
    if isinstance(component, components.AsyncRetriever):
        make = partial(build_requester, environment=environment)
        return build_job_retriever(component, environment, make, selector, name)
    _check_reset(component)
    _check_offset(component)
    sends = build_requester(component.requester, environment, use_cache=use_cache)
    return Retriever(
        name,
        sends,
        decodes,
        selector,
        Paginator(component.paginator, environment.config),
        _properties(sends, environment, name),
        ignores_slice_on_pages=component.ignore_stream_slicer_parameters_on_paginated_requests,
    )


def build_requester(
    component: Any, environment: Environment, *, use_cache: bool = False
) -> Requester:
    """Return the requester that a component describes.

    Raises:
        ConfigError: a component is not supported, or contradicts itself.
    """
    authenticator = getattr(component, "authenticator", None)
    url = getattr(component, "url", None) or getattr(component, "url_base", None)
    key = _key(authenticator)
    if _APPENDS_PATHS in key:
        key += str(url)
    credentials = environment.shared(
        key, lambda: build_credentials(authenticator, environment, url)
    )
    return Requester(component, environment, credentials, key, uses_cache=use_cache)


def _check_reset(component: components.SimpleRetriever) -> None:
    reset = component.pagination_reset
    if reset is not None and (reset.action != "RESET" or reset.limits is not None):
        raise ConfigError(
            f"{reset.place}: only the action RESET without limits is supported",
            guidance="split the slices with `step` of the cursor",
        )


def _check_offset(component: components.SimpleRetriever) -> None:
    """Check that the records of a page are as many as the API counts for an offset.

    Raises:
        ConfigError: they are those of several lists together.
    """
    strategy = getattr(component.paginator, "pagination_strategy", None)
    extractor = component.record_selector.extractor
    if isinstance(strategy, components.OffsetIncrement) and _is_union(extractor):
        raise ConfigError(
            f"{extractor.place}: an OffsetIncrement cannot count the records of a union",
            guidance="use `mode: first_match`, or another pagination strategy",
        )


def _is_union(extractor: Any) -> bool:
    return isinstance(extractor, components.CombinedExtractor) and (
        extractor.mode == "union" or any(map(_is_union, extractor.extractors))
    )


def _properties(sends: Requester, environment: Environment, name: str) -> Properties | None:
    component = sends.query_properties
    if component is None:
        return None
    listed = component.property_list
    fetch = None
    if isinstance(listed, components.PropertiesFromEndpoint):
        source = build_retriever(listed.retriever, environment, name=name, use_cache=True)
        path = [part.text_of({"config": environment.config}) for part in listed.property_field_path]

        def fetch() -> list[str]:
            records = itertools.chain.from_iterable(source.pages(Slice()))
            return [str(paths.value_at(record, path, [])) for record in records]

    return Properties(component, fetch, lambda: environment.selected(name), environment.config)


@singledispatch
def build_credentials(
    component: Any, _environment: Environment, _url: Template | None
) -> Credentials:
    """Return the credentials that a component describes; None stands for no authentication.

    Args:
        component: an authenticator.
        environment: what the requesters of the source share.
        url: the URL of the requester, to which an old authenticator appends its paths.

    Raises:
        ConfigError: the authenticator is not supported, or lacks something.
    """
    if component is None:
        return Absent()
    raise ConfigError(
        f"{getattr(component, 'place', 'the authenticator')}: {type(component).__name__} is not supported",
        guidance="use another authenticator, such as BearerAuthenticator or OAuthAuthenticator",
    )


@build_credentials.register
def _(
    _component: components.NoAuth, _environment: Environment, _url: Template | None
) -> Credentials:
    return Absent()


@build_credentials.register
def _(
    component: components.BearerAuthenticator, environment: Environment, _url: Template | None
) -> Credentials:
    token = text(component.api_token, {"config": environment.config})
    return Fixed(bearer(token), secrets=[token])


@build_credentials.register
def _(
    component: components.BasicHttpAuthenticator, environment: Environment, _url: Template | None
) -> Credentials:
    variables = {"config": environment.config}
    user, password = text(component.username, variables), text(component.password, variables)
    # A key stands in the place of the user where there is no password.
    return Fixed(basic(user, password), secrets=[password or user])


@build_credentials.register
def _(
    component: components.ApiKeyAuthenticator, environment: Environment, _url: Template | None
) -> Credentials:
    if (component.header is None) == (component.inject_into is None):
        raise ConfigError(
            f"{component.place} needs either `inject_into` or the older `header`",
            guidance="write `inject_into`",
        )
    place = _place(component.inject_into, environment)
    if component.header is not None:
        place = Place(HEADER, (text(component.header, {"config": environment.config}),))
    value = text(component.api_token, {"config": environment.config})
    return Fixed(value, place, secrets=[value, value.rpartition(" ")[2]])


@build_credentials.register
def _(
    component: components.OAuthAuthenticator, environment: Environment, _url: Template | None
) -> Credentials:
    uses = component.use_profile_assertion
    if isinstance(uses, Template):
        uses = uses.is_true({"config": environment.config})
    if not uses:
        return OAuth(component, environment)
    if component.profile_assertion is None:
        raise ConfigError(
            f"{component.place} has no `profile_assertion`", guidance="add a JwtAuthenticator"
        )
    signed = SignedToken(component.profile_assertion, environment.config)
    return OAuth(component, environment, lambda: signed.shown(signed.sign()))


@build_credentials.register
def _(
    component: components.JwtAuthenticator, environment: Environment, _url: Template | None
) -> Credentials:
    return SignedToken(component, environment.config, _place(component.request_option, environment))


@build_credentials.register
def _(
    component: components.SessionTokenAuthenticator, environment: Environment, _url: Template | None
) -> Credentials:
    sends = build_requester(component.login_requester, environment)
    decodes = decoder(component.decoder)
    path = component.session_token_path

    def login() -> str:
        response = sends.for_slice(Slice().variables()).send()
        if is_ignored(response):
            raise SystemFailure(
                "the response to the login is ignored",
                guidance=f"correct the error handler of {component.place}.login_requester",
            )
        token = paths.value_at(decodes.shown(response), path)
        if not isinstance(token, str | int) or token == "":
            raise no_session_token(response, ".".join(path))
        return str(token)

    authentication = component.request_authentication
    place, template = AUTHORIZATION, None
    if isinstance(authentication, components.SessionTokenRequestApiKeyAuthenticator):
        place, template = _place(authentication.inject_into, environment), authentication.api_token
    return Session(login, _seconds(component), template, place, environment.config)


@build_credentials.register
def _(
    component: components.LegacySessionTokenAuthenticator,
    environment: Environment,
    url: Template | None,
) -> Credentials:
    return LegacySession(component, text(url, before_first_use(environment)), environment.config)


@build_credentials.register
def _(
    component: components.SelectiveAuthenticator, environment: Environment, url: Template | None
) -> Credentials:
    path = component.authenticator_selection_path
    value = paths.value_at_names(environment.config, path)
    if value is paths.MISSING:
        raise ConfigError(
            f"the config has no {'.'.join(path)!r}, which selects the authentication",
            guidance=f"set it to one of {', '.join(map(repr, component.authenticators))}",
        )
    if str(value) not in component.authenticators:
        raise ConfigError(
            f"{'.'.join(path)!r} of the config names no authentication of the manifest",
            guidance=f"set it to one of {', '.join(map(repr, component.authenticators))}",
        )
    return build_credentials(component.authenticators[str(value)], environment, url)


def _place(component: components.RequestOption | None, environment: Environment) -> Place:
    if component is None:
        return AUTHORIZATION
    variables = {"config": environment.config}
    path = component.field_path or (component.field_name,)
    return Place(component.inject_into, tuple(text(part, variables) for part in path))


def _seconds(component: components.SessionTokenAuthenticator) -> float:
    if not component.expiration_duration:
        return float("inf")
    try:
        duration = parse_duration(component.expiration_duration)
    except ValueError:
        duration = None
    if not isinstance(duration, timedelta):
        raise ConfigError(
            f"{component.place}.expiration_duration is not a duration with a fixed length",
            guidance="write a duration such as PT1H",
        )
    return duration.total_seconds()


def _key(component: Any) -> str:
    """Return a text that is equal for components that are written alike, wherever they stand."""
    if isinstance(component, components.Component):
        named = (name for name in component.__struct_fields__ if name not in _POSITION)
        inner = (f"{name}={_key(getattr(component, name))}" for name in named)
        return f"{type(component).__name__}({', '.join(inner)})"
    if isinstance(component, Template):
        uses = component.parameters if "parameters" in component.names else ""
        return f"{component.text!r}{uses}"
    if isinstance(component, Mapping):
        return f"{{{', '.join(f'{name!r}: {_key(inner)}' for name, inner in component.items())}}}"
    if isinstance(component, tuple | list):
        return f"[{', '.join(map(_key, component))}]"
    return repr(component)
