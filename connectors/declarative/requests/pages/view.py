"""Views of pages: the variables of the templates of paginators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from connectors.declarative.requests.decoding.decoders import Decoder
from connectors.sdk.http import urls
from connectors.sdk.http.messages import Response
from connectors.sdk.items import Record

LINK = "link"
"""Name of the header whose links are parsed, in lower case. The name `Link` has the text."""


class HeaderValues(dict[str, Any]):
    """The headers of a response, by their names in any case; `link` has the links by their relation."""

    def __init__(self, response: Response):
        names = (name.decode("latin-1") for name, _ in response.headers.raw)
        super().__init__({name: response.headers[name] for name in names})
        self._lower = {name.lower(): value for name, value in self.items()}
        self[LINK] = links(response.headers.get(LINK, ""))
        self._lower.pop(LINK, None)

    def __missing__(self, name: str) -> Any:
        return self._lower[name.lower()]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or str(name).lower() in self._lower

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


def links(header: str) -> dict[str, dict[str, str]]:
    """Return the links of a header `Link` by their relation: the URL and the parameters of each."""
    return {
        parameters.get("rel") or url: {"url": url, **parameters}
        for url, parameters in urls.links(header)
    }


@dataclass
class View:
    """A page that was read.

    Attributes:
        config: the config of the source.
        response: the response.
        decoder: the decoder of the response.
        token: the token of the page; None for a first page without one.
        extracted: the number of records in the response, before the filter: a page of which the filter leaves
            nothing is not the last one.
        last: the last one of them, transformed; None if there is none.
        is_changed: whether transformations have changed the decoded body.
    """

    config: Mapping[str, Any]
    response: Response
    decoder: Decoder
    token: Any
    extracted: int = 0
    last: Record | None = None
    is_changed: bool = False

    def variables(self, names: Collection[str]) -> dict[str, Any]:
        """Return the variables of templates that use these names."""
        values: dict[str, Any] = {
            "config": self.config,
            "last_record": self.last,
            "last_page_size": self.extracted,
        }
        if "response" in names:
            values["response"] = self.decoder.shown(self.response, is_fresh=self.is_changed)
        if "headers" in names:
            values["headers"] = HeaderValues(self.response)
        return values
