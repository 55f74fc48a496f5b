"""Retrievers: the records of one slice of a stream, page by page.

Spec: SimpleRetriever.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from connectors.declarative.cursors.slices import Option, Slice, distinct
from connectors.declarative.requests.decoding.decoders import Decoder
from connectors.declarative.requests.environment import name_stream
from connectors.declarative.requests.failures.policy import may_lack_records
from connectors.declarative.requests.pages import Paginator, View
from connectors.declarative.requests.records.selector import Selector
from connectors.declarative.requests.requester import Added, Requester, SliceRequests
from connectors.sdk.http.client import is_ignored
from connectors.sdk.http.messages import Response
from connectors.sdk.http.paginators import LoopGuard
from connectors.sdk.items import Record
from elt_assets.errors import EltError

_SLICE = "the slice (incremental_sync or partition_router)"
"""The name of what adds the options of a slice, for errors."""


class Retriever:
    """Reads the records of slices. One object serves all slices and threads; it keeps nothing between pages.

    Args:
        name: the name of the stream, for errors; empty for none.
        requester: sends the requests.
        decoder: decodes the responses.
        selector: finds, filters and transforms the records.
        paginator: names the next page.
        ignores_slice_on_pages: whether only the first request of a slice has the slice's options.
    """

    def __init__(
        self,
        name: str,
        requester: Requester,
        decoder: Decoder,
        selector: Selector,
        paginator: Paginator,
        *,
        ignores_slice_on_pages: bool = False,
    ):
        self.name = name
        self._requester = requester
        self._decoder = decoder
        self._selector = selector
        self._paginator = paginator
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
            yield from self._pages(stream_slice, distinct(options))
        except EltError as error:
            raise name_stream(error, self.name) from None

    def _pages(self, stream_slice: Slice, options: Sequence[Option]) -> Iterator[list[Record]]:
        config = self._requester.environment.config
        variables = {"config": config, **stream_slice.variables(), **stream_slice.extra}
        requests = self._requester.for_slice(variables)
        token = self._paginator.strategy.initial
        guard = self._paginator.guard()
        while True:
            page_options = () if self._ignores_slice_on_pages and token is not None else options
            added = [(option, _SLICE) for option in page_options]
            added += self._paginator.options(token)
            token = yield from self._page(requests, variables, token, added, guard)
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
        response = requests.send(page, added, self._paginator.path(token))
        if self._has_nothing(response):
            return None
        view = View(self._requester.environment.config, response, self._decoder, token)
        later = self._paginator.strategy.plan(view)
        view.is_changed = self._selector.changes_records
        page_records: list[Record] | None = None
        for records in self._selector.extract(response):
            if page_records is not None:
                yield page_records
            page_records = self._select(records, {**variables, **page}, view)
        following = later(view)
        if following:
            guard.check(response, page_records or [], following)
        del response, view, later  # the records are enough
        yield page_records or []
        return following

    def _select(
        self, records: list[Record], variables: Mapping[str, Any], view: View
    ) -> list[Record]:
        """Return the records that are left; count them all for the paginator."""
        extracted, last = len(records), records[-1] if records else None
        view.extracted += extracted
        selected = self._selector.select(records, variables)
        if last is not None:
            is_kept = len(selected) == extracted
            view.last = (
                selected[-1] if is_kept else self._selector.transform_left_out(last, variables)
            )
        return selected

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


def _page_variables(token: Any) -> dict[str, Any]:
    return {"next_page_token": None if token is None else {"next_page_token": token}}
