"""The sinks' thread: what it has been given, in order, and what is done of it.

While a sink works on one segment the next one fills. Memory does not grow with the sync; disk holds at
most the open segment of each stream and `MAX_WAITING` closed ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event

from elt_assets.errors import SystemFailure
from elt_assets.protocol.airbyte.catalog import ConfiguredStream
from elt_assets.sync.events import (
    Acknowledged,
    Checkpoint,
    Committed,
    PendingState,
    SessionEvent,
    SharedAcknowledged,
    Sink,
)
from elt_assets.sync.segments import Segment
from elt_assets.sync.streams import StreamRun

MAX_WAITING = 2
"""Closed segments that may wait for their sink before reading pauses; commits, of each stream."""

OpenSink = Callable[[ConfiguredStream], Sink]


@dataclass(frozen=True)
class _Commit:
    """`staged`: how many records were written for it; `held`: the stream's own states that it covers;
    `completes`: whether the stream's sync is complete with it."""

    run: StreamRun
    checkpoint: Checkpoint
    held: tuple[PendingState, ...]
    staged: int
    completes: bool


@dataclass(frozen=True)
class _Work:
    """A segment to write, a commit, or else what may be told once all before it is done."""

    done: Future[Committed | None]
    segment: Segment | None = None
    commit: _Commit | None = None
    event: SessionEvent | None = None


class Committer:
    """Gives segments and checkpoints to the sinks, from one thread.

    Args:
        streams: how many there are.
    """

    def __init__(self, streams: int) -> None:
        self._most_commits = MAX_WAITING * max(streams, 1)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sink")
        self._failed = Event()
        self._work: deque[_Work] = deque()

    @property
    def failed(self) -> bool:
        return self._failed.is_set()

    def write(self, run: StreamRun, segment: Segment) -> None:
        run.uncommitted += segment.records
        done = self._submit(lambda: _write(run, segment))
        self._work.append(_Work(done, segment=segment))

    def commit(
        self,
        run: StreamRun,
        *,
        final: bool,
        shared: tuple[PendingState, ...] = (),
        completes: bool | None = None,
    ) -> None:
        """Commit what was written of a stream, with the last of its own states, or else of those shared.

        Args:
            completes: whether the stream's sync is complete with it; default, where it is final.
        """
        held = run.take()
        states = tuple(each.state for each in (held or shared))
        # A state that is shared is news of a stream that goes on from it, whatever else is said of it.
        silent = not run.heard and not (shared and not run.whole)
        checkpoint = Checkpoint(states, final, silent=silent)
        complete = final if completes is None else completes
        commit = _Commit(run, checkpoint, held, run.uncommitted, complete)
        run.uncommitted = 0
        done = self._submit(lambda: run.opened.commit(checkpoint))
        self._work.append(_Work(done, commit=commit))

    def share(self, held: tuple[PendingState, ...]) -> None:
        """Tell of shared states, once the commits before this are done."""
        done = self._submit(lambda: None)
        self._work.append(_Work(done, event=SharedAcknowledged(held)))

    def reopen(self, run: StreamRun, open_sink: OpenSink) -> None:
        """Give a stream the sink that goes with how it is configured now."""
        configured = run.configured

        def reopened() -> None:
            run.sink = open_sink(configured)

        self._work.append(_Work(self._submit(reopened)))

    def done(self, *, wait: bool = False) -> Iterator[SessionEvent]:
        """What can be told of what is done, in order; raises what made a sink fail.

        Pauses the reading while too much waits for the sinks.
        """
        while self._work and (wait or self._work[0].done.done() or self._is_behind()):
            work = self._work[0]
            committed = work.done.result()
            self._work.popleft()
            if work.commit is not None and committed is not None:
                yield _acknowledged(work.commit, committed)
            elif work.event is not None:
                yield work.event

    def stop(self) -> None:
        """Begin nothing more; what is under way goes on."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def shut_down(self) -> None:
        """End the thread; segments that no sink took are removed."""
        self._worker.shutdown(wait=True, cancel_futures=True)
        for work in self._work:
            if work.segment is not None:
                work.segment.path.unlink(missing_ok=True)

    def _submit(self, work: Callable[[], Committed | None]) -> Future[Committed | None]:
        """Queue work for the thread. After one failure nothing more is done: what is queued behind a
        failed write must not acknowledge the state that write belongs to."""

        def guarded() -> Committed | None:
            if self._failed.is_set():
                raise SystemFailure("not committed: an earlier segment could not be written")
            try:
                return work()
            except BaseException:
                self._failed.set()
                raise

        return self._worker.submit(guarded)

    def _is_behind(self) -> bool:
        segments = sum(work.segment is not None for work in self._work)
        return segments > MAX_WAITING or len(self._work) - segments > self._most_commits


def _write(run: StreamRun, segment: Segment) -> None:
    try:
        run.opened.write(segment)
    finally:
        segment.path.unlink(missing_ok=True)


def _acknowledged(commit: _Commit, done: Committed) -> Acknowledged:
    """
    Raises:
        SystemFailure: what was committed is not what was staged.
    """
    stream = commit.run.configured.id
    if done.records + done.rejected != commit.staged:
        raise SystemFailure(
            f"stream {str(stream)!r}: {commit.staged} records were staged, but {done.records} committed and "
            f"{done.rejected} rejected; the commit is not acknowledged",
            guidance="this is a defect of the lake; the next run goes on from what the table says",
        )
    state = commit.checkpoint.states[-1] if commit.checkpoint.states else None
    return Acknowledged(stream, state, done, commit.completes, commit.held)
