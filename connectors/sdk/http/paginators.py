"""Paginators: they say which request follows a page. They do no I/O, and keep nothing between two pages, so
one object serves all partitions and threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal

import httpx

from connectors.sdk.encoding import encode
from connectors.sdk.http.body import Path, decoded, steps, value_at
from connectors.sdk.http.failures import place
from connectors.sdk.http.urls import link, resolve_link, text
from elt_assets.errors import SystemFailure

In = Literal["params", "headers", "json"]
"""The part of a request that has a parameter: the query, the headers, or the JSON body. In the JSON body,
the name of the parameter is a path."""

EQUAL_PAGES = 10
"""Number of pages in succession with the same content that show that the API ignores the parameters."""
MAX_EQUAL_PAGES = 10_000
"""Number of pages in succession with the same content that show that the API never ends, although it gives a
new position with each."""


@dataclass(frozen=True)
class PageRequest:
    """The changes to the request of a stream that make it the request for a page.

    Attributes:
        params: parameters of the query.
        headers: headers.
        json: parts of the JSON body.
        url: the absolute URL of the page; path and parameters of the stream are then not used.
        position: the place of the page, for the paginator.
    """

    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None
    position: Any = None


@dataclass(frozen=True)
class Page:
    """A page that was read: its request, its response, and the number of records in it."""

    request: PageRequest
    response: httpx.Response
    records: int

    @property
    def body(self) -> Any:
        """The JSON value of the body."""
        return decoded(self.response)


class Paginator(ABC):
    """The base class of paginators.

    Attributes:
        is_counted: whether the position is a number that this side counts, such as an offset. An API that
            ignores it sends the same page for ever, so equal pages in succession are an error. A position
            that the API gives shows by itself that the pages move on.
    """

    is_counted: ClassVar[bool] = False

    def first(self) -> PageRequest:
        """Return the request for the first page."""
        return PageRequest()

    @abstractmethod
    def following(self, page: Page) -> PageRequest | None:
        """Return the request for the page after another one; None after the last one."""


@dataclass(frozen=True)
class SinglePage(Paginator):
    """The paginator of a response that has all records."""

    def following(self, page: Page) -> None:
        del page


@dataclass(frozen=True)
class _Counted(Paginator):
    """Pages by a number that this side counts, from `start` on."""

    is_counted: ClassVar[bool] = True

    limit: int | None = None
    _: KW_ONLY
    parameter: str
    limit_parameter: str | None = None
    start: int = 0
    ends_at_short_page: bool = True
    sent_in: In = "params"

    def first(self) -> PageRequest:
        return self._at(self.start)

    def _after(self, page: Page, step: int, number: int | None) -> PageRequest | None:
        """Return the request for the page after another one.

        Args:
            step: what is added to the number of the page.
            number: how far the numbers go from `start` on; None if the API does not say it.
        """
        following = page.request.position + step
        is_short = is_last_page(page.records, self.limit) and self.ends_at_short_page
        is_last = is_short if number is None else following >= self.start + number
        return None if is_last or page.records == 0 else self._at(following)

    def _at(self, number: int) -> PageRequest:
        parameters: dict[str | None, Any] = {self.parameter: number}
        if self.limit is not None:
            parameters = {self.limit_parameter: self.limit, **parameters}
        return _request(parameters, self.sent_in, number)


@dataclass(frozen=True)
class Offset(_Counted):
    """Pages by the number of the records before them. The last page is an empty one, one with fewer records
    than the limit, or the one that reaches the total.

    An API may return fewer records than the limit asks for, because it has a lower one of its own. Such a
    page would count as the last one: write the limit of the API, or `total`, or `ends_at_short_page=False`.

    Args:
        limit: the number of records of a page.
        parameter: the parameter that has the number of records to skip.
        limit_parameter: the parameter that has the limit; None for an API whose limit is fixed.
        total: the path of the total number of records in the body. If it is there, it decides which page is
            the last one.
        start: the offset of the first record.
        ends_at_short_page: whether a page with fewer records than the limit is the last one.
        sent_in: the part of the request that has the parameters.
    """

    limit: int
    _: KW_ONLY
    parameter: str = "offset"
    limit_parameter: str | None = "limit"
    start: int = 0
    total: Path | None = None

    def following(self, page: Page) -> PageRequest | None:
        return self._after(page, page.records, _number_at(page, self.total))


@dataclass(frozen=True)
class PageNumber(_Counted):
    """Pages by their number. The last page is an empty one, one with fewer records than the limit, or the
    last one of the number of pages. For an API with a lower limit of its own, see `Offset`.

    Args:
        limit: the number of records of a page; None if it is not known.
        parameter: the parameter that has the number of the page.
        limit_parameter: the parameter that has the limit; None for an API whose limit is fixed.
        start: the number of the first page.
        pages: the path of the number of pages in the body. If it is there, it decides which page is the last
            one.
        ends_at_short_page: whether a page with fewer records than the limit is the last one.
        sent_in: the part of the request that has the parameters.
    """

    parameter: str = "page"
    limit_parameter: str | None = "per_page"
    start: int = 1
    pages: Path | None = None

    def following(self, page: Page) -> PageRequest | None:
        return self._after(page, 1, _number_at(page, self.pages))


@dataclass(frozen=True)
class Cursor(Paginator):
    """Each page has the cursor of the next one. The last page has none: it is missing, null, false, 0
    or an empty text. A page without records is the last one only if it has no cursor.

    Args:
        path: the path of the cursor in the body, such as "meta.next" or, for the key of the last record,
            "data.-1.id".
        header: the header that has the cursor, in place of the body.
        parameter: the parameter of the request that has the cursor.
        more: the path of a value in the body that is false on the last page, for an API with a cursor on each
            page.
        ends_at_empty_page: whether a page without records is the last one, for an API that always has a
        cursor.
        sent_in: the part of the request that has the parameter.
    """

    path: Path = ()
    _: KW_ONLY
    header: str | None = None
    parameter: str = "cursor"
    more: Path | None = None
    ends_at_empty_page: bool = False
    sent_in: In = "params"

    def __post_init__(self) -> None:
        if (self.header is None) == (not self.path):
            raise ValueError("a cursor needs either a path in the body or a header")

    def following(self, page: Page) -> PageRequest | None:
        if self.more is not None and not value_at(page.body, self.more):
            return None
        if self.ends_at_empty_page and page.records == 0:
            return None
        if self.header is not None:
            token = page.response.headers.get(self.header)
        else:
            token = value_at(page.body, self.path)
        return _request({self.parameter: token}, self.sent_in, token) if token else None


@dataclass(frozen=True)
class NextUrl(Paginator):
    """Pages by their URL, absolute or relative, which the body of the page before them has. The last page has
    none.

    Args:
        path: the path of the URL in the body, such as "links.next".
    """

    path: Path

    def following(self, page: Page) -> PageRequest | None:
        return find_link(page, value_at(page.body, self.path))


@dataclass(frozen=True)
class LinkHeader(Paginator):
    """Pages by their URL, which the header `Link` of the page before them has. The last page has none.

    Spec: RFC 8288.

    Args:
        relation: the relation of the link.
    """

    relation: str = "next"

    def following(self, page: Page) -> PageRequest | None:
        links = ", ".join(page.response.headers.get_list("Link"))
        return find_link(page, link(links, self.relation))


def is_last_page(records: int, limit: int | None) -> bool:
    """Return whether a page with so many records is the last one, if each page has up to a limit of them."""
    return records == 0 or (limit is not None and records < limit)


class LoopGuard:
    """Raises an error if the pages of an API do not end: a position returns, or many pages in succession are
    equal. It keeps two positions, however many pages there are (Brent's algorithm).

    A position that stays the same is no error while the pages differ, because some APIs move on by
    themselves: the records are then a part of the position. A new position that the API gives shows that the
    pages move on, even if many of them are equal.

    Args:
        first: the position of the first page.
        is_counted: whether this side counts the positions.
        guidance: the guidance of the error.
    """

    def __init__(
        self,
        first: Any,
        *,
        is_counted: bool = False,
        guidance: str = "check the arguments of the paginator: the API may not know one of its parameters",
    ) -> None:
        self._is_counted = is_counted
        self._guidance = guidance
        self._position = self._saved = self._last = first
        self._steps, self._limit = 0, 1
        self._equal_pages = 1
        self._ends = b""
        self._content: int | None = None

    def check(self, response: httpx.Response, records: Sequence[Any], following: Any) -> None:
        """Check the position of the page that follows another one.

        Args:
            response: the response of the present page.
            records: the records of the present page.
            following: the position of the next page.

        Raises:
            SystemFailure: the pages do not end.
        """
        stays = following == self._position
        self._position = following
        self._step(response, (following, hash(encode(records))) if stays else following)
        self._equal_pages = self._equal_pages + 1 if self._is_like_the_last(records) else 1
        limit = EQUAL_PAGES if self._is_counted and records else MAX_EQUAL_PAGES
        if self._equal_pages == limit:
            raise self._endless(response, f"{limit} pages in succession are equal")

    def _step(self, response: httpx.Response, position: Any) -> None:
        if position in (self._saved, self._last):
            raise self._endless(response, "the page that follows it was already read")
        self._last = position
        self._steps += 1
        if self._steps == self._limit:
            self._saved, self._steps, self._limit = position, 0, 2 * self._limit

    def _is_like_the_last(self, records: Sequence[Any]) -> bool:
        """Return whether the page before had these records. All records of a page are compared only if the
        first one, the last one and the number are equal."""
        ends = encode((len(records), records[:1], records[-1:]))
        content = hash(encode(records)) if ends == self._ends else None
        is_equal = content is not None and self._content in (None, content)
        self._ends, self._content = ends, content
        return is_equal

    def _endless(self, response: httpx.Response, why: str) -> SystemFailure:
        return SystemFailure(
            f"the pages of the API do not end: after {place(response.request)}, {why}",
            guidance=self._guidance,
        )


def find_link(page: Page, target: Any) -> PageRequest | None:
    """Return the request for a page by its URL, which may be relative to the URL of the page before it.

    Raises:
        SystemFailure: the URL is malformed.
    """
    if not target:
        return None
    if not isinstance(target, str):
        raise SystemFailure(
            f"the URL of the page after {place(page.response.request)} is not a text",
            guidance="correct the path of the URL; for a value that is not a URL, use the paginator `Cursor`",
        )
    url = str(resolve_link(page.response.url, target))
    return PageRequest(url=url, position=url)


def _request(parameters: Mapping[str | None, Any], sent_in: In, position: Any) -> PageRequest:
    named = {name: value for name, value in parameters.items() if name is not None}
    if sent_in == "params":
        return PageRequest(params=named, position=position)
    if sent_in == "headers":
        texts = {name: text(value) for name, value in named.items()}
        return PageRequest(headers=texts, position=position)
    nested: dict[str, Any] = {}
    for name, value in named.items():
        *outer, last = steps(name)
        inner = nested
        for outer_request in outer:
            inner = inner.setdefault(outer_request, {})
        inner[last] = value
    return PageRequest(json=nested, position=position)


def _number_at(page: Page, path: Path | None) -> int | None:
    """Return a number of the body, which may be a text; None if there is none."""
    try:
        return None if path is None else int(value_at(page.body, path))
    except (TypeError, ValueError):
        return None
