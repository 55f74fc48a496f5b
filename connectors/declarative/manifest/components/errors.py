"""The handling of responses that are errors, and the waits before a request is repeated."""

from __future__ import annotations

from typing import Annotated, Literal

from connectors.declarative.manifest.components.base import Component, Usual
from connectors.declarative.manifest.template import Template

ResponseAction = Literal[
    "SUCCESS",
    "FAIL",
    "RETRY",
    "IGNORE",
    "RATE_LIMITED",
    "REFRESH_TOKEN_THEN_RETRY",
]


class HttpResponseFilter(Component):
    """The action for some responses. Any of the conditions is enough to match a response."""

    action: ResponseAction | None = None
    failure_type: Literal["system_error", "config_error", "transient_error"] | None = None
    error_message: Template | None = None
    error_message_contains: str | None = None
    http_codes: tuple[int, ...] | None = None
    predicate: Template | None = None


class ConstantBackoffStrategy(Component):
    """The same wait each time."""

    backoff_time_in_seconds: float | Template
    jitter_range_in_seconds: float | None = None


class ExponentialBackoffStrategy(Component):
    """A wait of `factor` times 2 to the power of the attempt's number."""

    factor: float | Template = 5
    jitter_range_in_seconds: float | None = None


class WaitTimeFromHeader(Component):
    """A wait. A header has its seconds."""

    header: Template
    regex: Template | None = None
    max_waiting_time_in_seconds: float | Template | None = None


class WaitUntilTimeFromHeader(Component):
    """A wait until a time that is in a header."""

    header: Template
    min_wait: float | Template | None = None
    regex: Template | None = None
    max_waiting_time_in_seconds: float | Template | None = None


class WaitTimeFromResponse(Component):
    """A wait. An expression gives its seconds from the body or the headers of the response."""

    wait_time_in_seconds: Template
    max_waiting_time_in_seconds: float | Template | None = None


BackoffStrategy = (
    ConstantBackoffStrategy
    | ExponentialBackoffStrategy
    | WaitTimeFromHeader
    | WaitUntilTimeFromHeader
    | WaitTimeFromResponse
)


class DefaultErrorHandler(Component):
    """The first response filter that matches decides; without one the status of the response."""

    backoff_strategies: tuple[Annotated[BackoffStrategy, "CustomBackoffStrategy"], ...] | None = (
        None
    )
    max_retries: int | Template = 5
    response_filters: tuple[HttpResponseFilter, ...] | None = None


class CompositeErrorHandler(Component):
    """Several error handlers; the first one that matches decides."""

    error_handlers: tuple[
        Annotated[CompositeErrorHandler | Usual[DefaultErrorHandler], "CustomErrorHandler"], ...
    ]
