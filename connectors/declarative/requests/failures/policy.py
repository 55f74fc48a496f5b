"""Error handlers: which responses fail, which are ignored, and which requests are repeated, and when.

Spec: DefaultErrorHandler, CompositeErrorHandler, HttpResponseFilter.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.declarative.manifest import clock, components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.decoding.json_body import json_body_if_any
from connectors.declarative.requests.expressions import read_number
from connectors.declarative.requests.failures.backoff import REMEDY, backoff
from connectors.sdk.http.failures import (
    RATE_LIMITED_STATUS,
    Outcome,
    excerpt,
    failure,
    is_permanent,
    place,
)
from connectors.sdk.http.messages import Request, Response
from connectors.sdk.http.retry import Accept, Action, Fail, Ignore, RetryPolicy, Wait
from elt_assets.errors import ConfigError, EltError, error_class

SUCCESS, FAIL, RETRY, IGNORE = "SUCCESS", "FAIL", "RETRY", "IGNORE"
RATE_LIMITED = "RATE_LIMITED"
REFRESH_TOKEN_THEN_RETRY = "REFRESH_TOKEN_THEN_RETRY"  # noqa: S105 - an action

_MESSAGES = (
    *("message", "messages", "error", "errors", "failures", "failure"),
    *("detail", "err", "error_message", "msg", "reason", "status_message"),
)
"""The fields in which APIs explain an error, in the order in which they are looked up."""
MAX_DEPTH = 20


@dataclass(frozen=True)
class Resolution:
    """The action for the outcome of a request.

    Attributes:
        action: one of the actions of the manifest.
        failure_type: the failure type that the manifest names; None if the outcome decides.
        message: the message that the manifest has for the error; empty for none.
        is_explicit: whether a filter has matched.
    """

    action: str
    failure_type: str | None = None
    message: str = ""
    is_explicit: bool = False


class ResponseFilter:
    """A filter. It matches a response by its status, by a condition or by the text of its error.

    Args:
        component: the component.
        config: the config of the source.
    """

    def __init__(self, component: components.HttpResponseFilter, config: Mapping[str, Any]):
        self._component = component
        self._config = config
        self._statuses = frozenset(component.http_codes or ())
        predicate = component.predicate
        self._predicate = predicate if predicate is not None and predicate.text else None
        self._contained = component.error_message_contains or ""

    def match(self, response: Response) -> Resolution | None:
        """Return what follows from a response; None if it does not match."""
        action = self._component.action
        if action is None or not self._matches(response):
            return None
        failure_type = self._component.failure_type if action == FAIL else None
        return Resolution(action, failure_type, self._message(response), is_explicit=True)

    def _matches(self, response: Response) -> bool:
        return (
            response.status_code in self._statuses
            or (self._predicate is not None and self._predicate.is_true(self._variables(response)))
            or (bool(self._contained) and self._contained in api_message(response))
        )

    def _message(self, response: Response) -> str:
        template = self._component.error_message
        if template is None:
            return ""
        return str(template.evaluate_or("", self._variables(response)))

    def _variables(self, response: Response) -> dict[str, Any]:
        return {
            "config": self._config,
            "response": json_body_if_any(response),
            "headers": response.headers,
        }


def api_message(response: Response) -> str:
    """Return how the API explains an error; the whole body if it is not JSON."""
    body = json_body_if_any(response)
    if body == {} and response.content:
        return response.content.decode("utf-8", "replace")
    return _message_in(body) or ""


def _message_in(value: Any, depth: int = 0) -> str | None:
    if isinstance(value, str):
        return value
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, list):
        messages = (_message_in(item, depth + 1) for item in value)
        return ", ".join(message for message in messages if message is not None)
    if isinstance(value, dict):
        named = next((value[name] for name in _MESSAGES if value.get(name)), None)
        return _message_in(named, depth + 1)
    return None


ErrorHandler = components.DefaultErrorHandler | components.CompositeErrorHandler

MAX_RETRIES = 5
MAX_WAIT_SECONDS = 600.0
"""The longest wait that an API may ask for with `Retry-After`, unless the manifest names a strategy."""
_WAITS = RetryPolicy(
    factor=1.0,
    max_wait_seconds=MAX_WAIT_SECONDS,
    clock=lambda: clock.now().timestamp(),
    chance=lambda: 1.0,
    remedy_for_long_waits=REMEDY,
)
_MAY_LACK_RECORDS = "connectors.declarative.may_lack_records"
_FINAL = {*range(400, 408), *range(410, 418), 422, 426, 428, 431, 451, 501, 505}
"""Statuses that reject the request itself: a repeated request is rejected, too."""
_CHOSEN = (SUCCESS, RETRY, IGNORE)
"""The actions that end a composite handler: the next handlers are not asked."""


@dataclass(frozen=True)
class Handler:
    """A DefaultErrorHandler.

    Attributes:
        filters: the filters; the first one that matches decides.
        backoffs: the strategies; the first one that knows a time decides.
        max_retries: the number of times that a request may be repeated.
    """

    filters: Sequence[ResponseFilter]
    backoffs: Sequence[Wait]
    max_retries: int

    def resolve(self, outcome: Outcome) -> Resolution:
        """Return what follows from an outcome."""
        if isinstance(outcome, Response):
            for response_filter in self.filters:
                resolution = response_filter.match(outcome)
                if resolution is not None:
                    return resolution
        return default_resolution(outcome)


def default_resolution(outcome: Outcome) -> Resolution:
    """Return what follows from an outcome that no filter recognizes."""
    if not isinstance(outcome, Response):
        return Resolution(FAIL if is_permanent(outcome) else RETRY)
    if outcome.is_success:
        return Resolution(SUCCESS)
    if outcome.status_code == RATE_LIMITED_STATUS:
        return Resolution(RATE_LIMITED)
    is_final = outcome.is_redirect or outcome.status_code < 400 or outcome.status_code in _FINAL
    return Resolution(FAIL if is_final else RETRY)


class ErrorPolicy:
    """The policy of a requester, for the HTTP client.

    Args:
        handlers: the handlers, in the order in which they are asked.
        refresh: makes the next request get new credentials, after one that was refused.
    """

    def __init__(self, handlers: Sequence[Handler], refresh: Callable[[Request], object]):
        self._handlers = handlers
        self._refresh = refresh

    def decide(self, outcome: Outcome, attempt: int) -> Action:
        """Return the action for the outcome of an attempt."""
        resolution, handler = self._resolve(outcome)
        action = resolution.action
        if action == FAIL:
            return Fail(self._error(outcome, resolution, attempt))
        if action in (IGNORE, SUCCESS) and isinstance(outcome, Response):
            if outcome.is_error:
                return Ignore()
            if action == IGNORE:
                outcome.extensions[_MAY_LACK_RECORDS] = True
            return Accept()
        if attempt > self._handlers[0].max_retries:
            return Fail(self._error(outcome, resolution, attempt))
        if action == REFRESH_TOKEN_THEN_RETRY:
            self._refresh(outcome.request)
        return self._repeat(outcome, action, attempt, handler)

    def _resolve(self, outcome: Outcome) -> tuple[Resolution, Handler]:
        """Return what follows, and the handler that says so.

        As in the CDK, a handler without a matching filter decides by its defaults. But the defaults of a
        later handler do not replace what a filter of an earlier one says.
        """
        explicit: tuple[Resolution, Handler] | None = None
        resolved = Resolution(FAIL), self._handlers[0]
        for handler in self._handlers:
            resolved = handler.resolve(outcome), handler
            if resolved[0].is_explicit and explicit is None:
                explicit = resolved
            if resolved[0].action in _CHOSEN and (resolved[0].is_explicit or explicit is None):
                return resolved
        return explicit or resolved

    def _repeat(self, outcome: Outcome, action: str, attempt: int, handler: Handler) -> Action:
        others = (other.backoffs for other in self._handlers if other is not handler)
        waits = [*handler.backoffs, *itertools.chain.from_iterable(others)]
        return _WAITS.repeat(outcome, attempt, waits, is_rate_limited=action == RATE_LIMITED)

    def _error(self, outcome: Outcome, resolution: Resolution, attempt: int) -> EltError:
        if not isinstance(outcome, Response) or not resolution.is_explicit:
            return failure(outcome, attempt)
        default = failure(outcome, attempt)
        kind = type(default)
        if resolution.failure_type is not None:
            kind = error_class(resolution.failure_type)
        reason = resolution.message or (api_message(outcome) and excerpt(outcome))
        after = f" in {attempt} attempts" if attempt > 1 else ""
        where = f"{place(outcome.request)} failed ({outcome.status_code}{after})"
        return kind(
            f"{where}: {reason}" if reason else where,
            guidance=default.guidance if outcome.is_error else _SEE_ANSWER,
            detail=f"the API answered: {excerpt(outcome)}" if resolution.message else None,
        )


_SEE_ANSWER = "see what the API says; the manifest declares this answer as a failure"


def may_lack_records(response: Response) -> bool:
    """Return whether a filter ignores a response whose status is no error. As in the CDK, records in it are
    read, and so is the page that follows it; an error in their place does not fail the stream."""
    return bool(response.extensions.get(_MAY_LACK_RECORDS, False))


def handlers(component: ErrorHandler | None, config: Mapping[str, Any]) -> list[Handler]:
    """Return the handlers of a component, in the order in which they are asked; for None the default one.

    Raises:
        ConfigError: the component, or a part of it, cannot be used.
    """
    if component is None:
        return [Handler((), (), MAX_RETRIES)]
    if isinstance(component, components.CompositeErrorHandler):
        of_parts = [
            handler for part in component.error_handlers for handler in handlers(part, config)
        ]
        if not of_parts:
            raise ConfigError(
                f"{component.place} has no error handlers", guidance="add one, or remove it"
            )
        return of_parts
    filters = [
        ResponseFilter(filter_component, config)
        for filter_component in component.response_filters or ()
    ]
    backoffs = [backoff(strategy, config) for strategy in component.backoff_strategies or ()]
    retries, place = component.max_retries, f"{component.place}.max_retries"
    if isinstance(retries, Template):
        retries = retries.evaluate_or(MAX_RETRIES, {"config": config})
    return [Handler(filters, backoffs, max(0, int(read_number(retries, config, place))))]
