"""The errors of HTTP requests: their class says who must act, and their text contains no secret.

A status that rejects a request is an error of the connector, which wrote the request (`SystemFailure`); one
that rejects the credentials is an error of the config (`ConfigError`); one that a later sync may not get is
temporary (`TransientError`).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping

import httpx

from connectors.sdk.http.charset import charset_of
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from elt_assets.protocol.masking import Masker

EXCERPT = 500
"""Number of characters of a body that an error shows."""
RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""Statuses of a failure that is expected to pass: those of HTTP, and those that Cloudflare and others add."""
RATE_LIMITED_STATUS = 429

Outcome = httpx.Response | httpx.RequestError
"""The outcome of an attempt: a response of any status, or the error that prevented one."""

_NOT_SUPPORTED = (501, 505)
"""Statuses of a server that will not answer such a request later either."""

_SECRETS = "connectors.secrets"
_HAS_CREDENTIALS = "connectors.has_credentials"
_PUBLIC_HEADERS = ("accept", "content-", "user-agent")
_SEE_STATUS = "run the sync again later; if it fails again, see the status page of the API"


def hide(request: httpx.Request, secrets: Iterable[str]) -> None:
    """Leave out texts from all messages about a request and its response."""
    request.extensions.setdefault(_SECRETS, []).extend(secrets)


def hide_headers(request: httpx.Request, headers: Mapping[str, str]) -> None:
    """Leave out the values of headers from all messages, except of those that never contain a secret."""
    for name, value in headers.items():
        if not name.lower().startswith(_PUBLIC_HEADERS):
            hide(
                request, [value, value.rpartition(" ")[2]]
            )  # a token may be quoted without its scheme


def note_credentials(request: httpx.Request, *, are_sent: bool) -> None:
    """Save whether a request carries credentials, for the message if it is refused."""
    request.extensions[_HAS_CREDENTIALS] = are_sent


def has_credentials(request: httpx.Request) -> bool:
    return bool(request.extensions.get(_HAS_CREDENTIALS, True))


def place(request: httpx.Request) -> str:
    """Return the method and the URL of a request, without user, password and the values of the query."""
    url = request.url
    path, _, query = url.raw_path.decode("ascii").partition("?")
    names = [part.partition("=") for part in query.split("&") if part]
    query_text = "&".join(f"{name}=…" if equals else "…" for name, equals, _ in names)
    address = f"{url.scheme}://{url.netloc.decode('ascii')}{path}{query_text and '?'}{query_text}"
    return f"{request.method} {_mask(request)(address)}"


def excerpt(response: httpx.Response) -> str:
    """Return the beginning of a body on one line."""
    text = response.content[: 8 * EXCERPT].decode(charset_of(response) or "utf-8", "replace")
    line = " ".join(_mask(response.request)(text).split())
    return f"{line[:EXCERPT]}…" if len(line) > EXCERPT else line


class AccessRefused(ConfigError):
    """The error of a request that the API refuses with status 403: perhaps for this resource alone."""


def failure(outcome: Outcome, attempts: int = 1) -> EltError:
    """Return the error for an outcome that is not retried, or not any more.

    Args:
        attempts: the number of attempts that were made.
    """
    if isinstance(outcome, httpx.Response):
        return _describe_response(outcome, attempts)
    return _describe_transport(outcome, attempts)


def is_permanent(error: httpx.RequestError) -> bool:
    """Return whether a request fails in the same way however often it is sent."""
    never_sent = isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
    return never_sent or _is_of_certificate(error)


def _describe_response(response: httpx.Response, attempts: int) -> EltError:
    status, where = response.status_code, place(response.request)
    text = excerpt(response)
    body = f": {text}" if text else ""
    after = f" in {attempts} attempts" if attempts > 1 else ""
    if status in (401, 403):
        return _describe_refusal(response, body)
    if status == 402:
        return ConfigError(
            f"{where} is refused until the account pays for it (402){body}",
            guidance="check the plan and the balance of the account at the API's provider",
        )
    if status == 407:
        return ConfigError(
            f"the proxy refused {where} (407)",
            guidance="check user and password in HTTPS_PROXY or HTTP_PROXY",
        )
    if 300 <= status < 400:
        return SystemFailure(
            f"{where} answered with a redirect that is not followed ({status})",
            guidance="write the final address: only GET and HEAD without a body follow redirects to another "
            "origin; with a body they do so within the origins that are trusted, and other methods there "
            "with the status 307 or 308",
        )
    if status == RATE_LIMITED_STATUS:
        return TransientError(
            f"{where} exceeds the API's rate limit (429{after}){body}",
            guidance="run the sync again later, or lower the rate limit of the connector",
        )
    if status in RETRIED_STATUSES or (status >= 500 and status not in _NOT_SUPPORTED):
        return TransientError(f"{where} failed ({status}{after}){body}", guidance=_SEE_STATUS)
    return SystemFailure(
        f"{where} was rejected ({status}{after}){body}",
        guidance="the connector sent a request that the API does not accept: correct its path and parameters",
    )


def _describe_refusal(response: httpx.Response, body: str) -> EltError:
    status, host, where = response.status_code, response.url.host, place(response.request)
    if not has_credentials(response.request):
        return SystemFailure(
            f"{host} requires credentials ({status}), and {where} carried none: its origin is not that of "
            f"the base URL{body}",
            guidance="if it may get the credentials, trust its origin: with `trusted_origins` of a client, "
            "or with `trust` for a manifest",
        )
    if status == 401:
        return ConfigError(
            f"the API at {host} refused the credentials (401): {where}{body}",
            guidance="check the credentials in the config: they may be wrong, expired or revoked",
        )
    return AccessRefused(
        f"the API at {host} refused access (403): {where}{body}",
        guidance="grant the credentials access to this resource, or do not select the stream",
    )


def _describe_transport(error: httpx.RequestError, attempts: int) -> EltError:
    where = place(error.request)
    if isinstance(error, httpx.LocalProtocolError):
        # The text of the error quotes the header, which may be a secret.
        return ConfigError(
            f"{where} cannot be sent: a header contains a character that HTTP forbids",
            guidance="check the credentials in the config for line breaks and spaces at the end",
        )
    if isinstance(error, httpx.UnsupportedProtocol):
        return ConfigError(
            f"{where} cannot be sent: the URL does not begin with https:// or http://",
            guidance="correct the URL in the config",
        )
    what = f"{type(error).__name__}: {_mask(error.request)(str(error))}".removesuffix(": ")
    if _is_of_certificate(error):
        return ConfigError(
            f"{where} failed, because the certificate of the server is not valid: {what}",
            guidance="check the host in the URL; set SSL_CERT_FILE to the certificate of a private authority",
        )
    return TransientError(
        f"{where} failed in {attempts} attempt{'s' * (attempts > 1)}: {what}",
        guidance="check that the host of the API can be reached from this machine, then run the sync again",
    )


def _is_of_certificate(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _mask(request: httpx.Request) -> Masker:
    return Masker(request.extensions.get(_SECRETS, ()))
