"""Authentication with access tokens that a token endpoint issues.

Spec: RFC 6749, sections 4.4 (client credentials), 6 (refresh token) and 5.2 (errors).
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import httpx

from connectors.sdk.http.authenticators import (
    CredentialsRequest,
    Send,
    Token,
    TokenAuthenticator,
    basic,
)
from connectors.sdk.http.body import decoded
from connectors.sdk.http.failures import excerpt, place
from connectors.sdk.saved_config import latest_secret, replace_secret
from elt_assets.errors import ConfigError, SystemFailure

REFUSED_STATUSES = (400, 401, 403)
"""Statuses by which a token endpoint refuses the credentials (RFC 6749, section 5.2)."""


class OAuth2(TokenAuthenticator):
    """The base class of authenticators with an access token.

    Args:
        token_url: the absolute URL of the token endpoint.
        client_id: the ID of the client.
        client_secret: the secret of the client; empty if it has none.
        scopes: the scopes to request.
        extra: further fields of the request for a token, such as `audience`.
        client_in: the part of the request for a token that has ID and secret: the body, or a header (Basic).
        clock: returns a time in seconds that never goes back.
    """

    def __init__(
        self,
        token_url: str,
        *,
        client_id: str,
        client_secret: str = "",
        scopes: Sequence[str] = (),
        extra: Mapping[str, str] | None = None,
        client_in: Literal["body", "header"] = "body",
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(clock=clock)
        self._token_url = token_url
        self._client_id = client_id
        self._client_secret = client_secret
        self._extra = dict(extra or {})
        if scopes:
            self._extra["scope"] = " ".join(scopes)
        self._client_in = client_in

    @abstractmethod
    def grant(self) -> Mapping[str, str]:
        """Return the fields of the request for a token that name the grant."""

    def accept(self, answer: Mapping[str, Any]) -> None:
        """Take notice of the answer to a request for a token."""
        del answer

    def fetch(self, send: Send) -> Token:
        answer = _answer(send(self._request()))
        self.accept(answer)
        return Token(answer["access_token"], _seconds(answer.get("expires_in")))

    def _request(self) -> CredentialsRequest:
        form = {**self.grant(), **self._extra}
        headers = {"Accept": "application/json"}
        header = basic(self._client_id, self._client_secret)
        if self._client_in == "header":
            headers["Authorization"] = header
        else:
            form["client_id"] = self._client_id
            if self._client_secret:
                form["client_secret"] = self._client_secret
        secrets = [self._client_secret, header, form.get("refresh_token", "")]
        return CredentialsRequest(
            self._token_url,
            form=form,
            headers=headers,
            secrets=secrets,
            accepted_statuses=REFUSED_STATUSES,
        )


class OAuth2ClientCredentials(OAuth2):
    """Authentication of a client for itself. The arguments are those of `OAuth2`."""

    def grant(self) -> Mapping[str, str]:
        return {"grant_type": "client_credentials"}


class OAuth2RefreshToken(OAuth2):
    """Authentication for a user who has given the client a refresh token. If the endpoint issues another one
    with an access token, it is saved in the place that the config has the former one.

    Args:
        token_url: the absolute URL of the token endpoint.
        refresh_token: the refresh token of the config.
        **client: the other arguments of `OAuth2`.
    """

    def __init__(
        self,
        token_url: str,
        *,
        refresh_token: str,
        **client: Any,
    ):
        super().__init__(token_url, **client)
        self._refresh_token = refresh_token

    def grant(self) -> Mapping[str, str]:
        self._refresh_token = latest_secret(self._refresh_token)
        return {"grant_type": "refresh_token", "refresh_token": self._refresh_token}

    def accept(self, answer: Mapping[str, Any]) -> None:
        issued = answer.get("refresh_token")
        if isinstance(issued, str) and issued and issued != self._refresh_token:
            replace_secret(self._refresh_token, issued)
            self._refresh_token = issued


def _answer(response: httpx.Response) -> dict[str, Any]:
    """Return the answer of a token endpoint, which has an access token.

    Raises:
        ConfigError: the endpoint refuses the credentials.
        SystemFailure: the answer has no access token.
    """
    if response.status_code in REFUSED_STATUSES:
        raise refusal(response)
    answer = decoded(response)
    if isinstance(answer, dict) and isinstance(answer.get("access_token"), str):
        return answer
    if isinstance(answer, dict) and answer.get("error"):
        raise refusal(response)
    guidance = "check that the URL is that of the API's token endpoint"
    raise describe_missing_token(response, answer, "access_token", guidance)


def describe_missing_token(
    response: httpx.Response, answer: Any, name: str, guidance: str
) -> SystemFailure:
    """Return the error for the answer of a token endpoint that has no token at a name."""
    # The answer is not quoted: it may contain a token by another name.
    names = ", ".join(map(repr, answer)) if isinstance(answer, dict) else type(answer).__name__
    return SystemFailure(
        f"the answer of {place(response.request)} has no {name!r}; it has {names or 'no fields'}",
        guidance=guidance,
    )


def refusal(response: httpx.Response) -> ConfigError:
    """Return the error for a token endpoint that refuses the credentials."""
    return ConfigError(
        f"{place(response.request)} issued no access token ({response.status_code}): {excerpt(response)}",
        guidance="check the client ID and secret in the config; authorize the source again if its refresh "
        "token has expired or was revoked",
    )


def _seconds(lifetime: Any) -> float:
    """Return the life of a token; infinite if the endpoint does not say it, or says something else."""
    try:
        return float(lifetime)
    except (TypeError, ValueError):
        return float("inf")
