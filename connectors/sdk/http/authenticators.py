"""Authenticators: they add the credentials to a request, and renew them if a response refuses them.

An authenticator that needs requests of its own, such as one for a token, sends them with the function that it
is given. It so uses the connections and the retries of the client, and needs no network code.
"""

from __future__ import annotations

import base64
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx

from connectors.sdk.http.places import AUTHORIZATION, Place
from elt_assets.errors import ConfigError

MARGIN_SECONDS = 60.0
"""A token is replaced this long before it expires, or after nine tenths of a shorter life."""
SETTLE_SECONDS = 130.0
"""Time to wait for a request for a token: longer than the API may send nothing."""
_VALUE = "connectors.credentials"


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
        place: the place of the credentials in a request; None if there is not just one.
    """

    renewed_statuses: Collection[int] = ()
    place: Place | None = None

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

    def expire(self, request: httpx.Request) -> None:
        """Make the next request get new credentials, unless that has happened since this one got its own."""
        del request

    def settle(self) -> None:
        """Wait for a request for credentials that is under way, and prevent others until the process ends."""
        return


class FixedCredentials(Authenticator):
    """Credentials that the config has.

    Args:
        value: the value to put into each request; an empty one is not put.
        place: its place; None for no credentials.
        secrets: the secrets in it.
    """

    def __init__(
        self, value: str, place: Place | None = AUTHORIZATION, secrets: Sequence[str] = ()
    ):
        self.place = place
        self._value = value
        self._secrets = secrets

    def authenticate(self, request: httpx.Request, send: Send) -> None:
        del send
        if self.place is not None and self._value:
            self.place.put(request, self._value, self._secrets)


class ApiKey(FixedCredentials):
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
        place = Place("headers", (header,)) if parameter is None else Place("params", (parameter,))
        super().__init__(prefix + key, place, [key])


class Basic(FixedCredentials):
    """Authentication by user and password (RFC 7617). Many APIs take a key as the user."""

    def __init__(self, username: str, password: str = ""):
        # A key stands in the place of the user where there is no password.
        super().__init__(basic(username, password), secrets=[password or username])


class Bearer(FixedCredentials):
    """Authentication by a token (RFC 6750) that the config has. `connectors.sdk.http.oauth` gets tokens."""

    def __init__(self, token: str):
        super().__init__(bearer(token), secrets=[token])


class Token(NamedTuple):
    """A token that was fetched, and its life in seconds: infinite if it is not known."""

    value: str
    seconds: float = math.inf


class TokenAuthenticator(Authenticator):
    """The base class of authenticators with a token that is fetched: when it is first needed, when it is
    about to expire, and once for a request that is refused with status 401.

    A request for a token that is refused is not repeated: more of them might lock the account.

    Args:
        place: the place of the token in a request.
        clock: returns a time in seconds that never goes back.
    """

    renewed_statuses: Collection[int] = (401,)

    def __init__(
        self, place: Place = AUTHORIZATION, *, clock: Callable[[], float] = time.monotonic
    ):
        self.place: Place = place
        self._clock = clock
        self._lock = threading.RLock()
        self._token: str | None = None
        self._expires_at = 0.0
        self._refusal: ConfigError | None = None

    @abstractmethod
    def fetch(self, send: Send) -> Token:
        """Fetch a token.

        Raises:
            EltError: there is none; ConfigError if the credentials are refused.
        """

    def write(self, token: str) -> str:
        """Return the value that a request gets for a token."""
        return bearer(token)

    def keep(self, token: str, seconds: float) -> None:
        """Use a token with a remaining life in seconds that is known from elsewhere."""
        self._token, self._expires_at = token, self._clock() + seconds

    def authenticate(self, request: httpx.Request, send: Send) -> None:
        # Threads wait for each other here, so that only one of them fetches a token.
        with self._lock:
            if self._token is None or self._clock() >= self._expires_at:
                self._replace(send)
            token = str(self._token)
        value = self.write(token)
        self.place.put(request, value, [token])
        request.extensions[_VALUE] = value

    def renew(self, request: httpx.Request, send: Send) -> bool:
        with self._lock:
            if self._is_of(request):
                self._replace(send)
        return True

    def expire(self, request: httpx.Request) -> None:
        with self._lock:
            if self._is_of(request):
                self._expires_at = 0.0

    def settle(self) -> None:
        self._lock.acquire(timeout=SETTLE_SECONDS)  # and never released

    def _replace(self, send: Send) -> None:
        if self._refusal is not None:
            raise self._refusal
        began = self._clock()
        try:
            token, seconds = self.fetch(send)
        except ConfigError as error:
            self._refusal = error
            raise
        usable_seconds = max(seconds - MARGIN_SECONDS, 0.9 * seconds)
        self._token, self._expires_at = token, began + usable_seconds

    def _is_of(self, request: httpx.Request) -> bool:
        """Return whether a request has the present token."""
        if self._token is None:
            return True
        return bool(request.extensions.get(_VALUE) == self.write(self._token))


def basic(username: str, password: str) -> str:
    """Return the value of the header for user and password."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def bearer(token: str) -> str:
    """Return the value of the header for a token."""
    return f"Bearer {token}"
