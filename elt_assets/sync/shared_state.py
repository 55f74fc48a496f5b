"""States that several streams share (GLOBAL, LEGACY): each advances for all of its streams or for none.

Used by `session`; `relay` asks which streams a state covers.

Each stream has its own table, and the table of every stream that a shared state covers stores that state. So
the rows received before the state are committed first, in each of these tables, and then the state: no table
has a state that is ahead of the rows of a different table.

A source may say that each entry of its GLOBAL states holds for its stream alone (`independent`). Then rows
and state of a table are one commit, as they are for a stream with a state of its own.

A source may send states of single streams beside a GLOBAL state: CDC sources do, for streams that are not in
the log. The table of a stream stores the newest state of the stream, whichever kind it is, so that the next
sync can give both kinds back (`pipeline.shared_start`).

Spec: Airbyte Protocol, State & Checkpointing, V2.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import ErrorTrace, State
from elt_assets.sync.committer import Committer
from elt_assets.sync.pending import PendingState, PendingStates, Span
from elt_assets.sync.streams import StreamRun, record_count_error


def list_covered(state: State, streams: Mapping[StreamId, StreamRun]) -> list[StreamRun]:
    """Return the streams that a shared state is a state of.

    A LEGACY state is the state of all streams. A GLOBAL state is the state of the streams that it names, and
    of the streams that have no state of their own: many sources name only some streams, or none. If its
    entries hold for their streams alone, it is the state of those that it names, without those that have
    failed: these keep the state that they have, and stop no other one.

    Raises:
        SystemFailure: it names no stream, and all streams have states of their own.
    """
    if state.global_ is None:
        return list(streams.values())
    named = list_named(state, streams)
    if state.is_independent:
        return [run for run in named if not run.has_failed]
    covered = [run for run in streams.values() if run in named or not run.has_own_state]
    if not covered:
        raise SystemFailure(
            "the source sent a GLOBAL state that names no stream, and a state of its own for each stream: "
            "there is no stream that the GLOBAL state could be stored with",
            guidance="this is a defect of the source: report it to its maintainer",
        )
    return covered


def list_named(state: State, streams: Mapping[StreamId, StreamRun]) -> list[StreamRun]:
    """Return the streams that a GLOBAL state names."""
    entries = [] if state.global_ is None else state.global_.stream_states
    named = (streams.get(entry.stream_descriptor.id) for entry in entries)
    return [run for run in named if run is not None]


def is_stopped(covered: Iterable[StreamRun]) -> bool:
    """Return whether a failed stream stops a shared state that covers it.

    A failed stream that is not resumable does not: the next sync reads it from the beginning.
    """
    return any(run.has_failed and run.is_resumable for run in covered)


class SharedState:
    """The shared states of one session that wait for a commit.

    Args:
        committer: the committer of the session.
    """

    def __init__(self, committer: Committer):
        self._committer = committer
        self._pending = PendingStates()
        self._covered: dict[StreamRun, None] = {}
        self._uncommitted_since: float | None = None
        self._records_at_state: dict[StreamId, int] = {}

    @property
    def covered(self) -> list[StreamRun]:
        """The resumable streams that a state covers which waits for a commit."""
        return [run for run in self._covered if run.is_resumable]

    @property
    def is_stopped(self) -> bool:
        """Return whether states wait for a commit that no later state will follow."""
        return is_stopped(self._covered)

    def record_count_error(
        self, state: State, covered: Sequence[StreamRun], named: Sequence[StreamRun]
    ) -> ErrorTrace | None:
        """Return an error if the record count that a state reports is not the number received since the last
        state; None if the numbers are equal, or the state reports none.

        Args:
            named: the streams that the state names; it may count the records of these alone.
        """
        counts = (
            sum(span.records for span in self._spans(runs)) for runs in (covered, named or covered)
        )
        return record_count_error(state, *counts)

    def add(self, state: State, covered: Sequence[StreamRun]) -> None:
        """Keep a state for the next commit; it covers what was received so far of each of `covered`."""
        spans = self._spans(covered)
        self._pending.add(state, spans)
        self._records_at_state |= {span.stream: span.end for span in spans}
        if self._uncommitted_since is None:
            self._uncommitted_since = time.monotonic()
        for run in covered:
            run.mark()
            run.has_own_state = False
        self._covered |= dict.fromkeys(covered)
        if not self.covered:
            self._pending.forget_oldest()

    def _spans(self, runs: Sequence[StreamRun]) -> tuple[Span, ...]:
        """Return the records since the last state, of each stream that has any."""
        before = self._records_at_state
        received = ((run.configured.id, run.records_received) for run in runs)
        spans = (Span(stream, before.get(stream, 0), count) for stream, count in received)
        return tuple(span for span in spans if span.records)

    def is_due(self, seconds: float) -> bool:
        """Return whether a commit is due: too many states wait, or the oldest is `seconds` old or older."""
        since = self._uncommitted_since
        is_late = since is not None and time.monotonic() - since >= seconds
        return self._pending.is_over_limit or is_late

    def commit(self, completed: Sequence[StreamRun], others: Sequence[StreamRun]) -> None:
        """Commit the rows that were written for the streams, then the states in the streams' tables.

        A stream that is not resumable is committed only at its end, rows and states together. Until then its
        table has no new state. This does not break the rule that states advance for all streams: the next
        sync reads such a stream from the beginning, whatever the states of the other tables are.

        Args:
            completed: streams that are complete, so that this is their last commit.
            others: resumable streams that are not complete.
        """
        covered = self._covered
        states = self._take()
        at_once = all(pending.state.is_independent for pending in states)
        shared = [run for run in (*completed, *others) if run.is_resumable and run in covered]
        for run in (*completed, *others):
            if run not in shared:
                own = states if run in covered else ()
                self._committer.commit(run, final=run in completed, shared=own)
            elif run.uncommitted and not at_once:
                self._committer.commit(run, final=False)
        if not at_once:
            self._committer.await_before_shared()
        for run in shared:
            if run in completed or not run.has_own_state or len(run.pending):
                self._committer.commit(run, final=run in completed, shared=states)
        if states:
            self._committer.acknowledge_shared(states)

    def discard(self) -> None:
        """Drop the pending states: they advance for no stream."""
        self._take()

    def _take(self) -> tuple[PendingState, ...]:
        self._uncommitted_since, self._covered = None, {}
        return self._pending.take()
