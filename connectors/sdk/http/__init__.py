"""HTTP for sources: a client with authentication, retries and a rate limit, and streams over JSON APIs.

This package imports httpx; `connectors.sdk` does not import this package.
"""

from connectors.sdk.http import quick_import  # noqa: F401 - before anything else imports httpx

# isort: split
from httpx import URL, Request, Response

from connectors.sdk.http.authenticators import (
    ApiKey,
    Authenticator,
    Basic,
    Bearer,
    CredentialsRequest,
    Send,
)
from connectors.sdk.http.body import decoded, value_at, values_at
from connectors.sdk.http.client import HttpClient, is_ignored
from connectors.sdk.http.connections import Connections
from connectors.sdk.http.oauth import OAuth2, OAuth2ClientCredentials, OAuth2RefreshToken
from connectors.sdk.http.paginators import (
    Cursor,
    LinkHeader,
    NextUrl,
    Offset,
    Page,
    PageNumber,
    PageRequest,
    Paginator,
    SinglePage,
)
from connectors.sdk.http.rate_limit import Limiter, RateLimit
from connectors.sdk.http.retry import (
    Accept,
    Action,
    Fail,
    Ignore,
    Policy,
    Retry,
    RetryPolicy,
)
from connectors.sdk.http.stream import HttpStream
from connectors.sdk.reports import FAILED, RATE_LIMITED

__all__ = [
    "FAILED",
    "RATE_LIMITED",
    "URL",
    "Accept",
    "Action",
    "ApiKey",
    "Authenticator",
    "Basic",
    "Bearer",
    "Connections",
    "CredentialsRequest",
    "Cursor",
    "Fail",
    "HttpClient",
    "HttpStream",
    "Ignore",
    "Limiter",
    "LinkHeader",
    "NextUrl",
    "OAuth2",
    "OAuth2ClientCredentials",
    "OAuth2RefreshToken",
    "Offset",
    "Page",
    "PageNumber",
    "PageRequest",
    "Paginator",
    "Policy",
    "RateLimit",
    "Request",
    "Response",
    "Retry",
    "RetryPolicy",
    "Send",
    "SinglePage",
    "decoded",
    "is_ignored",
    "value_at",
    "values_at",
]
