"""A commit that sets the state to resume from without a change of rows.

A kill at STATE_SET leaves the new state in one commit; a kill before it, the old one. The companions stay as
the table named them, so a change that a killed run left in one is rolled back by the next run.
`tests/lake/test_crash_points.py::test_a_state_set_by_hand_survives_a_kill_at_any_point`
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import types as t

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.files import TableChange
from elt_assets.lake.write.stream_tables import StreamTables


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
    last = (
        metadata.generation
        if metadata.refresh is None
        else max(metadata.refresh.generation, metadata.generation)
    )
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
