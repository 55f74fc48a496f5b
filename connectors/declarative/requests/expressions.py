"""Evaluation of the templates of a request: once a slice, unless they depend on the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from connectors.declarative.manifest.template import Template, TemplateMap, names_in
from elt_assets.errors import ConfigError

T = TypeVar("T")
Variables = Mapping[str, Any]
Evaluate = Callable[[Any, Variables], T]
"""Returns the value of something that a manifest has written."""
Bound = Callable[[Variables], T]
"""Returns a value for the variables of a page, which stand beside those of the slice."""

PAGE = frozenset({"next_page_token", "query_properties"})
"""The variables of a page."""
_CHANGES = re.compile(r"now|today|uuid|random")
"""Parts of the names of functions that return something else each time."""


def is_paged(written: Any) -> bool:
    """Return whether a value may differ between two pages of a slice."""
    return bool(names_in(written) & PAGE) or _is_volatile(written)


def is_of(written: Any, names: frozenset[str]) -> bool:
    """Return whether a value depends on any of these variables, or may change from one evaluation to the
    next."""
    return bool(names_in(written) & names) or _is_volatile(written)


def bound(written: Any, evaluate: Evaluate[T], variables: Variables) -> Bound[T]:
    """Return a function that evaluates something for a page; what does not depend on the page is evaluated
    now, once."""
    if is_paged(written):
        return lambda page: evaluate(written, {**variables, **page})
    found = evaluate(written, variables)
    return lambda _: found


def text(written: Any, variables: Variables) -> str:
    """Return a template as text; an empty text if it is missing."""
    if isinstance(written, Template):
        return written.text_of(variables)
    return "" if written is None else str(written)


def whole_number(written: Any, config: Mapping[str, Any], at: str) -> int:
    """Return a whole number, which may be a template.

    Args:
        written: the number.
        config: the config of the source.
        at: its place in the manifest.

    Raises:
        ConfigError: it is not a whole number of at least 1.
    """
    found = written.evaluate({"config": config}) if isinstance(written, Template) else written
    try:
        number = int(found)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise ConfigError(
            f"{at} is not a whole number of at least 1",
            guidance="correct it, or the value of the config that it uses",
        )
    return number


def _is_volatile(written: Any) -> bool:
    if isinstance(written, Template):
        return not written.is_constant and bool(_CHANGES.search(written.text))
    if isinstance(written, TemplateMap):
        return any(_CHANGES.search(name) for name in written) or any(
            map(_is_volatile, written.values())
        )
    if isinstance(written, list | tuple):
        return any(map(_is_volatile, written))
    return False
