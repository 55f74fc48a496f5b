"""Call-rate budgets: requests are delayed before the API refuses them.

Spec: HTTPAPIBudget and its policies. The first policy that matches a request counts it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from connectors.declarative.manifest import clock, components
from connectors.declarative.requests.expressions import pattern_of, read_seconds, read_whole_number
from connectors.sdk.http.messages import Request, Response
from connectors.sdk.http.rate_limit import FixedWindow, MovingWindow
from elt_assets.errors import ConfigError

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
        self._path = pattern_of(component.url_path_pattern, f"{component.place}.url_path_pattern")
        self._params = {
            str(name): str(pattern) for name, pattern in (component.params or {}).items()
        }
        self._headers = {
            str(name): str(pattern) for name, pattern in (component.headers or {}).items()
        }
        self.weight = 1
        if component.weight is not None:
            self.weight = read_whole_number(component.weight, config, f"{component.place}.weight")

    def __call__(self, request: Request) -> bool:
        url = request.url
        return (
            self._method in ("", request.method)
            and self._base in ("", f"{url.scheme}://{url.netloc.decode('ascii')}")
            and (self._path is None or bool(self._path.search(url.path.rstrip("/"))))
            and all(url.params.get(name) == pattern for name, pattern in self._params.items())
            and all(request.headers.get(name) == pattern for name, pattern in self._headers.items())
        )


class CallPolicy:
    """Counts the requests that its matchers recognize; all, if it has none.

    Args:
        component: one of the policies.
        config: the config of the source.
        time_now: returns a time in seconds that never goes back.

    Attributes:
        window: the limit of these requests; None for no limit: the next policies must not count them.

    Raises:
        ConfigError: one of its values is not usable.
    """

    def __init__(self, component: Policy, config: Mapping[str, Any], time_now: Clock):
        self._matchers = [Matcher(matcher, config) for matcher in component.matchers]
        self.window: MovingWindow | FixedWindow | None = None
        place = component.place
        if isinstance(component, components.MovingWindowCallRatePolicy):
            rates = [
                (
                    read_whole_number(rate.limit, config, f"{rate.place}.limit"),
                    read_seconds(rate.interval, f"{rate.place}.interval"),
                )
                for rate in component.rates
            ]
            if not rates:
                raise ConfigError(f"{place} has no rates", guidance="add one")
            self._check_weights(min(limit for limit, _ in rates), place)
            self.window = MovingWindow(rates, clock=time_now)
        elif isinstance(component, components.FixedWindowCallRatePolicy):
            limit = read_whole_number(component.call_limit, config, f"{place}.call_limit")
            self._check_weights(limit, place)
            seconds = read_seconds(component.period, f"{place}.period")
            self.window = FixedWindow(limit, seconds, clock=time_now)

    def weight(self, request: Request) -> int | None:
        """Return for how many calls a request counts; None if it does not count."""
        if not self._matchers:
            return 1
        return next((matcher.weight for matcher in self._matchers if matcher(request)), None)

    def _check_weights(self, limit: int, place: str) -> None:
        if any(matcher.weight > limit for matcher in self._matchers):
            raise ConfigError(
                f"{place}: a request counts for more calls than the limit of {limit} allows",
                guidance="lower its `weight`, or raise the limit",
            )


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
        self._policies = [CallPolicy(part, config, time_now) for part in component.policies]
        self._reset = component.ratelimit_reset_header or "ratelimit-reset"
        self._remaining = component.ratelimit_remaining_header or "ratelimit-remaining"
        self._limited = frozenset(component.status_codes_for_ratelimit_hit or (429,))

    def reserve(self, request: Request) -> float:
        """Reserve the next possible time for a request, and return the seconds until then."""
        window, weight = self._find_window(request)
        return 0.0 if window is None else window.reserve(weight)

    def observe(self, response: Response) -> None:
        """Take notice of what a response says about the budget."""
        window, _ = self._find_window(response.request)
        if window is not None:
            window.observe(self._calls(response), self._seconds(response))

    def _find_window(self, request: Request) -> tuple[MovingWindow | FixedWindow | None, int]:
        """Return the limit of a request, and for how many calls it counts."""
        for policy in self._policies:
            weight = policy.weight(request)
            if weight is not None:
                return policy.window, weight
        return None, 0

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


def _number(header: str | None) -> float | None:
    try:
        number = float(header or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
