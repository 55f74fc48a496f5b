"""The states of a table's log, and setting the one to go on from: a commit that moves no row."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace

from pyspark.sql import types as t

from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.files import Change
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.stream_tables import StreamTables


@dataclass(frozen=True)
class Acknowledged:
    """A commit of one writer: when it was made, the table's version that it made, what it says."""

    time: dt.datetime
    version: int
    head: CommitMetadata


def history(table: Table) -> list[Acknowledged]:
    """The commits that are in force, the newest first: what a restore took back is left out."""
    return [Acknowledged(*found) for found in table.past()]


def set_state(
    tables: StreamTables, state: str | None, run_id: str, schema: t.StructType, stream: str
) -> None:
    """Commit a state alone; what there is of a refresh that was begun is given up.

    Args:
        state: JSON of a STATE message; None begins a new generation, read from the beginning.
        schema: of a table that is not there yet.
        stream: for the table's description then.

    Raises:
        ConcurrentSync: a sync of the stream was first; nothing was committed.
    """
    if (
        not tables.main.exists
    ):  # columns that it lacks are the next sync's: it asks `on_schema_change`
        tables.main.prepare(schema, stream)
    head = tables.head
    last = (
        head.generation if head.refresh is None else max(head.refresh.generation, head.generation)
    )
    generation = max(last, 1) if state is not None else last + 1
    after = replace(
        head,
        sequence=head.sequence + 1,
        generation=generation,
        state=state,
        run_id=run_id,
        commit=None,
        same_as=None,
        refresh=None,
        restored=False,
    )
    tables.main.commit(Change(), after, 0)
