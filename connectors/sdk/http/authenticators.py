"""Authenticators: they add the credentials to a request, and renew them if a response refuses them.

An authenticator that needs requests of its own, such as one for a token, sends them with the function that it
is given. It so uses the connections and the retries of the client, and needs no network code.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from connectors.sdk.http.failures import hide


@dataclass(frozen=True)
class CredentialsRequest:
    """A request by which an authenticator gets credentials. It carries only what is written here.

    Attributes:
        url: the absolute URL.
        method: the method.
        form: the fields of the body, as a form.
        json: the body as JSON; for a request without a form.
        headers: the headers.
        secrets: the texts that no error message may contain.
        accepted_statuses: the statuses, besides those of success, of a response that is returned and not an
            error. 401 and 403 are usual, so that the authenticator can say what was refused.
    """

    url: str
    method: str = "POST"
    form: Mapping[str, str] | None = None
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    accepted_statuses: Collection[int] = ()


Send = Callable[[CredentialsRequest], httpx.Response]
"""Sends a request for credentials. It raises EltError if there is no response of an accepted status."""


class Authenticator(ABC):
    """The base class of authenticators. One object serves all threads.

    Attributes:
        renewed_statuses: the statuses after which `renew` is called.
    """

    renewed_statuses: Collection[int] = ()

    @abstractmethod
    def authenticate(self, request: httpx.Request, send: Send) -> None:
        """Add the credentials to a request; it is sent to an origin that may get them.

        Raises:
            EltError: there are no credentials.
        """

    def renew(self, request: httpx.Request, send: Send) -> bool:
        """Renew the credentials, unless that has happened since the request got its own, and return whether
        to repeat the request. It is called at most once for a request.

        Args:
            request: the request that was refused.
            send: sends a request for credentials.

        Raises:
            EltError: there are no new credentials.
        """
        del request, send
        return False


class ApiKey(Authenticator):
    """Authentication by a key in a header, or in a parameter of the query.

    Args:
        key: the key.
        header: the name of the header.
        parameter: the name of the parameter of the query; None for a header.
        prefix: a text before the key, such as "Token ".
    """

    def __init__(
        self,
        key: str,
        *,
        header: str = "X-API-Key",
        parameter: str | None = None,
        prefix: str = "",
    ):
        self._key = key
        self._header = header
        self._parameter = parameter
        self._prefix = prefix

    def authenticate(self, request: httpx.Request, send: Send) -> None:
        del send
        value = self._prefix + self._key
        if self._parameter is None:
            set_header(request, self._header, value, secrets=[self._key])
        else:
            hide(request, [self._key])
            request.url = request.url.copy_set_param(self._parameter, value)


class Basic(Authenticator):
    """Authentication by user and password (RFC 7617). Many APIs take a key as the user."""

    def __init__(self, username: str, password: str = ""):
        self._username = username
        self._password = password

    def authenticate(self, request: httpx.Request, send: Send) -> None:
        del send
        value = basic(self._username, self._password)
        # A key stands in the place of the user where there is no password.
        secret = self._password or self._username
        set_header(request, "Authorization", value, secrets=[secret])


class Bearer(Authenticator):
    """Authentication by a token (RFC 6750) that the config has. `connectors.sdk.http.oauth` gets tokens."""

    def __init__(self, token: str):
        self._token = token

    def authenticate(self, request: httpx.Request, send: Send) -> None:
        del send
        set_header(request, "Authorization", bearer(self._token), secrets=[self._token])


def set_header(
    request: httpx.Request, name: str, value: str, *, secrets: Sequence[str] = ()
) -> None:
    """Set a header of a request, and leave out its value and the secrets in it from all messages."""
    hide(request, [value, *secrets])
    request.headers.encoding = "utf-8"
    request.headers[name] = value


def basic(username: str, password: str) -> str:
    """Return the value of the header for user and password."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def bearer(token: str) -> str:
    """Return the value of the header for a token."""
    return f"Bearer {token}"
