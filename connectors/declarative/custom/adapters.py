"""Adapters of components in Python for reads: extractors, decoders, pages, credentials, failures.

Each function here takes the object of a user's class, and returns what the rooms of requests work with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from connectors.declarative.custom.implementation import Implementation
from connectors.declarative.custom.responses import outcome, shown, shown_request
from connectors.declarative.requests.auth.tokens import Credentials, Place, replace_body
from connectors.declarative.requests.decoding.decoders import CHUNK, Decoder
from connectors.declarative.requests.failures.backoff import Backoff
from connectors.declarative.requests.failures.filters import Resolution
from connectors.declarative.requests.failures.policy import (
    MAX_RETRIES,
    Handler,
    default_resolution,
)
from connectors.declarative.requests.options import DATA, HEADER, JSON, PARAMETER
from connectors.declarative.requests.pages.strategies import Later, Strategy
from connectors.declarative.requests.pages.view import View
from connectors.declarative.requests.records.selector import Cast
from connectors.declarative.requests.records.transformations import Transform
from connectors.sdk.http import URL, Request, Response, Send
from connectors.sdk.http.failures import Outcome, hide
from connectors.sdk.items import Record
from elt_assets.errors import ConfigError

_ACTIONS = frozenset(
    {
        *("SUCCESS", "FAIL", "RETRY", "IGNORE", "RESET_PAGINATION", "RATE_LIMITED"),
        "REFRESH_TOKEN_THEN_RETRY",
    }
)
_JSON = "application/json"
_METHODS = {
    PARAMETER: "get_request_params",
    DATA: "get_request_body_data",
    JSON: "get_request_body_json",
}
"""The methods by which an authenticator adds to parts of a request other than the headers."""


def extractor(made: Implementation) -> Callable[[Response], Iterator[list[Any]]]:
    """Return the function that yields the records of a response, in lists."""

    def read(response: Response) -> Iterator[list[Any]]:
        found = made.items("extract_records", shown(response))
        while chunk := list(islice(found, CHUNK)):
            yield list(map(_plain, chunk))

    return read


def record_filter(made: Implementation) -> Transform:
    """Return the function that leaves out records."""

    def keep(records: list[Record], variables: Mapping[str, Any]) -> None:
        kept = made.items(
            "filter_records",
            list(records),
            stream_state={},
            stream_slice=variables.get("stream_slice"),
            next_page_token=variables.get("next_page_token"),
        )
        records[:] = map(_plain, kept)

    return keep


def transformation(made: Implementation) -> Transform:
    """Return the function that changes records in place."""

    def transform(records: list[Record], variables: Mapping[str, Any]) -> None:
        change = made.bound(
            "transform",
            config=variables.get("config"),
            stream_state={},
            stream_slice=variables.get("stream_slice"),
        )
        with made.reporting("transform"):
            for record in records:
                change(record)

    return transform


def normalization(made: Implementation) -> Cast:
    """Return the function that casts the values of a record to the types of a schema."""

    def cast(schema: Mapping[str, Any], record: Record) -> Record:
        made.call("transform", record, schema)
        return record

    return cast


class PythonDecoder(Decoder):
    """The decoder that a class implements."""

    def __init__(self, made: Implementation):
        self._made = made

    def values(self, response: Response) -> Iterator[list[Any]]:
        found = self._made.items("decode", shown(response))
        while chunk := list(islice(found, CHUNK)):
            yield list(map(_plain, chunk))

    def shown(self, response: Response, *, is_fresh: bool = False) -> Any:
        if self._made.value("is_stream_response", False):
            return {}
        return next(self._made.items("decode", shown(response)), {})


class PythonStrategy(Strategy):
    """The pagination strategy that a class implements."""

    def __init__(self, made: Implementation):
        self._made = made
        self.initial = made.value("initial_token")
        size = made.value("get_page_size")
        self.page_size = None if size is None else int(size)

    def plan(self, view: View) -> Later:
        return self._token

    def _token(self, page: View) -> Any:
        found = self._made.call(
            "next_page_token",
            response=shown(page.response),
            last_page_size=page.size,
            last_record=page.last,
            last_page_token_value=page.token,
        )
        return found or None


def backoff(made: Implementation) -> Backoff:
    """Return the function that returns how long to wait."""

    def wait(given: Outcome, attempt: int) -> float | None:
        found = made.call("backoff_time", outcome(given), attempt)
        return None if found is None else float(found)

    return wait


@dataclass(frozen=True)
class PythonHandler(Handler):
    """The error handler that a class implements.

    Attributes:
        made: the object of the class.
    """

    made: Implementation

    def resolve(self, outcome_: Outcome) -> Resolution:
        found = self.made.call("interpret_response", outcome(outcome_))
        action = getattr(found, "response_action", None)
        if action is None:
            return default_resolution(outcome_)
        name = str(getattr(action, "name", action))
        if name not in _ACTIONS:
            raise ConfigError(
                f"{self.made.place}: {self.made.name} returned the action {name!r}",
                guidance=f"return one of {', '.join(sorted(_ACTIONS))}",
            )
        kind = getattr(found, "failure_type", None)
        kind = None if kind is None else str(getattr(kind, "value", kind))
        message = str(getattr(found, "error_message", None) or "")
        return Resolution(name, kind if name == "FAIL" else None, message, is_explicit=True)


def handler(made: Implementation) -> Handler:
    """Return the error handler."""
    retries = made.value("max_retries", MAX_RETRIES)
    strategies = made.value("backoff_strategies", ())
    return PythonHandler(
        (),
        [backoff(made.of(each)) for each in strategies],
        int(retries) if isinstance(retries, int | float) else MAX_RETRIES,
        made,
    )


class PythonCredentials(Credentials):
    """The authenticator that a class implements. It is asked for each request; it keeps its tokens itself."""

    place = None

    def __init__(self, made: Implementation):
        self._made = made
        self._lock = threading.RLock()
        names = ("get_auth_header", "auth_header", "__call__", *_METHODS.values())
        if not any(map(made.has, names)):
            raise ConfigError(
                f"{made.place}: the class {made.name!r} is no authenticator",
                guidance="give it a method `get_auth_header`, or the properties `auth_header` and `token`",
            )

    def token(self, send: Send) -> tuple[str, list[str]]:
        return "", []

    def authenticate(self, request: Request, send: Send) -> None:
        # Threads wait for each other here, so that only one of them renews a token.
        with self._lock:
            _put(request, HEADER, self._headers())
            for where, method in _METHODS.items():
                _put(request, where, self._made.value(method) if self._made.has(method) else None)
            if self._made.has("__call__"):
                self._sign(request)

    def _headers(self) -> Any:
        made = self._made
        if made.has("get_auth_header"):
            return made.value("get_auth_header")
        name = made.value("auth_header") if made.has("auth_header") else None
        return {name: made.value("token")} if name else {}

    def _sign(self, request: Request) -> None:
        """Let the class change the request itself, as the library requests does before it is sent."""
        given = shown_request(request)
        url, body, headers = str(request.url), request.read(), dict(request.headers)
        signed = self._made.call("__call__", given) or given
        changed = {n: v for n, v in signed.headers.items() if headers.get(n.lower()) != v}
        _put(request, HEADER, changed)
        if str(signed.url) != url:
            request.url = URL(str(signed.url))
            hide(request, request.url.params.values())
        new = body if given is request else signed.body or b""
        if new != body:
            replace_body(request, new.encode() if isinstance(new, str) else new, _JSON)


def _put(request: Request, where: str, values: Any) -> None:
    """Put values into a part of a request, and leave them out of all messages."""
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if value is not None:
            text = str(value)
            Place(where, (str(name),)).put(request, text, [text, text.rpartition(" ")[2]])


def _plain(value: Any) -> Any:
    """Return a record of any type of mapping as a dictionary; other values as they are."""
    return dict(value) if isinstance(value, Mapping) and type(value) is not dict else value
