"""The authentication of requests."""

from __future__ import annotations

from typing import Annotated

from connectors.declarative.manifest.components.base import Component, Unsupported
from connectors.declarative.manifest.components.requests import RequestOption
from connectors.declarative.manifest.template import Template, TemplateMap


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
