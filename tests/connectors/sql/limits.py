"""Limits of reads for tests, and how many connections of a server read rows."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def write_hours(begin: float, end: float) -> str:
    """The hours that begin and end so many hours from now."""
    now = dt.datetime.now(dt.timezone.utc)
    return "-".join(f"{now + dt.timedelta(hours=hours):%H:%M}" for hours in (begin, end))


INSIDE, OUTSIDE = (-2.0, 2.0), (3.0, 5.0)


@contextmanager
def sample(count: Callable[[], int]) -> Iterator[list[int]]:
    """Count something again and again while the context is open; the list has the numbers."""
    numbers: list[int] = []
    has_ended = threading.Event()

    def run() -> None:
        while not has_ended.wait(0.05):
            numbers.append(count())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield numbers
    finally:
        has_ended.set()
        thread.join()
