"""The sinks' threads, for `session`: a queue of segments and commits; those of one stream go in order.

`shared_state` queues commits, too; `pipeline` shows its `Work`, or that of `relay`, as progress; `pipeline`
and `destination.singer_read` open sinks for it.

Different streams are written and committed at the same time, up to the number of cores. While a sink writes
one segment the next one is filled. Memory does not grow with the sync; the disk holds at most the open
segment of each stream, and `MAX_WAITING` closed segments of a stream and for each thread.

What a kill leaves, so that nothing is lost or doubled:

- SEGMENT_WRITTEN: rows in files that no log names, and no state after them.
  `tests/lake/test_crash_points.py::test_a_session_survives_a_kill_at_any_point`
- ACKNOWLEDGED: a commit without an event. The next run starts from the state in the table, not from events.
  `tests/lake/test_crash_points.py::test_a_session_survives_a_kill_at_any_point`
- SHARED_ACKNOWLEDGED: a shared state in each of its tables, without an event. Between two of their commits
  the tables have different states: see `pipeline/shared_start.py`.
  `tests/lake/test_shared_states_model.py::test_shared_states_survive_a_kill_at_each_failpoint`
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Future,
    ThreadPoolExecutor,
)
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock

from elt_assets.errors import SystemFailure
from elt_assets.failpoints import Failpoint, reach
from elt_assets.protocol.catalog import ConfiguredStream
from elt_assets.sync.events import (
    Acknowledged,
    Checkpoint,
    Committed,
    SessionEvent,
    SharedAcknowledged,
    Sink,
    SliceSink,
)
from elt_assets.sync.pending import PendingState, SliceGroup
from elt_assets.sync.segments import Segment
from elt_assets.sync.streams import StreamRun

MAX_WAITING = 2
"""Maximum number of closed segments of a stream that wait for their sink; beyond it reading pauses.

As many may wait for each thread, and as many commits for each stream.
"""

MAX_UNREPORTED = 64
"""Maximum number of tasks that are done and wait for a task before them to be reported."""

OpenSink = Callable[[ConfiguredStream], Sink]


@dataclass(frozen=True)
class _Commit:
    """A commit of one stream."""

    run: StreamRun
    checkpoint: Checkpoint
    pending: tuple[PendingState, ...]  # the stream's own states that it covers
    staged: int  # records written for it
    completes: bool  # whether it completes the stream's sync


@dataclass(frozen=True)
class _PartialRead:
    """The result of a read of slices that failed: the commit of those up to the last state before it."""

    rows: int  # the number of their rows
    commit: _Commit
    committed: Committed
    error: Exception


Result = Committed | int | _PartialRead | None


@dataclass(frozen=True)
class _Task:
    """A task of a sinks' thread: it writes a segment, reads slices, makes a commit or opens another sink.

    Its result is that of a commit, or the number of rows of slices; of slices that could not all be read, it
    is both.
    """

    future: Future[Result]
    run: StreamRun | None = None  # the stream; None if the task does nothing
    thread: int = 0  # the number of the thread
    segment: Segment | None = None
    group: SliceGroup | None = None
    commit: _Commit | None = None
    event: SessionEvent | None = None  # reported when all tasks before this one are done

    @property
    def has_data(self) -> bool:
        return self.segment is not None or self.group is not None


class Work:
    """The work of the sinks of a sync, which are in several threads. Readable from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._records = self._commits = 0

    @property
    def records_written(self) -> int:
        """The number of records that were written so far."""
        return self._records

    @property
    def is_committing(self) -> bool:
        """Return whether a sink is making a commit at the moment."""
        return self._commits > 0

    def add(self, records: int) -> None:
        with self._lock:
            self._records += records

    @contextlib.contextmanager
    def count_commit(self) -> Iterator[None]:
        """Count a commit while the context lasts: other sinks may make one at the same time."""
        self._add_commits(1)
        try:
            yield
        finally:
            self._add_commits(-1)

    def _add_commits(self, count: int) -> None:
        with self._lock:
            self._commits += count


class Committer:
    """A queue that gives segments and checkpoints to the sinks, from a few threads.

    The tasks of one stream are done in their order. A task of another stream may be done before or with
    them, but events are yielded in the order of the tasks.

    Args:
        streams: number of streams.
        threads: number of sinks that work at the same time; default: the number of cores.
    """

    def __init__(self, streams: int, threads: int | None = None) -> None:
        self.work = Work()
        self._max_commits = MAX_WAITING * max(streams, 1)
        # Each thread has a queue of its own, so that tasks in one of them keep their order.
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix=f"sink-{number}")
            for number in range(threads or os.cpu_count() or 1)
        ]
        self._failure: BaseException | None = None
        self._is_stopped = Event()
        self._tasks: deque[_Task] = deque()
        self._queues: list[deque[Future[Result]]] = [deque() for _ in self._threads]
        self._newest: dict[StreamRun, _Task] = {}
        self._before: Sequence[Future[Result]] = ()
        self._opening = Lock()

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def write(self, run: StreamRun, segment: Segment) -> None:
        """Queue a segment for the stream's sink."""
        run.uncommitted += segment.records
        self._submit(run, partial(self._write, run, segment), segment=segment)

    def read(self, run: StreamRun, group: SliceGroup) -> None:
        """Queue slices for the stream's sink to read.

        If one cannot be read, those before the last state before it are committed with this state. Commits
        that are queued behind are not made.
        """
        staged = run.uncommitted

        def read() -> int | _PartialRead:
            assert isinstance(run.opened_sink, SliceSink)
            read = run.opened_sink.read(group)
            self.work.add(read.rows)
            if read.error is None:
                return read.rows
            self._fail(read.error)
            states = group.states_of(read.slices)
            checkpoint = Checkpoint(tuple(pending.state for pending in states), final=False)
            commit = _Commit(run, checkpoint, states, staged, completes=False)
            committed = self._commit(run, checkpoint)
            return _PartialRead(read.rows, commit, committed, read.error)

        self._submit(run, read, group=group)

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
            shared: states that streams share; used if they are newer than the stream's own states.
            completes: whether the commit completes the stream's sync; default: `final`.
        """
        pending = run.take_states()
        newer = () if run.has_own_state else shared
        states = tuple(message.state for message in (*pending, *newer))
        # A shared state counts as a message about every resumable stream.
        silent = not run.is_mentioned and not (shared and run.is_resumable)
        checkpoint = Checkpoint(states, final, silent=silent)
        complete = final if completes is None else completes
        commit = _Commit(run, checkpoint, pending, run.uncommitted, complete)
        run.uncommitted = 0
        after = self._before if shared else ()
        self._submit(run, partial(self._commit, run, checkpoint), commit=commit, after=after)

    def await_before_shared(self) -> None:
        """Let later commits of shared states wait for all tasks that are queued now."""
        self._before = [task.future for task in self._tasks if not task.future.done()]

    def acknowledge_shared(self, states: tuple[PendingState, ...]) -> None:
        """Queue an event that shared states are durable, reported when the commits before it are done."""
        nothing: Future[Result] = Future()
        nothing.set_result(None)
        self._tasks.append(_Task(nothing, event=SharedAcknowledged(states)))

    def replace_sink(self, run: StreamRun, open_sink: OpenSink) -> None:
        """Queue the opening of another sink, for the present configuration of a stream."""
        configured = run.configured

        def replace() -> None:
            with self._opening:
                run.sink = open_sink(configured)

        self._submit(run, replace)

    def change_schema(self, run: StreamRun, change: Callable[[ConfiguredStream], None]) -> None:
        """Queue a change of the schema of a stream's sink to that of the present configuration."""
        configured = run.configured
        self._submit(run, lambda: change(configured))

    def take_events(self, *, wait: bool = False) -> Iterator[SessionEvent]:
        """Yield the events of the tasks that are done, in order; raise the error of a sink that failed.

        Blocks while too many tasks wait for the sinks.

        Args:
            wait: block until all tasks are done.
        """
        while self._tasks:
            task = self._tasks[0]
            if not (wait or self.has_failed or task.future.done()):
                if not self._is_behind():
                    return
                undone = (task.future for task in self._tasks if not task.future.done())
                wait_for(undone, None, FIRST_COMPLETED)
                continue
            result, commit, error = task.future.result(), task.commit, None
            self._tasks.popleft()
            if isinstance(result, _PartialRead):
                _count(result.commit.run, result.rows)
                commit, error, result = result.commit, result.error, result.committed
            if isinstance(result, Committed) and commit is not None:
                acknowledged = _acknowledge(commit, result)
                reach(Failpoint.ACKNOWLEDGED)
                yield acknowledged
            elif isinstance(result, int) and task.run is not None:
                _count(task.run, result)
            elif task.event is not None:
                reach(Failpoint.SHARED_ACKNOWLEDGED)
                yield task.event
            if error is not None:
                raise error  # of the slice after those that are committed

    def stop(self) -> None:
        """Start no more tasks; a task that is running continues."""
        self._is_stopped.set()
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)

    def shut_down(self) -> None:
        """Wait for the threads to end; remove the segments that no sink took."""
        for thread in self._threads:
            thread.shutdown(wait=True, cancel_futures=True)
        for task in self._tasks:
            if task.segment is not None:
                task.segment.path.unlink(missing_ok=True)

    def _submit(
        self,
        run: StreamRun,
        task: Callable[[], Result],
        *,
        segment: Segment | None = None,
        group: SliceGroup | None = None,
        commit: _Commit | None = None,
        after: Sequence[Future[Result]] = (),
    ) -> None:
        """Queue a task of a stream. After one failure every later task fails with the same error.

        A commit that is queued behind a failed write must not acknowledge the state of that write.

        Args:
            after: tasks, of any stream, that must be done before.
        """

        def guard() -> Result:
            for earlier in after:
                earlier.exception()  # raises an error if the task was cancelled
            if self._is_stopped.is_set():
                raise CancelledError  # it has waited for the others until now
            if self._failure is not None:
                raise self._failure
            try:
                return task()
            except BaseException as error:
                self._fail(error)
                raise

        thread = self._thread_for(run)
        future = self._threads[thread].submit(guard)
        self._queues[thread].append(future)
        self._newest[run] = _Task(future, run, thread, segment, group, commit)
        self._tasks.append(self._newest[run])

    def _write(self, run: StreamRun, segment: Segment) -> None:
        try:
            run.opened_sink.write(segment)
            self.work.add(segment.records)
            reach(Failpoint.SEGMENT_WRITTEN)
        finally:
            segment.path.unlink(missing_ok=True)

    def _commit(self, run: StreamRun, checkpoint: Checkpoint) -> Committed:
        with self.work.count_commit():
            return run.opened_sink.commit(checkpoint)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error

    def _thread_for(self, run: StreamRun) -> int:
        """Return the thread that has tasks of a stream, or the one with the fewest tasks.

        All tasks of all streams may wait at the end of a sync, so none of them is looked at here, except
        those that are done.
        """
        newest = self._newest.get(run)
        if newest is not None and not newest.future.done():
            return newest.thread
        return min(range(len(self._threads)), key=self._undone)

    def _undone(self, thread: int) -> int:
        """Return the number of a thread's tasks that are not done. They are done in their order."""
        queue = self._queues[thread]
        while queue and queue[0].done():
            queue.popleft()
        return len(queue)

    def _is_behind(self) -> bool:
        undone = [task for task in self._tasks if not task.future.done()]
        segments = Counter(task.run for task in undone if task.has_data)
        return (
            max(segments.values(), default=0) > MAX_WAITING
            or segments.total() > MAX_WAITING * len(self._threads)
            or len(undone) - segments.total() > self._max_commits
            or len(self._tasks) - len(undone) > MAX_UNREPORTED
        )


def _count(run: StreamRun, rows: int) -> None:
    """Count the rows of slices, which are known only when they are read."""
    run.progress.records_read += rows
    run.read_by_tasks += rows


def _acknowledge(commit: _Commit, committed: Committed) -> Acknowledged:
    """Return the event of a commit that is done.

    Raises:
        SystemFailure: the records committed and rejected are not the records staged.
    """
    stream = commit.run.configured.id
    run = commit.run
    staged = commit.staged + run.read_by_tasks - run.committed_by_tasks
    run.committed_by_tasks = run.read_by_tasks
    if committed.records + committed.rejected != staged:
        raise SystemFailure(
            f"stream {str(stream)!r}: {staged} records were staged, but {committed.records} committed "
            f"and {committed.rejected} rejected; the commit is in the table, but is not acknowledged",
            guidance="this is a defect of this project: report it; the next run resumes from the state in "
            "the table, so read the stream from the beginning (a refresh) to get missing records",
        )
    state = commit.checkpoint.states[-1] if commit.checkpoint.states else None
    return Acknowledged(stream, state, committed, commit.completes, commit.pending)
