"""Session tokens, which a login returns.

Spec: SessionTokenAuthenticator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.auth.tokens import (
    Fetched,
    Place,
    Renewable,
)
from connectors.sdk.http import Response, Send
from connectors.sdk.http.failures import place as place_of
from elt_assets.errors import SystemFailure

Login = Callable[[], str]
"""Logs in, and returns the session token."""


class Session(Renewable):
    """Credentials with a session token. The login is repeated when the token expires or is refused.

    Args:
        login: returns a new token.
        seconds: the life of a token; infinite if it is not known.
        template: the text that a request gets, with the variable `session_token`; None for a bearer token.
        place: the place in a request.
        config: the config of the source.
    """

    def __init__(
        self,
        login: Login,
        seconds: float,
        template: Template | None,
        place: Place,
        config: Mapping[str, Any],
    ):
        super().__init__()
        self.place = place
        self._login = login
        self._seconds = seconds
        self._template = template
        self._config = config

    def fetch(self, send: Send) -> Fetched:
        return Fetched(self._login(), self._seconds)

    def shown(self, token: str) -> str:
        if self._template is None:
            return super().shown(token)
        return self._template.text_of({"config": self._config, "session_token": token})


def no_session_token(response: Response, name: str) -> SystemFailure:
    """Return the error for a response to a login that has no session token."""
    return SystemFailure(
        f"the response of {place_of(response.request)} has no session token at {name!r}",
        guidance="check user name and password in the config, and the path of the token in the manifest",
    )
