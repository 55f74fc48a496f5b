"""Retrievers: the records of one slice of a stream, page by page.

Spec: SimpleRetriever, PaginationReset.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from typing import Any

from connectors.declarative.cursors.slices import Option, Slice, distinct
from connectors.declarative.requests.decoding.decoders import Decoder
from connectors.declarative.requests.environment import name_stream
from connectors.declarative.requests.failures.policy import may_lack_records, must_reset
from connectors.declarative.requests.pages.paginator import LoopGuard, Paginator
from connectors.declarative.requests.pages.view import View
from connectors.declarative.requests.properties import Properties, merge
from connectors.declarative.requests.records.extraction import DROPPED
from connectors.declarative.requests.records.selector import Selector
from connectors.declarative.requests.requester import Added, Requester, SliceRequests
from connectors.sdk.http.client import is_ignored
from connectors.sdk.http.failures import place
from connectors.sdk.http.messages import Response
from connectors.sdk.items import Record
from elt_assets.errors import EltError, SystemFailure

_SLICE = "the slice (incremental_sync or partition_router)"
"""The name of what adds the options of a slice, for errors."""


class Reset(Exception):
    """A response asks to read the pages of the slice again from the first one."""

    def __init__(self, response: Response):
        super().__init__()
        self.response = response


class Retriever:
    """Reads the records of slices. One object serves all slices and threads; it keeps nothing between pages.

    Args:
        name: the name of the stream, for errors; empty for none.
        requester: sends the requests.
        decoder: decodes the responses.
        selector: finds, filters and transforms the records.
        paginator: names the next page.
        properties: the properties to request; None if requests do not name them.
        ignores_slice_on_pages: whether only the first request of a slice has the slice's options.
    """

    def __init__(
        self,
        name: str,
        requester: Requester,
        decoder: Decoder,
        selector: Selector,
        paginator: Paginator,
        properties: Properties | None = None,
        *,
        ignores_slice_on_pages: bool = False,
    ):
        self.name = name
        self._requester = requester
        self._decoder = decoder
        self._selector = selector
        self._paginator = paginator
        self._properties = properties
        self._ignores_slice_on_pages = ignores_slice_on_pages

    def pages(self, stream_slice: Slice, options: Sequence[Option] = ()) -> Iterator[list[Record]]:
        """Yield the records of each page of a slice, extracted, filtered and transformed; an empty list for a
        page without records. A page is requested when it is needed, and one page is in memory. A page that is
        a large file is several lists.

        Args:
            stream_slice: the slice.
            options: the values that the slice puts into its requests.

        Raises:
            EltError: a request fails, a response has another form, or the pages do not end. The message names
                the stream and the request, without secrets.
        """
        try:
            try:
                yield from self._pages(stream_slice, distinct(options))
            except Reset:
                yield from self._again(stream_slice, distinct(options))
        except EltError as error:
            raise name_stream(error, self.name) from None

    def _again(self, stream_slice: Slice, options: Sequence[Option]) -> Iterator[list[Record]]:
        """Read the pages of a slice for the second time, and the last one."""
        try:
            yield from self._pages(stream_slice, options)
        except Reset as reset:
            raise SystemFailure(
                f"{place(reset.response.request)} asks again to read the pages from the first one",
                guidance="correct the filter with the action RESET_PAGINATION in the manifest",
            ) from None

    def _pages(self, stream_slice: Slice, options: Sequence[Option]) -> Iterator[list[Record]]:
        config = self._requester.environment.config
        variables = {"config": config, **stream_slice.variables(), **stream_slice.extra}
        requests = self._requester.for_slice(variables)
        token = self._paginator.strategy.initial
        guard = LoopGuard(token, is_counted=self._paginator.strategy.is_counted)
        read = self._page if self._properties is None else self._merged_page
        while True:
            page_options = () if self._ignores_slice_on_pages and token is not None else options
            added = [(option, _SLICE) for option in page_options]
            added += self._paginator.options(token)
            token = yield from read(requests, variables, token, added, guard)
            if not token:
                return

    def _page(
        self,
        requests: SliceRequests,
        variables: Mapping[str, Any],
        token: Any,
        added: Sequence[Added],
        guard: LoopGuard,
    ) -> Generator[list[Record], None, Any]:
        """Yield the records of a page, and return the token of the next one; None if there is none."""
        page = _page_variables(token)
        response = self._send(requests, page, added, token)
        if self._has_nothing(response):
            return None
        view = self._view(response, token)
        later = self._paginator.strategy.plan(view)
        view.is_changed = self._selector.changes_records
        page_records: list[Record] | None = None
        for records in self._selector.extract(response):
            if page_records is not None:
                yield page_records
            page_records = self._select(records, {**variables, **page}, view)
        following = guard.check(response, page_records or [], later(view))
        del response, view, later  # the records are enough
        yield page_records or []
        return following

    def _merged_page(
        self,
        requests: SliceRequests,
        variables: Mapping[str, Any],
        token: Any,
        added: Sequence[Added],
        guard: LoopGuard,
    ) -> Generator[list[Record], None, Any]:
        """Do the work of `_page` for a page that takes a request for each group of properties."""
        assert self._properties is not None
        merged: dict[Hashable, Record] = {}
        response: Response | None = None
        view: View | None = None
        for names in self._properties.chunks():
            page = {**_page_variables(token), "query_properties": names}
            response = self._send(requests, page, added, token)
            view = self._view(response, token)
            for records in () if self._has_nothing(response) else self._selector.extract(response):
                self._merge(self._select(records, {**variables, **page}, view), merged)
        merged_records = list(merged.values())
        following = None
        if response is not None and view is not None and not self._has_nothing(response):
            if self._properties.merges and view.last is not None:
                view.last = merged.get(self._properties.key(view.last), view.last)
            view.is_changed = self._selector.changes_records
            later = self._paginator.strategy.plan(view)
            following = guard.check(response, merged_records, later(view))
            del later
        del response, view
        yield merged_records
        return following

    def _view(self, response: Response, token: Any) -> View:
        return View(self._requester.environment.config, response, self._decoder, token)

    def _select(
        self, records: list[Record], variables: Mapping[str, Any], view: View
    ) -> list[Record]:
        """Return the records that are left; count them all for the paginator."""
        present = [record for record in records if record is not DROPPED]
        view.extracted += len(records)
        selected = self._selector.select(records, variables)
        if len(selected) == len(present) and selected:
            view.last = selected[-1]
        elif present:
            view.last = self._selector.transform_left_out(present[-1], variables)
        return selected

    def _merge(self, records: list[Record], merged: dict[Hashable, Record]) -> None:
        """Add records to those that have the same key; a record without a key stays alone."""
        assert self._properties is not None
        for record in records:
            key = self._properties.key(record) if self._properties.merges else None
            if key is None:
                merged[object()] = record
            elif key in merged:
                merge(merged[key], record)
            else:
                merged[key] = record

    def _has_nothing(self, response: Response) -> bool:
        """Return whether there are no records in a response, because a filter ignores it."""
        if is_ignored(response):
            return True
        try:
            if may_lack_records(response):
                self._decoder.shown(response)
        except EltError:
            return True
        return False

    def _send(
        self, requests: SliceRequests, page: Mapping[str, Any], added: Sequence[Added], token: Any
    ) -> Response:
        response = requests.send(page, added, self._paginator.path(token))
        if must_reset(response):
            raise Reset(response)
        return response


def _page_variables(token: Any) -> dict[str, Any]:
    return {"next_page_token": None if token is None else {"next_page_token": token}}
