"""States that several streams share (GLOBAL, LEGACY): each advances for all of the streams or for none.

Each stream has its own table, and every table stores the shared state. So the rows received before the
state are committed first, in every table, and then the state, in every table: no table has a state that is
ahead of the rows of a different table.

Spec: Airbyte Protocol, State & Checkpointing, V2.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.protocol.airbyte.messages import ErrorTrace, State
from elt_assets.sync.committer import Committer
from elt_assets.sync.events import PendingState, Span
from elt_assets.sync.states.pending import PendingStates
from elt_assets.sync.streams import StreamRun, record_count_error


class SharedState:
    """The shared states of one session that wait for a commit.

    Args:
        committer: the committer of the session.
    """

    def __init__(self, committer: Committer):
        self._committer = committer
        self._pending = PendingStates()
        self._uncommitted_since: float | None = None
        self._records_at_state: dict[StreamId, int] = {}

    def __bool__(self) -> bool:
        """Return whether a state waits for a commit."""
        return bool(len(self._pending))

    def record_count_error(self, state: State, runs: Sequence[StreamRun]) -> ErrorTrace | None:
        """Return an error if the record count that a state reports is not the number received since the last
        state; None if the numbers are equal, or the state reports none."""
        return record_count_error(state, sum(span.records for span in self._spans(runs)))

    def add(self, state: State, runs: Sequence[StreamRun]) -> None:
        """Keep a state for the next commit; it covers what was received so far of every stream."""
        spans = self._spans(runs)
        self._pending.add(state, spans)
        self._records_at_state |= {span.stream: span.end for span in spans}
        if self._uncommitted_since is None:
            self._uncommitted_since = time.monotonic()
        for run in runs:
            run.mark()
        if not any(run.is_resumable for run in runs):
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

    def commit(self, runs: Sequence[StreamRun], *, final: bool) -> None:
        """Commit the rows that were written for the streams, then the states in the streams' tables.

        A stream that is not resumable is committed only at its end, rows and states together. Until then its
        table has no new state. This does not break the rule that states advance for all streams: the next
        sync reads such a stream from the beginning, whatever the states of the other tables are.

        Args:
            final: whether the streams are complete, so that this is their last commit.
        """
        states = self._take()
        if not states:
            for run in runs:
                self._committer.commit(run, final=final)
            return
        for run in runs:
            if not run.is_resumable and final:
                self._committer.commit(run, final=True, shared=states)
            elif run.is_resumable and run.uncommitted:
                self._committer.commit(run, final=False)
        self._committer.await_before_shared()
        for run in runs:
            if run.is_resumable:
                self._committer.commit(run, final=final, shared=states)
        self._committer.acknowledge_shared(states)

    def discard(self) -> None:
        """Drop the pending states: a stream has failed, so they advance for no stream."""
        self._take()

    def _take(self) -> tuple[PendingState, ...]:
        self._uncommitted_since = None
        return self._pending.take()
