"""Makes retrievers, requesters and authenticators of the components of a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial, singledispatch
from typing import Any

from connectors.declarative.cursors.slices import Slice
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.auth.oauth import OAuth
from connectors.declarative.requests.auth.tokens import (
    AUTHORIZATION,
    Absent,
    Credentials,
    Fixed,
    Place,
    Session,
    no_session_token,
)
from connectors.declarative.requests.decoding.decoders import decoder
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.expressions import text
from connectors.declarative.requests.jobs.building import build_job_retriever
from connectors.declarative.requests.options import HEADER
from connectors.declarative.requests.pages import Paginator
from connectors.declarative.requests.records import paths
from connectors.declarative.requests.records.selector import LoadSchema, Selector
from connectors.declarative.requests.requester import Requester
from connectors.declarative.requests.retriever import Retriever
from connectors.sdk.http.authenticators import basic, bearer
from connectors.sdk.http.client import is_ignored
from connectors.sdk.times import parse_duration
from elt_assets.errors import ConfigError, SystemFailure

_POSITION = frozenset({"place", "parameters"})


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
        ConfigError: a component contradicts itself.
    """
    decodes = decoder(component.decoder)
    selector = Selector(
        component.record_selector,
        environment.config,
        decodes,
        transformations=transformations,
        schema=schema,
        is_client_side=is_client_side,
    )
    if isinstance(component, components.AsyncRetriever):
        make = partial(build_requester, environment=environment)
        return build_job_retriever(component, environment, make, selector, name)
    return Retriever(
        name,
        build_requester(component.requester, environment, use_cache=use_cache),
        decodes,
        selector,
        Paginator(component.paginator, environment.config),
        ignores_slice_on_pages=component.ignore_stream_slicer_parameters_on_paginated_requests,
    )


def build_requester(
    component: components.HttpRequester, environment: Environment, *, use_cache: bool = False
) -> Requester:
    """Return the requester that a component describes.

    Raises:
        ConfigError: a component contradicts itself.
    """
    authenticator = component.authenticator
    key = _key(authenticator)
    credentials = environment.shared(key, lambda: build_credentials(authenticator, environment))
    return Requester(component, environment, credentials, key, uses_cache=use_cache)


@singledispatch
def build_credentials(component: Any, _environment: Environment) -> Credentials:
    """Return the credentials that a component describes; None stands for no authentication.

    Args:
        component: an authenticator.
        environment: what the requesters of the source share.

    Raises:
        ConfigError: the authenticator lacks something.
    """
    if component is None or isinstance(component, components.NoAuth):
        return Absent()
    raise TypeError(component)


@build_credentials.register
def _(component: components.BearerAuthenticator, environment: Environment) -> Credentials:
    token = text(component.api_token, {"config": environment.config})
    return Fixed(bearer(token), secrets=[token])


@build_credentials.register
def _(component: components.BasicHttpAuthenticator, environment: Environment) -> Credentials:
    variables = {"config": environment.config}
    user, password = text(component.username, variables), text(component.password, variables)
    # A key stands in the place of the user where there is no password.
    return Fixed(basic(user, password), secrets=[password or user])


@build_credentials.register
def _(component: components.ApiKeyAuthenticator, environment: Environment) -> Credentials:
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
def _(component: components.OAuthAuthenticator, environment: Environment) -> Credentials:
    return OAuth(component, environment)


@build_credentials.register
def _(component: components.SessionTokenAuthenticator, environment: Environment) -> Credentials:
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
def _(component: components.SelectiveAuthenticator, environment: Environment) -> Credentials:
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
    return build_credentials(component.authenticators[str(value)], environment)


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
