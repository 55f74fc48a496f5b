"""Credentials: their places in a request, and tokens that are fetched, kept and renewed.

Spec: SessionTokenAuthenticator.
"""

from __future__ import annotations

import json
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.options import DATA, HEADER, JSON, PARAMETER
from connectors.sdk.encoding import encode
from connectors.sdk.http import Authenticator
from connectors.sdk.http.authenticators import Send, set_header
from connectors.sdk.http.failures import hide
from connectors.sdk.http.failures import place as place_of
from connectors.sdk.http.messages import URL, Request, Response
from connectors.sdk.http.oauth import usable_seconds
from elt_assets.errors import ConfigError, SystemFailure

_VALUE = "connectors.declarative.credentials"
"""Extension of a request that has the value which the request got."""
SETTLE_SECONDS = 130.0
"""Time to wait for a request for a token: longer than the API may send nothing."""
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Place:
    """A place in a request.

    Attributes:
        inject_into: the part of the request.
        path: the name of the field; several names for a field within others, in the JSON body.
    """

    inject_into: str
    path: tuple[str, ...]

    def put(self, request: Request, value: str, secrets: Sequence[str]) -> None:
        """Put a value there, and leave out the secrets from all messages."""
        name = self.path[-1]
        if self.inject_into == HEADER:
            set_header(request, name, value, secrets=secrets)
            return
        hide(request, [value, *secrets])
        if self.inject_into == PARAMETER:
            request.url = _with_parameter(request.url, name, value)
        elif self.inject_into == DATA:
            fields = [pair for pair in parse_qsl(_body(request)) if pair[0] != name]
            replace_body(request, urlencode([*fields, (name, value)]).encode(), FORM)
        elif self.inject_into == JSON:
            body = _json_body(request)
            node = body
            for part in self.path[:-1]:
                node = node.setdefault(part, {})
            node[name] = value
            replace_body(request, encode(body), "application/json")


AUTHORIZATION = Place(HEADER, ("Authorization",))


class Credentials(Authenticator):
    """The base class of the authenticators of manifests.

    Attributes:
        place: the place of the credentials in a request; None if there are none.
    """

    place: Place | None = AUTHORIZATION

    @abstractmethod
    def token(self, send: Send) -> tuple[str, Sequence[str]]:
        """Return the value to put into a request, and the secrets in it.

        Raises:
            EltError: there is no token.
        """

    def authenticate(self, request: Request, send: Send) -> None:
        if self.place is not None:
            value, secrets = self.token(send)
            if value:
                self.place.put(request, value, [secret for secret in secrets if secret])
                request.extensions[_VALUE] = value

    def expire(self, request: Request) -> None:
        """Make the next request get new credentials, unless that has happened since this one got its own."""
        del request

    def settle(self) -> None:
        """Wait for a request for a token that is under way, and prevent others, until the process ends."""


class Fixed(Credentials):
    """Credentials that the config has.

    Args:
        value: the value to put into each request.
        place: its place.
        secrets: the secrets in it.
    """

    def __init__(self, value: str, place: Place = AUTHORIZATION, secrets: Sequence[str] = ()):
        self.place = place
        self._value = value
        self._secrets = secrets or [value]

    def token(self, send: Send) -> tuple[str, Sequence[str]]:
        return self._value, self._secrets


class Absent(Credentials):
    """No credentials."""

    place = None

    def token(self, send: Send) -> tuple[str, Sequence[str]]:
        return "", ()


@dataclass(frozen=True)
class Fetched:
    """A token that was fetched.

    Attributes:
        value: the token.
        seconds: its life; infinite if it is not known.
    """

    value: str
    seconds: float


class Renewable(Credentials):
    """The base class of credentials with a token that is fetched. It is fetched when it is first needed, when
    it is about to expire, and once for a request that is refused with status 401."""

    renewed_statuses: Collection[int] = (401,)

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._token: str | None = None
        self._expires_at = 0.0
        self._refusal: ConfigError | None = None

    @abstractmethod
    def fetch(self, send: Send) -> Fetched:
        """Fetch a token.

        Raises:
            EltError: there is none.
        """

    def shown(self, token: str) -> str:
        """Return the value that a request gets for a token."""
        return f"Bearer {token}"

    def keep(self, token: str, expires_in: float) -> None:
        """Use a token that is known from elsewhere."""
        self._token, self._expires_at = token, time.monotonic() + expires_in

    def token(self, send: Send) -> tuple[str, Sequence[str]]:
        # Threads wait for each other here, so that only one of them fetches a token.
        with self._lock:
            if self._token is None or time.monotonic() >= self._expires_at:
                self._renew(send)
            token = str(self._token)
        return self.shown(token), [token]

    def renew(self, request: Request, send: Send) -> bool:
        with self._lock:
            if self._is_of(request):
                self._renew(send)
        return True

    def expire(self, request: Request) -> None:
        with self._lock:
            if self._is_of(request):
                self._expires_at = 0.0

    def settle(self) -> None:
        self._lock.acquire(timeout=SETTLE_SECONDS)  # and never released

    def _renew(self, send: Send) -> None:
        if self._refusal is not None:  # more attempts might lock the account
            raise self._refusal
        began = time.monotonic()
        try:
            token = self.fetch(send)
        except ConfigError as error:
            self._refusal = error
            raise
        self._token = token.value
        self._expires_at = began + usable_seconds(token.seconds)

    def _is_of(self, request: Request) -> bool:
        """Return whether a request has the present token."""
        if self._token is None:
            return True
        return bool(request.extensions.get(_VALUE) == self.shown(self._token))


def _with_parameter(url: URL, name: str, value: str) -> URL:
    """Return a URL with a parameter. The others stay as they are written, unless one is replaced."""
    if name in url.params:
        return url.copy_set_param(name, value)
    added = urlencode({name: value}).encode()
    return url.copy_with(query=b"&".join(filter(None, (url.query, added))))


def _body(request: Request) -> str:
    return request.read().decode()


def _json_body(request: Request) -> dict[str, Any]:
    content = _body(request)
    body = json.loads(content) if content else {}
    if not isinstance(body, dict):
        raise ConfigError(
            "the credentials cannot be added to a JSON body that is not an object",
            guidance="correct `inject_into` of the authenticator, or the body of the requester",
        )
    return body


def replace_body(request: Request, content: bytes, content_type: str) -> None:
    """Replace the content of a request that is not sent yet."""
    replaced = Request(
        request.method,
        request.url,
        headers={"Content-Type": request.headers.get("Content-Type", content_type)},
        content=content,
    )
    request.stream = replaced.stream
    for name in ("Content-Type", "Content-Length"):
        request.headers[name] = replaced.headers[name]
    request.headers.pop("Transfer-Encoding", None)


Login = Callable[[], str]
"""Logs in, and returns the session token."""


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


def no_session_token(response: Response, name: str) -> SystemFailure:
    """Return the error for a response to a login that has no session token."""
    return SystemFailure(
        f"the response of {place_of(response.request)} has no session token at {name!r}",
        guidance="check user name and password in the config, and the path of the token in the manifest",
    )
