"""Session tokens, which a login returns, and signed tokens (JWT), which are made here.

Spec: SessionTokenAuthenticator, LegacySessionTokenAuthenticator, JwtAuthenticator.
"""

from __future__ import annotations

import base64
import importlib
import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from connectors.declarative.manifest import clock, components
from connectors.declarative.manifest.template import Template, value
from connectors.declarative.requests.auth.tokens import (
    AUTHORIZATION,
    Fetched,
    Place,
    Renewable,
)
from connectors.declarative.requests.decoding.json_body import json_body
from connectors.declarative.requests.expressions import text
from connectors.declarative.requests.options import HEADER
from connectors.sdk.http.authenticators import CredentialsRequest, Send
from connectors.sdk.http.failures import place as place_of
from connectors.sdk.http.messages import Response
from elt_assets.errors import ConfigError, SystemFailure

Login = Callable[[], str]
"""Logs in, and returns the session token."""

_RESERVED_HEADERS = frozenset({"kid", "alg", "typ", "cty"})
_RESERVED_CLAIMS = frozenset({"iss", "sub", "aud", "iat", "exp", "nbf"})


class Session(Renewable):
    """Credentials with a session token. The login is repeated when the token expires or is refused.

    Args:
        login: returns a new token.
        seconds: the life of a token; infinite if it is not known.
        template: the text that a request gets, with the variable `session_token`; None for a bearer token.
        place: the place in a request.
        config: the config of the source.
    """

    def __init__(
        self,
        login: Login,
        seconds: float,
        template: Template | None,
        place: Place,
        config: Mapping[str, Any],
    ):
        super().__init__()
        self.place = place
        self._login = login
        self._seconds = seconds
        self._template = template
        self._config = config

    def fetch(self, send: Send) -> Fetched:
        return Fetched(self._login(), self._seconds)

    def shown(self, token: str) -> str:
        if self._template is None:
            return super().shown(token)
        return self._template.text_of({"config": self._config, "session_token": token})


class LegacySession(Renewable):
    """Credentials with the session token of the config, or with one that user name and password get.

    Args:
        component: a LegacySessionTokenAuthenticator.
        url_base: the URL to which the path of the login is appended.
        config: the config of the source.
    """

    def __init__(
        self,
        component: components.LegacySessionTokenAuthenticator,
        url_base: str,
        config: Mapping[str, Any],
    ):
        super().__init__()
        variables = {"config": config}
        self.place = Place(HEADER, (text(component.header, variables),))
        self._url = url_base + text(component.login_url, variables)
        self._key = text(component.session_token_response_key, variables)
        self._user = text(component.username, variables)
        self._password = text(component.password, variables)
        token = text(component.session_token, variables)
        if token:
            self.keep(token, float("inf"))

    def fetch(self, send: Send) -> Fetched:
        if not self._user or not self._password:
            raise ConfigError(
                "the session token is refused, and there is no user name and password for a new one",
                guidance="replace the session token in the config, or add user name and password",
            )
        response = send(
            CredentialsRequest(
                self._url,
                json={"username": self._user, "password": self._password},
                secrets=[self._password],
            )
        )
        answer = json_body(response)
        token = answer.get(self._key) if isinstance(answer, dict) else None
        if not token:
            raise no_session_token(response, self._key)
        return Fetched(str(token), float("inf"))

    def shown(self, token: str) -> str:
        return token


class SignedToken(Renewable):
    """Credentials with a JSON web token. One token is used until nine tenths of its life are over.

    Args:
        component: a JwtAuthenticator.
        config: the config of the source.
        place: the place in a request.

    Raises:
        ConfigError: the component sets a reserved header or claim.
    """

    renewed_statuses = ()

    def __init__(
        self,
        component: components.JwtAuthenticator,
        config: Mapping[str, Any],
        place: Place = AUTHORIZATION,
    ):
        super().__init__()
        self.place = place
        self._component = component
        self._variables = {"config": config, "json_loads": json.loads}
        _check_reserved(component.additional_jwt_headers, _RESERVED_HEADERS, component.place)
        _check_reserved(component.additional_jwt_payload, _RESERVED_CLAIMS, component.place)

    def fetch(self, send: Send) -> Fetched:
        return Fetched(self.sign(), float(self._component.token_duration or 0))

    def shown(self, token: str) -> str:
        prefix = self._text(self._component.header_prefix)
        return f"{prefix} {token}" if prefix else token

    def sign(self) -> str:
        """Return a new token.

        Raises:
            ConfigError: the key does not fit the algorithm.
        """
        library: Any = importlib.import_module("jwt")  # few manifests need it
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it is the API that issues short keys
                return str(
                    library.encode(
                        self._claims(),
                        self._key(),
                        algorithm=self._component.algorithm,
                        headers=self._headers(),
                    )
                )
        except (ValueError, TypeError, NotImplementedError, library.PyJWTError) as error:
            raise ConfigError(
                f"{self._component.place}: no token can be signed with {self._component.algorithm}: "
                f"{type(error).__name__}",
                guidance="check that the key in the config is complete, with its line breaks, and of the "
                "kind that the algorithm needs",
            ) from None

    def _headers(self) -> dict[str, Any]:
        headers = self._component.jwt_headers
        header_values = self._map(self._component.additional_jwt_headers)
        if headers is None:
            return {**header_values, "typ": "JWT"}
        named = {"kid": headers.kid, "typ": headers.typ, "cty": headers.cty}
        return {**header_values, **self._values(named)}

    def _claims(self) -> dict[str, Any]:
        seconds = int(clock.now().timestamp())
        claims = self._map(self._component.additional_jwt_payload)
        payload = self._component.jwt_payload
        if payload is not None:
            claims |= self._values({"iss": payload.iss, "sub": payload.sub, "aud": payload.aud})
        return {
            **claims,
            "iat": seconds,
            "exp": seconds + (self._component.token_duration or 0),
            "nbf": seconds,
        }

    def _values(self, named: Mapping[str, Template | None]) -> dict[str, Any]:
        return {
            name: template.evaluate(self._variables, (str, list))
            for name, template in named.items()
            if template is not None and template.text
        }

    def _key(self) -> Any:
        secret = self._text(self._component.secret_key)
        passphrase = self._text(self._component.passphrase)
        if passphrase:
            keys: Any = importlib.import_module("cryptography.hazmat.primitives.serialization")
            return keys.load_pem_private_key(secret.encode(), password=passphrase.encode())
        encodes = self._component.base64_encode_secret_key
        if isinstance(encodes, Template):
            encodes = encodes.is_true(self._variables)
        return base64.b64encode(secret.encode()).decode() if encodes else secret

    def _map(self, template: Any) -> dict[str, Any]:
        return dict(value(template, self._variables)) if template is not None else {}

    def _text(self, template: Template | None) -> str:
        return text(template, self._variables)


def no_session_token(response: Response, name: str) -> SystemFailure:
    """Return the error for a response to a login that has no session token."""
    return SystemFailure(
        f"the response of {place_of(response.request)} has no session token at {name!r}",
        guidance="check user name and password in the config, and the path of the token in the manifest",
    )


def _check_reserved(keys: Any, reserved: frozenset[str], place: str) -> None:
    used = reserved & set(keys or ())
    if used:
        raise ConfigError(
            f"{place}: {', '.join(sorted(used))} cannot be set as an additional header or claim",
            guidance="use `jwt_headers` and `jwt_payload`",
        )
