"""Records of a dead letter tried again, with the schema as it is now."""

from __future__ import annotations

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.commits import Superseded
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write import dead_letter
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.sync.events import Committed


def replay(spark: SparkProvider, tables: StreamTables, spec: WriteSpec) -> Committed | None:
    """Move to the table what it can take now; the rest stays, with the reasons that there are now.

    What leaves the dead letter and what enters the table is one commit of the stream: each record
    arrives exactly once, whatever happens on the way. Of the policies, a record counts as extracted when
    it was, not now.

    Returns:
        what was committed and what was rejected again; None where the dead letter is empty.

    Raises:
        ConcurrentSync: a sync of the stream was first; nothing was moved.
        ConfigError: it may not be done now.
    """
    try:
        return _replay(spark, tables, spec)
    except Superseded:  # by a compaction: look again, once
        tables.advance()
        tables.settle(spec.run_id)
        return _replay(spark, tables, spec)


def _replay(spark: SparkProvider, tables: StreamTables, spec: WriteSpec) -> Committed | None:
    table = tables.dead_letter
    files = dead_letter.files_of(table, spec.partition)
    if not files:
        return None
    _refuse(tables, spec)
    folder, count = dead_letter.staged(spark.get(), table, files)
    writer = TableWriter(spark, tables, spec, late=True)
    try:
        writer.write_lines([table.storage.place.child(folder).for_spark_reader], count)
        return writer.answer(files)
    finally:
        writer.close()
        table.storage.discard_folder(folder)


def _refuse(tables: StreamTables, spec: WriteSpec) -> None:
    uri, refresh = tables.dead_letter.uri, tables.head.refresh
    if refresh is not None and refresh.truncates:
        raise ConfigError(
            f"the records in {uri} cannot be replayed while a refresh of their stream is unfinished",
            guidance="let a sync complete the refresh first",
        )
    if tables.dead_letter.head.salt != spec.selection:
        raise ConfigError(
            f"records in {uri} were rejected under other `fields` than the stream's present ones",
            guidance="read the stream anew and move that table away: it may hold what must not be stored",
        )
