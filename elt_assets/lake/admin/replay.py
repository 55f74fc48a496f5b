"""Replay of dead letter records with the present schema, for `elt replay` and the Dagster job.

Called by `orchestration.table_jobs`.

A kill at REPLAY_STAGED leaves copies of the records in the staging folder, which the next session removes.
One commit of the stream moves the records: before it they are in the dead letter, after it in the table.
`tests/lake/test_crash_points.py::test_a_replay_survives_a_kill_at_any_point`
"""

from __future__ import annotations

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.outcome import Superseded
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write import dead_letter
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.storage.staging import Staging
from elt_assets.sync.events import Committed


def replay(
    spark: SparkProvider, tables: StreamTables, spec: WriteSpec, staging: Staging
) -> Committed | None:
    """Move the records that the table can accept now; the others stay, with their present reasons.

    One commit of the stream removes records from the dead letter and adds them to the table: each record
    arrives exactly once, whatever happens. A merge orders a record by its original arrival.

    Returns:
        what was committed and what was rejected again; None if the dead letter is empty.

    Raises:
        ConcurrentSync: a sync of the stream committed first; nothing was moved.
        ConfigError: a refresh is unfinished, or the records were rejected under other `fields`.
    """
    try:
        return _replay(spark, tables, spec, staging)
    except Superseded:  # a compaction replaced files: try again, once
        tables.advance()
        tables.roll_back_companions(spec.run_id)
        return _replay(spark, tables, spec, staging)


def _replay(
    spark: SparkProvider, tables: StreamTables, spec: WriteSpec, staging: Staging
) -> Committed | None:
    table = tables.dead_letter
    files = dead_letter.files_of(table, spec.partition)
    if not files:
        return None
    _refuse(tables, spec)
    writer = TableWriter(spark, tables, spec, staging, is_replay=True)
    try:
        with staging.session() as folder:
            segment = dead_letter.stage(table, files, folder / "replay.rows")
            reach(Failpoint.REPLAY_STAGED)
            writer.write(segment)
            return writer.commit_replay(files)
    finally:
        writer.close()


def _refuse(tables: StreamTables, spec: WriteSpec) -> None:
    uri, refresh = tables.dead_letter.uri, tables.metadata.refresh
    if refresh is not None and refresh.truncates:
        raise ConfigError(
            f"the records in {uri} cannot be replayed while a refresh of their stream is unfinished",
            guidance="run a sync that completes the refresh first",
        )
    if tables.dead_letter.metadata.salt != spec.selection:
        raise ConfigError(
            f"records in {uri} were rejected under other `fields` than the stream has now",
            guidance="move that table away: it may contain values that must not be stored; then read the "
            "stream from the beginning (`elt reset CONNECTION STREAM`, and a sync)",
        )
