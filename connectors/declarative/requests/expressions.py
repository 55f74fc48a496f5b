"""When values of a manifest are evaluated: once for a slice, a page or a record.

Also settings that are read as numbers, seconds and patterns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from connectors.declarative.manifest.template import Template, TemplateMap, names_in
from connectors.sdk.times import parse_duration
from elt_assets.errors import ConfigError
from elt_assets.protocol.specification import Pattern

T = TypeVar("T")
Variables = Mapping[str, Any]
Evaluate = Callable[[Any, Variables], T]
"""Returns the value of something that a manifest has written."""
Bound = Callable[[Variables], T]
"""Returns a value for the variables of a page, which stand beside those of the slice."""

PAGE = frozenset({"next_page_token"})
"""The variables of a page."""
_CHANGES = re.compile(r"now|today|uuid|random")
"""Parts of the names of functions that return something else each time."""


def is_paged(template: Any) -> bool:
    """Return whether a value may differ between two pages of a slice."""
    return is_of(template, PAGE)


def is_of(template: Any, names: frozenset[str]) -> bool:
    """Return whether a value depends on any of these variables, or may change from one evaluation to the
    next."""
    return bool(names_in(template) & names) or _is_volatile(template)


def bound(template: Any, evaluate: Evaluate[T], variables: Variables) -> Bound[T]:
    """Return a function that evaluates something for a page; what does not depend on the page is evaluated
    now, once."""
    if is_paged(template):
        return lambda page: evaluate(template, {**variables, **page})
    result = evaluate(template, variables)
    return lambda _: result


def text(template: Any, variables: Variables) -> str:
    """Return a template as text; an empty text if it is missing."""
    if isinstance(template, Template):
        return template.text_of(variables)
    return "" if template is None else str(template)


def read_number(template: Any, config: Mapping[str, Any], place: str) -> float:
    """Return a number, which may be a template.

    Args:
        template: the number.
        config: the config of the source.
        place: its place in the manifest.

    Raises:
        ConfigError: it is not a number.
    """
    result = template.evaluate({"config": config}) if isinstance(template, Template) else template
    try:
        number = float(result)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(
            f"{place} is not a number",
            guidance="correct it, or the value of the config that it uses",
        )
    return number


def read_whole_number(
    template: Any, config: Mapping[str, Any], place: str, *, least: int = 1
) -> int:
    """Return a whole number, which may be a template; a fraction is cut off. The arguments are those of
    `read_number`, and the least number that it may be.

    Raises:
        ConfigError: it is not such a number.
    """
    number = int(read_number(template, config, place))
    if number < least:
        raise ConfigError(
            f"{place} is not a whole number of at least {least}",
            guidance="correct it, or the value of the config that it uses",
        )
    return number


def read_seconds(duration: str, place: str, *, may_be_zero: bool = False) -> float:
    """Return the seconds of a duration.

    Raises:
        ConfigError: it is not a duration, has no fixed length, or is not longer than 0, unless it may be.
    """
    with suppress(ValueError):
        interval = parse_duration(duration)
        if isinstance(interval, timedelta) and (may_be_zero or interval > timedelta()):
            return interval.total_seconds()
    raise ConfigError(
        f"{place} is {duration!r}, which is not a duration with a fixed length",
        guidance="write a duration such as PT1M",
    )


def pattern_of(expression: str | None, place: str) -> Pattern | None:
    """Return a regular expression of a manifest; None if it has none.

    Raises:
        ConfigError: it is not one.
    """
    try:
        return Pattern(expression) if expression else None
    except re.error as error:
        raise ConfigError(
            f"{place} is not a regular expression: {error}", guidance="correct it"
        ) from None


def _is_volatile(template: Any) -> bool:
    if isinstance(template, Template):
        return not template.is_constant and bool(_CHANGES.search(template.text))
    if isinstance(template, TemplateMap):
        return any(_CHANGES.search(name) for name in template) or any(
            map(_is_volatile, template.values())
        )
    if isinstance(template, list | tuple):
        return any(map(_is_volatile, template))
    return False
