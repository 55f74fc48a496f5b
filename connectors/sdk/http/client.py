"""The HTTP client of a source: one pool of connections, with authentication, retries and a rate limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from connectors.sdk.encoding import encode
from connectors.sdk.http import urls
from connectors.sdk.http.authenticators import Authenticator, CredentialsRequest
from connectors.sdk.http.connections import TIMEOUT_SECONDS, Connections
from connectors.sdk.http.failures import (
    Outcome,
    failure,
    has_credentials,
    hide,
    hide_headers,
    note_credentials,
    place,
)
from connectors.sdk.http.places import FORM_TYPE, JSON_TYPE
from connectors.sdk.http.rate_limit import Limiter
from connectors.sdk.http.retry import Fail, Ignore, Policy, Retry, RetryPolicy
from connectors.sdk.reports import RATE_LIMITED, report_wait
from connectors.sdk.stopping import check_stopped, pause
from elt_assets.errors import ConfigError, SystemFailure, TransientError

MAX_REDIRECTS = 10
MAX_WAIT_SECONDS = 86_400.0
"""Maximum of a wait, whoever asks for it: a day, after which most quotas begin again."""

_IGNORED = "connectors.ignored"
_REDIRECTED = ("GET", "HEAD")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Pattern of the names of headers (RFC 9110, "Tokens")."""
_SAME_METHOD = (307, 308)
"""Statuses of redirects that keep the method and the body of a request."""

OnWait = Callable[[float, str], None]
"""Called before a wait with its seconds and its reason, `RATE_LIMITED` or `FAILED`; by any thread."""


@dataclass(frozen=True)
class _Call:
    """A request. Each attempt sends a new copy of it."""

    method: str
    url: httpx.URL
    headers: Mapping[str, str]
    content: bytes | None = None
    content_type: str = ""
    timeout: httpx.Timeout | None = None


class HttpClient:
    """The HTTP client of a source. It may be used by several threads; a source has one, and so one pool of
    connections, which is made by the first request. A source whose streams differ in their authentication or
    in their policy has several clients that share their connections.

    Only an origin (scheme, host and port) that is trusted gets the credentials, headers and body of a
    request; one with a body is never sent without it. Trusted are the origin of the base URL, the same host
    with HTTPS in place of HTTP, and the `trusted_origins`. A link to the next page or a redirect may lead
    elsewhere, but only to public addresses: see `connectors.sdk.http.addresses`.

    Args:
        base_url: the URL to which the paths of requests are appended.
        authenticator: adds the credentials; None for an API without.
        user_agent: the value of the header `User-Agent`, by which the API's provider knows the client.
        headers: further headers of each request.
        retry: decides which failures are retried, and when.
        rate_limit: the limit of the requests in a time; None for no limit. Repeated requests count; those by
            which the authenticator gets credentials do not.
        timeout: the seconds after which a request fails that receives nothing.
        trusted_origins: the URLs of further origins that get credentials and headers, at any address.
        on_wait: called before each wait; it may be set later, too. By default the wait is reported as one of
            the stream that is being read.
        sleep: waits for a number of seconds; by default until the thread must stop, if that is earlier.
        connections: the connections, if several clients share them; `user_agent` and `timeout` are then
            theirs. By default the client has its own.
        is_named: whether code, config or manifest names the base URL, so that it may be on a private network;
            False if an API has sent it.

    Raises:
        ConfigError: the base URL is not one.
    """

    def __init__(
        self,
        base_url: str,
        *,
        authenticator: Authenticator | None = None,
        user_agent: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry: Policy | None = None,
        rate_limit: Limiter | None = None,
        timeout: float = TIMEOUT_SECONDS,
        trusted_origins: Sequence[str] = (),
        on_wait: OnWait | None = report_wait,
        sleep: Callable[[float], None] = pause,
        connections: Connections | None = None,
        is_named: bool = True,
    ):
        self.on_wait = on_wait
        self._base = urls.base(base_url)
        self._authenticator = authenticator
        self._headers = dict(headers or {})
        self._retry = retry or RetryPolicy()
        self._rate_limit = rate_limit
        self._trusted = [urls.origin(urls.base(url)) for url in (base_url, *trusted_origins)]
        self._sleep = sleep
        self._is_sharing = connections is not None
        self._connections = connections or Connections(user_agent=user_agent, timeout=timeout)
        self._guard = self._connections.guard
        self._guard.trust(urls.base(url).host for url in trusted_origins)
        if is_named:
            self._guard.add_named(self._base.host)

    def request(
        self,
        method: str,
        path: str = "",
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        data: Mapping[str, Any] | None = None,
        content: str | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> httpx.Response:
        """Send a request, and return its response with the whole body.

        The response is a successful one, unless the policy decides otherwise: `is_ignored` says whether it
        has decided to ignore the response.

        Args:
            method: the method.
            path: a path below the base URL, or an absolute URL, such as that of a next page.
            params: parameters of the query; None as a value leaves one out.
            headers: headers, besides those of the client.
            json: the body as JSON; None for no such body.
            data: the body as the fields of a form; a sequence as a value repeats its field.
            content: the body as a text; the header `Content-Type` may name its type.
            timeout: the time-outs of each attempt; None for those of the client.

        Raises:
            ConfigError: the API refuses the credentials, or the request can never be sent: it has a body that
                its origin may not get, for example.
            TransientError: the request failed in all attempts, or the API asks for too long a wait.
            SystemFailure: the API rejects the request.
        """
        url = urls.add_params(urls.join_path(self._base, path), params or {})
        body, content_type = _body(json, data, content)
        call = _Call(method.upper(), url, dict(headers or {}), body, content_type, timeout)
        if body is not None and not urls.is_within(url, self._trusted):
            raise ConfigError(
                f"a {call.method} request to {url.host!r} is refused: it has a body, and its origin is not "
                "that of the base URL",
                guidance="if it may get the body and the credentials, trust its origin: with "
                "`trusted_origins` of the client, or with `trust` for a manifest",
            )
        return self._send_with_retries(lambda: self._send(call), self._retry, self._authenticator)

    def get(self, path: str = "", *, params: Mapping[str, Any] | None = None) -> httpx.Response:
        """Send a GET request, and return its response; errors are those of `request`."""
        return self.request("GET", path, params=params)

    def send_for_credentials(self, wanted: CredentialsRequest) -> httpx.Response:
        """Send a request of an authenticator: without credentials, without a redirect and without rate limit,
        with retries of its own.

        Raises:
            EltError: the request failed, or the response has none of the accepted statuses.
        """
        content, content_type = _body(wanted.json, wanted.form)
        url = urls.parsed(wanted.url)
        self._guard.add_named(url.host)
        call = _Call(wanted.method, url, wanted.headers, content, content_type)

        def send() -> httpx.Response:
            request = self._request(call, call.url, _headers(call.headers))
            hide(request, wanted.secrets)
            return self._connections.send(request)

        return self._send_with_retries(
            send, RetryPolicy(accepted_statuses=wanted.accepted_statuses)
        )

    def close(self) -> None:
        """Close the connections, unless other clients may share them. A later request opens new ones. They
        are also closed when the client is garbage, and at the end of the process."""
        if not self._is_sharing:
            self._connections.close()

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send_with_retries(
        self,
        send: Callable[[], httpx.Response],
        policy: Policy,
        authenticator: Authenticator | None = None,
    ) -> httpx.Response:
        """Send until the policy accepts an outcome. Credentials that are refused are renewed once, without a
        wait."""
        attempt = 1
        while True:
            outcome = _outcome(send)
            if authenticator is not None and self._send_renewed(outcome, authenticator):
                authenticator = None
                continue
            action = policy.decide(outcome, attempt)
            if isinstance(action, Fail):
                raise action.error
            if isinstance(action, Retry):
                self._wait(action.seconds, action.reason)
                attempt += 1
                continue
            if not isinstance(outcome, httpx.Response):
                raise failure(outcome, attempt)
            if isinstance(action, Ignore):
                outcome.extensions[_IGNORED] = True
            return outcome

    def _send(self, call: _Call) -> httpx.Response:
        """Send one attempt, and follow its redirects. Each request of them gets what its own origin may get.

        Raises:
            httpx.RequestError: there is no response.
            EltError: there are no credentials, or too many redirects.
        """
        url = call.url
        for _ in range(MAX_REDIRECTS + 1):
            response = self._connections.send(self._send_with_credentials(call, url))
            if self._rate_limit is not None:
                self._rate_limit.observe(response)
            following = response.next_request
            if following is None or not self._is_followed(
                call, response.status_code, following.url
            ):
                return response
            url = following.url
        raise SystemFailure(
            f"{place(response.request)} was redirected more than {MAX_REDIRECTS} times",
            guidance="correct the path of the request; if it is right, the API redirects endlessly",
        )

    def _is_followed(self, call: _Call, status: int, url: httpx.URL) -> bool:
        """Return whether a redirect is followed. A request with a body, or with a method that may change
        something, stays within the origins that may get the body: without its body it is another request, and
        its response means nothing."""
        is_kept = call.method in _REDIRECTED or status in _SAME_METHOD
        is_free = call.method in _REDIRECTED and call.content is None
        return is_free or (is_kept and urls.is_within(url, self._trusted))

    def _send_with_credentials(self, call: _Call, url: httpx.URL) -> httpx.Request:
        check_stopped()
        is_trusted = urls.is_within(url, self._trusted)
        if not is_trusted:
            call = _Call(call.method, url, {}, timeout=call.timeout)
        headers = _headers(self._headers, call.headers) if is_trusted else _headers()
        request = self._request(call, url, headers)
        note_credentials(request, are_sent=is_trusted)
        if is_trusted and self._authenticator is not None:
            self._authenticator.authenticate(request, self.send_for_credentials)
        # After the credentials: threads that wait for a new token would all send later than they reserved.
        if self._rate_limit is not None:
            self._wait(self._rate_limit.reserve(request), RATE_LIMITED)
        return request

    def _request(self, call: _Call, url: httpx.URL, headers: httpx.Headers) -> httpx.Request:
        if call.content_type:
            headers.setdefault("Content-Type", call.content_type)
        self._guard.check_host(url.host)
        connections = self._connections.open()
        request = connections.build_request(
            call.method,
            url,
            headers=headers,
            content=call.content,
            timeout=call.timeout or connections.timeout,
        )
        hide(request, [url.password] if url.password else [])
        hide_headers(request, headers)
        return request

    def _send_renewed(self, outcome: Outcome, authenticator: Authenticator) -> bool:
        """Return whether the credentials were refused, and have been renewed."""
        return (
            isinstance(outcome, httpx.Response)
            and outcome.status_code in authenticator.renewed_statuses
            and has_credentials(outcome.request)
            and authenticator.renew(outcome.request, self.send_for_credentials)
        )

    def _wait(self, seconds: float, reason: str) -> None:
        if seconds > MAX_WAIT_SECONDS:
            raise TransientError(
                f"the API at {self._base.host} asks to wait {seconds:.0f} s before the next request; "
                f"a request waits for at most {MAX_WAIT_SECONDS:.0f} s",
                guidance="run the sync again then; if this is not what the API means, correct the rate limit "
                "or the header that is read",
            )
        if seconds > 0:
            if self.on_wait is not None:
                self.on_wait(seconds, reason)
            self._sleep(seconds)


def is_ignored(response: httpx.Response) -> bool:
    """Return whether the policy has decided to ignore a response: it has no records, and no page follows."""
    return bool(response.extensions.get(_IGNORED, False))


def _headers(*parts: Mapping[str, str]) -> httpx.Headers:
    """Return headers; a later one replaces an earlier one of the same name.

    Raises:
        ConfigError: a name is not one. It is not quoted: a template may have put a secret into it.
    """
    merged = httpx.Headers(encoding="utf-8")
    for headers in parts:
        for name, value in headers.items():
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    "the name of a header is empty, or contains a character that HTTP forbids",
                    guidance="correct the names of the headers, and the values of the config in them",
                )
            merged[name] = value
    return merged


def _outcome(send: Callable[[], httpx.Response]) -> Outcome:
    try:
        return send()
    except httpx.RequestError as error:
        return error


def _body(
    json: Any, data: Mapping[str, Any] | None, content: str | None = None
) -> tuple[bytes | None, str]:
    """Return a body and its type."""
    if content is not None:
        return content.encode(), ""
    if data is not None:
        form = str(httpx.QueryParams(dict(data)))
        return form.encode(), FORM_TYPE
    if json is not None:
        return encode(json), JSON_TYPE
    return None, ""
