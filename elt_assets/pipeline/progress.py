"""Progress of a long sync in the log: a line at its start, then reports about each phase that takes long."""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from elt_assets.pipeline.figures import SyncFigures
from elt_assets.protocol.catalog import StreamId

QUIET = 3.0
"""Seconds from the start of a sync to its first line. A shorter sync logs no phases."""
FIRST = 5.0
"""Seconds from the start of a phase to the first report. The time doubles with each report."""
LONGEST = 60.0
"""Maximum seconds between two reports."""
_POLL_INTERVAL = 0.5
"""Seconds between two checks of the phase."""
_END_SECONDS = 10.0
"""Time limit for a report that is under way when its context ends: it may wait for Dagster's database."""

Log = Callable[[str], object]


class Phase(enum.Enum):
    """The current phase of a sync. Its value is the text for the log.

    SENDING: the source has ended, and the sync waits until a destination other than the lake has confirmed
    the records. WRITING and COMMITTING: the source has ended, and the sync still writes or commits rows.
    """

    INSTALLING = "installing"
    READING = "reading"
    SENDING = "waiting for the destination to confirm its records"
    STARTING_SPARK = "starting Spark"
    WRITING = "writing"
    COMMITTING = "committing"


@dataclass(frozen=True)
class Progress:
    """The progress of a sync.

    Counts are of records.
    """

    phase: Phase
    read: int = 0
    size: int = 0  # bytes read
    records_written: int = 0
    committed: int = 0
    estimate: int | None = None  # records that the source expects to send; None if it reports none
    package: str | None = None  # the package that is being installed
    figures: Mapping[StreamId, SyncFigures] = field(default_factory=dict)  # the figures by stream

    def first_line(self) -> str:
        """Return the line for the start of the phase."""
        if self.phase is Phase.INSTALLING:
            return f"installing {self.package}, once for all runs"
        return str(self.phase.value)

    def report(self, seconds: float) -> str:
        """Return a line about the phase, which has lasted for `seconds`."""
        if self.phase is Phase.READING:
            return self._describe_reading(seconds)
        so_far = f"{_duration(seconds)} so far"
        if self.phase is Phase.WRITING:
            return f"writing: {self.records_written:,} of {self.read:,} records, {so_far}"
        what = self.package if self.phase is Phase.INSTALLING else None
        return f"{self.phase.value}{f' {what}' if what else ''}: {so_far}"

    def _describe_reading(self, seconds: float) -> str:
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


@contextlib.contextmanager
def report_phases(
    get_progress: Callable[[], Progress], log: Log, *, quiet: float = QUIET, first: float = FIRST
) -> Iterator[None]:
    """Log the phases of a sync and their progress while the context lasts."""
    reporter = Reporter(log, first, time.monotonic())

    def report() -> None:
        reporter.report(get_progress(), time.monotonic())

    with repeat_in_thread(report, min(_POLL_INTERVAL, first), quiet=quiet):
        yield


@contextlib.contextmanager
def repeat_in_thread(
    action: Callable[[], object], interval: float, *, quiet: float | None = None
) -> Iterator[None]:
    """Call a function in a thread while the context lasts, every `interval` seconds; the first time after
    `quiet` seconds, by default after one interval."""
    ended = threading.Event()

    def repeat() -> None:
        wait = interval if quiet is None else quiet
        while not ended.wait(wait):
            action()
            wait = interval

    thread = threading.Thread(target=repeat, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END_SECONDS)


class Reporter:
    """A reporter that logs the first phase at once, and the progress of each at growing intervals.

    So a phase that takes less than `first` seconds has no line, unless it is the first one.

    Times are monotonic, in seconds.
    """

    def __init__(self, log: Log, first: float, started: float):
        self._log = log
        self._first = first
        self._phase: Phase | None = None
        self._seen: set[Phase] = set()
        self._phase_start = started
        self._due = self._pause = 0.0

    def report(self, progress: Progress, seconds: float) -> None:
        if progress.phase is not self._phase:
            self._phase_start = self._phase_start if self._phase is None else seconds
            self._phase = progress.phase
        if progress.phase not in self._seen:  # writing and committing alternate
            if not self._seen:
                self._log(progress.first_line())
            self._seen.add(progress.phase)
            self._pause = self._first
        elif seconds >= self._due:
            self._log(progress.report(seconds - self._phase_start))
            self._pause = min(self._pause * 2, LONGEST)
        else:
            return
        self._due = seconds + self._pause


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
