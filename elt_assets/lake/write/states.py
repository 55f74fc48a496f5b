"""Commits that set a stream's state without new rows, also where its rows are elsewhere; removal of all rows.

`orchestration.states` calls `set_state` and `remove_rows`, for `elt state` and `elt reset`;
`pipeline.connection_read` has a `StateOnlyWriter` if the rows go to another destination.

`set_state` commits the state to resume from, and changes no row. A kill at STATE_SET leaves the new state in
one commit; a kill before it, the old one. The companions stay as the table named them, so a change that a
killed run left in one is rolled back by the next run.
`tests/lake/test_crash_points.py::test_a_state_set_by_hand_survives_a_kill_at_any_point`

`remove_rows` removes the rows as well. It commits the companions first (COMPANION_COMMITTED), and then the
table (TABLE_COMMITTED), which makes all of it effective.
`tests/lake/test_crash_points.py::test_a_removal_of_rows_survives_a_kill_at_any_point`

`StateOnlyWriter` stores the states of a stream whose rows are in another destination. The destination has
acknowledged a state before it is stored. A kill between the two leaves the older state: the next run sends
the records after it again. A kill at STATE_STORED leaves the new one.
`tests/lake/test_crash_points.py::test_states_alone_survive_a_kill_at_any_point`
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import types as t

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.delta.storage import TableChange
from elt_assets.lake.write.companions import CompanionChange, StreamTables
from elt_assets.lake.write.sync_columns import WriteSpec, make_declared_schema
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.segments import Segment


def set_state(
    tables: StreamTables, state: str | None, run_id: str, schema: t.StructType, stream: str
) -> None:
    """Commit a state only; an unfinished refresh is abandoned.

    Args:
        state: JSON of a STATE message; None starts a new generation, which is read from the beginning.
        schema: the columns of a table that does not exist yet.
        stream: the description of such a table.

    Raises:
        ConcurrentSync: a sync of the stream committed first; nothing was committed.
    """
    if not tables.main.exists:  # else the next sync adds missing columns, by `on_schema_change`
        tables.main.prepare(schema, stream)
    metadata = tables.metadata
    last = _newest_generation(metadata)
    generation = max(last, 1) if state is not None else last + 1
    after = replace(
        metadata.begin_next(run_id),
        generation=generation,
        state=state,
        refresh=None,
        restored=False,
    )
    tables.main.commit(TableChange(), after, 0)
    reach(Failpoint.STATE_SET)


def remove_rows(tables: StreamTables, run_id: str) -> int:
    """Commit a table without rows and without a state, and companions without rows.

    The companions are committed first, as in a sync, so a kill between the commits leaves the table as it
    was, and the next run rolls the companions back. Earlier versions stay readable until maintenance.

    Returns:
        The number of rows that the table had.

    Raises:
        ConcurrentSync: a sync of the stream committed first; nothing was committed.
    """
    records = tables.main.records
    metadata = tables.metadata
    after = replace(
        metadata.begin_next(run_id),
        generation=_newest_generation(metadata) + 1,
        state=None,
        refresh=None,
        tombstones=(),
        restored=False,
    )
    companions = [
        CompanionChange(
            table,
            table.schema,
            TableChange(remove=table.files),
            CommitMetadata(table.metadata.sequence, after.generation, None, run_id),
            0,
        )
        for table in tables.companions.values()
        if table.exists and table.files
    ]
    tables.commit(TableChange(remove=tables.main.files), after, 0, companions)
    return records


def _newest_generation(metadata: CommitMetadata) -> int:
    refresh = metadata.refresh
    return metadata.generation if refresh is None else max(refresh.generation, metadata.generation)


class StateOnlyWriter:
    """Commits the states of one sync of one stream; a `Sink` that accepts no records.

    The states are in a table without rows, whose log has the same metadata as the log of a stream's table.
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
