"""The read of a stream: its slices, in one thread or in several, and the states after them.

Records of slices that are read at the same time are interleaved. A state covers only slices all of whose
records were yielded before it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from typing import Any

from connectors.declarative.cursors.cursor import Progress, read_slice
from connectors.declarative.cursors.slices import Slice
from connectors.sdk.config_updates import report_config, reporting_config
from connectors.sdk.items import Checkpoint, Item, Page, Record, Warn
from connectors.sdk.waits import report_wait, reporting_waits
from elt_assets.errors import EltError

MAX_FAILURES = 10
"""Number of partitions that may fail before the other ones are not read any more."""
PAGES_AHEAD = 2
"""Number of pages for each thread that may wait to be sent."""
_POLL_SECONDS = 0.2

Pages = Callable[[Slice], Iterable[list[Record]]]
"""Requests the pages of a slice."""


def read_slices(
    progress: Progress, slices: Iterator[Slice], pages: Pages, *, threads: int, sends_states: bool
) -> Iterator[Item]:
    """Yield the records of slices, and a checkpoint wherever a later read can resume.

    Args:
        progress: the progress of the read.
        slices: the slices to read.
        pages: requests the pages of a slice.
        threads: the number of slices that are read at the same time.
        sends_states: whether checkpoints are yielded.

    Raises:
        EltError: a slice cannot be read. The last checkpoint before it covers all slices that were complete.
            The other partitions of the stream are read first, unless `MAX_FAILURES` of them fail.
    """
    states = _States(progress, are_sent=sends_states)
    try:
        with closing(_in_order(progress, slices, pages, threads)) as steps:
            yield from _items(progress, states, steps)
    except Exception:
        yield from states.pending()
        raise
    progress.finish()
    yield from map(Warn, progress.warnings)
    yield from states.last()


class _States:
    """The checkpoints of one read."""

    def __init__(self, progress: Progress, *, are_sent: bool):
        self._progress = progress
        self._are_sent = are_sent
        self._is_pending = False
        self._sent: Checkpoint | None = None

    def after_slice(self) -> Iterator[Checkpoint]:
        """Yield the state after a slice that was closed, if it is due."""
        self._is_pending = True
        if self._are_sent and self._progress.is_due():
            yield from self.pending()

    def pending(self) -> Iterator[Checkpoint]:
        """Yield the state, if slices were closed since the one before."""
        if self._are_sent and self._is_pending:
            self._sent, self._is_pending = Checkpoint(self._progress.encode()), False
            yield self._sent

    def last(self) -> Iterator[Checkpoint]:
        """Yield the state at the end of the read, unless it is the one before."""
        last = Checkpoint(self._progress.encode())
        if self._are_sent and last != self._sent:
            yield last


Step = tuple[Slice, list[Record] | EltError | None]
"""A slice and a page of it. After the last page, None is in its place, or the error that ended the slice."""


def _items(progress: Progress, states: _States, steps: Iterator[Step]) -> Iterator[Item]:
    failures: list[EltError] = []
    for each, found in steps:
        if isinstance(found, EltError):
            failures.append(found)
            if not each.partition or len(failures) >= MAX_FAILURES:
                break
        elif found is not None:
            yield Page(found)
        else:
            progress.close(each)
            yield from states.after_slice()
    if failures:
        raise _combined(failures)


def _combined(failures: Sequence[EltError]) -> EltError:
    first = failures[0]
    if len(failures) > 1:
        first.message += f"; {len(failures) - 1} more partitions failed"
        first.args = (first.message,)
    return first


def _in_order(
    progress: Progress, slices: Iterator[Slice], pages: Pages, threads: int
) -> Generator[Step, None, None]:
    if threads > 1:
        yield from _Team(progress, slices, pages, threads).steps()
        return
    for each in slices:
        yield from _steps(progress, each, pages)


def _steps(progress: Progress, each: Slice, pages: Pages) -> Iterator[Step]:
    try:
        for page in read_slice(progress, each, pages(each)):
            yield each, page
    except EltError as error:
        yield each, error
    else:
        yield each, None


class _Stopped(Exception):
    """The pages of a thread are not needed any more."""


class _Team:
    """Threads that read slices at the same time. What they report is passed on by the thread that uses them:
    an output may be used by one thread only."""

    def __init__(self, progress: Progress, slices: Iterator[Slice], pages: Pages, threads: int):
        self._progress = progress
        self._slices = slices
        self._pages = pages
        self._running = threads
        self._queue: Queue[Any] = Queue(threads * PAGES_AHEAD)
        self._next = Lock()
        self._has_stopped = Event()

    def steps(self) -> Iterator[Step]:
        """Yield the pages of the slices, and the end of each slice after its last page.

        Raises:
            Exception: a thread has failed.
        """
        for _ in range(self._running):
            Thread(target=self._work, daemon=True).start()
        try:
            while self._running:
                found = self._queue.get()
                if found is None:
                    self._running -= 1
                elif isinstance(found, Exception):
                    raise found
                elif callable(found):
                    found()
                else:
                    yield found
        finally:
            self._has_stopped.set()
            self._drain()

    def _work(self) -> None:
        """Read slices until there are no more of them."""
        try:
            with reporting_waits(self._wait), reporting_config(self._save):
                while (each := self._take()) is not None:
                    for step in _steps(self._progress, each, self._pages):
                        self._put(step)
            self._put(None)
        except _Stopped:
            return
        except Exception as error:  # noqa: BLE001 - raised in the thread that uses the pages
            self._put_if_wanted(error)

    def _take(self) -> Slice | None:
        with self._next:
            return next(self._slices, None)

    def _wait(self, seconds: float, reason: str) -> None:
        self._put(lambda: report_wait(seconds, reason))

    def _save(self, config: Any) -> None:
        self._put(lambda: report_config(config))

    def _put(self, found: Any) -> None:
        while not self._has_stopped.is_set():
            try:
                self._queue.put(found, timeout=_POLL_SECONDS)
            except Full:
                continue
            return
        raise _Stopped

    def _put_if_wanted(self, found: Any) -> None:
        try:
            self._put(found)
        except _Stopped:
            return

    def _drain(self) -> None:
        try:
            while True:
                self._queue.get_nowait()
        except Empty:
            return
