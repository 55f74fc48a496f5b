"""The clock of a sync: the one place from which templates and cursors read the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

Clock = Callable[[], datetime]


def _system() -> datetime:
    return datetime.now(timezone.utc)


_clocks: list[Clock] = [_system]
"""The clocks that replace each other; the last one is read. All threads share them, because the slices of a
stream are read in several threads."""


def now() -> datetime:
    """Return the present time, with the zone UTC."""
    return _clocks[-1]()


@contextmanager
def use(clock: Clock) -> Iterator[None]:
    """Read another clock while the context is open."""
    _clocks.append(clock)
    try:
        yield
    finally:
        _clocks.pop()


@contextmanager
def frozen(moment: datetime) -> Iterator[None]:
    """Stop the clock at a time while the context is open.

    Args:
        moment: a time with a zone.
    """
    with use(lambda: moment.astimezone(timezone.utc)):
        yield
