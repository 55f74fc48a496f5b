"""Pages that say themselves which page follows, for a stream that names no paginator.

Followed is what can mean nothing else: the link `next` of a header or of the body, a cursor or a number under
a usual name, with the parameter that belongs to it. The page after it must be the one that was asked for, or
it is an error. It is also an error if a page says that others follow, and not how to ask for them; and a
warning, if a page only looks like a full one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from connectors.sdk.http.body import Path, decoded, steps
from connectors.sdk.http.failures import place
from connectors.sdk.http.paginators import LinkHeader, Page, PageRequest, Paginator, find_link
from elt_assets.errors import EltError, SystemFailure

CURSORS = {
    "next_cursor": "cursor",
    "nextCursor": "cursor",
    "next_page_token": "page_token",
    "nextPageToken": "pageToken",
    "next_token": "next_token",
    "nextToken": "nextToken",
    "continuation_token": "continuation_token",
    "continuationToken": "continuationToken",
}
"""The parameters of cursors by the names that these have in a body."""
NUMBERS = {
    "page": "page",
    "current_page": "page",
    "currentPage": "page",
    "page_number": "page_number",
}
"""The parameters of the number of a page by the names of the present one."""
OFFSETS = {name: name for name in ("offset", "skip", "startAt", "start_at", "startIndex")}
"""The parameters of an offset by the names of the present one."""
_URLS = (
    "next",
    "nexturl",
    "nextpageurl",
    "nextlink",
    "nextpage",
    "nexthref",
    "href",
    "link",
    "odata.nextlink",
)
_PAGE_COUNTS = ("totalpages", "pages", "pagecount")
_LAST_PAGES = ("lastpage",)
_TOTALS = ("total", "totalcount", "totalsize", "totalresults")
_MORE = ("hasmore", "hasnext", "hasnextpage", "more", "moreitemsincollection")
_OUTER = (
    "meta",
    "metadata",
    "links",
    "paging",
    "pagination",
    "page",
    "pageinfo",
    "responsemetadata",
    "next",
)
"""Names of the objects in a body that tell about pages. All names are those of `_plain`."""
_LIMITS = (
    "limit",
    "perpage",
    "pagesize",
    "size",
    "maxresults",
    "first",
    "top",
    "rows",
    "page[size]",
)
_ROUND = frozenset(base * 10**power for power in range(6) for base in (1, 2, 3, 5)) | {
    25,
    250,
    2500,
}
_LEAST_FULL = 10
"""The least number of records of a page that looks full, if no parameter is its limit."""


class DetectedPages(Paginator):
    """The paginator that follows what the pages say themselves.

    Args:
        records_path: the path of the records in the body. The objects around them tell about pages.
        warn: logs a warning; it is called once.
    """

    def __init__(self, records_path: Path, warn: Callable[[str], None]):
        self._steps = steps(records_path)
        self._warn = warn
        self._has_warned = False

    def following(self, page: Page) -> PageRequest | None:
        objects = list(self._list_objects(page))
        self._check_position(page, objects)
        if any(
            outer[name] is False for outer in objects for name in outer if _plain(name) in _MORE
        ):
            return None
        request = LinkHeader().following(page) or _find_next(page, objects)
        if request is not None:
            if page.response.request.method != "GET":
                raise _unknown_next(page, "a next page after a POST request")
            return request
        for outer in objects:
            for name, value in outer.items():
                is_next = (_plain(name) in _MORE and value is True) or (
                    name == "next" and _is_text(value)
                )
                if is_next or _is_count_alone(outer, name):
                    raise _unknown_next(page, f"{name!r}: {value!r}")
        self._warn_of_full_page(page, objects)
        return None

    def _list_objects(self, page: Page) -> Iterator[Mapping[str, Any]]:
        """Yield the objects of a body that tell about pages."""
        try:
            part = decoded(page.response) if self._steps else None
        except EltError:
            return  # another format than JSON, which `parse` reads
        for step in self._steps:
            if not isinstance(part, Mapping):
                return
            yield from _list_outer(part)
            part = part.get(step)

    def _check_position(self, page: Page, objects: list[Mapping[str, Any]]) -> None:
        """Check that a page is the one whose number was asked for.

        Raises:
            SystemFailure: it is another one: the API does not know the parameter.
        """
        position = page.request.position
        if not isinstance(position, tuple):
            return
        parameter, number, _ = position
        present = [_number(outer, names) for outer in objects for names in (NUMBERS, OFFSETS)]
        if (parameter, number) not in present:
            raise _unknown_next(page, f"a page, and is not the one of `{parameter}={number}`")

    def _warn_of_full_page(self, page: Page, objects: list[Mapping[str, Any]]) -> None:
        if page.request.position is not None or page.records == 0 or self._has_warned:
            return
        totals = [total for outer in objects if (total := _integer(outer, _TOTALS)) is not None]
        query = page.response.request.url.params
        is_limit = any(query[n] == str(page.records) for n in query if _plain(n) in _LIMITS)
        if any(total > page.records for total in totals):
            reason = f"{page.records} of {max(totals)} records"
        elif not totals and (is_limit or (page.records >= _LEAST_FULL and page.records in _ROUND)):
            reason = f"{page.records} records, as a full page has"
        else:
            return
        self._has_warned = True
        self._warn(
            f"the response of {place(page.response.request)} has {reason}, and does not say how to ask for "
            "others: if there are any, they are missing. Name the `paginator` of the stream, or "
            "`SinglePage()` if a response always has all records"
        )


def _find_next(page: Page, objects: list[Mapping[str, Any]]) -> PageRequest | None:
    """Return the request for the next page, if the body says it."""
    for outer in objects:
        for name, value in outer.items():
            if _plain(name) in _URLS and _is_url(value):
                return find_link(page, value)
    for outer in objects:
        is_next = any(inner.get("next") is outer for inner in objects)
        for name, parameter in (
            {**CURSORS, "after": "after"}.items() if is_next else CURSORS.items()
        ):
            if _is_text(outer.get(name)):
                return PageRequest(params={parameter: outer[name]}, position=outer[name])
    numbers = (_find_next_number(page, outer) for outer in objects) if page.records else ()
    return next(filter(None, numbers), None)


def _find_next_number(page: Page, outer: Mapping[str, Any]) -> PageRequest | None:
    """Return the request for the page after one whose number or offset an object has, with a total."""
    present = _number(outer, NUMBERS)
    count, last = _integer(outer, _PAGE_COUNTS), _integer(outer, _LAST_PAGES)
    if present is not None and (count is not None or last is not None):
        parameter, number = present
        position = page.request.position
        first = position[2] if isinstance(position, tuple) else min(number, 1)
        last = first + count - 1 if last is None and count is not None else last
        return _ask(parameter, number + 1, first) if last is not None and number < last else None
    offset, total = _number(outer, OFFSETS), _integer(outer, _TOTALS)
    if offset is not None and total is not None and offset[1] + page.records < total:
        return _ask(offset[0], offset[1] + page.records, 0)
    return None


def _ask(parameter: str, number: int, first: int) -> PageRequest:
    return PageRequest(params={parameter: number}, position=(parameter, number, first))


def _list_outer(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield an object of a body, and those in it that tell about pages."""
    yield part
    for name, inner in part.items():
        if _plain(name) in _OUTER and isinstance(inner, Mapping):
            yield from _list_outer(inner)


def _number(outer: Mapping[str, Any], names: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the parameter of a position, and the position of the present page."""
    values = ((parameter, outer.get(name)) for name, parameter in names.items())
    return next(((p, v) for p, v in values if type(v) is int), None)


def _integer(outer: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((v for name, v in outer.items() if _plain(name) in names and type(v) is int), None)


def _plain(name: str) -> str:
    """Return a name without the marks by which APIs write words together."""
    return name.replace("_", "").removeprefix("@").lower()


def _is_count_alone(outer: Mapping[str, Any], name: str) -> bool:
    """Return whether a value is the number of several pages, and nothing tells which this one is."""
    is_count = _plain(name) in (*_PAGE_COUNTS, *_LAST_PAGES) and type(outer[name]) is int
    return is_count and outer[name] > 1 and _number(outer, NUMBERS) is None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_url(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://", "/", "?"))


def _unknown_next(page: Page, what: str) -> SystemFailure:
    return SystemFailure(
        f"the pages of the API are not complete: {place(page.response.request)} has {what}, and does not say "
        "in a known way how to ask for the next page",
        guidance="name the `paginator` of the stream, with the parameters of the API; `SinglePage()` if a "
        "response always has all records",
    )
