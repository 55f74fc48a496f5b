"""Responses and errors as the library requests has them: components in Python are written for those."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import Any

from connectors.declarative.requests.pages.view import links
from connectors.sdk.http import Request, Response
from connectors.sdk.http.failures import Outcome, failure

_ORIGINAL = "_elt_response"
_LIBRARY = "requests"


class Answer:
    """A response with the attributes and methods of one of the library requests that components use.

    It stands for one where nothing has imported that library. Each call of `json` returns a new object.
    """

    def __init__(self, response: Response):
        self._elt_response = response
        self.status_code = response.status_code
        self.reason = response.reason_phrase
        self.headers = response.headers
        self.encoding = response.charset_encoding
        self.url = str(response.url)
        self.request = response.request

    @property
    def ok(self) -> bool:
        return self.status_code < 400

    @property
    def content(self) -> bytes:
        return self._elt_response.content

    @property
    def text(self) -> str:
        return self._elt_response.text

    @property
    def links(self) -> dict[str, dict[str, str]]:
        return links(self.headers.get("link", ""))

    def json(self, **settings: Any) -> Any:
        """Return the JSON value of the body.

        Raises:
            ValueError: the body is not JSON.
        """
        return json.loads(self.content, **settings)

    def iter_content(self, chunk_size: int = 1, decode_unicode: bool = False) -> Iterator[Any]:
        """Yield the body in parts."""
        whole: Any = self.text if decode_unicode else self.content
        for at in range(0, len(whole), chunk_size):
            yield whole[at : at + chunk_size]

    def iter_lines(self, chunk_size: int = 512, decode_unicode: bool = False) -> Iterator[Any]:
        """Yield the lines of the body, without their ends."""
        del chunk_size
        yield from self.text.splitlines() if decode_unicode else self.content.splitlines()

    def raise_for_status(self) -> None:
        """Raise an error if the API answered with one.

        Raises:
            EltError: the status is one of an error.
        """
        if not self.ok:
            raise failure(self._elt_response)

    def close(self) -> None:
        """Do nothing: the body was read."""

    def __bool__(self) -> bool:
        return self.ok


def shown(response: Response) -> Any:
    """Return a response as the library requests has it: an object of that library if it is imported, because
    components ask for the type; otherwise an `Answer`."""
    library: Any = sys.modules.get(_LIBRARY)
    if library is None:
        return Answer(response)
    found = library.Response()
    found.status_code = response.status_code
    found.reason = response.reason_phrase
    found.url = str(response.url)
    found.headers = library.structures.CaseInsensitiveDict(response.headers)
    found.encoding = library.utils.get_encoding_from_headers(found.headers)
    found.raw = io.BytesIO()
    found._content = response.content  # noqa: SLF001 - there is no other way to make a response
    found._content_consumed = True  # noqa: SLF001
    found.request = _request(library, response.request)
    setattr(found, _ORIGINAL, response)
    return found


def outcome(given: Outcome) -> Any:
    """Return a response, or the error that prevented one, as the library requests has it."""
    if isinstance(given, Response):
        return shown(given)
    library: Any = sys.modules.get(_LIBRARY)
    if library is None:
        return given
    kind = library.exceptions.ConnectionError
    if "Timeout" in type(given).__name__:
        kind = library.exceptions.Timeout
    return kind(type(given).__name__, request=_request(library, given.request))


def original(shown_response: Any) -> Response:
    """Return the response that `shown` made another one of.

    Raises:
        TypeError: the object is not one of these.
    """
    found = getattr(shown_response, _ORIGINAL, None)
    if not isinstance(found, Response):
        raise TypeError("a component of the manifest needs the response that the class was given")
    return found


def shown_request(request: Request) -> Any:
    """Return a copy of a request as the library requests has it; the request itself if that library is not
    imported."""
    library: Any = sys.modules.get(_LIBRARY)
    return request if library is None else _request(library, request)


def _request(library: Any, request: Request) -> Any:
    found = library.PreparedRequest()
    found.method = request.method
    found.url = str(request.url)
    found.headers = library.structures.CaseInsensitiveDict(request.headers)
    found.body = request.read() or None
    return found
