"""HTTP for sources: a client with authentication, retries and a rate limit, and streams over JSON APIs.

This package imports httpx; `connectors.sdk` does not import this package.
"""

from connectors.sdk.http import messages  # noqa: F401 - before anything else imports httpx

# isort: split
from connectors.sdk.http.authenticators import ApiKey, Authenticator, Basic, Bearer
from connectors.sdk.http.client import HttpClient
from connectors.sdk.http.oauth import OAuth2ClientCredentials, OAuth2RefreshToken
from connectors.sdk.http.paginators import (
    Cursor,
    LinkHeader,
    NextUrl,
    Offset,
    PageNumber,
    Paginator,
    SinglePage,
)
from connectors.sdk.http.rate_limit import RateLimit
from connectors.sdk.http.retry import RetryPolicy
from connectors.sdk.http.stream import HttpStream

__all__ = [
    "ApiKey",
    "Authenticator",
    "Basic",
    "Bearer",
    "Cursor",
    "HttpClient",
    "HttpStream",
    "LinkHeader",
    "NextUrl",
    "OAuth2ClientCredentials",
    "OAuth2RefreshToken",
    "Offset",
    "PageNumber",
    "Paginator",
    "RateLimit",
    "RetryPolicy",
    "SinglePage",
]
