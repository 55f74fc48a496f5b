"""A commit that sets the state to resume from without a change of rows.

A kill at STATE_SET leaves the new state in one commit; a kill before it, the old one. The companions stay as
the table named them, so a change that a killed run left in one is rolled back by the next run.
`tests/lake/test_crash_points.py::test_a_state_set_by_hand_survives_a_kill_at_any_point`

A commit that removes the rows as well commits the companions first (COMPANION_COMMITTED), and then the table
(TABLE_COMMITTED), which makes all of it effective.
`tests/lake/test_crash_points.py::test_a_removal_of_rows_survives_a_kill_at_any_point`
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import types as t

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.files import TableChange
from elt_assets.lake.write.stream_tables import CompanionChange, StreamTables


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
            CommitMetadata(
                table.metadata.sequence, after.generation, None, run_id, columns_at=table.version
            ),
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
