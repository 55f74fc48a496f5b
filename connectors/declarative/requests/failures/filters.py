"""Response filters: they recognize responses, and say what follows from them.

Spec: HttpResponseFilter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.decoding.json_body import json_body_if_any
from connectors.sdk.http.messages import Response

SUCCESS, FAIL, RETRY, IGNORE = "SUCCESS", "FAIL", "RETRY", "IGNORE"
RESET_PAGINATION, RATE_LIMITED = "RESET_PAGINATION", "RATE_LIMITED"
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
        self._predicate = component.predicate if _text(component.predicate) else None
        self._contained = _text(component.error_message_contains)

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


def _text(message: Any) -> str:
    return message.text if isinstance(message, Template) else message or ""
