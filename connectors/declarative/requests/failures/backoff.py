"""Backoff strategies: how long to wait before a request is repeated.

A strategy returns None if it does not know a time; the next one is then asked. The same holds for 0, as in
the CDK.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any

from connectors.declarative.manifest import clock, components
from connectors.declarative.manifest.template import Template
from connectors.declarative.requests.decoding.json_body import json_body_if_any
from connectors.declarative.requests.expressions import text
from connectors.sdk.http.failures import Outcome, place
from connectors.sdk.http.messages import Request, Response
from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.patterns import Pattern

Backoff = Callable[[Outcome, int], float | None]
"""Returns the seconds to wait after the outcome of an attempt; the number of the first attempt is 1.

It raises TransientError if the API asks for a longer wait than the manifest allows."""

_MARGIN_SECONDS = 1.0
"""Wait beyond a time that an API names in whole seconds."""


@singledispatch
def backoff(component: Any, _config: Mapping[str, Any]) -> Backoff:
    """Return the strategy that a component describes.

    Raises:
        ConfigError: one of its numbers is none.
    """
    raise TypeError(component)


@backoff.register
def _(component: components.ConstantBackoffStrategy, config: Mapping[str, Any]) -> Backoff:
    seconds = _number(component.backoff_time_in_seconds, config, component.place)
    spread = _spread(component)
    return lambda _outcome, _attempt: seconds + random.uniform(0, spread)


@backoff.register
def _(component: components.ExponentialBackoffStrategy, config: Mapping[str, Any]) -> Backoff:
    factor = _number(component.factor, config, component.place)
    spread = _spread(component)
    return lambda _outcome, attempt: factor * 2**attempt + random.uniform(0, spread)


@backoff.register
def _(component: components.WaitTimeFromHeader, config: Mapping[str, Any]) -> Backoff:
    read, limited = _reader(component, config), _limit(component, config)

    def wait(outcome: Outcome, _attempt: int) -> float | None:
        seconds = read(outcome)
        return limited(seconds, outcome) if seconds else None

    return wait


@backoff.register
def _(component: components.WaitUntilTimeFromHeader, config: Mapping[str, Any]) -> Backoff:
    read, limited = _reader(component, config), _limit(component, config)
    least = 0.0
    if component.min_wait not in (None, ""):
        least = _number(component.min_wait, config, component.place)

    def wait(outcome: Outcome, _attempt: int) -> float | None:
        until = read(outcome)
        seconds = least
        if until:
            seconds = max(least, until - clock.now().timestamp() + _MARGIN_SECONDS)
        return limited(seconds, outcome) if seconds > 0 else None

    return wait


@backoff.register
def _(component: components.WaitTimeFromResponse, config: Mapping[str, Any]) -> Backoff:
    limited, template = _limit(component, config), component.wait_time_in_seconds

    def wait(outcome: Outcome, _attempt: int) -> float | None:
        response = outcome if isinstance(outcome, Response) else Response(0)
        body = json_body_if_any(response)
        variables = {"config": config, "response": body, "headers": response.headers}
        try:
            seconds = float(template.evaluate(variables))
        except (ConfigError, TypeError, ValueError):  # a body of another form: the next one decides
            return None
        is_time = math.isfinite(seconds) and seconds > 0
        return limited(seconds, outcome) if is_time else None

    return wait


def _reader(component: Any, config: Mapping[str, Any]) -> Callable[[Outcome], float | None]:
    """Return the function that reads the number in a header; it returns None if there is none."""
    variables = {"config": config}
    name = text(component.header, variables)
    expression = text(component.regex, variables)
    try:
        pattern = Pattern(expression) if expression else None
    except re.error as error:
        raise ConfigError(
            f"{component.place}.regex is not a regular expression: {error}", guidance="correct it"
        ) from None

    def read(outcome: Outcome) -> float | None:
        if not isinstance(outcome, Response):
            return None
        header = outcome.headers.get(name, "")
        match = pattern.match(header) if pattern else None
        try:
            number = float(match.group() if match else header)
        except ValueError:
            return None
        return number if math.isfinite(number) else None

    return read


def _limit(component: Any, config: Mapping[str, Any]) -> Callable[[float, Outcome], float]:
    """Return the function that returns the seconds, and raises an error if they are too many."""
    limit = component.max_waiting_time_in_seconds
    if limit is None:
        return lambda seconds, _outcome: seconds
    most = _number(limit, config, component.place)

    def limited(seconds: float, outcome: Outcome) -> float:
        if seconds >= most:
            raise too_long(seconds, outcome.request, most)
        return seconds

    return limited


def too_long(seconds: float, request: Request, most: float) -> TransientError:
    """Return the error for a wait that is longer than one may be."""
    return TransientError(
        f"the API asks to wait {seconds:.0f} s before {place(request)} is repeated; the limit is "
        f"{most:.0f} s",
        guidance=f"run the sync again after {math.ceil(seconds / 60)} min, or set "
        "`max_waiting_time_in_seconds` of WaitTimeFromHeader in the manifest",
    )


def _number(template: Any, config: Mapping[str, Any], place: str) -> float:
    result = template.evaluate({"config": config}) if isinstance(template, Template) else template
    try:
        number = float(result)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(
            f"{place}: a number of seconds is none",
            guidance="correct it, or the field of the config",
        )
    return number


def _spread(component: Any) -> float:
    """Return the seconds by which a wait may be longer, at random."""
    seconds = float(component.jitter_range_in_seconds or 0)
    if seconds < 0:
        raise ConfigError(
            f"{component.place}.jitter_range_in_seconds is negative", guidance="write 0 or more"
        )
    return 2 * seconds
