"""Paginators: a strategy, and where its token and its page size stand in a request.

Spec: DefaultPaginator, RequestPath, RequestOption.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.declarative.cursors.slices import Injection, Option, injection
from connectors.declarative.manifest import components
from connectors.declarative.requests.pages.strategies import Single, Strategy, strategy
from connectors.sdk.encoding import encode
from connectors.sdk.http.messages import Response
from connectors.sdk.http.paginators import EQUAL_PAGES, MAX_EQUAL_PAGES, PageTrail
from connectors.sdk.items import Record
from elt_assets.errors import ConfigError


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
        token_option = component.page_token_option
        if isinstance(token_option, components.RequestPath):
            self._is_path = True
        else:
            self._token = injection(token_option, config)
        size = injection(component.page_size_option, config)
        if size is not None:
            self._size = self._sized(size)

    def options(self, token: Any) -> list[tuple[Option, str]]:
        """Return what the request for a page gets, and the component that adds it."""
        options = [] if self._size is None else [self._size]
        if self._token is not None and token is not None:
            options.append((self._token.option(token), f"{self._place}.page_token_option"))
        return options

    def path(self, token: Any) -> str | None:
        """Return the URL or path of a page; None for the path of the requester."""
        return str(token) if self._is_path and token else None

    def _sized(self, size: Injection) -> tuple[Option, str]:
        number = self.strategy.page_size
        if not number:
            raise ConfigError(
                f"{self._place}.page_size_option needs a page size",
                guidance="write `page_size` in the pagination strategy, or remove `page_size_option`",
            )
        return size.option(number), f"{self._place}.page_size_option"


class LoopGuard(PageTrail):
    """Raises an error if the pages of an API do not end.

    The position of a page is its token. A token that stays the same is no error while the pages differ,
    because some APIs move on by themselves: the records are then a part of the position. A new token that the
    API gives shows that the pages move on, even if many of them are equal.

    Args:
        first: the token of the first page.
        is_counted: whether this side counts the tokens.
    """

    guidance = (
        "check the paginator in the manifest: the API may not know its parameter, or the condition to stop "
        "may never hold"
    )

    def __init__(self, first: Any, *, is_counted: bool = False) -> None:
        super().__init__(first)
        self._token = first
        self._is_counted = is_counted
        self._ends = b""
        self._content: int | None = None

    def check(self, response: Response, records: list[Record], following: Any) -> Any:
        """Check the token of the page that follows, and return it.

        Args:
            response: the response of the present page.
            records: the records of the present page.
            following: the token of the next page; nothing is checked if there is none.

        Raises:
            SystemFailure: the pages do not end.
        """
        if not following:
            return following
        is_same = following == self._token
        self._token = following
        position = (following, hash(encode(records))) if is_same else following
        self.step(response, position)
        is_ignored = self._is_counted and bool(records)
        limit = EQUAL_PAGES if is_ignored else MAX_EQUAL_PAGES
        self.count(response, is_equal=self._is_like_the_last(records), limit=limit)
        return following

    def _is_like_the_last(self, records: list[Record]) -> bool:
        """Return whether the page before had these records. All records of a page are compared only if the
        first one, the last one and the number are equal."""
        ends = encode((len(records), records[:1], records[-1:]))
        content = hash(encode(records)) if ends == self._ends else None
        is_equal = content is not None and self._content in (None, content)
        self._ends, self._content = ends, content
        return is_equal
