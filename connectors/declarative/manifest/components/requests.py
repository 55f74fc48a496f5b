"""Requests: their parts, authentication, pages, errors, and the formats of responses."""

from __future__ import annotations

from typing import Annotated, Literal

from connectors.declarative.manifest.components.base import Component, Json, Unsupported, Usual
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


class JsonDecoder(Component):
    """JSON."""


class JsonlDecoder(Component):
    """A JSON value in each line."""


class IterableDecoder(Component):
    """A text in each line; the records have the field `record`."""


class XmlDecoder(Component):
    """XML."""


class CsvDecoder(Component):
    """CSV with a header."""

    encoding: str = "utf-8"
    delimiter: str = ","
    set_values_to_none: tuple[str, ...] | None = None


class GzipDecoder(Component):
    """Another format, compressed."""

    decoder: Annotated[CsvDecoder | GzipDecoder | JsonDecoder | JsonlDecoder, "JsonItemsDecoder"]


Decoder = Annotated[
    JsonDecoder | XmlDecoder | CsvDecoder | JsonlDecoder | GzipDecoder | IterableDecoder,
    "JsonItemsDecoder",
    "ZipfileDecoder",
    "CustomDecoder",
]


class NoAuth(Component):
    """No authentication."""


class BearerAuthenticator(Component):
    """A token in the header `Authorization`."""

    api_token: Template


class ApiKeyAuthenticator(Component):
    """A key in a header or elsewhere in the request. Either `header` or `inject_into` is set."""

    api_token: Template | None = None
    header: Template | None = None
    inject_into: RequestOption | None = None


class BasicHttpAuthenticator(Component):
    """A user name and a password."""

    username: Template
    password: Template = Template("")


class RefreshTokenUpdater(Component, tag=False):
    """The places in the config where new tokens are kept, for refresh tokens that can be used once."""

    refresh_token_name: str = "refresh_token"  # noqa: S105 - a name
    access_token_config_path: tuple[str, ...] = ("credentials", "access_token")
    refresh_token_config_path: tuple[str, ...] = ("credentials", "refresh_token")
    token_expiry_date_config_path: tuple[str, ...] = ("credentials", "token_expiry_date")
    refresh_token_error_status_codes: tuple[int, ...] = ()
    refresh_token_error_key: str = ""
    refresh_token_error_values: tuple[str, ...] = ()


class OAuthAuthenticator(Component):
    """An access token that is requested with a refresh token or with client credentials."""

    client_id_name: Template = Template("client_id")
    client_id: Template | None = None
    client_secret_name: Template = Template("client_secret")
    client_secret: Template | None = None
    refresh_token_name: Template = Template("refresh_token")
    refresh_token: Template | None = None
    token_refresh_endpoint: Template | None = None
    access_token_name: Template = Template("access_token")
    access_token_value: Template | None = None
    expires_in_name: Template = Template("expires_in")
    grant_type_name: Template = Template("grant_type")
    grant_type: Template = Template("refresh_token")
    refresh_request_body: TemplateMap | None = None
    refresh_request_headers: TemplateMap | None = None
    send_refresh_request_as_query_params: bool = False
    scopes: tuple[str, ...] | None = None
    token_expiry_date: Template | None = None
    token_expiry_date_format: str | None = None
    refresh_token_error_status_codes: tuple[int, ...] | None = None
    refresh_token_error_key: str | None = None
    refresh_token_error_values: tuple[str, ...] | None = None
    refresh_token_updater: RefreshTokenUpdater | None = None
    profile_assertion: Annotated[None, "JwtAuthenticator"] = None
    use_profile_assertion: Unsupported = None


class SessionTokenRequestApiKeyAuthenticator(Component, tag="ApiKey"):
    """A session token as a key in the request."""

    inject_into: RequestOption
    api_token: Template = Template("{{ session_token }}")


class SessionTokenRequestBearerAuthenticator(Component, tag="Bearer"):
    """A session token in the header `Authorization`."""


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


class PageIncrement(Component):
    """The number of the page, which grows by one."""

    page_size: int | Template | None = None
    start_from_page: int = 0
    inject_on_first_request: bool = False


class OffsetIncrement(Component):
    """The number of records before the page."""

    page_size: int | Template | None = None
    inject_on_first_request: bool = False


class CursorPagination(Component):
    """A value from the last response, until a condition holds or there is no value."""

    cursor_value: Template
    page_size: int | Template | None = None
    stop_condition: Template | None = None


class DefaultPaginator(Component):
    """A strategy, and where in the request its size and its token are put."""

    pagination_strategy: Annotated[
        PageIncrement | OffsetIncrement | CursorPagination, "CustomPaginationStrategy"
    ]
    page_size_option: RequestOption | None = None
    page_token_option: RequestOption | RequestPath | None = None


class NoPagination(Component):
    """A single page."""
