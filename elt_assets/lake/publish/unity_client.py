"""Requests to a server of Unity Catalog, and its refusals as errors of this project.

`unity` uses it. The token is read for each request, and goes to no other host: redirects are refused, and so
is plain HTTP, except to this machine. No message has the token.

Spec: Unity Catalog's OpenAPI (`api/all.yaml`); the error codes of the open-source server and of Databricks.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.lake.publish.registration import (
    REQUEST_SECONDS,
    EntryExists,
    Unreachable,
    unreachable,
)

KIND = "Unity Catalog"
_API = "/api/2.1/unity-catalog"
_LARGEST_ANSWER = 16 << 20
_LONGEST_MESSAGE = 500
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of requests that may succeed later."""
_OTHER_SERVER = frozenset({200, 301, 302, 303, 307, 308, 404, 405})
"""Statuses of servers that are no Unity Catalog, or have it at another URL."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the token would go with them."""

    def redirect_request(self, *_: Any) -> None:
        return None


class UnityClient:
    """One server.

    Args:
        url: the server, or the workspace of Databricks.
        read_token: returns the token for a request; None if the server needs none.

    Raises:
        ConfigError: the URL is none, or would send the token without encryption.
    """

    def __init__(self, url: str, read_token: Callable[[], str | None]):
        self._url = _parse(url)
        self._read_token = read_token
        self._opener = urllib.request.build_opener(_NoRedirects)

    def send(self, method: str, path: str, what: str, body: Any = None) -> dict[str, Any] | None:
        """Return the object of an answer; None if there is no such table, schema or catalog.

        Args:
            what: what the request is about, for messages.

        Raises:
            EntryExists: what was to be created exists.
            ConfigError: the server refuses, or is no Unity Catalog.
            TransientError: it is busy, or does not answer in time.
        """
        token = self._token()
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            f"{self._url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Accept": "application/json",
                "Content-Type": "application/json",
                **({"Authorization": f"Bearer {token}"} if token else {}),
            },
            method=method,
        )
        try:
            with self._opener.open(request, timeout=REQUEST_SECONDS) as response:
                status, reply = response.status, _decode(_read(response))
        except urllib.error.HTTPError as error:
            status, reply = error.code, self._read_refusal(error)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        if status < 300 and reply is not None:
            return reply
        if status == 404 and reply and "error_code" in reply:
            return None
        raise self._explain(status, reply or {}, what, token)

    def _token(self) -> str | None:
        token = (self._read_token() or "").strip()
        if token.isascii() and token.isprintable() and " " not in token:
            return token or None
        raise ConfigError(
            "[tool.elt.catalog] token: its value has characters that no token has",
            guidance="correct the value that it refers to",
        )

    def _read_refusal(self, error: urllib.error.HTTPError) -> dict[str, Any] | None:
        try:
            with error:
                return _decode(_read(error))
        except (OSError, http.client.HTTPException) as lost:
            raise self._unreachable(lost) from None

    def _unreachable(self, error: Exception) -> Unreachable:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        return unreachable(KIND, self._url, reason)

    def _explain(
        self, status: int, reply: Mapping[str, Any], what: str, token: str | None
    ) -> EltError:
        code = str(reply.get("error_code") or "")
        message = str(reply.get("message") or "").partition("\n")[0][:_LONGEST_MESSAGE]
        text = ": ".join(filter(None, (f"status {status}", code, message)))
        text = text.replace(token, "***") if token else text
        if status == 409 or code.endswith("ALREADY_EXISTS"):
            return EntryExists(f"{what} exists in {KIND}")
        if status in _BUSY:
            return TransientError(
                f"{KIND} is busy: {text}, for {what}", guidance="the next sync tries again"
            )
        if status == 401:
            return ConfigError(
                f"{KIND} does not accept the token: {text}",
                guidance="renew the value of `token` in [tool.elt.catalog]; it is read for each request",
            )
        if status == 403:
            return ConfigError(
                f"{KIND} refuses {what}: {text}",
                guidance="grant the owner of the token USE CATALOG, USE SCHEMA, CREATE SCHEMA and CREATE "
                "TABLE; on Databricks also EXTERNAL USE SCHEMA, and CREATE EXTERNAL TABLE and EXTERNAL USE "
                "LOCATION on the external location",
            )
        if not code and status in _OTHER_SERVER:
            return ConfigError(
                f"{self._url} does not answer as {KIND}: {text}",
                guidance="correct `url` in [tool.elt.catalog]: the server, without a path",
            )
        return ConfigError(
            f"{KIND} refuses {what}: {text}",
            guidance="correct what the message names; the next sync tries again, and so does `elt publish`",
        )


def _read(response: Any) -> bytes:
    """Return the body of an answer, within the limits of time and size."""
    deadline = time.monotonic() + REQUEST_SECONDS
    content = b""
    while part := response.read1(1 << 16):
        content += part
        if time.monotonic() > deadline or len(content) > _LARGEST_ANSWER:
            raise TimeoutError("the answer has no end")
    return content


def _decode(content: bytes) -> dict[str, Any] | None:
    """Return the object of a body; None if it is something else."""
    try:
        reply = json.loads(content or b"{}")
    except ValueError:
        return None
    return reply if isinstance(reply, dict) else None


def _parse(url: str) -> str:
    """Return the URL of the API.

    Raises:
        ConfigError: it is none, or would send the token without encryption.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise ConfigError(
            "[tool.elt.catalog] url: it is no URL of a server",
            guidance="write https://HOST, without a user, a password or a query",
        )
    if parts.scheme == "http" and parts.hostname not in _LOCAL:
        raise ConfigError(
            f"[tool.elt.catalog] url: {parts.hostname} would be asked by http, which sends the token without "
            "encryption",
            guidance="write https://",
        )
    base = url.rstrip("/")
    return base if "/api/" in parts.path else f"{base}{_API}"
