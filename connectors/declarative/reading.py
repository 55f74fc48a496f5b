"""The read of a stream: its slices, in one thread or in several, and the states after them.

Records of slices that are read at the same time are interleaved. A state covers a slice only after all its
records were yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial

from connectors.declarative.cursors.cursor import Progress, read_slice
from connectors.declarative.cursors.slices import Slice
from connectors.sdk.http.failures import AccessRefused
from connectors.sdk.items import Checkpoint, Item, Page, Record, Warn
from connectors.sdk.team import run_jobs
from elt_assets.errors import ConfigError, EltError

MAX_FAILURES = 10
"""Number of partitions that may fail before the other ones are not read any more."""

Pages = Callable[[Slice], Iterable[list[Record]]]
"""Requests the pages of a slice."""
Report = Callable[[], object]


def read_slices(
    progress: Progress,
    slices: Iterator[Slice],
    pages: Pages,
    *,
    threads: int,
    sends_states: bool,
    report: Report = lambda: None,
) -> Iterator[Item]:
    """Yield the records of slices, and a checkpoint wherever a later read can resume.

    Args:
        progress: the progress of the read.
        slices: the slices to read.
        pages: requests the pages of a slice.
        threads: the number of slices that are read at the same time.
        sends_states: whether checkpoints are yielded.
        report: called often by the thread that uses the items: reports what other threads must not report.

    Raises:
        EltError: a slice cannot be read. The last checkpoint before it covers all slices that were complete.
            The other partitions of the stream are read first, unless `MAX_FAILURES` of them fail.
    """
    states = _States(progress, are_sent=sends_states)
    try:
        read = partial(_steps, progress, pages)
        with closing(run_jobs(slices, read, threads=threads, report=report)) as steps:
            yield from _items(progress, states, steps)
    except Exception:
        yield from states.send_pending()
        raise
    progress.finish()
    yield from map(Warn, progress.warnings)
    yield from states.send_last()


class _States:
    """The checkpoints of one read."""

    def __init__(self, progress: Progress, *, are_sent: bool):
        self._progress = progress
        self._are_sent = are_sent
        self._is_pending = False
        self._last_checkpoint: Checkpoint | None = None

    def send_after_slice(self) -> Iterator[Checkpoint]:
        """Yield the state after a slice that was closed, if it is due."""
        self._is_pending = True
        if self._are_sent and self._progress.is_due():
            yield from self.send_pending()

    def send_pending(self) -> Iterator[Checkpoint]:
        """Yield the state, if slices were closed since the one before."""
        if self._are_sent and self._is_pending:
            self._last_checkpoint, self._is_pending = Checkpoint(self._progress.encode()), False
            yield self._last_checkpoint

    def send_last(self) -> Iterator[Checkpoint]:
        """Yield the state at the end of the read, unless it is the one before."""
        last = Checkpoint(self._progress.encode())
        if self._are_sent and last != self._last_checkpoint:
            yield last


Step = tuple[Slice, list[Record] | EltError | None]
"""A slice and a page of it. After the last page, None is in its place, or the error that ended the slice."""


def _items(progress: Progress, states: _States, steps: Iterator[Step]) -> Iterator[Item]:
    failures: list[EltError] = []
    for stream_slice, outcome in steps:
        if isinstance(outcome, EltError):
            failures.append(outcome)
            if _ends_stream(stream_slice, outcome) or len(failures) >= MAX_FAILURES:
                break
        elif outcome is not None:
            yield Page(outcome)
        else:
            progress.close(stream_slice)
            yield from states.send_after_slice()
    if failures:
        raise _combine(failures)


def _ends_stream(stream_slice: Slice, error: EltError) -> bool:
    """Return whether an error is not one of a partition alone: others would fail likewise."""
    is_general = isinstance(error, ConfigError) and not isinstance(error, AccessRefused)
    return not stream_slice.partition or is_general


def _combine(failures: Sequence[EltError]) -> EltError:
    first = failures[0]
    if len(failures) > 1:
        first.message += f"; {len(failures) - 1} more partitions failed"
        first.args = (first.message,)
    return first


def _steps(progress: Progress, pages: Pages, stream_slice: Slice) -> Iterator[Step]:
    try:
        for page in read_slice(progress, stream_slice, pages(stream_slice)):
            yield stream_slice, page
    except EltError as error:
        yield stream_slice, error
    else:
        yield stream_slice, None
