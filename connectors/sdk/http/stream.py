"""The base class of streams over a JSON API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import httpx

from connectors.sdk.declared_stream import DESCENDING, find_key, make_schema
from connectors.sdk.http.body import Path, records_at
from connectors.sdk.http.client import HttpClient, is_ignored
from connectors.sdk.http.detection import DetectedPages
from connectors.sdk.http.paginators import LoopGuard, Page, PageRequest, Paginator
from connectors.sdk.http.templates import Values, fill, fill_path, list_names
from connectors.sdk.items import Record, Window
from connectors.sdk.ranges import is_past
from connectors.sdk.saved_config import merge_objects
from connectors.sdk.stream import Stream
from elt_assets.errors import SystemFailure

_NO_CONTENT = 204


class HttpStream(Stream):
    """The base class of streams over a JSON API. Subclasses set the attributes, and override what their API
    does in another way; `records` is written.

    The path, the parameters, the headers and the body may have placeholders (`http.templates`): what they
    name is what the API filters by. Records before a `{start}` that none of them names are left out here.

    The memory that a read takes is that of two pages, however many there are. Numbers with a fraction are
    `Decimal`, so that they lose no digits.
    """

    client: HttpClient
    """The HTTP client of the source."""
    path: str
    """The path below the client's base URL, as in "stores/{stores.id}/orders"."""
    method: str = "GET"
    """The method of the requests."""
    params: Mapping[str, Any] = MappingProxyType({})
    """Parameters of the query. One whose value is None is left out, as "{start}" in the first sync."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Headers, besides those of the client."""
    json: Mapping[str, Any] | None = None
    """The body of the requests as JSON; None for no body."""
    records_path: Path = ()
    """The path of the list of records in the body; empty for a body that is the list. A single object is one
    record. "*" stands for all elements of a list: "orders.edges.*.node"."""
    may_lack_records: bool = False
    """Whether a body without `records_path` has no records. Otherwise, it is an error."""
    paginator: Paginator | None = None
    """Says which request follows a page; None to follow what the pages say themselves (`DetectedPages`)."""
    _detected: DetectedPages | None = None

    def __init__(self, client: HttpClient):
        self.client = client

    def parse(self, response: httpx.Response) -> Iterable[Record]:
        """Return the records of a response.

        Raises:
            EltError: the response has no records in the expected form.
        """
        if response.status_code == _NO_CONTENT:
            return ()
        return records_at(response, self.records_path, may_lack=self.may_lack_records)

    def records(self, window: Window) -> Iterator[Record]:
        key = find_key(self) if self.order == DESCENDING else None
        for page in self.pages(window):
            # Before they are yielded: their consumer may change them.
            is_last = key is not None and is_past(page, key, window.start)
            yield from page
            if is_last:
                return

    def pages(self, window: Window) -> Iterator[list[Record]]:
        """Yield the records of each page. A page is requested when it is needed.

        Raises:
            EltError: a request fails, or the pages do not end.
        """
        paginator = self.paginator or self._detect()
        request: PageRequest | None = paginator.first()
        assert request is not None
        guard = LoopGuard(request, is_counted=paginator.is_counted)
        while request is not None:
            response = self.request(request, window)
            if is_ignored(response):
                return
            records = list(self.parse(response))
            page = Page(request, response, len(records))
            # Before the records are yielded: their consumer may change them, and so the decoded body.
            request = paginator.following(page)
            if request is not None:
                guard.check(response, records, request)
            del response, page  # the records are enough
            yield records

    def request(self, page: PageRequest, window: Window) -> httpx.Response:
        """Return the response for a page; the errors are those of `HttpClient.request`, and of a placeholder
        that has no value."""
        values = Values(window, None if self.parent is None else self.parent.stream.name)
        headers = {**fill(self.headers, values), **page.headers}
        body = None if self.json is None else fill(self.json, values, is_text=True)
        json = merge_objects(body or {}, page.json) if page.json else body
        if page.url is not None:
            return self.client.request(self.method, page.url, headers=headers, json=json)
        params = {**fill(self.params, values), **page.params}
        path = fill_path(self.path, values)
        return self.client.request(self.method, path, params=params, headers=headers, json=json)

    def _detect(self) -> DetectedPages:
        """Return the paginator of the stream, which warns once, however many partitions there are."""
        if self._detected is None:
            self._detected = DetectedPages(self.records_path, self.warn)
        return self._detected

    def parent_fields(self) -> frozenset[str]:
        needed = super().parent_fields()
        if self.parent is None:
            return needed
        prefix = f"{self.parent.stream.name}."
        templates = [self.path, dict(self.params), dict(self.headers), self.json]
        names = [name for name in list_names(templates) if name.startswith(prefix)]
        declared = make_schema(self.parent.stream).get("properties") or {}
        for name in names if declared else ():
            field = name.removeprefix(prefix)
            if field not in declared and field.partition(".")[0] not in declared:
                raise SystemFailure(
                    f"stream {str(self.id)!r} names {{{name}}}, and the schema of its parent has "
                    f"{', '.join(map(repr, declared))}",
                    guidance="correct the name, or add the field to the parent's `json_schema`",
                )
        return needed | {name.removeprefix(prefix) for name in names}
