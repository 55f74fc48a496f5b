"""Paginators: a strategy, and where its token and its page size stand in a request.

Spec: DefaultPaginator, RequestPath, RequestOption.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from connectors.declarative.cursors.slices import Injection, Option, injection
from connectors.declarative.manifest import components
from connectors.declarative.requests.pages.strategies import Single, Strategy, strategy
from connectors.sdk.http import Response
from connectors.sdk.http.failures import place
from connectors.sdk.http.paginators import EQUAL_PAGES
from connectors.sdk.items import Record
from elt_assets.errors import ConfigError, SystemFailure

MAX_EMPTY_PAGES = 10_000
"""Number of pages without records that may follow each other, each with the token of another one."""
_encode = msgspec.json.Encoder(decimal_format="number").encode


class Paginator:
    """The pages of a slice: the token of each, and what it puts into its request.

    Args:
        component: a DefaultPaginator, NoPagination, or None for a single page.
        config: the config of the source.

    Raises:
        ConfigError: the component is not supported, or contradicts itself.

    Attributes:
        strategy: what returns the tokens.
    """

    def __init__(self, component: Any, config: Mapping[str, Any]):
        self.strategy: Strategy = Single()
        self._token: Injection | None = None
        self._size: tuple[Option, str] | None = None
        self._is_path = False
        self._place = ""
        if component is None or isinstance(component, components.NoPagination):
            return
        if not isinstance(component, components.DefaultPaginator):
            raise ConfigError(
                f"{getattr(component, 'place', 'the paginator')}: {type(component).__name__} is not "
                "supported",
                guidance="use DefaultPaginator or NoPagination",
            )
        self._place = component.place
        self.strategy = strategy(component.pagination_strategy, config)
        written = component.page_token_option
        if isinstance(written, components.RequestPath):
            self._is_path = True
        else:
            self._token = injection(written, config)
        size = injection(component.page_size_option, config)
        if size is not None:
            self._size = self._sized(size)

    def options(self, token: Any) -> list[tuple[Option, str]]:
        """Return what the request for a page gets, and the component that adds it."""
        found = [] if self._size is None else [self._size]
        if self._token is not None and token is not None:
            found.append((self._token.option(token), f"{self._place}.page_token_option"))
        return found

    def path(self, token: Any) -> str | None:
        """Return the URL or path of a page in place of that of the requester; None if it is the same."""
        return str(token) if self._is_path and token else None

    def _sized(self, size: Injection) -> tuple[Option, str]:
        number = self.strategy.page_size
        if not number:
            raise ConfigError(
                f"{self._place}.page_size_option needs a page size",
                guidance="write `page_size` in the pagination strategy, or remove `page_size_option`",
            )
        return size.option(number), f"{self._place}.page_size_option"


class LoopGuard:
    """Raises an error if the pages of an API do not end: a token returns, or many pages in succession are
    equal. It keeps two positions, however many pages there are (Brent's algorithm).

    The position of a page is its token. A token that stays the same is no error while the pages differ,
    because some APIs move on by themselves: the records are then a part of the position.
    """

    def __init__(self, first: Any) -> None:
        self._token = self._saved = self._last = first
        self._steps, self._limit = 0, 1
        self._ends = b""
        self._content: int | None = None
        self._equal = 1

    def check(self, response: Response, records: list[Record], following: Any) -> None:
        """Check the token of the page that follows.

        Args:
            response: the response of the present page.
            records: the records of the present page.
            following: the token of the next page.

        Raises:
            SystemFailure: the pages do not end.
        """
        is_same = following == self._token
        self._token = following
        position = (following, hash(_encode(records))) if is_same else following
        if position in (self._saved, self._last):
            raise _endless(response, "the page that follows it was already read")
        self._last = position
        self._steps += 1
        if self._steps == self._limit:
            self._saved, self._steps, self._limit = position, 0, 2 * self._limit
        limit = EQUAL_PAGES if records else MAX_EMPTY_PAGES
        if self._count_equal(records) == limit:
            raise _endless(response, f"{limit} pages in succession are equal")

    def _count_equal(self, records: list[Record]) -> int:
        """Return how many pages in succession have these records. All records of a page are compared only if
        the first one, the last one and the number are those of the page before."""
        ends = _encode((len(records), records[:1], records[-1:]))
        content = hash(_encode(records)) if ends == self._ends else None
        is_equal = content is not None and self._content in (None, content)
        self._equal = self._equal + 1 if is_equal else 1
        self._ends, self._content = ends, content
        return self._equal


def _endless(response: Response, why: str) -> SystemFailure:
    return SystemFailure(
        f"the pages of the API do not end: after {place(response.request)}, {why}",
        guidance="check the paginator in the manifest: the API may not know its parameter, or the condition "
        "to stop may never hold",
    )
