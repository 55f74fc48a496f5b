"""Replay of dead letter records with the present schema.

A kill at REPLAY_STAGED leaves copies of the records in hidden files, which a vacuum removes. One commit
of the stream moves the records: before it they are in the dead letter, after it in the table.
`tests/lake/test_crash_points.py::test_a_replay_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame

from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.files import HIDDEN, Files
from elt_assets.lake.delta.outcome import Superseded
from elt_assets.lake.delta.table import Table
from elt_assets.lake.parse.undeclared import declared_names
from elt_assets.lake.schema import from_json_schema
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write import dead_letter
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import WriteSpec
from elt_assets.lake.write.writer import TableWriter
from elt_assets.storage.location import Location
from elt_assets.sync.events import Committed


def replay(spark: SparkProvider, tables: StreamTables, spec: WriteSpec) -> Committed | None:
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
        return _replay(spark, tables, spec)
    except Superseded:  # a compaction replaced files: try again, once
        tables.advance()
        tables.roll_back_companions(spec.run_id)
        return _replay(spark, tables, spec)


def _replay(spark: SparkProvider, tables: StreamTables, spec: WriteSpec) -> Committed | None:
    table = tables.dead_letter
    files = dead_letter.files_of(table, spec.partition)
    if not files:
        return None
    _refuse(tables, spec)
    declared = declared_names(from_json_schema.columns(spec.stream.stream.json_schema))
    lines = dead_letter.staged_lines(spark.get(), table, files, declared)
    writer = TableWriter(spark, tables, spec, arrival=dead_letter.arrival(table, files))
    try:
        with _staged(table, lines) as place:
            reach(Failpoint.REPLAY_STAGED)
            writer.write_lines([place.for_spark_reader], sum(file.records for file in files))
            return writer.commit_replay(files)
    finally:
        writer.close()


@contextmanager
def _staged(table: Table, lines: DataFrame) -> Iterator[Location]:
    """Write lines to files that Spark can read; remove the files when the context ends.

    They are hidden files of the table, or, if it is in an object store, a temporary file on this machine.
    """
    if table.storage.place.is_object_store:
        with tempfile.TemporaryDirectory(prefix="elt-replay-") as name:
            path = Path(name, "lines")
            with path.open("w", encoding="utf-8", newline="") as file:
                file.writelines(f"{row.value}\n" for row in lines.toLocalIterator())
            yield Location.of(str(path))
        return
    folder = Files.new_folder(HIDDEN)
    try:
        place = table.storage.place.child(folder)
        lines.write.text(place.for_spark)
        yield place
    finally:
        table.storage.discard_folder(folder)


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
            guidance="read the stream from the beginning, and move that table away: it may contain values "
            "that must not be stored",
        )
