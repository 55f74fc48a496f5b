"""Retries: which failures are retried, and after which time.

Spec: RFC 9110, section 10.2.3 (Retry-After).
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import Protocol

import httpx

from connectors.sdk.http.failures import (
    RATE_LIMITED_STATUS,
    RETRIED_STATUSES,
    Outcome,
    failure,
    is_permanent,
    place,
)
from connectors.sdk.reports import FAILED, RATE_LIMITED
from elt_assets.errors import EltError, TransientError

_LONGEST = 1e12
"""A wait, in seconds, that stands for all longer ones: a number may have thousands of digits."""
_NUMBER = re.compile(r"\d+(\.\d+)?", re.ASCII)


@dataclass(frozen=True)
class Accept:
    """The response is returned."""


@dataclass(frozen=True)
class Ignore:
    """The response is returned, and marked as one to ignore: it has no records, and no page follows."""


@dataclass(frozen=True)
class Retry:
    """The request is repeated after a number of seconds."""

    seconds: float
    reason: str = FAILED


@dataclass(frozen=True)
class Fail:
    """The request has failed."""

    error: EltError


Action = Accept | Ignore | Retry | Fail

Wait = Callable[[Outcome, int], float | None]
"""Returns the seconds to wait after the outcome of an attempt, the first of which is 1; None or 0 if it does
not know a time. It raises TransientError if the API asks for too long a wait."""


class Policy(Protocol):
    """Decides what follows from the outcome of an attempt. One object serves all threads."""

    def decide(self, outcome: Outcome, attempt: int) -> Action:
        """Return the action; for an outcome without response, `Retry` or `Fail`.

        Args:
            outcome: the response, or the error that prevented one.
            attempt: the number of attempts so far, this one included.
        """


@dataclass(frozen=True)
class RetryPolicy:
    """The default policy: retries failures that are expected to pass, after exponentially growing waits.

    A request is repeated whatever its method is: connectors read, also with POST.

    Args:
        attempts: the maximum number of attempts.
        factor: the seconds of the longest first wait. The longest wait doubles with each attempt, and each
            wait is a random part of the longest one, so that clients do not return at the same time.
        max_wait_seconds: the maximum of one wait. If the API asks for a longer one, the request fails with an
            error that says how long.
        retried_statuses: the statuses after which a request is repeated. Errors of the connection, timeouts
            and incomplete bodies are always retried.
        ignored_statuses: the statuses of a response that has no records, such as 404 for a child that is
        gone.
        accepted_statuses: further statuses of a successful response.
        clock: returns the time in seconds since 1970.
        chance: returns a random number between 0 and 1.
        waits: say how long to wait, one after the other, before `Retry-After` and the growing waits: for an
            API that has the time in another header or in the body.
        remedy_for_long_waits: what to change so that a wait may be longer, for the error.
    """

    attempts: int = 6
    factor: float = 2.0
    max_wait_seconds: float = 300.0
    retried_statuses: Collection[int] = RETRIED_STATUSES
    ignored_statuses: Collection[int] = ()
    accepted_statuses: Collection[int] = ()
    clock: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    waits: Sequence[Wait] = ()
    remedy_for_long_waits: str = "raise `max_wait_seconds`"

    def decide(self, outcome: Outcome, attempt: int) -> Action:
        if isinstance(outcome, httpx.Response):
            status = outcome.status_code
            if status in self.ignored_statuses:
                return Ignore()
            if outcome.is_success or status in self.accepted_statuses:
                return Accept()
            is_retried = status in self.retried_statuses
        else:
            is_retried = not is_permanent(outcome)
        if is_retried and attempt < self.attempts:
            return self.repeat(outcome, attempt, self.waits)
        return Fail(failure(outcome, attempt))

    def repeat(
        self,
        outcome: Outcome,
        attempt: int,
        waits: Sequence[Wait] = (),
        *,
        is_rate_limited: bool = False,
    ) -> Action:
        """Return how long to wait before a request is repeated; or that it fails, if the API asks for too
        long a wait.

        Args:
            outcome: the response, or the error that prevented one.
            attempt: the number of attempts so far.
            waits: asked one after the other, before `Retry-After`.
            is_rate_limited: whether the outcome means that, whatever its status is.
        """
        seconds: float | None = None
        try:
            asked = (wait(outcome, attempt) for wait in waits)
            seconds = next((answer for answer in asked if answer), None)
        except TransientError as error:
            return Fail(error)
        if isinstance(outcome, httpx.Response):
            is_rate_limited |= outcome.status_code == RATE_LIMITED_STATUS
            if seconds is None:
                seconds = retry_after(outcome.headers, self.clock())
                if seconds is not None and seconds > self.max_wait_seconds:
                    most, remedy = self.max_wait_seconds, self.remedy_for_long_waits
                    return Fail(describe_long_wait(outcome, seconds, most, remedy))
        if seconds is None:
            longest = min(self.max_wait_seconds, self.factor * 2 ** (attempt - 1))
            seconds = longest * self.chance()
        return Retry(seconds, RATE_LIMITED if is_rate_limited else FAILED)


def retry_after(headers: httpx.Headers, current: float) -> float | None:
    """Return the seconds that the header `Retry-After` asks to wait; None if it is missing or malformed.

    Args:
        headers: the headers of the response. A date in `Retry-After` is compared with the date of the
            response, if it has one: the clocks of server and client may differ.
        current: the present time in seconds since 1970.
    """
    header = headers.get("Retry-After", "").strip()
    if _NUMBER.fullmatch(header):
        return min(float(header), _LONGEST)
    until = _time(header)
    if until is None:
        return None
    sent = _time(headers.get("Date", ""))
    return max(0.0, until - (current if sent is None else sent))


def _time(header: str) -> float | None:
    """Return a date of HTTP in seconds since 1970; None if it is not one."""
    try:
        moment = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    zone = moment.tzinfo or timezone.utc
    return moment.replace(tzinfo=zone).timestamp()


def describe_long_wait(
    outcome: Outcome, seconds: float, maximum: float, remedy: str
) -> TransientError:
    """Return the error for a wait that is longer than one may be.

    Args:
        remedy: what to change so that it may be longer.
    """
    status = f" ({outcome.status_code})" if isinstance(outcome, httpx.Response) else ""
    return TransientError(
        f"the API asks to wait {seconds:.0f} s before {place(outcome.request)} is repeated{status}; the "
        f"maximum is {maximum:.0f} s",
        guidance=f"run the sync again after {math.ceil(seconds / 60)} min, or {remedy}",
    )
