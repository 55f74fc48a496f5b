"""Pagination: the pages of a response are read one after the other."""

from __future__ import annotations

from typing import Annotated

from connectors.declarative.manifest.components.base import Component
from connectors.declarative.manifest.components.requests import RequestOption, RequestPath
from connectors.declarative.manifest.template import Template


class PageIncrement(Component):
    """The number of the page, which grows by one."""

    page_size: int | Template | None = None
    start_from_page: int = 0
    inject_on_first_request: bool = False


class OffsetIncrement(Component):
    """The number of records before the page."""

    page_size: int | Template | None = None
    inject_on_first_request: bool = False


class CursorPagination(Component):
    """A value from the last response, until a condition holds or there is no value."""

    cursor_value: Template
    page_size: int | Template | None = None
    stop_condition: Template | None = None


class DefaultPaginator(Component):
    """A strategy, and where in the request its size and its token are put."""

    pagination_strategy: Annotated[
        PageIncrement | OffsetIncrement | CursorPagination, "CustomPaginationStrategy"
    ]
    page_size_option: RequestOption | None = None
    page_token_option: RequestOption | RequestPath | None = None


class NoPagination(Component):
    """A single page."""
