"""Call-rate budgets: requests are delayed before the API refuses them.

Spec: HTTPAPIBudget and its policies. The first policy that matches a request counts it.
"""

from __future__ import annotations

import math
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from connectors.declarative.manifest import clock, components
from connectors.declarative.requests.expressions import whole_number
from connectors.sdk.http.messages import Request, Response
from connectors.sdk.times import parse_duration
from elt_assets.errors import ConfigError
from elt_assets.protocol.patterns import Pattern

Clock = Callable[[], float]
"""Returns a time in seconds that never goes back."""

Policy = (
    components.MovingWindowCallRatePolicy
    | components.FixedWindowCallRatePolicy
    | components.UnlimitedCallRatePolicy
)

_RELATIVE_SECONDS = 1e9
"""A smaller number in the header for the reset is a number of seconds, a larger one a time since 1970."""


class Matcher:
    """Recognizes requests by method, address, path, parameters and headers.

    Args:
        component: a HttpRequestRegexMatcher.
        config: the config of the source.
    """

    def __init__(self, component: components.HttpRequestRegexMatcher, config: Mapping[str, Any]):
        self._method = (component.method or "").upper()
        self._base = (component.url_base or "").rstrip("/")
        self._path = _pattern(component)
        self._params = {
            str(name): str(pattern) for name, pattern in (component.params or {}).items()
        }
        self._headers = {
            str(name): str(pattern) for name, pattern in (component.headers or {}).items()
        }
        self.weight = 1
        if component.weight is not None:
            self.weight = whole_number(component.weight, config, f"{component.place}.weight")

    def __call__(self, request: Request) -> bool:
        url = request.url
        return (
            self._method in ("", request.method)
            and self._base in ("", f"{url.scheme}://{url.netloc.decode('ascii')}")
            and (self._path is None or bool(self._path.search(url.path.rstrip("/"))))
            and all(url.params.get(name) == pattern for name, pattern in self._params.items())
            and all(request.headers.get(name) == pattern for name, pattern in self._headers.items())
        )


class CallPolicy(ABC):
    """Counts the requests that its matchers recognize; all, if it has none."""

    def __init__(self, matchers: Sequence[Matcher]):
        self._matchers = matchers

    def weight(self, request: Request) -> int | None:
        """Return for how many calls a request counts; None if it does not count."""
        if not self._matchers:
            return 1
        return next((matcher.weight for matcher in self._matchers if matcher(request)), None)

    @abstractmethod
    def reserve(self, weight: int) -> float:
        """Reserve the next possible time, and return the seconds until then."""

    def observe(self, remaining: int | None, reset_in: float | None) -> None:
        """Take notice of what the API says: calls that remain, and seconds until there are new ones."""
        del remaining, reset_in


class Unlimited(CallPolicy):
    """A policy without a limit, for requests that the next policies must not count."""

    def reserve(self, weight: int) -> float:
        return 0.0


class MovingWindow(CallPolicy):
    """Limits of the calls in any period of some lengths.

    Args:
        matchers: the matchers.
        rates: the number of calls and the length of each period in seconds.
    """

    def __init__(
        self,
        matchers: Sequence[Matcher],
        rates: Sequence[tuple[int, float]],
        time_now: Clock = time.monotonic,
    ):
        super().__init__(matchers)
        self._now = time_now
        self._lock = threading.Lock()
        self._rates = [(deque[float](maxlen=limit), seconds) for limit, seconds in rates]
        self._closed_until = 0.0

    def reserve(self, weight: int) -> float:
        with self._lock:
            current = self._now()
            start = max(current, self._closed_until)
            for times, seconds in self._rates:
                expired = len(times) + weight - (times.maxlen or 0)
                if times:
                    start = max(start, times[-1])
                if expired > 0:
                    start = max(start, times[expired - 1] + seconds)
            for times, _ in self._rates:
                times.extend([start] * weight)
            return start - current

    def observe(self, remaining: int | None, reset_in: float | None) -> None:
        if remaining == 0 and reset_in is not None:
            with self._lock:
                self._closed_until = max(self._closed_until, self._now() + reset_in)


class FixedWindow(CallPolicy):
    """A limit of the calls in periods that follow each other. The first one begins with the first call, and
    the API may say when the next one begins and how many calls remain.

    Args:
        matchers: the matchers.
        limit: the number of calls in a period.
        seconds: the length of a period.
    """

    def __init__(
        self,
        matchers: Sequence[Matcher],
        limit: int,
        seconds: float,
        time_now: Clock = time.monotonic,
    ):
        super().__init__(matchers)
        self._now = time_now
        self._lock = threading.Lock()
        self._limit = limit
        self._seconds = seconds
        self._used = 0
        self._begins = self._ends = float("-inf")

    def reserve(self, weight: int) -> float:
        with self._lock:
            current = self._now()
            if current >= self._ends:
                self._begin(current)
            if self._used + weight > self._limit:
                self._begin(self._ends)
            self._used += weight
            return max(0.0, self._begins - current)

    def observe(self, remaining: int | None, reset_in: float | None) -> None:
        with self._lock:
            current = self._now()
            if current < self._begins:
                return  # the API speaks of an earlier period than the one that is reserved
            if remaining is not None:
                self._used = max(self._used, self._limit - remaining)
            if reset_in is not None and current < self._ends:
                self._ends = current + reset_in

    def _begin(self, start: float) -> None:
        self._begins, self._ends, self._used = start, start + self._seconds, 0


class Budget:
    """The budget of a source. Its policies are asked in their order; a request is not limited if no policy
    matches it.

    Args:
        component: a HTTPAPIBudget.
        config: the config of the source.

    Raises:
        ConfigError: a policy has a limit or a period that is none.
    """

    def __init__(
        self,
        component: components.HTTPAPIBudget,
        config: Mapping[str, Any],
        time_now: Clock = time.monotonic,
    ):
        self._policies = [policy(part, config, time_now) for part in component.policies]
        self._reset = component.ratelimit_reset_header or "ratelimit-reset"
        self._remaining = component.ratelimit_remaining_header or "ratelimit-remaining"
        self._limited = frozenset(component.status_codes_for_ratelimit_hit or (429,))

    def reserve(self, request: Request) -> float:
        """Reserve the next possible time for a request, and return the seconds until then."""
        for call_policy in self._policies:
            weight = call_policy.weight(request)
            if weight is not None:
                return call_policy.reserve(weight)
        return 0.0

    def observe(self, response: Response) -> None:
        """Take notice of what a response says about the budget."""
        for call_policy in self._policies:
            if call_policy.weight(response.request) is not None:
                call_policy.observe(self._calls(response), self._seconds(response))
                return

    def _calls(self, response: Response) -> int | None:
        number = _number(response.headers.get(self._remaining))
        if number is not None:
            return int(number)
        return 0 if response.status_code in self._limited else None

    def _seconds(self, response: Response) -> float | None:
        seconds = _number(response.headers.get(self._reset))
        if seconds is None:
            return None
        if seconds >= _RELATIVE_SECONDS:
            seconds -= clock.now().timestamp()
        return max(0.0, seconds)


def policy(component: Policy, config: Mapping[str, Any], time_now: Clock) -> CallPolicy:
    """Return the policy that a component describes.

    Raises:
        ConfigError: one of its values is not usable.
    """
    matchers = [Matcher(matcher, config) for matcher in component.matchers]
    place = component.place
    if isinstance(component, components.MovingWindowCallRatePolicy):
        rates = [
            (
                whole_number(rate.limit, config, f"{rate.place}.limit"),
                _seconds_of(rate.interval, rate.place),
            )
            for rate in component.rates
        ]
        if not rates:
            raise ConfigError(f"{place} has no rates", guidance="add one")
        _check_weights(matchers, min(limit for limit, _ in rates), place)
        return MovingWindow(matchers, rates, time_now)
    if isinstance(component, components.FixedWindowCallRatePolicy):
        limit = whole_number(component.call_limit, config, f"{place}.call_limit")
        _check_weights(matchers, limit, place)
        return FixedWindow(matchers, limit, _seconds_of(component.period, place), time_now)
    return Unlimited(matchers)


def _check_weights(matchers: Sequence[Matcher], limit: int, place: str) -> None:
    if any(matcher.weight > limit for matcher in matchers):
        raise ConfigError(
            f"{place}: a request counts for more calls than the limit of {limit} allows",
            guidance="lower its `weight`, or raise the limit",
        )


def _pattern(component: components.HttpRequestRegexMatcher) -> Pattern | None:
    if not component.url_path_pattern:
        return None
    try:
        return Pattern(component.url_path_pattern)
    except re.error as error:
        raise ConfigError(
            f"{component.place}.url_path_pattern is not a regular expression: {error}",
            guidance="correct it",
        ) from None


def _seconds_of(place: str, duration: str) -> float:
    try:
        interval = parse_duration(place)
    except ValueError as error:
        raise ConfigError(
            f"{duration}: {error}", guidance="write a duration such as PT1M"
        ) from None
    if not isinstance(interval, timedelta) or interval <= timedelta():
        raise ConfigError(
            f"{duration}: the duration {place!r} has no fixed length",
            guidance="write one such as PT1M",
        )
    return interval.total_seconds()


def _number(header: str | None) -> float | None:
    try:
        number = float(header or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
