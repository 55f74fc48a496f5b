"""What one checkpoint makes of a stream's tables: the policy applied, nothing published yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.delta.files import Change, DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import history, partition_files
from elt_assets.lake.merge.dedup import Merged, Ordering, Target
from elt_assets.lake.merge.file_splitting import Batch
from elt_assets.lake.merge.policies import merge_of
from elt_assets.lake.spark.session import side_by_side
from elt_assets.lake.write import dead_letter, write_spec
from elt_assets.lake.write.stream_tables import CompanionChange, StreamTables
from elt_assets.lake.write.write_spec import WriteSpec


@dataclass(frozen=True)
class Publication:
    """A commit of the stream, made and not published.

    `files`: what the stream's rows are in then, whether readers see them already or not; `written`: the
    files under the table's root that are new; `schema`: replaces the table's.
    """

    change: Change
    head: CommitMetadata
    companions: Sequence[CompanionChange]
    files: Sequence[DataFile]
    written: Sequence[DataFile]
    schema: t.StructType | None


@dataclass(frozen=True)
class Checkpointed:
    """What is new since the last commit: rows under the table's root, rejected ones under the dead
    letter's, whose files `answered` they replace; the state; whether the sync is complete."""

    batch: Sequence[DataFile]
    dead: Sequence[DataFile]
    rejected: int
    state: str | None
    final: bool
    answered: Sequence[DataFile] = ()


class CommitBuilder:
    """Makes the commits of one sync.

    Args:
        schema: the table's whole schema from here on; it `replaces` the table's where the sync does so
            with all rows.
        unstored: delete markers that rows are merged with, and that are no columns of the table.
    """

    def __init__(
        self,
        tables: StreamTables,
        spec: WriteSpec,
        by: Ordering,
        schema: t.StructType,
        *,
        replaces: bool,
        unstored: Sequence[t.StructField] = (),
    ):
        self._tables = tables
        self._spec = spec
        self._by = by
        self._schema = schema
        self._merged_by = t.StructType([*schema.fields, *unstored])
        self._replaces = replaces
        self._mode = spec.stream.destination_sync_mode
        self._written_as = write_spec.refresh_fingerprint(spec.stream, spec.salt)

    @property
    def is_building(self) -> bool:
        """Whether rows go to a generation beside the present one."""
        return self._spec.truncates and self._spec.generation > self._tables.head.generation

    @property
    def begun(self) -> Refresh | None:
        """The refresh that this sync goes on with."""
        spec, head = self._spec, self._tables.head
        found = write_spec.resumable_refresh(spec.stream, head, spec.salt)
        if found is None or found.truncates != spec.truncates:
            return None
        return found if found.generation == spec.generation else None

    def make(self, spark: SparkSession, news: Checkpointed) -> Publication:
        """Apply the policy: Spark writes the files that the commit is to name."""
        target = self._target()
        followed, merged = side_by_side(
            lambda: self._followed(spark, news), lambda: self._merged(spark, target, news.batch)
        )
        files = target.after(merged.change)
        past = followed or self._refreshed(spark, target, files, news)
        change = self._change(spark, merged, files, final=news.final)
        there = {file.path for file in (*target.files, *target.tombstones)}
        new = {
            file.path: file
            for file in (*news.batch, *merged.change.add, *merged.tombstones, *change.add)
            if file.path not in there
        }
        return Publication(
            change=change,
            head=self._head(merged, files, news),
            companions=[*self._dead_letter(news), *self._history(past, news)],
            files=files,
            written=list(new.values()),
            schema=self._schema if self._replaces and self.is_building and news.final else None,
        )

    def _target(self) -> Target:
        if not self.is_building:
            return Target(self._tables.main.files, self._tables.head.tombstones)
        begun = self.begun
        return Target([]) if begun is None else Target(begun.files, begun.tombstones)

    def _merged(self, spark: SparkSession, target: Target, batch: Sequence[DataFile]) -> Merged:
        new, merge = Batch(self._tables.main, batch), merge_of(self._mode)
        return merge(spark, self._tables.main, target, new, self._by, self._merged_by)

    def _change(
        self, spark: SparkSession, merged: Merged, files: Sequence[DataFile], *, final: bool
    ) -> Change:
        if not self.is_building:
            return merged.change
        if not final:
            return Change()
        if self._spec.partition is None:
            return Change(files, self._tables.main.files)
        partition = self._spec.partition
        others = partition_files.removal(spark, self._tables.main, partition, self._schema)
        return Change([*files, *others.add], others.remove)

    def _head(
        self, merged: Merged, files: Sequence[DataFile], news: Checkpointed
    ) -> CommitMetadata:
        spec, head = self._spec, self._tables.head
        after = replace(
            head,
            sequence=head.sequence + 1,
            run_id=spec.run_id,
            commit=None,
            same_as=None,
            sync_id=spec.order,
            columns_at=self._tables.main.version,
            salt=spec.salt or head.salt,
            intent=spec.intent or head.intent,
            requested_generation=spec.requested_generation,
        )
        if news.answered:
            return replace(after, tombstones=tuple(merged.tombstones))
        if self.is_building and not news.final:
            hidden = (tuple(files), tuple(merged.tombstones), (*self._dead_before, *news.dead))
            building = Refresh(spec.generation, True, news.state, *hidden, self._written_as)
            return replace(after, refresh=building)
        return replace(
            after,
            generation=spec.generation,
            state=news.state,
            tombstones=tuple(merged.tombstones),
            refresh=None if news.final else self._progress(news.state),
        )

    def _progress(self, state: str | None) -> Refresh | None:
        """Of a refresh whose rows are in the table already."""
        if self._spec.stream.sync_mode == "incremental" or self._spec.keeps_state:
            return None
        return Refresh(self._spec.generation, False, state, (), (), (), self._written_as)

    @property
    def _dead_before(self) -> tuple[DataFile, ...]:
        """What earlier checkpoints of this generation rejected."""
        return () if self.begun is None else self.begun.dead

    def _dead_letter(self, news: Checkpointed) -> list[CompanionChange]:
        table = self._tables.dead_letter
        change = Change(news.dead, [*news.answered, *self._outlived(news)])
        if not change.add and not change.remove:
            return []
        known = table.head.salt if table.files else self._spec.selection
        same = known == self._spec.selection
        salt = self._spec.selection if same else dead_letter.MIXED
        schema = dead_letter.schema(self._spec)
        head = replace(self._companion_head(table), salt=salt)
        return [CompanionChange(table, schema, change, head, news.rejected)]

    def _outlived(self, news: Checkpointed) -> list[DataFile]:
        """What older generations rejected: a refresh rejects again what still does not fit.

        Where another engine has put rejections of this refresh into other files, nothing is removed.
        """
        if not (self.is_building and news.final):
            return []
        former = dead_letter.files_of(self._tables.dead_letter, self._spec.partition)
        kept = {file.path for file in self._dead_before}
        if not kept <= {file.path for file in former}:
            return []
        return [file for file in former if file.path not in kept]

    def _followed(self, spark: SparkSession, news: Checkpointed) -> Merged | None:
        """The batch's versions in the history; None where that is not what it needs."""
        table = self._tables.history
        if table is None or self.is_building or not self._tables.follows:
            return None
        present = Target(table.files, table.head.tombstones)
        batch = Batch(self._tables.main, news.batch)
        return history.merge(spark, table, present, batch, self._by, self._merged_by)

    def _refreshed(
        self, spark: SparkSession, target: Target, files: Sequence[DataFile], news: Checkpointed
    ) -> Merged | None:
        """The history of a table that is replaced, or that it did not follow until now."""
        table, main = self._tables.history, self._tables.main
        if table is None or (self.is_building and not news.final):
            return None
        present = Target(table.files, table.head.tombstones)
        events = Batch(main, [*target.files, *target.tombstones, *news.batch])
        whole, epoch = Batch(main, files), table.head.generation + 1
        return history.refresh(
            spark, table, present, events, whole, self._by, self._merged_by, epoch
        )

    def _history(self, past: Merged | None, news: Checkpointed) -> list[CompanionChange]:
        table = self._tables.history
        if table is None or past is None:
            return []
        # A delete of a key without a version moves no file, and must be known when an older record comes.
        is_same = tuple(past.tombstones) == tuple(table.head.tombstones)
        if is_same and not past.change.add and not past.change.remove and table.exists:
            return []
        refreshed = self.is_building or not self._tables.follows
        head = replace(
            self._companion_head(table),
            tombstones=tuple(past.tombstones),
            generation=table.head.generation + refreshed,  # how often it was refreshed
        )
        schema, records = history.history_schema(self._schema), Batch(table, news.batch).records
        return [CompanionChange(table, schema, past.change, head, records, remade=True)]

    def _companion_head(self, table: Table) -> CommitMetadata:
        """Its sequence is set when it is committed."""
        return CommitMetadata(
            table.head.sequence,
            self._spec.generation,
            None,
            self._spec.run_id,
            columns_at=table.version if table.exists else None,
        )
