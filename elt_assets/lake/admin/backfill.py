"""The backfill of columns: rows that were written before a column was there get its values from the source.

`pipeline.backfill` makes the sink, and the session of a read calls it as it calls a `TableWriter`.

The source is read from the beginning, key and columns alone; its rows become hidden files. At the end, each
table of the stream gets one commit, without a state and without a sequence of the writer, as a compaction has
none: syncs go on meanwhile, and the cursor is untouched. Only nulls in these columns become values.

**What changes meanwhile wins.** The files of the tables are listed before the source is read. A row that is
in one of these files was written before, so the source had its change when it was read. Rows of other files
may be newer. A row keeps its `_airbyte_raw_id` wherever it is moved, and a record of the source gets another
one, so of other files only rows whose ids were in the files listed before are filled. A newer row keeps what
its change has, also a null.
`tests/lake/test_backfill.py::test_a_backfill_beside_syncs_equals_a_full_read`

**A kill leaves** files that no log names, which a vacuum removes, and maybe a history that is filled while
its table is not. Run again, the backfill finds the nulls that are left.
`tests/lake/test_backfill.py::test_a_backfill_survives_a_kill_at_any_point`

A compaction or a sync that replaces files while the commit is made has it built again (`Superseded`). In
`changes`, rows that are filled are no new rows: readers of changes read all rows again.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync, ConfigError
from elt_assets.lake.columns.metadata_columns import RAW_ID
from elt_assets.lake.delta.outcome import NOTHING_PUBLISHED, Superseded
from elt_assets.lake.delta.row_counts import row_count, verify_or_discard, write_all
from elt_assets.lake.delta.storage import HIDDEN, DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge.file_splitting import Key, file_name, has_key, key_value
from elt_assets.lake.merge.history import HIDDEN_FIELDS, IS_CURRENT
from elt_assets.lake.session import SparkProvider, value_at
from elt_assets.lake.worker.job import ParseJob
from elt_assets.lake.worker.slices import SliceSource
from elt_assets.lake.write import dead_letter
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.parsing import ParsedSegment, Rejections, SegmentParser
from elt_assets.lake.write.sync_columns import (
    WriteSpec,
    list_declared,
    ordering,
    plan_columns,
)
from elt_assets.machine_faults import translate, translated
from elt_assets.storage.staging import Staging
from elt_assets.sync.events import Checkpoint, Committed, SlicesRead
from elt_assets.sync.pending import SliceGroup
from elt_assets.sync.segments import Segment

MAX_ATTEMPTS = 10
"""Maximum number of times that a commit is built: again if files were replaced meanwhile."""
_FILE, _KEY, _VALUES, _IS_OLD = "_elt_file", "_elt_key", "_elt_values", "_elt_is_old"


@dataclass(frozen=True)
class ColumnRequest:
    """What is filled."""

    columns: Sequence[str]
    all_versions: bool = False
    """Whether every version in a history gets the present values, or the current one alone."""


@dataclass
class FilledRows:
    """What a backfill has done."""

    read: int = 0
    """Rows of the source."""
    values: Mapping[str, int] = field(default_factory=dict)
    """How many of them have a value, by column."""
    rows: int = 0
    """Rows of the table that got a value."""
    versions: int = 0
    """Rows of the history that got a value."""


class _RowParser(SegmentParser):
    """Parses key and columns to hidden files: these have no partition columns."""

    def make_job(self) -> ParseJob:
        output = replace(self._table.output(HIDDEN), max_rows=sys.maxsize, max_bytes=sys.maxsize)
        return replace(super().make_job(), output=output)


class ColumnBackfill:
    """Fills columns with the rows of one read of the source; the `Sink` of a session.

    Args:
        spec: of a sync of the stream.
        slices: returns what tasks need to read slices of the stream.

    Raises:
        ConfigError: the tables lack a column, or the schema has changed since the last sync.
    """

    def __init__(
        self,
        spark: SparkProvider,
        tables: StreamTables,
        spec: WriteSpec,
        request: ColumnRequest,
        staging: Staging,
        slices: Callable[[], SliceSource],
    ):
        self._provider, self._tables, self._staging = spark, tables, staging
        self._request, self._slices = request, slices
        self._files: list[DataFile] = []
        self._rows = self._rejected = 0  # since the last commit that was asked for
        self.done = FilledRows()
        main, history = tables.main, tables.history
        for table in filter(None, (main, history)):
            table.refuse_unwritable()
        present = [table for table in (history, main) if table is not None and table.exists]
        self._former = [(table, {file.path: file for file in table.files}) for table in present]
        plan = plan_columns(spec, main, replaces=False)
        _refuse_changed(main, plan.added, rewrites=plan.rewrites)
        order = ordering(spec, plan)
        self._key: Key = order.key
        names = {*(part[0] for part in order.key), *request.columns}
        columns = [column for column in plan.columns if column.name in names]
        fields = [column.field for column in columns]
        self._schema = t.StructType([*fields, t.StructField(RAW_ID, t.StringType())])
        rejections = Rejections(
            tables.dead_letter, dead_letter.schema(spec), dead_letter.same_values(spec)
        )
        self._parser = _RowParser(
            main, rejections, columns, list_declared(spec, main), spec.make_sync_ids(), self._key
        )

    def write(self, segment: Segment) -> None:
        """Parse records."""
        with (
            translated(f"while columns of {self._tables.main.uri} were filled"),
            self._staging.share(segment.path) as place,
        ):
            self._add(self._parser.parse(self._provider.get(), segment, place))

    def read(self, group: SliceGroup) -> SlicesRead:
        """Read slices in tasks.

        Raises:
            EltError: the source of a slice fails; its class names who must act.
        """
        where = f"while columns of {self._tables.main.uri} were filled"
        with translated(where):
            parsed = self._parser.read(self._provider.get(), group, self._slices(), self._staging)
        self._add(parsed)
        rows = sum(result.rows + result.rejected for result in parsed.results)
        error = parsed.error and (translate(parsed.error, where) or parsed.error)
        return SlicesRead(len(parsed.results), rows, error)

    def _add(self, parsed: ParsedSegment) -> None:
        self._files += parsed.files
        rows = sum(result.rows for result in parsed.results)
        self.done.read += rows
        self._rows += rows
        self._rejected += sum(result.rejected for result in parsed.results)
        # A row without a key is in no row of the table.
        self._tables.dead_letter.storage.discard(parsed.rejected)

    def commit(self, checkpoint: Checkpoint) -> Committed:
        """Fill the tables when all rows of the source are there; do nothing before."""
        if checkpoint.final and self._files:
            with translated(f"while columns of {self._tables.main.uri} were filled"):
                self._fill_all()
        metadata, main = self._tables.metadata, self._tables.main
        records, rejected = self._rows, self._rejected
        self._rows = self._rejected = 0
        return Committed(
            metadata.sequence,
            metadata.generation,
            main.version,
            records,
            rejected,
            0,
            state=metadata.state,
        )

    def close(self) -> None:
        """Remove the rows of the source."""
        files, self._files = self._files, []
        self._tables.main.storage.discard(files)

    def _fill_all(self) -> None:
        batch = self._read_batch(self._provider.get())
        values = (f.count(f.col(_VALUES).getField(name)) for name in self._request.columns)
        counts = batch.agg(*values).collect()[0]
        self.done.values = dict(zip(self._request.columns, counts, strict=True))
        if not any(counts):
            return
        for table, former in self._former:
            rows = self._fill(table, former, batch)
            if table is self._tables.main:
                self.done.rows = rows
            else:
                self.done.versions = rows

    def _read_batch(self, spark: SparkSession) -> DataFrame:
        """Return the values of each key: of one that came twice, the last ones."""
        rows = self._tables.main.read_files(spark, self._files, self._schema)
        values = f.struct(*(value_at([name]).alias(name) for name in self._request.columns))
        newest = f.max_by(values, RAW_ID).alias(_VALUES)
        keyed = rows.where(has_key(self._key))
        return keyed.groupBy(key_value(self._key).alias(_KEY)).agg(newest)

    def _fill(self, table: Table, former: Mapping[str, DataFile], batch: DataFrame) -> int:
        """Fill one table in one commit; return how many rows got a value.

        Raises:
            ConcurrentSync: files were replaced each time before the commit.
        """
        for _ in range(MAX_ATTEMPTS):
            table.advance()
            rows, change = self._build(table, former, batch)
            if not rows:
                return 0
            try:
                table.reorganise(change, self._request.columns)
            except Superseded:
                table.storage.discard(change.add)
                continue
            except NOTHING_PUBLISHED:
                table.storage.discard(change.add)
                raise
            return rows
        raise ConcurrentSync(
            f"the columns of {table.uri} could not be filled: files were replaced each time before it",
            guidance="nothing was changed; run it again when fewer syncs of the stream are running",
        )

    def _build(
        self, table: Table, former: Mapping[str, DataFile], batch: DataFrame
    ) -> tuple[int, TableChange]:
        """Write the files that have a row to fill again; return how many rows are filled."""
        spark = batch.sparkSession
        schema = table.schema
        if IS_CURRENT in schema.names:
            schema = t.StructType([*schema.fields, *HIDDEN_FIELDS])
        candidates = self._list_candidates(table)
        joined = self._join(spark, table, former, candidates, batch, schema)
        fills = reduce(operator.or_, map(_is_filled, self._request.columns))
        found_rows = joined.where(fills).groupBy(_FILE).count().collect()
        counts = {file_name(row[0]): row["count"] for row in found_rows}
        chosen = [file for file in candidates if file_name(file.path) in counts]
        if not chosen:
            return 0, TableChange()
        rows = self._join(spark, table, former, chosen, batch, schema)
        filled = [
            f.when(_is_filled(name), f.col(_VALUES).getField(name))
            .otherwise(value_at([name]))
            .alias(name)
            if name in self._request.columns
            else value_at([name])
            for name in schema.names
        ]
        files = write_all(table, rows.select(*filled))
        verify_or_discard(
            table,
            row_count(table, chosen),
            row_count(table, files),
            "rows with filled columns",
            files,
        )
        return sum(counts.values()), TableChange(files, chosen)

    def _list_candidates(self, table: Table) -> list[DataFile]:
        """Return the files that may have a null in one of the columns."""
        complete = [table.paths_lacking_nulls([name]) for name in self._request.columns]
        return [file for file in table.files if any(file.path not in paths for paths in complete)]

    def _join(
        self,
        spark: SparkSession,
        table: Table,
        former: Mapping[str, DataFile],
        files: Sequence[DataFile],
        batch: DataFrame,
        schema: t.StructType,
    ) -> DataFrame:
        """Return the rows of files with the values of their keys, and whether they were there before."""
        old = [file for file in files if file.path in former]
        new = [file for file in files if file.path not in former]
        rows = table.read_files(spark, old, schema, _FILE).withColumn(_IS_OLD, f.lit(True))
        if new:
            present = {file.path for file in table.files}
            gone = [file for path, file in former.items() if path not in present]
            ids = table.read_files(
                spark, gone, t.StructType([t.StructField(RAW_ID, t.StringType())])
            )
            ids = ids.distinct().withColumn(_IS_OLD, f.lit(True))
            moved = table.read_files(spark, new, schema, _FILE).join(ids, RAW_ID, "left")
            rows = rows.unionByName(moved.withColumn(_IS_OLD, f.coalesce(_IS_OLD, f.lit(False))))
        if IS_CURRENT in schema.names and not self._request.all_versions:
            rows = rows.withColumn(_IS_OLD, f.col(_IS_OLD) & f.col(IS_CURRENT))
        return rows.withColumn(_KEY, key_value(self._key)).join(batch, _KEY, "left")


def _is_filled(name: str) -> Expression:
    """Return whether a column of a row gets a value."""
    value = f.col(_VALUES).getField(name)
    return f.col(_IS_OLD) & value_at([name]).isNull() & value.isNotNull()


def _refuse_changed(table: Table, added: Sequence[str], *, rewrites: bool) -> None:
    """Refuse a table that the next sync gives other columns.

    Raises:
        ConfigError: says what to do.
    """
    if not table.exists or added or rewrites:
        raise ConfigError(
            f"the table {table.uri} does not have the columns of the catalog yet"
            + (f": {', '.join(added)}" if added else ""),
            guidance="sync the stream once, so that new rows have them; then fill the rows from before",
        )
