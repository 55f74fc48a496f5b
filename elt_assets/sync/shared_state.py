"""A state that streams share (GLOBAL, LEGACY): it moves for all of them, or for none.

Each table carries it, since each is a table of its own. So what came before it is committed first, in
every table, and only then the state, in every table: no table ever says a state that is ahead of
another's rows.

spec: Airbyte Protocol, State & Checkpointing, V2.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.protocol.airbyte.messages import ErrorTrace, State
from elt_assets.sync.committer import Committer
from elt_assets.sync.events import PendingState, Span
from elt_assets.sync.states.pending import PendingStates
from elt_assets.sync.streams import StreamRun, miscounted


class SharedState:
    """The shared states of one session.

    Args:
        committer: of the session.
    """

    def __init__(self, committer: Committer):
        self._committer = committer
        self._held = PendingStates()
        self._since: float | None = None
        self._counted_to: dict[StreamId, int] = {}

    def __bool__(self) -> bool:
        """Whether one waits for a commit."""
        return bool(len(self._held))

    def miscounts(self, state: State, runs: Sequence[StreamRun]) -> ErrorTrace | None:
        return miscounted(state, sum(span.records for span in self._spans(runs)))

    def hold(self, state: State, runs: Sequence[StreamRun]) -> None:
        """Keep a state: what has come so far, of every stream, belongs to it."""
        spans = self._spans(runs)
        self._held.add(state, spans)
        self._counted_to |= {span.stream: span.end for span in spans}
        if self._since is None:
            self._since = time.monotonic()
        for run in runs:
            run.mark()
        if all(run.whole for run in runs):
            self._held.forget_oldest()

    def _spans(self, runs: Sequence[StreamRun]) -> tuple[Span, ...]:
        """What has come of each stream since the last state."""
        told = self._counted_to
        since = ((run.configured.id, run.sent) for run in runs)
        spans = (Span(stream, told.get(stream, 0), sent) for stream, sent in since)
        return tuple(span for span in spans if span.records)

    def is_due(self, seconds: float) -> bool:
        late = self._since is not None and time.monotonic() - self._since >= seconds
        return self._held.flooded or late

    def commit(self, runs: Sequence[StreamRun], *, final: bool) -> None:
        """Commit what was written of streams, then the state. A stream that is published only at its end
        waits for that: no sync of it begins at a state."""
        held = self._take()
        if not held:
            for run in runs:
                self._committer.commit(run, final=final)
            return
        for run in runs:
            if run.whole and final:
                self._committer.commit(run, final=True, shared=held)
            elif not run.whole and run.uncommitted:
                self._committer.commit(run, final=False)
        for run in runs:
            if not run.whole:
                self._committer.commit(run, final=final, shared=held)
        self._committer.share(held)

    def forget(self) -> None:
        """One of the streams has failed: nobody's state moves."""
        self._take()

    def _take(self) -> tuple[PendingState, ...]:
        self._since = None
        return self._held.take()
