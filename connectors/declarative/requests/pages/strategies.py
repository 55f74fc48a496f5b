"""Pagination strategies: the token of the page that follows another one.

Spec: CursorPagination, OffsetIncrement, PageIncrement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.pages.view import View
from elt_assets.errors import ConfigError

Later = Callable[[View], Any]
"""Returns the token of the next page when the records of the page are known; None after the last page."""

_RECORDS = frozenset({"last_record", "last_page_size"})
_RESPONSE = frozenset({"response"})


class Strategy(ABC):
    """Returns the token of the page that follows another one. One object serves all slices.

    Attributes:
        initial: the token of the first page; None for none.
        page_size: the number of records to request; None if the manifest does not say it, or if it depends
            on the response.
        is_counted: whether the token is a number that this side counts, and not one that the API gives. An
            API that ignores it sends the same page for ever.
    """

    initial: Any = None
    page_size: int | None = None
    is_counted: bool = False

    @abstractmethod
    def plan(self, view: View) -> Later:
        """Return the function that returns the next token.

        It is called before the records of the page are known, because their transformation may change the
        decoded body: what depends on the response alone is evaluated now.
        """


class Single(Strategy):
    """The strategy of a single page."""

    def plan(self, view: View) -> Later:
        return lambda _: None


class Cursor(Strategy):
    """The token is a value of the response, until a condition holds or there is no value."""

    def __init__(self, component: components.CursorPagination, config: Mapping[str, Any]):
        self.page_size = _size(component.page_size, config, component.place)
        self._value = component.cursor_value
        self._stop = component.stop_condition

    def plan(self, view: View) -> Later:
        must_stop = _evaluated(self._stop, view, self._is_stopped)
        value = _evaluated(self._value, view, self._token)

        def token(page: View) -> Any:
            return None if must_stop(page) else value(page) or None

        return token

    def _token(self, variables: Mapping[str, Any]) -> Any:
        """Return the token. A text that is a number in another form, such as 1e5 or 1_000, stays as the API
        has written it; the CDK makes another token of it."""
        token = self._value.evaluate_or(None, variables)  # the last page need not have its place
        if type(token) in (int, float):
            text = self._value.text_of(variables).strip()
            return token if text == str(token) else text
        return token

    def _is_stopped(self, variables: Mapping[str, Any]) -> bool:
        return self._stop is not None and bool(self._stop.text) and self._stop.is_true(variables)


class Offset(Strategy):
    """The token is the number of the records before the page. The last page has no records, or fewer than the
    page size."""

    is_counted = True

    def __init__(self, component: components.OffsetIncrement, config: Mapping[str, Any]):
        self.initial = 0 if component.inject_on_first_request else None
        self._written = component.page_size
        self._depends = isinstance(self._written, Template) and bool(
            self._written.names & _RESPONSE
        )
        if not self._depends:
            self.page_size = _size(self._written, config, component.place)
        self._place = component.place

    def plan(self, view: View) -> Later:
        limit = self.page_size
        if self._depends and isinstance(self._written, Template):
            limit = _number(self._written.evaluate(view.variables(_RESPONSE)), self._place)

        def token(page: View) -> int | None:
            return None if _is_last(page, limit) else (page.token or 0) + page.extracted

        return token


class Page(Strategy):
    """The token is the number of the page. The last page has no records, or fewer than the page size."""

    is_counted = True

    def __init__(self, component: components.PageIncrement, config: Mapping[str, Any]):
        self._first = component.start_from_page
        self.initial = self._first if component.inject_on_first_request else None
        self.page_size = _size(component.page_size, config, component.place)

    def plan(self, view: View) -> Later:
        def token(page: View) -> int | None:
            if _is_last(page, self.page_size):
                return None
            return int(self._first if page.token is None else page.token) + 1

        return token


def _is_last(page: View, limit: int | None) -> bool:
    return page.extracted == 0 or (limit is not None and page.extracted < limit)


_STRATEGIES: Mapping[type, Callable[[Any, Mapping[str, Any]], Strategy]] = {
    components.CursorPagination: Cursor,
    components.OffsetIncrement: Offset,
    components.PageIncrement: Page,
}


def strategy(component: components.Component, config: Mapping[str, Any]) -> Strategy:
    """Return the strategy that a component describes.

    Raises:
        ConfigError: its page size is not a number.
    """
    return _STRATEGIES[type(component)](component, config)


def _evaluated(
    template: Template | None,
    view: View,
    evaluate: Callable[[Mapping[str, Any]], Any],
) -> Later:
    """Return what evaluates a template. It is evaluated now, unless it depends on the records; an error is
    raised when the value is needed."""
    if template is None:
        return lambda _: None
    if template.names & _RECORDS:
        return lambda page: evaluate(page.variables(template.names))
    try:
        result = evaluate(view.variables(template.names))
    except Exception as error:  # noqa: BLE001 - the condition to stop may show that the value is not needed
        return _raising(error)
    return lambda _: result


def _raising(error: Exception) -> Later:
    def fail(_: View) -> Any:
        raise error

    return fail


def _size(template: Any, config: Mapping[str, Any], place: str) -> int | None:
    if template is None:
        return None
    number = template.evaluate({"config": config}) if isinstance(template, Template) else template
    return _number(number, place) if number != "" else None


def _number(value: Any, place: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{place}.page_size is not a number",
            guidance="write a whole number, or correct the config",
        ) from None
