"""The base class of streams over a JSON API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx

from connectors.sdk.descending import is_past
from connectors.sdk.http.body import Path, records_at
from connectors.sdk.http.client import HttpClient, is_ignored
from connectors.sdk.http.paginators import LoopGuard, Page, PageRequest, Paginator, SinglePage
from connectors.sdk.http.urls import fill_path
from connectors.sdk.items import Context, Record
from connectors.sdk.state.replication_key import find_declared_key
from connectors.sdk.stream import Stream

_NO_CONTENT = 204


class HttpStream(Stream):
    """The base class of streams over a JSON API. Subclasses set the attributes, and override what their API
    does in another way; `records` is written.

    The memory that a read takes is that of two pages, however many there are. Numbers with a fraction are
    `Decimal`, so that they lose no digits. A `start_date` of the config is the first `start`, as for every
    stream.

    An API that cannot filter sends all records. Those before `start` are then left out here: this is the
    default for a stream with a replication key that neither sets `start_parameter` nor overrides `url_params`
    or `json_body`. Set `filters_records` to decide it.

    Attributes:
        client: the HTTP client of the source.
        path: the path below the client's base URL. `{name}` stands for a value of the context, such as that
            of the parent's record: "stores/{store_id}/orders".
        method: the method of the requests.
        params: parameters of the query.
        headers: headers, besides those of the client.
        json: the body of the requests as JSON; None for no body.
        records_path: the path of the list of records in the body; empty for a body that is the list. A single
            object is one record. "*" stands for all elements of a list: "orders.edges.*.node".
        may_lack_records: whether a body without `records_path` has no records. Otherwise, it is an error.
        paginator: says which request follows a page; None if one response has all records.
        start_parameter: the parameter of the query that has `start`; None if the API cannot filter.
        end_parameter: the parameter of the query that has the end of an interval or of the read; None if
            the API cannot filter by it. Whether the API counts the end in does not matter.
    """

    client: HttpClient
    path: str
    method: str = "GET"
    params: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    json: Mapping[str, Any] | None = None
    records_path: Path = ()
    may_lack_records: bool = False
    paginator: Paginator | None = None
    start_parameter: str | None = None
    end_parameter: str | None = None

    def __init__(self, client: HttpClient, *, parent: Stream | None = None):
        self.client = client
        if parent is not None:
            self.parent = parent
        if self.replication_key is not None and not self._knows_start():
            self.filters_records = True

    def url_params(self, context: Context | None, start: Any, end: Any) -> Mapping[str, Any]:
        """Return the parameters of the query; those that are None are left out.

        Override it to send `start` and `end` in another form, or values of the context.
        """
        del context
        values = {self.start_parameter: start, self.end_parameter: end}
        return {**self.params, **{name: values[name] for name in values if name is not None}}

    def json_body(self, context: Context | None, start: Any, end: Any) -> Mapping[str, Any] | None:
        """Return the body of the requests as JSON; None for no body."""
        del context, start, end
        return self.json

    def parse(self, response: httpx.Response) -> Iterable[Record]:
        """Return the records of a response.

        Raises:
            EltError: the response has no records in the expected form.
        """
        if response.status_code == _NO_CONTENT:
            return ()
        return records_at(response, self.records_path, may_lack=self.may_lack_records)

    def post_process(self, record: Record, context: Context | None) -> Record | None:
        """Return a record as the stream yields it; None to leave it out."""
        del context
        return record

    def records(self, context: Context | None, start: Any) -> Iterator[Record]:
        yield from self._records(context, start, None)

    def records_between(self, context: Context | None, start: Any, end: Any) -> Iterable[Record]:
        # What an author writes in place of `records` counts also if the read has an end.
        if type(self).records is not HttpStream.records:
            return self.records(context, start)
        return self._records(context, start, end)

    def ends_by_page(self) -> bool:
        return type(self).records is HttpStream.records

    def pages(self, context: Context | None, start: Any, end: Any = None) -> Iterator[list[Record]]:
        """Yield the records of each page. A page is requested when it is needed.

        Raises:
            EltError: a request fails, or the pages do not end.
        """
        paginator = self.paginator or SinglePage()
        request: PageRequest | None = paginator.first()
        assert request is not None
        guard = LoopGuard(request, is_counted=paginator.is_counted)
        while request is not None:
            response = self.request(request, context, start, end)
            if is_ignored(response):
                return
            records = list(self.parse(response))
            page = Page(request, response, len(records))
            # Before the records are yielded: their consumer may change them, and so the decoded body.
            request = paginator.following(page)
            if request is not None:
                guard.check(page, request)
            del response, page  # the records are enough
            yield records

    def request(
        self, page: PageRequest, context: Context | None, start: Any, end: Any = None
    ) -> httpx.Response:
        """Return the response for a page; the errors are those of `HttpClient.request`."""
        headers = {**self.headers, **page.headers}
        body = self.json_body(context, start, end)
        json = merged(body or {}, page.json) if page.json else body
        if page.url is not None:
            return self.client.request(self.method, page.url, headers=headers, json=json)
        params = {**self.url_params(context, start, end), **page.params}
        path = fill_path(self.path, context)
        return self.client.request(self.method, path, params=params, headers=headers, json=json)

    def _records(self, context: Context | None, start: Any, end: Any) -> Iterator[Record]:
        key = (
            find_declared_key(self.replication_key, self.json_schema)
            if self.is_descending
            else None
        )
        for page in self.pages(context, start, end):
            processed = (self.post_process(record, context) for record in page)
            if key is None:
                yield from (record for record in processed if record is not None)
                continue
            records = [record for record in processed if record is not None]
            # Before they are yielded: their consumer may change them.
            is_last = is_past(records, key, start)
            yield from records
            if is_last:
                return

    def _knows_start(self) -> bool:
        """Return whether the author has decided how records before the start are left out."""
        hooks = (type(self).url_params, type(self).json_body)
        own = [kind for kind in type(self).__mro__ if issubclass(kind, HttpStream)]
        return (
            self.start_parameter is not None
            or hooks != (HttpStream.url_params, HttpStream.json_body)
            or any("filters_records" in vars(kind) for kind in own)
        )


def merged(body: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with changes to it, at any depth."""
    result = dict(body)
    for name, value in changes.items():
        inner = result.get(name)
        if isinstance(inner, Mapping) and isinstance(value, Mapping):
            result[name] = merged(inner, value)
        else:
            result[name] = value
    return result
