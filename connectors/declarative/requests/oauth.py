"""OAuth 2.0: access tokens that a token endpoint issues.

Spec: OAuthAuthenticator; RFC 6749, sections 4.4, 5.2 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from connectors.declarative import paths
from connectors.declarative.manifest import clock, components
from connectors.declarative.manifest.dates import parse_datetime, parse_iso
from connectors.declarative.manifest.template import value
from connectors.declarative.requests.decoding.json_body import json_body, json_body_if_any
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.expressions import text
from connectors.declarative.requests.options import with_query
from connectors.sdk.http.authenticators import (
    CredentialsRequest,
    Send,
    Token,
    TokenAuthenticator,
)
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


class OAuth(TokenAuthenticator):
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
        self._updater = component.refresh_token_updater
        self._environment = environment
        self._endpoint = self._text("token_refresh_endpoint")
        self._refresh_token: str | None = None
        self._check()
        self._begin()

    def fetch(self, send: Send) -> Token:
        place = self._component.place
        if not self._endpoint:
            raise ConfigError(
                f"{place}: the access token is refused, and there is no endpoint for a new one",
                guidance="replace the access token in the config",
            )
        response = send(self._request())
        answer = self._read_answer(response)
        name = self._text("access_token_name")
        token = _find_field(answer, name)
        if not isinstance(token, str) or not token:
            guidance = f"correct {place}.token_refresh_endpoint or `access_token_name`"
            raise describe_missing_token(response, answer, name, guidance)
        seconds = self._read_seconds(_find_field(answer, self._text("expires_in_name")))
        self._accept(answer, token, seconds)
        return Token(token, seconds)

    def _begin(self) -> None:
        """Take over the access token that the config has, if it is still valid."""
        if self._updater is None:
            token, expiry = self._text("access_token_value"), self._text("token_expiry_date")
        else:
            token = self._find_in_config(self._updater.access_token_config_path)
            expiry = self._find_in_config(self._updater.token_expiry_date_config_path)
        if token and not self._endpoint:
            self.keep(token, math.inf)
        elif token and expiry:
            self.keep(token, self._seconds_until(expiry))

    def _check(self) -> None:
        component = self._component
        if not self._endpoint:
            needed: dict[str, Any] = {"token_refresh_endpoint": component.access_token_value}
        else:
            is_refreshing = self._text("grant_type") == "refresh_token" and not self._is_left_empty
            needed = {
                "client_id": self._has_header() or self._find_client("client_id"),
                "refresh_token": not is_refreshing or self._present_refresh_token(),
            }
        missing = [name for name, value in needed.items() if not value]
        if missing:
            raise ConfigError(
                f"{component.place}: there is no value for {' and '.join(missing)}",
                guidance="check the credentials in the config, and the authenticator in the manifest",
            )

    def _request(self) -> CredentialsRequest:
        headers = {name: str(header) for name, header in self._map("refresh_request_headers")}
        fields = self._list_fields()
        secrets = [
            self._find_client("client_secret"),
            self._present_refresh_token(),
            *headers.values(),
        ]
        in_query = self._component.send_refresh_request_as_query_params
        return CredentialsRequest(
            with_query(self._endpoint, fields) if in_query else self._endpoint,
            form=None if in_query else fields,
            headers={"Accept": "application/json", **headers},
            secrets=secrets,
            accepted_statuses=REFUSED_STATUSES,
        )

    def _list_fields(self) -> dict[str, Any]:
        """Return the fields of the request, in the order of the CDK."""
        fields: dict[str, Any] = {self._text("grant_type_name"): self._text("grant_type")}
        if not self._has_header():
            for name in ("client_id", "client_secret"):
                fields[self._text(f"{name}_name")] = self._find_client(name)
        refresh_token = self._present_refresh_token()
        if refresh_token or self._is_left_empty:
            fields[self._refresh_name()] = refresh_token
        if self._component.scopes:
            fields["scopes"] = list(self._component.scopes)
        for name, field in self._map("refresh_request_body"):
            fields.setdefault(name, field)
        return fields

    def _read_answer(self, response: Response) -> Any:
        if response.status_code not in REFUSED_STATUSES:
            return json_body(response)
        statuses, field, values = _list_error_signs(self._component)
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
        updater = self._updater
        issued = _find_field(answer, self._refresh_name())
        if isinstance(issued, str) and issued:
            self._refresh_token = issued
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

    def _read_seconds(self, lifetime: Any) -> float:
        """Return the life of a token.

        Raises:
            SystemFailure: the endpoint names it in another form.
        """
        if lifetime is None:
            return DEFAULT_SECONDS
        if self._component.token_expiry_date_format:
            return self._seconds_until(str(lifetime))
        try:
            return float(lifetime)
        except (TypeError, ValueError):
            name = self._text("expires_in_name")
            raise SystemFailure(
                f"the field {name!r} of the token endpoint's answer is not a number of seconds",
                guidance=f"set {self._component.place}.token_expiry_date_format for a date",
            ) from None

    def _seconds_until(self, expiry: str) -> float:
        """Return the seconds until a time that the manifest, the config or the endpoint names.

        Raises:
            ConfigError: it is not a time.
        """
        form = self._component.token_expiry_date_format
        forms: list[Callable[[str], datetime]] = [
            lambda text: datetime.fromtimestamp(float(text), timezone.utc),
            parse_iso,
        ]
        if form:
            forms.insert(0, lambda text: parse_datetime(text, form))
        for parse in forms:
            with suppress(ValueError, OverflowError, OSError):
                return (parse(expiry) - clock.now()).total_seconds()
        raise ConfigError(
            f"{self._component.place}: the expiry date of the access token is not a date",
            guidance="correct it in the config, or set `token_expiry_date_format` in the manifest",
        )

    def _find_client(self, name: str) -> str:
        """Return the ID or the secret of the client; by default what the config has for it, for a refresh
        token that is used once."""
        value = self._text(name)
        return (
            value if value or self._updater is None else self._find_in_config(("credentials", name))
        )

    def _present_refresh_token(self) -> str:
        if self._updater is not None:
            return self._find_in_config(self._updater.refresh_token_config_path)
        return self._refresh_token or self._text("refresh_token")

    @property
    def _is_left_empty(self) -> bool:
        """Return whether the manifest, not the config, has an empty refresh token: the endpoint decides."""
        refresh_token = self._component.refresh_token
        return refresh_token is not None and not refresh_token.text

    def _refresh_name(self) -> str:
        return (
            self._updater.refresh_token_name if self._updater else self._text("refresh_token_name")
        )

    def _has_header(self) -> bool:
        return any(name == "Authorization" for name, _ in self._map("refresh_request_headers"))

    def _find_in_config(self, path: paths.Path) -> str:
        """Return the text at a path of the config; an empty one if there is none."""
        value = paths.value_at_names(self._environment.config, path)
        return "" if value is paths.MISSING else str(value or "")

    def _map(self, name: str) -> Iterable[tuple[str, Any]]:
        """Return the evaluated entries of a field of the component."""
        templates = getattr(self._component, name)
        evaluated: dict[str, Any] = {} if templates is None else value(templates, self._variables)
        return evaluated.items()

    def _text(self, name: str) -> str:
        """Return a field of the component as text; an empty one if it is missing."""
        return text(getattr(self._component, name), self._variables)

    @property
    def _variables(self) -> dict[str, Any]:
        return {"config": self._environment.config}


def _list_error_signs(
    component: components.OAuthAuthenticator,
) -> tuple[Sequence[int], str, Sequence[str]]:
    """Return the statuses, the field and its values by which an endpoint refuses a refresh token."""
    for part in (component, component.refresh_token_updater):
        if part is not None:
            signs = (
                part.refresh_token_error_status_codes or (),
                part.refresh_token_error_key or "",
                part.refresh_token_error_values or (),
            )
            if any(signs):
                return signs
    return _ERRORS


def _find_field(answer: Any, name: str, depth: int = 0) -> Any:
    """Return the first field with a name, at any depth; None if there is none."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(answer, dict):
        if name in answer:
            return answer[name]
        answer = list(answer.values())
    if isinstance(answer, list):
        inner = (_find_field(item, name, depth + 1) for item in answer)
        return next((value for value in inner if value is not None), None)
    return None
