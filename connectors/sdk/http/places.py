"""Places in a request, such as a parameter of the query or a field of its JSON body, where a value is put."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode

from connectors.sdk.encoding import encode
from connectors.sdk.http.failures import hide
from connectors.sdk.http.messages import URL, Request
from elt_assets.errors import ConfigError

Part = Literal["params", "headers", "data", "json"]
"""A part of a request: the query, the headers, the fields of a form, or the JSON body."""
FORM_TYPE, JSON_TYPE = "application/x-www-form-urlencoded", "application/json"


@dataclass(frozen=True)
class Place:
    """A place in a request.

    Attributes:
        part: the part of the request.
        path: the name of the field; several names for a field within others, in the JSON body.
    """

    part: Part
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        """The path as one text."""
        return ".".join(self.path)

    def put(self, request: Request, value: str, secrets: Sequence[str] = ()) -> None:
        """Put a secret value into a request that is not sent yet; no message has it, or the secrets in it.

        Raises:
            ConfigError: the JSON body is not an object.
        """
        hide(request, [value, *secrets])
        name = self.path[-1]
        if self.part == "headers":
            request.headers.encoding = "utf-8"
            request.headers[name] = value
        elif self.part == "params":
            request.url = _set_parameter(request.url, name, value)
        elif self.part == "data":
            fields = [pair for pair in parse_qsl(request.read().decode()) if pair[0] != name]
            _replace_body(request, urlencode([*fields, (name, value)]).encode(), FORM_TYPE)
        else:
            body = node = _json_body(request)
            for step in self.path[:-1]:
                node = node.setdefault(step, {})
            node[name] = value
            _replace_body(request, encode(body), JSON_TYPE)


AUTHORIZATION = Place("headers", ("Authorization",))


def _set_parameter(url: URL, name: str, value: str) -> URL:
    """Return a URL with a parameter. The others stay as they are written, unless one is replaced."""
    if name in url.params:
        return url.copy_set_param(name, value)
    added = urlencode({name: value}).encode()
    return url.copy_with(query=b"&".join(filter(None, (url.query, added))))


def _json_body(request: Request) -> dict[str, Any]:
    content = request.read()
    body = json.loads(content) if content else {}
    if not isinstance(body, dict):
        raise ConfigError(
            "the credentials cannot be added to a JSON body that is not an object",
            guidance="correct the place of the credentials, or the body of the request",
        )
    return body


def _replace_body(request: Request, content: bytes, content_type: str) -> None:
    replaced = Request(
        request.method,
        request.url,
        headers={"Content-Type": request.headers.get("Content-Type", content_type)},
        content=content,
    )
    request.stream = replaced.stream
    for name in ("Content-Type", "Content-Length"):
        request.headers[name] = replaced.headers[name]
    request.headers.pop("Transfer-Encoding", None)
