"""A stream's sink: segments become files of its table, checkpoints become commits."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from elt_assets.errors import ConcurrentSync, ConfigError, SystemFailure
from elt_assets.lake.delta.commits import Superseded
from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.parse.conform import conform, rejected
from elt_assets.lake.parse.undeclared import UndeclaredFields, bounded
from elt_assets.lake.schema import from_json_schema, metadata_columns
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write import dead_letter, schema_rewrite, write_spec
from elt_assets.lake.write.commit_builder import Checkpointed, CommitBuilder, Publication
from elt_assets.lake.write.stream_tables import StreamTables
from elt_assets.lake.write.write_spec import WriteSpec
from elt_assets.storage.location import Location
from elt_assets.sync.events import Checkpoint, Committed
from elt_assets.sync.segments import Segment

REDONE = 5
"""How often a commit is made again because a compaction, say, replaced the files that it replaces."""


@dataclass
class _Pending:
    """What was written since the last commit."""

    files: list[DataFile] = field(default_factory=list)
    dead: list[DataFile] = field(default_factory=list)
    records: int = 0
    rejected: int = 0
    changed: int = 0
    places: array[int] = field(default_factory=lambda: array("q"))
    undeclared: Counter[str] = field(default_factory=Counter)


class TableWriter:
    """Writes one sync of one stream to its tables; the session's `Sink`.

    Args:
        spark: the session; waited for when the first segment comes.
        tables: the stream's tables, at the snapshot that its state was taken from.
        spec: which policy, key, cursor and generation apply.
        late: the records did not arrive now, but when they say.
        locate: tell, with each commit, the places of the records that were rejected.

    Raises:
        ConfigError: the stream's schema has changed in a way that is not accepted, or the salt has.
    """

    def __init__(
        self,
        spark: SparkProvider,
        tables: StreamTables,
        spec: WriteSpec,
        *,
        late: bool = False,
        locate: bool = False,
    ):
        _refuse_other_salt(tables, spec)
        schema_rewrite.check(tables, spec)
        self._provider = spark
        self._tables = tables
        self._spec = spec
        self._replaces = write_spec.replaces_schema(spec, tables.main)
        self._plan = write_spec.plan_columns(spec, tables.main, replaces=self._replaces)
        self._schema = write_spec.full_schema(self._plan, spec)
        self._by = write_spec.ordering(spec, self._plan, late=late)
        self._stamp = spec.stamp()
        self._locates = locate
        unstored = write_spec.unstored_markers(spec, self._plan, tables.head)
        self._columns = [*self._plan.columns, *unstored]
        self._publisher = CommitBuilder(
            tables,
            spec,
            self._by,
            self._schema,
            replaces=self._replaces,
            unstored=[column.field for column in unstored],
        )
        self._hide_unfinished()
        self._pending = _Pending()

    @property
    def schema_changes(self) -> Sequence[str]:
        """How the stream's schema differs from its table's, in words."""
        return self._plan.told

    def write(self, segment: Segment) -> None:
        """Type a segment's records and write them as files that nobody sees yet.

        Raises:
            SystemFailure: the segment is damaged, or the rows written and the rows rejected are not the
                rows staged.
        """
        size = segment.path.stat().st_size if segment.path.exists() else 0
        if size != segment.size:
            raise SystemFailure(
                f"the staged segment {segment.path} has {size} bytes, not the {segment.size} written",
                guidance="nothing was committed of it; see that nothing else writes to the staging folder",
            )
        with self._with_undeclared(segment.path) as lines:
            self.write_lines([Location.of(str(lines)).for_spark_reader], segment.records)

    def write_lines(self, paths: Sequence[str], count: int) -> None:
        """As `write`, of so many lines in some files or folders."""
        spark, pending = self._provider.get(), self._pending
        key = [part for part in self._by.key if part != [metadata_columns.PARTITION]]
        conforming = (spark, paths, self._columns, self._stamp, key)
        files, changed = self._write_observed(conform(*conforming, self._spec.partition))
        accepted = sum(file.records for file in files)
        pending.files += files
        pending.records += accepted
        pending.changed += changed
        if accepted != count:
            dead, table = count - accepted, self._tables.dead_letter
            written = dead_letter.write(table, rejected(*conforming), self._spec, dead)
            pending.dead += written
            pending.rejected += dead
            if self._locates:
                pending.places += dead_letter.places(table, written)

    def commit(self, checkpoint: Checkpoint) -> Committed:
        """Apply the policy and publish, state included; a no-op where nothing is new."""
        pending, state = self._pending, self._state(checkpoint)
        if self._is_news(pending, state, checkpoint):
            self._publish(pending, state, final=checkpoint.final)
            self._hide_unfinished()
        self._pending = _Pending()
        return self._committed(pending)

    def answer(self, dead: Sequence[DataFile]) -> Committed:
        """Publish what was written in place of some of the dead letter's files; the state stays."""
        pending, self._pending = self._pending, _Pending()
        self._publish(pending, self._tables.head.state, final=False, answered=dead)
        return self._committed(pending)

    def close(self) -> None:
        """Remove what was written and never committed; not what may have been."""
        pending, self._pending = self._pending, _Pending()
        self._tables.main.discard_files(pending.files)
        self._tables.dead_letter.discard_files(pending.dead)

    @cached_property
    def _undeclared(self) -> UndeclaredFields:
        return UndeclaredFields(from_json_schema.columns(self._spec.stream.stream.json_schema))

    @contextmanager
    def _with_undeclared(self, segment: Path) -> Iterator[Path]:
        """Count the fields that the stream's schema does not declare; yield the file to parse, which holds
        them if they are kept."""
        undeclared = self._pending.undeclared
        if not self._spec.keeps_undeclared:
            undeclared.update(self._undeclared.count(segment))
            yield segment
            return
        kept = segment.with_suffix(".kept")
        try:
            undeclared.update(self._undeclared.keep(segment, kept))
            yield kept
        finally:
            kept.unlink(missing_ok=True)

    def _publish(
        self,
        pending: _Pending,
        state: str | None,
        *,
        final: bool,
        answered: Sequence[DataFile] = (),
    ) -> None:
        """Once, made again where a merge was overtaken by a compaction.

        From the commit on a failure leaves the files that were written: they may have been published.
        """
        batch = list(pending.files)
        news = Checkpointed(batch, list(pending.dead), pending.rejected, state, final, answered)
        for attempt in range(REDONE):
            try:
                made = self._made(news)
                pending.files, pending.dead = [], []
                self._commit(made, pending.records, batch)
                break
            except Superseded:
                if attempt == REDONE - 1 or answered:  # what is answered must be looked at anew
                    raise
                self._tables.advance()
                self._tables.settle(self._spec.run_id)
        kept = {file.path for file in made.files}
        self._tables.main.discard_files(file for file in batch if file.path not in kept)

    def _hide_unfinished(self) -> None:
        """A refresh that can be resumed is committed before readers see it."""
        resumable = self._spec.stream.resumable
        self._tables.main.hides_files = resumable and self._publisher.is_building

    def _made(self, news: Checkpointed) -> Publication:
        spark = self._provider.get()
        schema_rewrite.widen(spark, self._tables, self._spec)
        if not self._replaces:
            self._tables.main.prepare(self._schema, self._spec.stream.stream.name)
        return self._publisher.make(spark, news)

    def _commit(self, made: Publication, records: int, batch: Sequence[DataFile]) -> None:
        try:
            self._tables.commit(made.change, made.head, records, made.companions, made.schema)
        except Superseded:
            again = {file.path for file in batch}
            self._tables.main.discard_files(f for f in made.written if f.path not in again)
            raise
        except ConcurrentSync:
            self._tables.main.discard_files(made.written)
            raise

    def _write_observed(self, rows: DataFrame) -> tuple[list[DataFile], int]:
        seen = Observation()
        changes = f.size(f.col(metadata_columns.META).getField("changes"))
        if self._by.late:
            rows = rows.withColumn(metadata_columns.RAW_ID, _id_of_its_time())
        observed = rows.observe(seen, f.count_if(changes > 0).alias("changed"))
        files = self._tables.main.write_files(observed)
        return files, int(seen.get["changed"])

    def _state(self, checkpoint: Checkpoint) -> str | None:
        """The state from here on: the checkpoint's, or the one before it where it brought none."""
        if self._spec.keeps_state:
            return self._tables.head.state
        if checkpoint.states:
            return checkpoint.states[-1].to_json().decode()
        if self._publisher.begun is not None:
            return self._publisher.begun.state
        return None if self._publisher.is_building else self._tables.head.state

    def _is_news(self, pending: _Pending, state: str | None, checkpoint: Checkpoint) -> bool:
        head, begun = self._tables.head, self._publisher.begun
        if checkpoint.silent and self._tables.main.exists:
            return False
        if pending.files or pending.dead or state != (begun.state if begun else head.state):
            return True
        unfinished = self._publisher.is_building or head.refresh is not None
        return checkpoint.final and (unfinished or not self._tables.main.exists)

    def _committed(self, pending: _Pending) -> Committed:
        head = self._tables.head
        return Committed(
            sequence=head.sequence,
            generation=head.generation,
            version=self._tables.main.version,
            records=pending.records,
            rejected=pending.rejected,
            changed=pending.changed,
            state=head.refresh.state if head.refresh is not None else head.state,
            places=pending.places,
            undeclared=bounded(pending.undeclared),
        )


def _id_of_its_time() -> Expression:
    """A row's id, as if its sync had begun when it was extracted (see `WriteSpec.stamp`)."""
    time = f.lpad(f.lower(f.hex(f.unix_millis(metadata_columns.EXTRACTED_AT))), 12, "0")
    rest = f.substring(metadata_columns.RAW_ID, 14, 23)
    return f.concat(f.substring(time, 1, 8), f.lit("-"), f.substring(time, 9, 4), rest)


def _refuse_other_salt(tables: StreamTables, spec: WriteSpec) -> None:
    known = tables.head.salt
    if spec.salt is not None and known is not None and spec.salt != known:
        raise ConfigError(
            f"the hashes in the table {tables.main.uri} were made with another salt",
            guidance="bring back the former salt (ELT_HASH_SALT, or the file hash_salt in DAGSTER_HOME), "
            "or move the table away to read the stream anew",
        )
