"""The sinks' thread: a queue of segments and commits that it processes in order.

While a sink writes one segment the next one is filled. Memory does not grow with the sync; the disk holds
at most the open segment of each stream and `MAX_WAITING` closed segments.
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
"""Maximum number of closed segments that wait for their sink; beyond it reading pauses.

The same number of commits for each stream may wait.
"""

OpenSink = Callable[[ConfiguredStream], Sink]


@dataclass(frozen=True)
class _Commit:
    """A commit of one stream.

    `staged`: records written for it. `pending`: the stream's own states that it covers. `completes`:
    whether it completes the stream's sync.
    """

    run: StreamRun
    checkpoint: Checkpoint
    pending: tuple[PendingState, ...]
    staged: int
    completes: bool


@dataclass(frozen=True)
class _Work:
    """A task of the sinks' thread: it writes a segment, makes a commit or opens another sink.

    `event`: reported when all tasks before this one are done.
    """

    future: Future[Committed | None]
    segment: Segment | None = None
    commit: _Commit | None = None
    event: SessionEvent | None = None


class Committer:
    """A queue that gives segments and checkpoints to the sinks, from one thread.

    Args:
        streams: number of streams.
    """

    def __init__(self, streams: int) -> None:
        self._max_commits = MAX_WAITING * max(streams, 1)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sink")
        self._failed = Event()
        self._work: deque[_Work] = deque()

    @property
    def has_failed(self) -> bool:
        return self._failed.is_set()

    def write(self, run: StreamRun, segment: Segment) -> None:
        """Queue a segment for the stream's sink."""
        run.uncommitted += segment.records
        future = self._submit(lambda: _write(run, segment))
        self._work.append(_Work(future, segment=segment))

    def commit(
        self,
        run: StreamRun,
        *,
        final: bool,
        shared: tuple[PendingState, ...] = (),
        completes: bool | None = None,
    ) -> None:
        """Queue a commit of what was written of a stream, with its pending states.

        Args:
            final: whether the stream is complete, as in `Checkpoint`.
            shared: states that streams share; used if the stream has no pending states of its own.
            completes: whether the commit completes the stream's sync; default: `final`.
        """
        pending = run.take_states()
        states = tuple(each.state for each in (pending or shared))
        # A shared state counts as a message about every resumable stream.
        silent = not run.is_mentioned and not (shared and run.is_resumable)
        checkpoint = Checkpoint(states, final, silent=silent)
        complete = final if completes is None else completes
        commit = _Commit(run, checkpoint, pending, run.uncommitted, complete)
        run.uncommitted = 0
        future = self._submit(lambda: run.opened_sink.commit(checkpoint))
        self._work.append(_Work(future, commit=commit))

    def acknowledge_shared(self, states: tuple[PendingState, ...]) -> None:
        """Queue an event that shared states are durable, reported when the commits before it are done."""
        future = self._submit(lambda: None)
        self._work.append(_Work(future, event=SharedAcknowledged(states)))

    def replace_sink(self, run: StreamRun, open_sink: OpenSink) -> None:
        """Queue the opening of another sink, for the present configuration of a stream."""
        configured = run.configured

        def replace() -> None:
            run.sink = open_sink(configured)

        self._work.append(_Work(self._submit(replace)))

    def completed_events(self, *, wait: bool = False) -> Iterator[SessionEvent]:
        """Yield the events of the tasks that are done, in order; raise the error of a sink that failed.

        Blocks while too many tasks wait for the sinks.

        Args:
            wait: block until all tasks are done.
        """
        while self._work and (wait or self._work[0].future.done() or self._is_behind()):
            work = self._work[0]
            committed = work.future.result()
            self._work.popleft()
            if work.commit is not None and committed is not None:
                yield _acknowledged(work.commit, committed)
            elif work.event is not None:
                yield work.event

    def stop(self) -> None:
        """Start no more tasks; a task that is running continues."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def shut_down(self) -> None:
        """Wait for the thread to end; remove the segments that no sink took."""
        self._worker.shutdown(wait=True, cancel_futures=True)
        for work in self._work:
            if work.segment is not None:
                work.segment.path.unlink(missing_ok=True)

    def _submit(self, task: Callable[[], Committed | None]) -> Future[Committed | None]:
        """Queue a task for the thread. After one failure every later task fails too.

        A commit that is queued behind a failed write must not acknowledge the state of that write.
        """

        def guarded() -> Committed | None:
            if self._failed.is_set():
                raise SystemFailure(
                    "not committed: an earlier segment or commit could not be written",
                    guidance="an earlier error names the cause; the next run resumes from the last "
                    "committed state",
                )
            try:
                return task()
            except BaseException:
                self._failed.set()
                raise

        return self._worker.submit(guarded)

    def _is_behind(self) -> bool:
        segments = sum(work.segment is not None for work in self._work)
        return segments > MAX_WAITING or len(self._work) - segments > self._max_commits


def _write(run: StreamRun, segment: Segment) -> None:
    try:
        run.opened_sink.write(segment)
    finally:
        segment.path.unlink(missing_ok=True)


def _acknowledged(commit: _Commit, committed: Committed) -> Acknowledged:
    """Return the event of a commit that is done.

    Raises:
        SystemFailure: the records committed and rejected are not the records staged.
    """
    stream = commit.run.configured.id
    if committed.records + committed.rejected != commit.staged:
        raise SystemFailure(
            f"stream {str(stream)!r}: {commit.staged} records were staged, but {committed.records} committed "
            f"and {committed.rejected} rejected; the commit is in the table, but is not acknowledged",
            guidance="this is a defect of this project: report it; the next run resumes from the state in "
            "the table, so read the stream from the beginning (a refresh) to get missing records",
        )
    state = commit.checkpoint.states[-1] if commit.checkpoint.states else None
    return Acknowledged(stream, state, committed, commit.completes, commit.pending)
