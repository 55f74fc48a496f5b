"""Parts of requests: options, bodies, and the budget of calls."""

from __future__ import annotations

from typing import Literal

from connectors.declarative.manifest.components.base import Component, Json
from connectors.declarative.manifest.template import Template, TemplateMap


class RequestOption(Component):
    """A place in a request, for a value. Either the name or the path is set."""

    inject_into: Literal["request_parameter", "header", "body_data", "body_json"]
    field_name: Template | None = None
    field_path: tuple[Template, ...] | None = None


class RequestPath(Component):
    """The URL or the path of a request, which a page token replaces."""


class RequestBodyPlainText(Component):
    """A body that is text."""

    value: Template


class RequestBodyUrlEncodedForm(Component):
    """A body that is a form."""

    value: TemplateMap


class RequestBodyJsonObject(Component):
    """A body that is JSON."""

    value: TemplateMap


class RequestBodyGraphQL(Component):
    """A body that is a GraphQL request: `query`, and other fields such as `variables`."""

    value: TemplateMap


class HttpRequestRegexMatcher(Component, tag=False):
    """The requests that a policy is for; a field that is not set matches all."""

    method: str | None = None
    url_base: str | None = None
    url_path_pattern: str | None = None
    params: Json | None = None
    headers: Json | None = None
    weight: int | Template | None = None


class Rate(Component, tag=False):
    """A number of calls in an interval."""

    limit: int | Template
    interval: str


class FixedWindowCallRatePolicy(Component):
    """A number of calls in windows that follow each other."""

    period: str
    call_limit: int
    matchers: tuple[HttpRequestRegexMatcher, ...]


class MovingWindowCallRatePolicy(Component):
    """A number of calls in any window of a length."""

    rates: tuple[Rate, ...]
    matchers: tuple[HttpRequestRegexMatcher, ...]


class UnlimitedCallRatePolicy(Component):
    """No limit for some requests."""

    matchers: tuple[HttpRequestRegexMatcher, ...]


class HTTPAPIBudget(Component):
    """The calls that all streams together may make."""

    policies: tuple[
        FixedWindowCallRatePolicy | MovingWindowCallRatePolicy | UnlimitedCallRatePolicy, ...
    ]
    ratelimit_reset_header: str = "ratelimit-reset"
    ratelimit_remaining_header: str = "ratelimit-remaining"
    status_codes_for_ratelimit_hit: tuple[int, ...] = (429,)
