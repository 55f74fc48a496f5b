"""What a long sync is doing, in the log: a line when a phase begins, then how far it is."""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from elt_assets.pipeline.sync import ClosableSink
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.segments import Segment

QUIET = 3.0
"""Seconds for which a sync says nothing: a short one has no phases worth a line."""
FIRST, LONGEST = 5.0, 60.0
"""Seconds from the beginning of a phase to its first report; each pause is twice the one before, up to the
longest."""
_LOOK = 0.5
"""Seconds between two looks at the phase."""

Log = Callable[[str], object]


class Phase(enum.Enum):
    """What a sync waits for."""

    INSTALLING = "installing"
    READING = "reading"
    SENDING = "waiting for the destination to confirm its records"
    STARTING_SPARK = "starting Spark"
    WRITING = "writing"
    COMMITTING = "committing"


@dataclass(frozen=True)
class Progress:
    """How far a sync is. Counts are of records; `size`: bytes read; `estimate`: how many records the source
    expects, if it says so; `package`: the one that is being installed."""

    phase: Phase
    read: int = 0
    size: int = 0
    written: int = 0
    committed: int = 0
    estimate: int | None = None
    package: str | None = None

    def beginning(self) -> str:
        """The line that a phase begins with."""
        if self.phase is Phase.INSTALLING:
            return f"installing {self.package}, once for all runs"
        return str(self.phase.value)

    def report(self, seconds: float) -> str:
        """How far the phase is, after so many seconds of it."""
        if self.phase is Phase.READING:
            return self._reading(seconds)
        so_far = f"{_duration(seconds)} so far"
        if self.phase is Phase.WRITING:
            return f"writing: {self.written:,} of {self.read:,} records, {so_far}"
        what = self.package if self.phase is Phase.INSTALLING else None
        return f"{self.phase.value}{f' {what}' if what else ''}: {so_far}"

    def _reading(self, seconds: float) -> str:
        rate = self.read / seconds if seconds else 0.0
        text = (
            f"reading: {self.read:,} records ({self.size / 1e6:,.1f} MB, {rate:,.0f}/s), "
            f"{self.committed:,} committed"
        )
        if not self.estimate or not rate or self.read >= self.estimate:
            return text
        share = f"{100 * self.read // self.estimate}% of about {self.estimate:,}"
        return (
            f"{text}; {share}, about {_duration((self.estimate - self.read) / rate)} left to read"
        )


class Work:
    """What the sinks of a sync have done, and do; from any thread."""

    def __init__(self) -> None:
        self.written = 0
        self.is_committing = False


@dataclass(frozen=True)
class WatchedSink:
    """A sink whose work is counted."""

    sink: ClosableSink
    work: Work

    def write(self, segment: Segment) -> None:
        self.sink.write(segment)
        self.work.written += segment.records

    def commit(self, checkpoint: Checkpoint) -> Committed:
        self.work.is_committing = True
        try:
            return self.sink.commit(checkpoint)
        finally:
            self.work.is_committing = False

    def close(self) -> None:
        self.sink.close()


@contextlib.contextmanager
def reporting(
    look: Callable[[], Progress], log: Log, *, quiet: float = QUIET, first: float = FIRST
) -> Iterator[None]:
    """Log the phases of a sync while it lasts, and how far each of them is."""
    over = threading.Event()

    def report() -> None:
        reporter = Reporter(log, first, time.monotonic())
        wait = quiet
        while not over.wait(wait):
            reporter.report(look(), time.monotonic())
            wait = min(_LOOK, first)

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Reporter:
    """Says what is worth a line at the time."""

    def __init__(self, log: Log, first: float, started: float):
        self._log = log
        self._first = first
        self._phase: Phase | None = None
        self._said: set[Phase] = set()
        self._began = started
        self._due = self._pause = 0.0

    def report(self, progress: Progress, now: float) -> None:
        if progress.phase is not self._phase:
            self._began = self._began if self._phase is None else now
            self._phase = progress.phase
        if progress.phase not in self._said:  # writing and committing alternate: one line each
            self._said.add(progress.phase)
            self._log(progress.beginning())
            self._pause = self._first
        elif now >= self._due:
            self._log(progress.report(now - self._began))
            self._pause = min(self._pause * 2, LONGEST)
        else:
            return
        self._due = now + self._pause


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
