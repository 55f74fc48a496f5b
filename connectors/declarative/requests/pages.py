"""The pages of a slice: paginators, their strategies, and what templates see of a page.

Spec: DefaultPaginator, CursorPagination, OffsetIncrement, PageIncrement, RequestPath, RequestOption.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from connectors.declarative.cursors.slices import Option, place_if_any
from connectors.declarative.manifest import components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.decoding.decoders import Decoder
from connectors.declarative.requests.expressions import read_number
from connectors.sdk.http import urls
from connectors.sdk.http.messages import Response
from connectors.sdk.http.paginators import LoopGuard, is_last_page
from connectors.sdk.http.places import Place
from connectors.sdk.items import Record
from elt_assets.errors import ConfigError

LINK = "link"
"""Name of the header whose links are parsed, in lower case. The name `Link` has the text."""


class HeaderValues(dict[str, Any]):
    """The headers of a response, by their names in any case; `link` has the links by their relation."""

    def __init__(self, response: Response):
        names = (name.decode("latin-1") for name, _ in response.headers.raw)
        super().__init__({name: response.headers[name] for name in names})
        self._lower = {name.lower(): value for name, value in self.items()}
        self[LINK] = links(response.headers.get(LINK, ""))
        self._lower.pop(LINK, None)

    def __missing__(self, name: str) -> Any:
        return self._lower[name.lower()]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or str(name).lower() in self._lower

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


def links(header: str) -> dict[str, dict[str, str]]:
    """Return the links of a header `Link` by their relation: the URL and the parameters of each."""
    return {
        parameters.get("rel") or url: {"url": url, **parameters}
        for url, parameters in urls.links(header)
    }


@dataclass
class View:
    """A page that was read.

    Attributes:
        config: the config of the source.
        response: the response.
        decoder: the decoder of the response.
        token: the token of the page; None for a first page without one.
        extracted: the number of records in the response, before the filter: a page of which the filter leaves
            nothing is not the last one.
        last: the last one of them, transformed; None if there is none.
        is_changed: whether transformations have changed the decoded body.
    """

    config: Mapping[str, Any]
    response: Response
    decoder: Decoder
    token: Any
    extracted: int = 0
    last: Record | None = None
    is_changed: bool = False

    def variables(self, names: Collection[str]) -> dict[str, Any]:
        """Return the variables of templates that use these names."""
        values: dict[str, Any] = {
            "config": self.config,
            "last_record": self.last,
            "last_page_size": self.extracted,
        }
        if "response" in names:
            values["response"] = self.decoder.shown(self.response, is_fresh=self.is_changed)
        if "headers" in names:
            values["headers"] = HeaderValues(self.response)
        return values


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
        self.page_size = _size(component.page_size, {"config": config}, component)
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


class Counted(Strategy):
    """The token is the number of the page, or of the records before it. The last page has no records, or
    fewer than the page size."""

    is_counted = True

    def __init__(
        self,
        component: components.OffsetIncrement | components.PageIncrement,
        config: Mapping[str, Any],
    ):
        self._first = getattr(component, "start_from_page", 0)
        self._counts_pages = isinstance(component, components.PageIncrement)
        self.initial = self._first if component.inject_on_first_request else None
        self._component, size = component, component.page_size
        self._limit = size if isinstance(size, Template) and size.names & _RESPONSE else None
        if self._limit is None:
            self.page_size = _size(size, {"config": config}, component)

    def plan(self, view: View) -> Later:
        limit = self.page_size
        if self._limit is not None:
            limit = _size(self._limit, view.variables(_RESPONSE), self._component)

        def token(page: View) -> int | None:
            if is_last_page(page.extracted, limit):
                return None
            present = self._first if page.token is None else page.token
            return int(present) + (1 if self._counts_pages else page.extracted)

        return token


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


def _size(
    template: Any, variables: Mapping[str, Any], component: components.Component
) -> int | None:
    """Return a page size; None if the manifest does not have it."""
    size = template.evaluate(variables) if isinstance(template, Template) else template
    if size in (None, ""):
        return None
    return int(read_number(size, {}, f"{component.place}.page_size"))


class Paginator:
    """The pages of a slice: the token of each, and what it puts into its request.

    Args:
        component: describes them; None for a single page.
        config: the config of the source.

    Raises:
        ConfigError: the component contradicts itself.

    Attributes:
        strategy: what returns the tokens.
    """

    def __init__(
        self,
        component: components.DefaultPaginator | components.NoPagination | None,
        config: Mapping[str, Any],
    ):
        self.strategy: Strategy = Single()
        self._token: Place | None = None
        self._size: tuple[Option, str] | None = None
        self._is_path = False
        self._place = ""
        if component is None or isinstance(component, components.NoPagination):
            return
        self._place = component.place
        written = component.pagination_strategy
        if isinstance(written, components.CursorPagination):
            self.strategy = Cursor(written, config)
        else:
            self.strategy = Counted(written, config)
        token_option = component.page_token_option
        if isinstance(token_option, components.RequestPath):
            self._is_path = True
        else:
            self._token = place_if_any(token_option, config)
        size = place_if_any(component.page_size_option, config)
        if size is not None:
            self._size = self._sized(size)

    def options(self, token: Any) -> list[tuple[Option, str]]:
        """Return what the request for a page gets, and the component that adds it."""
        options = [] if self._size is None else [self._size]
        if self._token is not None and token is not None:
            options.append((Option(self._token, token), f"{self._place}.page_token_option"))
        return options

    def path(self, token: Any) -> str | None:
        """Return the URL or path of a page; None for the path of the requester."""
        return str(token) if self._is_path and token else None

    def guard(self) -> LoopGuard:
        """Return what raises an error if the pages of a slice do not end."""
        return LoopGuard(
            self.strategy.initial,
            is_counted=self.strategy.is_counted,
            guidance="check the paginator in the manifest: the API may not know its parameter, or the "
            "condition to stop may never hold",
        )

    def _sized(self, size: Place) -> tuple[Option, str]:
        number = self.strategy.page_size
        if not number:
            raise ConfigError(
                f"{self._place}.page_size_option needs a page size",
                guidance="write `page_size` in the pagination strategy, or remove `page_size_option`",
            )
        return Option(size, number), f"{self._place}.page_size_option"
