"""Threads that do jobs at the same time, such as the reads of partitions, and hand over what they yield.

One thread uses the results: an output may be used by one thread only. So what the others report, a wait or a
warning, is passed on by that thread too. The results of one job keep their order; those of several jobs are
interleaved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from typing import Any, Generic, TypeVar

from connectors.sdk.reports import CONFIGS, KINDS, Reports
from connectors.sdk.stopping import Stopped, stopped_by
from elt_assets.errors import SystemFailure

STEPS_AHEAD = 8
"""Number of results that may wait to be used; each thread has another one."""
THREAD = "job"
"""Name of the threads."""
_POLL_SECONDS = 0.2
_JOIN_SECONDS = 2.0

Job = TypeVar("Job")
Step = TypeVar("Step")


def run_jobs(
    jobs: Iterator[Job],
    run: Callable[[Job], Iterable[Step]],
    *,
    threads: int,
    report: Callable[[], object] = lambda: None,
) -> Generator[Step, None, None]:
    """Yield what jobs yield: one job after another with one thread, else several at the same time.

    Args:
        jobs: the jobs. Only one thread at a time asks for the next one.
        run: does a job. It must not yield an exception, nor None.
        threads: the number of jobs that are done at the same time.
        report: called often by the thread that uses the results: reports what other threads must not report.

    Raises:
        Exception: a job has failed. What it yielded before was yielded first; the other jobs are stopped.
    """
    if threads > 1:
        yield from _Team(jobs, run, threads, report).steps()
        return
    for job in jobs:
        yield from run(job)


class _Team(Generic[Job, Step]):
    """The threads of one call of `run_jobs`."""

    def __init__(
        self,
        jobs: Iterator[Job],
        run: Callable[[Job], Iterable[Step]],
        threads: int,
        report: Callable[[], object],
    ):
        self._jobs = jobs
        self._run = run
        self._report = report
        self._running = threads
        self._queue: Queue[Any] = Queue(STEPS_AHEAD)
        self._next = Lock()
        self._has_stopped = Event()

    def steps(self) -> Generator[Step, None, None]:
        # Each thread has a copy of the context: what streams share in a read is found there.
        threads = [
            Thread(target=copy_context().run, args=(self._work,), name=THREAD, daemon=True)
            for _ in range(self._running)
        ]
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
                elif isinstance(message, _Report):
                    message.pass_on()
                else:
                    yield message
        finally:
            self._has_stopped.set()
            self._drain()
            _join(threads)
            self._report()

    def _work(self) -> None:
        """Do jobs until there are no more of them."""
        try:
            with ExitStack() as listeners:
                for kind in KINDS:
                    listeners.enter_context(kind.listen(self._make_listener(kind)))
                listeners.enter_context(stopped_by(self._has_stopped))
                while (taken := self._take()) is not None:
                    for step in self._run(taken[0]):
                        self._put(step)
            self._put(None)
        except Stopped:
            return
        except Exception as error:  # noqa: BLE001 - raised in the thread that uses the results
            self._put_if_wanted(error)
        except BaseException as error:  # noqa: BLE001 - or that thread would wait for ever
            self._put_if_wanted(
                SystemFailure(f"a thread has ended: {type(error).__name__}: {error}")
            )

    def _take(self) -> tuple[Job] | None:
        with self._next:
            for job in self._jobs:
                return (job,)
            return None

    def _make_listener(self, kind: Reports[Any]) -> Callable[..., None]:
        def listen(*arguments: Any) -> None:
            report = _Report(kind, arguments)
            self._put(report)
            # A token that can be used once is saved before it is used.
            while kind is CONFIGS and not report.is_passed_on.wait(_POLL_SECONDS):
                if self._has_stopped.is_set():
                    raise Stopped

        return listen

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


class _Report:
    """What a thread reports, for the thread that uses the results."""

    def __init__(self, kind: Reports[Any], arguments: Sequence[Any]):
        self._kind = kind
        self._arguments = arguments
        self.is_passed_on = Event()

    def pass_on(self) -> None:
        self._kind.send(*self._arguments)
        self.is_passed_on.set()


def _join(threads: Sequence[Thread]) -> None:
    """Wait a while for threads to end. One that waits for an API ends with the process."""
    end = time.monotonic() + _JOIN_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
