"""The read of a stream: its slices, in one thread or in several, and the states after them.

Records of slices that are read at the same time are interleaved. A state covers a slice only after all its
records were yielded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from typing import Any

from connectors.declarative.cursors.cursor import Progress, read_slice
from connectors.declarative.cursors.slices import Slice
from connectors.declarative.requests.stopping import Stopped, stopped_by
from connectors.sdk.http.failures import AccessRefused
from connectors.sdk.items import Checkpoint, Item, Page, Record, Warn
from connectors.sdk.reports import listen_to_waits, report_wait
from elt_assets.errors import ConfigError, EltError, SystemFailure

MAX_FAILURES = 10
"""Number of partitions that may fail before the other ones are not read any more."""
PAGES_AHEAD = 8
"""Number of pages that may wait to be sent; each thread has another one."""
_POLL_SECONDS = 0.2
_JOIN_SECONDS = 2.0

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
        team = _Team(progress, slices, pages, threads, report)
        with closing(team.steps() if threads > 1 else team.steps_alone()) as steps:
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


def _steps(progress: Progress, stream_slice: Slice, pages: Pages) -> Iterator[Step]:
    try:
        for page in read_slice(progress, stream_slice, pages(stream_slice)):
            yield stream_slice, page
    except EltError as error:
        yield stream_slice, error
    else:
        yield stream_slice, None


def _join(threads: Sequence[Thread]) -> None:
    """Wait a while for threads to end. One that waits for an API ends with the process."""
    end = time.monotonic() + _JOIN_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


class _Team:
    """Threads that read slices at the same time. What they report is passed on by the thread that uses them:
    an output may be used by one thread only."""

    def __init__(
        self,
        progress: Progress,
        slices: Iterator[Slice],
        pages: Pages,
        threads: int,
        report: Report,
    ):
        self._report = report
        self._progress = progress
        self._slices = slices
        self._pages = pages
        self._running = threads
        self._queue: Queue[Any] = Queue(PAGES_AHEAD)
        self._next = Lock()
        self._has_stopped = Event()

    def steps_alone(self) -> Generator[Step, None, None]:
        """Yield the pages of slices one after the other, and the end of each slice after its last page."""
        for stream_slice in self._slices:
            yield from _steps(self._progress, stream_slice, self._pages)

    def steps(self) -> Generator[Step, None, None]:
        """Yield the pages of slices that are read at the same time, and the end of each slice after its last
        page.

        Raises:
            Exception: a thread has failed.
        """
        threads = [Thread(target=self._work, daemon=True) for _ in range(self._running)]
        for thread in threads:
            thread.start()
        try:
            while self._running:
                self._report()
                try:
                    message = self._queue.get(timeout=_POLL_SECONDS)
                except Empty:
                    continue
                if message is None:
                    self._running -= 1
                elif isinstance(message, Exception):
                    raise message
                elif callable(message):
                    message()
                else:
                    yield message
        finally:
            self._has_stopped.set()
            self._drain()
            _join(threads)
            self._report()

    def _work(self) -> None:
        """Read slices until there are no more of them."""
        try:
            with listen_to_waits(self._wait), stopped_by(self._has_stopped):
                while (stream_slice := self._take()) is not None:
                    for step in _steps(self._progress, stream_slice, self._pages):
                        self._put(step)
            self._put(None)
        except Stopped:
            return
        except Exception as error:  # noqa: BLE001 - raised in the thread that uses the pages
            self._put_if_wanted(error)
        except BaseException as error:  # noqa: BLE001 - or that thread would wait for ever
            self._put_if_wanted(
                SystemFailure(f"a thread has ended: {type(error).__name__}: {error}")
            )

    def _take(self) -> Slice | None:
        with self._next:
            return next(self._slices, None)

    def _wait(self, seconds: float, reason: str) -> None:
        self._put(lambda: report_wait(seconds, reason))

    def _put(self, message: Any) -> None:
        while not self._has_stopped.is_set():
            try:
                self._queue.put(message, timeout=_POLL_SECONDS)
            except Full:
                continue
            return
        raise Stopped

    def _put_if_wanted(self, message: Any) -> None:
        try:
            self._put(message)
        except Stopped:
            return

    def _drain(self) -> None:
        try:
            while True:
                self._queue.get_nowait()
        except Empty:
            return
