"""Writer for a stream whose rows are in another destination: it stores only the stream's state.

The state is in a table without rows, whose log has the same metadata as the log of a stream's table.

The destination has acknowledged a state before it is stored. A kill between the two leaves the older state:
the next run sends the records after it again. A kill at STATE_STORED leaves the new one.
`tests/lake/test_crash_points.py::test_states_alone_survive_a_kill_at_any_point`
"""

from __future__ import annotations

from dataclasses import replace

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.delta.files import TableChange
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import WriteSpec, make_declared_schema
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.segments import Segment


class StateOnlyWriter:
    """Commits the states of one sync of one stream; a `Sink` that accepts no records.

    The start of a truncating refresh is committed before any of its records are sent: the number of its
    generation must not be used again.

    Raises:
        ConcurrentSync: another run of the stream committed first.
    """

    schema_changes: tuple[str, ...] = ()

    def __init__(self, tables: StreamTables, spec: WriteSpec):
        self._table = tables.main
        self._spec = spec
        metadata = self._table.metadata
        refresh = spec.stored_stream(metadata).resumable_refresh
        if spec.truncates and (refresh is None or refresh.generation != spec.generation):
            self._publish(metadata.state, metadata.generation, self._refresh(None))

    def write(self, segment: Segment) -> None:
        """Raise NotImplementedError. It is never called, because the records go to the other destination."""
        raise NotImplementedError

    def commit(self, checkpoint: Checkpoint) -> Committed:
        """Publish the state, if it has changed or the sync completes a generation.

        Raises:
            ConcurrentSync: another run of the stream committed first.
        """
        spec, metadata = self._spec, self._table.metadata
        present = metadata.state if metadata.refresh is None else metadata.refresh.state
        state = present
        if checkpoint.states and not spec.keeps_state:
            state = checkpoint.states[-1].text
        if spec.truncates and not checkpoint.final:
            if state != present:
                self._publish(metadata.state, metadata.generation, self._refresh(state))
        elif (state, spec.generation, None) != (
            metadata.state,
            metadata.generation,
            metadata.refresh,
        ):
            self._publish(state, spec.generation, None)
        metadata = self._table.metadata
        return Committed(
            metadata.sequence, metadata.generation, self._table.version, 0, 0, 0, state
        )

    def close(self) -> None:
        """Do nothing: there are no files to remove."""

    def _refresh(self, state: str | None) -> Refresh:
        spec = self._spec
        fingerprint = spec.stored_stream(self._table.metadata).fingerprint
        return Refresh(spec.generation, True, state, (), (), (), fingerprint)

    def _publish(self, state: str | None, generation: int, refresh: Refresh | None) -> None:
        spec = self._spec
        self._table.prepare(make_declared_schema(spec.stream), spec.stream.stream.name)
        metadata: CommitMetadata = self._table.metadata
        after = replace(
            metadata.begin_next(spec.run_id),
            generation=generation,
            state=state,
            sync_id=spec.sync_id,
            refresh=refresh,
            intent=spec.intent or metadata.intent,
            restored=False,
        )
        self._table.commit(TableChange(), after, 0)
        reach(Failpoint.STATE_STORED)
