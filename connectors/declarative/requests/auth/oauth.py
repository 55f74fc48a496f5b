"""OAuth 2.0: access tokens that a token endpoint issues.

Spec: OAuthAuthenticator; RFC 6749, sections 4.4, 5.2 and 6.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from connectors.declarative.manifest import clock, components
from connectors.declarative.manifest.dates import parse_datetime, parse_iso
from connectors.declarative.manifest.template import Template, value
from connectors.declarative.requests.auth.tokens import Fetched, Renewable
from connectors.declarative.requests.decoding.json_body import json_body, json_body_if_any
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.expressions import text
from connectors.declarative.requests.options import with_query
from connectors.declarative.requests.records import paths
from connectors.sdk.http.authenticators import CredentialsRequest, Send
from connectors.sdk.http.failures import excerpt, place
from connectors.sdk.http.messages import Response
from connectors.sdk.http.oauth import REFUSED_STATUSES, describe_missing_token, refusal
from elt_assets.errors import ConfigError, SystemFailure

DEFAULT_SECONDS = 3600.0
"""Life of a token for which the endpoint names none."""
MAX_DEPTH = 5
"""Depth up to which the fields of the answer are looked up."""
_ERRORS = (400,), "error", ("invalid_grant", "invalid_permissions")
"""Status, field and its values by which an endpoint says that a refresh token is not valid."""


class OAuth(Renewable):
    """Credentials with an access token.

    Args:
        component: an OAuthAuthenticator.
        environment: the surroundings; tokens in the config are replaced if the component says so.

    Raises:
        ConfigError: the component lacks something, or its expiry date is none.
    """

    def __init__(self, component: components.OAuthAuthenticator, environment: Environment):
        super().__init__()
        self._component = component
        self._environment = environment
        self._endpoint = self._text(component.token_refresh_endpoint)
        self._refresh_token: str | None = None
        self._error = _error_signs(component)
        self._check()
        self._begin()

    def fetch(self, send: Send) -> Fetched:
        if not self._endpoint:
            raise ConfigError(
                f"{self._component.place}: the access token is refused, and there is no endpoint for a "
                "new one",
                guidance="replace the access token in the config",
            )
        response = send(self._request())
        answer = self._answer(response)
        name, endpoint = self._text(self._component.access_token_name), self._component.place
        token = _found(answer, name)
        if not isinstance(token, str) or not token:
            guidance = f"correct {endpoint}.token_refresh_endpoint or `access_token_name`"
            raise describe_missing_token(response, answer, name, guidance)
        seconds = self._seconds(_found(answer, self._text(self._component.expires_in_name)))
        self._accept(answer, token, seconds)
        return Fetched(token, seconds)

    def _begin(self) -> None:
        """Take over the access token that the config has, if it is still valid."""
        updater = self._component.refresh_token_updater
        token = self._text(self._component.access_token_value)
        expiry = self._text(self._component.token_expiry_date)
        if updater is not None:
            token = str(self._config_value(updater.access_token_config_path) or "")
            expiry = str(self._config_value(updater.token_expiry_date_config_path) or "")
        if not token:
            return
        if not self._endpoint:
            self.keep(token, float("inf"))
        elif expiry:
            until = self._time(expiry)
            self.keep(token, (until - clock.now()).total_seconds())

    def _check(self) -> None:
        component, lacks = self._component, []
        if not self._endpoint:
            if not component.access_token_value:
                lacks.append("token_refresh_endpoint")
        else:
            has_basic = self._has_header()
            if not has_basic and not self._client_id():
                lacks.append("client_id")
            is_without = self._present_refresh_token() == "" and not self._is_left_empty
            if self._grant() == "refresh_token" and is_without:
                lacks.append("refresh_token")
        if lacks:
            raise ConfigError(
                f"{component.place}: there is no value for {' and '.join(lacks)}",
                guidance="check the credentials in the config, and the authenticator in the manifest",
            )

    def _request(self) -> CredentialsRequest:
        headers = {
            name: str(header) for name, header in self._map(self._component.refresh_request_headers)
        }
        fields = self._fields()
        secrets = [self._client_secret(), self._present_refresh_token(), *headers.values()]
        url: str = self._endpoint
        form: dict[str, Any] | None = fields
        if self._component.send_refresh_request_as_query_params:
            url, form = with_query(url, fields), None
        return CredentialsRequest(
            url,
            form=form,
            headers={"Accept": "application/json", **headers},
            secrets=[secret for secret in secrets if secret],
            accepted_statuses=REFUSED_STATUSES,
        )

    def _fields(self) -> dict[str, Any]:
        """Return the fields of the request, in the order of the CDK."""
        component = self._component
        fields: dict[str, Any] = {self._text(component.grant_type_name): self._grant()}
        if not self._has_header():
            fields[self._text(component.client_id_name)] = self._client_id()
            fields[self._text(component.client_secret_name)] = self._client_secret()
        refresh_token = self._present_refresh_token()
        if refresh_token or self._is_left_empty:
            fields[self._refresh_name()] = refresh_token
        if component.scopes:
            fields["scopes"] = list(component.scopes)
        for name, template in self._map(component.refresh_request_body):
            fields.setdefault(name, template)
        return fields

    def _answer(self, response: Response) -> Any:
        if response.status_code not in REFUSED_STATUSES:
            return json_body(response)
        statuses, field, values = self._error
        body = json_body_if_any(response)
        value = body.get(field) if isinstance(body, dict) else None
        if response.status_code in statuses and value in values:
            raise ConfigError(
                f"{place(response.request)} refuses the refresh token ({value}): it is not valid, or has "
                "expired",
                guidance="authorize the source again",
                detail=f"the endpoint answered: {excerpt(response)}",
            )
        raise refusal(response)

    def _accept(self, answer: Any, token: str, seconds: float) -> None:
        """Keep a new refresh token, and save the tokens in the config if the manifest says where."""
        updater = self._component.refresh_token_updater
        new = _found(answer, self._refresh_name())
        if isinstance(new, str) and new:
            self._refresh_token = new
        if updater is None:
            return
        until = datetime.fromtimestamp(clock.now().timestamp() + seconds, timezone.utc)

        def replace(config: Any) -> None:
            paths.put(config, updater.access_token_config_path, token)
            if self._refresh_token:
                paths.put(config, updater.refresh_token_config_path, self._refresh_token)
            expiry = until.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            paths.put(config, updater.token_expiry_date_config_path, expiry)

        self._environment.replace_tokens(replace)

    def _seconds(self, lifetime: Any) -> float:
        """Return the life of a token.

        Raises:
            SystemFailure: the endpoint names it in another form.
        """
        if lifetime is None:
            return DEFAULT_SECONDS
        if self._component.token_expiry_date_format:
            return (self._time(str(lifetime)) - clock.now()).total_seconds()
        try:
            return float(lifetime)
        except (TypeError, ValueError):
            name = self._text(self._component.expires_in_name)
            raise SystemFailure(
                f"the field {name!r} of the token endpoint's answer is not a number of seconds",
                guidance=f"set {self._component.place}.token_expiry_date_format for a date",
            ) from None

    def _time(self, expiry: str) -> datetime:
        """Return a time that the manifest, the config or the endpoint names."""
        form = self._component.token_expiry_date_format
        for moment in (_in_format(expiry, form), _unix(expiry), _iso(expiry)):
            if moment is not None:
                return moment
        raise ConfigError(
            f"{self._component.place}: the expiry date of the access token is not a date",
            guidance="correct it in the config, or set `token_expiry_date_format` in the manifest",
        )

    def _grant(self) -> str:
        return self._text(self._component.grant_type)

    def _client_id(self) -> str:
        return self._text(self._component.client_id) or self._of_credentials("client_id")

    def _client_secret(self) -> str:
        return self._text(self._component.client_secret) or self._of_credentials("client_secret")

    def _of_credentials(self, name: str) -> str:
        """Return what the config has for the client, for a refresh token that is used once."""
        if self._component.refresh_token_updater is None:
            return ""
        return str(self._config_value(("credentials", name)) or "")

    def _present_refresh_token(self) -> str:
        updater = self._component.refresh_token_updater
        if updater is not None:
            return str(self._config_value(updater.refresh_token_config_path) or "")
        return self._refresh_token or self._text(self._component.refresh_token)

    @property
    def _is_left_empty(self) -> bool:
        """Return whether the manifest, not the config, has an empty refresh token: the endpoint decides."""
        refresh_token = self._component.refresh_token
        return refresh_token is not None and not refresh_token.text

    def _refresh_name(self) -> str:
        updater = self._component.refresh_token_updater
        return (
            updater.refresh_token_name
            if updater
            else self._text(self._component.refresh_token_name)
        )

    def _has_header(self) -> bool:
        return any(
            name == "Authorization"
            for name, _ in self._map(self._component.refresh_request_headers)
        )

    def _config_value(self, path: paths.Path) -> Any:
        value = paths.value_at_names(self._environment.config, path)
        return None if value is paths.MISSING else value

    def _map(self, templates: Any) -> list[tuple[str, Any]]:
        evaluated = value(templates, self._variables) if templates is not None else {}
        return list(evaluated.items())

    def _text(self, template: Template | None) -> str:
        return text(template, self._variables)

    @property
    def _variables(self) -> dict[str, Any]:
        return {"config": self._environment.config}


def _error_signs(
    component: components.OAuthAuthenticator,
) -> tuple[tuple[int, ...], str, tuple[str, ...]]:
    for part in (component, component.refresh_token_updater):
        if part is not None and (
            part.refresh_token_error_status_codes
            or part.refresh_token_error_key
            or part.refresh_token_error_values
        ):
            return (
                part.refresh_token_error_status_codes or (),
                part.refresh_token_error_key or "",
                part.refresh_token_error_values or (),
            )
    return _ERRORS


def _found(answer: Any, name: str, depth: int = 0) -> Any:
    """Return the first field with a name, at any depth; None if there is none."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(answer, dict):
        if name in answer:
            return answer[name]
        answer = list(answer.values())
    if isinstance(answer, list):
        inner = (_found(item, name, depth + 1) for item in answer)
        return next((value for value in inner if value is not None), None)
    return None


def _in_format(text: str, form: str | None) -> datetime | None:
    try:
        return parse_datetime(text, form) if form else None
    except (ValueError, OverflowError):
        return None


def _unix(text: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(text), timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None


def _iso(text: str) -> datetime | None:
    try:
        return parse_iso(text)
    except (ValueError, OverflowError):
        return None
