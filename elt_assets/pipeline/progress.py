"""The figures of a sync, the sentences about what it did not store as it came, and its progress in the log.

First `SyncFigures`, of one stream: `read` sums them, and `orchestration` and `cli` show them. Then
`describe_losses`, whose sentences about values that were changed and records that were rejected are the same
in the log of a run, `elt sync`, `elt replay`, `elt-destination` and `target-elt`. Then `Progress`, which
`connection_read` makes: `report_phases` logs it for `orchestration.report`, a line at the start of a sync,
then reports about each phase that takes long; `cli.live` draws its bar from it.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from elt_assets.lake.worker.blocks import OTHER_CHANGES, parse_name
from elt_assets.lake.worker.job import OTHERS
from elt_assets.lake.write.parsing import OTHER_REASONS, describe_counts, limit_counts
from elt_assets.pipeline.stream import ConnectionStream
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import DEPENDENT
from elt_assets.sync.events import Committed
from elt_assets.sync.field_selection import UNDECLARED


@dataclass
class SyncFigures:
    """The figures of one sync of one stream, summed over its commits.

    Counts are of records.
    """

    read: int = 0
    filtered: int = 0  # read, but not stored because of the conditions of `filter`
    committed: int = 0
    rejected: int = 0
    changed: int = 0
    bytes: int = 0  # as read
    # `documents`, `document_bytes`: files that records have beside their data
    documents: int = 0
    document_bytes: int = 0
    seconds: float = 0.0
    # number of records by field that the catalog does not declare
    undeclared: Mapping[str, int] = field(default_factory=dict)
    # number of records by what was changed in them (see `lake.worker.blocks`)
    changed_fields: Mapping[str, int] = field(default_factory=dict)
    # number of rejected records by reason
    rejected_reasons: Mapping[str, int] = field(default_factory=dict)
    suppressed: int = 0  # committed or rejected, and not stored (`elt erase --suppress`)
    unchanged: int = 0  # committed, and in the table already with the same values

    @property
    def rate(self) -> float:
        """Records read per second."""
        return self.read / self.seconds if self.seconds else 0.0

    def add(self, commit: Committed) -> None:
        self.committed += commit.records
        self.rejected += commit.rejected
        self.changed += commit.changed
        self.suppressed += commit.suppressed
        self.unchanged += commit.unchanged
        for name, counts in _add_counts(self, commit).items():
            setattr(self, name, counts)

    def __sub__(self, before: SyncFigures) -> SyncFigures:
        """Return the figures since a moment of the same sync."""
        counts: dict[str, Any] = {
            count.name: getattr(self, count.name) - getattr(before, count.name)
            for count in fields(self)
            if count.name not in _OTHERS
        }
        for name in _OTHERS:
            counts[name] = dict(Counter(getattr(self, name)) - Counter(getattr(before, name)))
        return SyncFigures(**counts)

    def __add__(self, other: SyncFigures) -> SyncFigures:
        """Return the figures of two syncs of the stream together."""
        return SyncFigures(
            read=self.read + other.read,
            filtered=self.filtered + other.filtered,
            committed=self.committed + other.committed,
            rejected=self.rejected + other.rejected,
            changed=self.changed + other.changed,
            bytes=self.bytes + other.bytes,
            documents=self.documents + other.documents,
            document_bytes=self.document_bytes + other.document_bytes,
            seconds=self.seconds + other.seconds,
            suppressed=self.suppressed + other.suppressed,
            unchanged=self.unchanged + other.unchanged,
            **_add_counts(self, other),
        )


_OTHERS = {
    "undeclared": OTHERS,
    "changed_fields": OTHER_CHANGES.name,
    "rejected_reasons": OTHER_REASONS,
}
"""The counts by name, and the name of the count of all that are beyond their limit."""


def _add_counts(
    figures: SyncFigures, other: SyncFigures | Committed
) -> dict[str, Mapping[str, int]]:
    """Return the sums of two sets of counts."""
    return {
        name: limit_counts(Counter(getattr(figures, name)) + Counter(getattr(other, name)), others)
        for name, others in _OTHERS.items()
    }


MAX_LINES = 20
"""Maximum number of sentences about one stream."""
SOURCE_PREFIXES = ("SOURCE_", "PLATFORM_")
"""How the reasons of changes begin that were not made here.

Spec: AirbyteRecordMessageMetaChange.Reason.
"""


def describe_losses(figures: SyncFigures) -> Iterator[str]:
    """Yield what was not stored as it came, the most frequent first: changed values, and rejected records.

    Values that a log of changes leaves out are not named: their rows get those of the former version.
    """
    if figures.suppressed:
        yield (
            f"{figures.suppressed:,} of {figures.read:,} records are not stored: their keys were erased and "
            "are suppressed (`elt erase --suppress`)"
        )
    lines = [*_describe_changes(figures), *_describe_rejections(figures)]
    yield from lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        yield f"and {len(lines) - MAX_LINES} more reasons"


_NOT_STORED = (
    "not stored; declare them in catalog.json (`elt discover`), or set `on_undeclared: add` (a column for "
    "each) or `on_undeclared: keep` (one column for all)"
)
_OUTCOMES = {
    "keep": f"stored in the column {UNDECLARED}",
    "add": "null in all records so far: they get columns with their first values",
}


def describe_undeclared(stream: ConnectionStream, counts: Mapping[str, int]) -> str:
    """Return what happened to fields that the catalog does not declare."""
    outcome = _OUTCOMES.get(stream.settings.on_undeclared, _NOT_STORED)
    return (
        f"fields that the catalog does not declare: {describe_counts(counts)}; they are {outcome}"
    )


def _describe_changes(figures: SyncFigures) -> Iterator[str]:
    for name, records in _sort_counts(figures.changed_fields):
        change = parse_name(name)
        if change.reason not in DEPENDENT:
            author = " by the source" if change.reason.startswith(SOURCE_PREFIXES) else ""
            field = repr(change.field) if change.field else "the whole record"
            share = f"{records:,} of {figures.read:,} records"
            yield f"{field} of {share} was changed{author}: {change.change} ({change.reason})"


def _describe_rejections(figures: SyncFigures) -> Iterator[str]:
    for reason, records in _sort_counts(figures.rejected_reasons):
        yield f"{records:,} of {figures.read:,} records rejected, to the dead letter: {reason}"


def _sort_counts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


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
