"""Backoff strategies: how long to wait before a request is repeated.

A strategy returns None if it does not know a time; the next one is then asked. The same holds for 0, as in
the CDK.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any

from connectors.declarative.manifest import clock, components
from connectors.declarative.requests.decoding.json_body import json_body_if_any
from connectors.declarative.requests.expressions import pattern_of, read_number, text
from connectors.sdk.http.failures import Outcome
from connectors.sdk.http.messages import Response
from connectors.sdk.http.retry import Wait, describe_long_wait
from elt_assets.errors import ConfigError

REMEDY = "set `max_waiting_time_in_seconds` of WaitTimeFromHeader in the manifest"
"""What to change so that a wait may be longer."""
_MARGIN_SECONDS = 1.0
"""Wait beyond a time that an API names in whole seconds."""


@singledispatch
def backoff(component: Any, _config: Mapping[str, Any]) -> Wait:
    """Return the strategy that a component describes.

    Raises:
        ConfigError: one of its numbers is none.
    """
    raise TypeError(component)


@backoff.register
def _(component: components.ConstantBackoffStrategy, config: Mapping[str, Any]) -> Wait:
    seconds = read_number(
        component.backoff_time_in_seconds, config, f"{component.place}.backoff_time_in_seconds"
    )
    spread = _spread(component)
    return lambda _outcome, _attempt: seconds + random.uniform(0, spread)


@backoff.register
def _(component: components.ExponentialBackoffStrategy, config: Mapping[str, Any]) -> Wait:
    factor = read_number(component.factor, config, f"{component.place}.factor")
    spread = _spread(component)
    return lambda _outcome, attempt: factor * 2**attempt + random.uniform(0, spread)


@backoff.register
def _(component: components.WaitTimeFromHeader, config: Mapping[str, Any]) -> Wait:
    return _limited(component, config, _header_reader(component, config))


@backoff.register
def _(component: components.WaitUntilTimeFromHeader, config: Mapping[str, Any]) -> Wait:
    read = _header_reader(component, config)
    least = 0.0
    if component.min_wait not in (None, ""):
        least = read_number(component.min_wait, config, f"{component.place}.min_wait")

    def find_seconds(response: Response) -> float:
        until = read(response)
        rest = until - clock.now().timestamp() + _MARGIN_SECONDS if until else least
        return max(least, rest)

    return _limited(component, config, find_seconds)


@backoff.register
def _(component: components.WaitTimeFromResponse, config: Mapping[str, Any]) -> Wait:
    template = component.wait_time_in_seconds

    def find_seconds(response: Response) -> float | None:
        body = json_body_if_any(response)
        variables = {"config": config, "response": body, "headers": response.headers}
        try:
            return float(template.evaluate(variables))
        except (ConfigError, TypeError, ValueError):  # a body of another form: the next one decides
            return None

    return _limited(component, config, find_seconds)


def _header_reader(component: Any, config: Mapping[str, Any]) -> Callable[[Response], float | None]:
    """Return the function that reads the number in a header; it returns None if there is none."""
    variables = {"config": config}
    name = text(component.header, variables)
    pattern = pattern_of(text(component.regex, variables), f"{component.place}.regex")

    def read(response: Response) -> float | None:
        header = response.headers.get(name, "")
        match = pattern.match(header) if pattern else None
        try:
            number = float(match.group() if match else header)
        except ValueError:
            return None
        return number if math.isfinite(number) else None

    return read


def _limited(
    component: Any, config: Mapping[str, Any], find_seconds: Callable[[Response], float | None]
) -> Wait:
    """Return the strategy whose seconds a response has, and which raises an error if they are too many."""
    limit = component.max_waiting_time_in_seconds
    limit_place = f"{component.place}.max_waiting_time_in_seconds"
    most = math.inf if limit is None else read_number(limit, config, limit_place)

    def wait(outcome: Outcome, _attempt: int) -> float | None:
        seconds = find_seconds(outcome if isinstance(outcome, Response) else Response(0))
        if seconds is None or not math.isfinite(seconds) or seconds <= 0:
            return None
        if seconds >= most:
            raise describe_long_wait(outcome, seconds, most, REMEDY)
        return seconds

    return wait


def _spread(component: Any) -> float:
    """Return the seconds by which a wait may be longer, at random."""
    seconds = float(component.jitter_range_in_seconds or 0)
    if seconds < 0:
        raise ConfigError(
            f"{component.place}.jitter_range_in_seconds is negative", guidance="write 0 or more"
        )
    return 2 * seconds
