"""Requests of a stream: their URL, parameters, headers and bodies for each slice and page.

Spec: HttpRequester.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest import components
from connectors.declarative.requests import options
from connectors.declarative.requests.environment import TIMEOUT_SECONDS, Environment
from connectors.declarative.requests.expressions import Bound, Variables, bound, text
from connectors.declarative.requests.failures.policy import (
    ErrorPolicy,
    handlers,
    may_lack_records,
)
from connectors.declarative.requests.options import joined, origin_of, with_query
from connectors.sdk.encoding import encode
from connectors.sdk.http import Authenticator, HttpClient
from connectors.sdk.http.connections import timeouts
from connectors.sdk.http.messages import Request, Response
from connectors.sdk.http.urls import is_within, origin, parsed
from connectors.sdk.stopping import check_stopped
from elt_assets.errors import ConfigError, EltError

Added = tuple[Option, str]
"""A value for a request, and the component that adds it."""

MAX_CLIENTS = 64
"""Number of origins for which a client is kept, for a requester whose host depends on the slice."""
_CONFIG = frozenset({"config", "parameters"})
FIRST_PAGE: Mapping[str, Any] = {"next_page_token": None}
"""The variables of a first page without a token."""


class Requester:
    """Sends the requests of a stream.

    Args:
        component: a HttpRequester.
        environment: what the requesters of the source share.
        credentials: the authenticator.
        credentials_key: differs for credentials that may get different answers of an API.
        uses_cache: whether responses are kept, unless the component says it.

    Raises:
        ConfigError: the component contradicts itself.
    """

    def __init__(
        self,
        component: components.HttpRequester,
        environment: Environment,
        credentials: Authenticator,
        credentials_key: str = "",
        *,
        uses_cache: bool = False,
    ):
        self.component = component
        self.environment = environment
        self.credentials = credentials
        self._key = credentials_key
        wants_cache = uses_cache if component.use_cache is None else component.use_cache
        self._uses_cache = wants_cache and component.http_method == "GET"
        self.form, self.json = options.written_body(component)
        self._policy = ErrorPolicy(
            handlers(component.error_handler, environment.config), credentials.expire
        )
        self._timeout = self._read_timeouts()
        self._clients: dict[str, HttpClient] = {}
        self._own_origins = list(dict.fromkeys(self._named_origins()))
        environment.named_origins.update(self._own_origins)

    def for_slice(self, variables: Variables) -> SliceRequests:
        """Return the requests of a slice; what does not depend on the page is evaluated now.

        Args:
            variables: the variables of the slice.

        Raises:
            EltError: a template fails.
        """
        return SliceRequests(self, {"config": self.environment.config, **variables})

    def send(self, url: str, parts: options.Parts, *, is_link: bool = False) -> Response:
        """Send a request, and return its response.

        Only origins that manifest and config name, or that are trusted, get credentials, parameters, headers
        and a body. If manifest and config name no origin for this request, those that they name for other
        requests get them too. An origin that an API names, as the URL of a next page, of a download or in a
        parent record, gets the URL alone.

        Args:
            url: the URL, to which the parameters are added.
            parts: the parts of the request.
            is_link: whether the API has sent the whole URL, such as the URL of a next page.

        Raises:
            ConfigError: an origin that is not trusted would get more than a URL.
            EltError: the request fails.
        """
        check_stopped()
        target_origin, is_trusted = self._checked_origin(url), self._is_trusted(url)
        if is_trusted:
            return self._send(self._client(target_origin, self.credentials), url, parts)
        self._require_plain(target_origin, parts, is_link=is_link)
        own = next(iter(self._own_origins), None)
        client = self._client(own or target_origin, self.credentials if own else None)
        return client.request("GET", url, timeout=self._timeout)

    def _send(self, client: HttpClient, url: str, parts: options.Parts) -> Response:
        """Send a request to an origin that is trusted."""
        method, address = self.component.http_method, with_query(url, parts.params)
        is_form = bool(parts.data) and isinstance(parts.data, dict)
        body = encode((parts.data, parts.json))
        key = (method, address, tuple(sorted(parts.headers.items())), body, self._key)
        if self._uses_cache:
            cached = self.environment.cache.get(key, Request(method, address))
            if cached is not None:
                return cached
        response = client.request(
            method,
            address,
            headers=parts.headers,
            json=parts.json or None,
            data=parts.data if is_form and isinstance(parts.data, dict) else None,
            content=parts.data if parts.data and isinstance(parts.data, str) else None,
            timeout=self._timeout,
        )
        if self._uses_cache and not may_lack_records(response):
            self.environment.cache.put(key, response)
        return response

    def _read_timeouts(self) -> Any:
        """Return the time-outs that the manifest has; None for those of all requests.

        Raises:
            ConfigError: one is not a time.
        """
        read = self.component.read_timeout_in_seconds
        connect = self.component.connect_timeout_in_seconds
        if any(seconds is not None and seconds <= 0 for seconds in (read, connect)):
            raise ConfigError(
                f"{self.component.place}: a time-out is not greater than 0",
                guidance="correct `read_timeout_in_seconds` and `connect_timeout_in_seconds`",
            )
        if read is None and connect is None:
            return None
        return timeouts(read or TIMEOUT_SECONDS, connect)

    def _named_origins(self) -> Iterator[str]:
        """Yield the origins that manifest and config name; none if they depend on what an API returns."""
        component = self.component
        base, path = component.url_base or component.url, component.path
        variables = before_first_use(self.environment)
        with suppress(EltError):
            named = origin_of(text(base, variables))
            if named is not None:
                yield named
            if path is not None and path.names <= _CONFIG:
                named = origin_of(joined(text(base, variables), text(path, variables).lstrip("/")))
                if named is not None:
                    yield named

    def _is_trusted(self, url: str) -> bool:
        own = self._own_origins or self.environment.named_origins
        trusted = [*own, *self.environment.trusted_origins]
        return is_within(parsed(url), [origin(parsed(url_text)) for url_text in trusted])

    def _require_plain(self, url_origin: str, parts: options.Parts, *, is_link: bool) -> None:
        """Check that the URL alone is the whole request. A link from an API has its parameters."""
        params = {} if is_link else parts.params
        if params or parts.data or parts.json or self.component.http_method != "GET":
            self.environment.connections.guard.check_host(parsed(url_origin).host)
            raise ConfigError(
                f"{self.component.place}: the host of the URL depends on what an API returns, so it does not "
                "get the parameters and the body of the request",
                guidance=f"if it may get them, and the credentials, trust its origin: {url_origin}",
            )

    def _checked_origin(self, url: str) -> str:
        url_origin = origin_of(url)
        if url_origin is None:
            raise ConfigError(
                f"{self.component.place}: the URL does not begin with https:// or http:// and a host",
                guidance="check the URL in the manifest, and the values of the config in it",
            )
        return url_origin

    def _client(self, url_origin: str, credentials: Authenticator | None) -> HttpClient:
        """Return a client whose credentials go to one origin, and to those that are trusted."""
        client, environment = self._clients.get(url_origin), self.environment
        if client is None:
            client = HttpClient(
                url_origin,
                authenticator=credentials,
                headers={"Accept": "*/*"},
                retry=self._policy,
                rate_limit=environment.budget,
                trusted_origins=environment.trusted_origins,
                on_wait=environment.on_wait,
                sleep=environment.sleep,
                connections=environment.connections,
                is_named=url_origin in environment.named_origins,
            )
            if len(self._clients) >= MAX_CLIENTS:
                self._clients.clear()
            self._clients[url_origin] = client
        return client


class SliceRequests:
    """The requests of one slice.

    Args:
        requester: the requester.
        variables: the variables of the slice, with the config.
    """

    def __init__(self, requester: Requester, variables: Variables):
        self._requester = requester
        component = requester.component
        address = (component.url, component.url_base, component.path)
        self._url: Bound[tuple[str, str, str]] = bound(address, _texts, variables)
        self._params = bound(component.request_parameters, options.parameters, variables)
        self._headers = bound(component.request_headers, options.headers, variables)
        self._form = bound(requester.form, options.data, variables)
        self._json = bound(requester.json, options.json, variables)

    def send(
        self,
        page: Variables = FIRST_PAGE,
        added: Iterable[Added] = (),
        path: str | None = None,
    ) -> Response:
        """Send the request for a page, and return its response.

        Args:
            page: the variables of the page.
            added: what slice and paginator add to the request.
            path: the URL or path of the page; None for the path of the manifest.

        Raises:
            ConfigError: two components set the same value.
            EltError: a template or the request fails.
        """
        url, base, own_path = self._url(page)
        own_path = own_path.lstrip("/")
        target = joined(base or url, own_path if path is None else path)
        parts = self._parts(page, added)
        return self._requester.send(target, parts, is_link=path is not None)

    def _parts(self, page: Variables, added: Iterable[Added]) -> options.Parts:
        form = self._form(page)
        parts = options.Parts(
            self._requester.component.place,
            dict(self._params(page)),
            dict(self._headers(page)),
            form if isinstance(form, str) else dict(form),
            self._json(page),
        )
        for option, by in added:
            parts.add(option, by)
        place = self._requester.credentials.place
        if place is not None:
            parts.check(place, f"{parts.place}.authenticator")
        parts.check_body()
        return parts


def before_first_use(environment: Environment) -> Variables:
    """Return the variables of a URL before there is a slice or a page."""
    return {"config": environment.config, **FIRST_PAGE, **Slice().variables()}


def _texts(templates: Any, variables: Variables) -> tuple[str, str, str]:
    url, base, path = (text(template, variables) for template in templates)
    return url.strip(), base.strip(), path.strip()
