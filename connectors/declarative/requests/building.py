"""Makes retrievers, requesters and authenticators of the components of a manifest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial, singledispatch
from typing import Any

from connectors.declarative import paths
from connectors.declarative.cursors.slices import Slice, place_of
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.decoding.decoders import decoder
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.expressions import read_seconds, text
from connectors.declarative.requests.jobs.building import build_job_retriever
from connectors.declarative.requests.oauth import OAuth
from connectors.declarative.requests.pages import Paginator
from connectors.declarative.requests.records.selector import LoadSchema, Selector
from connectors.declarative.requests.requester import Requester
from connectors.declarative.requests.retriever import Retriever
from connectors.sdk.http import Authenticator, Basic, Bearer
from connectors.sdk.http.authenticators import (
    FixedCredentials,
    Send,
    Token,
    TokenAuthenticator,
    bearer,
)
from connectors.sdk.http.client import is_ignored
from connectors.sdk.http.failures import place as name_request
from connectors.sdk.http.places import AUTHORIZATION, Place
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
def build_credentials(component: Any, _environment: Environment) -> Authenticator:
    """Return the credentials that a component describes; None stands for no authentication.

    Args:
        component: an authenticator.
        environment: what the requesters of the source share.

    Raises:
        ConfigError: the authenticator lacks something.
    """
    if component is None or isinstance(component, components.NoAuth):
        return FixedCredentials("", None)
    raise TypeError(component)


@build_credentials.register
def _(component: components.BearerAuthenticator, environment: Environment) -> Authenticator:
    return Bearer(text(component.api_token, {"config": environment.config}))


@build_credentials.register
def _(component: components.BasicHttpAuthenticator, environment: Environment) -> Authenticator:
    variables = {"config": environment.config}
    return Basic(text(component.username, variables), text(component.password, variables))


@build_credentials.register
def _(component: components.ApiKeyAuthenticator, environment: Environment) -> Authenticator:
    variables = {"config": environment.config}
    if component.header is None and component.inject_into is not None:
        place = place_of(component.inject_into, environment.config)
    elif component.header is not None and component.inject_into is None:
        place = Place("headers", (text(component.header, variables),))
    else:
        raise ConfigError(
            f"{component.place} needs either `inject_into` or the older `header`",
            guidance="write `inject_into`",
        )
    value = text(component.api_token, variables)
    return FixedCredentials(value, place, secrets=[value.rpartition(" ")[2]])


@build_credentials.register
def _(component: components.OAuthAuthenticator, environment: Environment) -> Authenticator:
    return OAuth(component, environment)


class SessionToken(TokenAuthenticator):
    """Credentials with a session token. The login is repeated when the token expires or is refused.

    Args:
        component: the component.
        environment: what the requesters of the source share.
    """

    def __init__(self, component: components.SessionTokenAuthenticator, environment: Environment):
        self._component = component
        self._config = environment.config
        self._requester = build_requester(component.login_requester, environment)
        self._decoder = decoder(component.decoder)
        life = component.expiration_duration
        life_place = f"{component.place}.expiration_duration"
        self._seconds = read_seconds(life, life_place, may_be_zero=True) if life else math.inf
        self._template: Template | None = None
        place, authentication = AUTHORIZATION, component.request_authentication
        if isinstance(authentication, components.SessionTokenRequestApiKeyAuthenticator):
            self._template = authentication.api_token
            place = place_of(authentication.inject_into, environment.config)
        super().__init__(place)

    def fetch(self, send: Send) -> Token:
        del send  # the manifest describes the whole request
        path, place = self._component.session_token_path, self._component.place
        response = self._requester.for_slice(Slice().variables()).send()
        if is_ignored(response):
            raise SystemFailure(
                "the response to the login is ignored",
                guidance=f"correct the error handler of {place}.login_requester",
            )
        token = paths.value_at(self._decoder.shown(response), path)
        if not isinstance(token, str | int) or token == "":
            raise SystemFailure(
                f"the response of {name_request(response.request)} has no session token at "
                f"{'.'.join(path)!r}",
                guidance="check user name and password in the config, and the path of the token in the "
                "manifest",
            )
        return Token(str(token), self._seconds)

    def write(self, token: str) -> str:
        if self._template is None:
            return bearer(token)
        return self._template.text_of({"config": self._config, "session_token": token})


@build_credentials.register
def _(component: components.SessionTokenAuthenticator, environment: Environment) -> Authenticator:
    return SessionToken(component, environment)


@build_credentials.register
def _(component: components.SelectiveAuthenticator, environment: Environment) -> Authenticator:
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
