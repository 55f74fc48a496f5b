"""How far a long sync is, in the log every few seconds."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from elt_assets.orchestration.reading import StreamRead

EVERY = 5.0
"""Seconds."""


@contextlib.contextmanager
def reporting(
    reads: Sequence[StreamRead], log: Callable[[str], object], every: float = EVERY
) -> Iterator[None]:
    """Say how far streams are read while that lasts; what takes less than `every` seconds says nothing."""
    over, started = threading.Event(), time.monotonic()

    def report() -> None:
        while not over.wait(every):
            seconds = time.monotonic() - started
            for read in reads:
                text = told(read, seconds)
                log(text if len(reads) == 1 else f"{read.id}: {text}")

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def told(read: StreamRead, seconds: float) -> str:
    """Rows, rate, and, where the source estimates how many there are, percentage and time left."""
    records, size = read.read_so_far()
    rate = records / seconds if seconds else 0.0
    text = (
        f"{records:,} records read ({size / 1e6:,.1f} MB, {rate:,.0f}/s), "
        f"{read.figures.committed:,} committed"
    )
    if read.partition is not None:
        text = f"partition {read.partition}: {text}"
    estimate = read.progress.estimate
    if not estimate or records > estimate:
        return text
    left = f", about {_duration((estimate - records) / rate)} left" if rate else ""
    return f"{text}; {records / estimate:.0%} of about {estimate:,}{left}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
