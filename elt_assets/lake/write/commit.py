"""Building of a stream's commits: the policy is applied to a checkpoint's data, and nothing is published.

Used by `writer`, which publishes what is built.

A kill while a commit is built, at HISTORY_REFRESHED for example, leaves files that no log names. The next run
builds the commit again, from the same tables; a vacuum removes the files.
`tests/lake/test_crash_points.py::test_a_history_that_begins_survives_a_kill_at_any_point`
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from pyspark.sql import types as t

from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta.commit_metadata import CommitMetadata, Refresh
from elt_assets.lake.delta.storage import DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import changes_of_rows, history, partition_files
from elt_assets.lake.merge.file_splitting import Batch
from elt_assets.lake.merge.history import history_schema
from elt_assets.lake.merge.key_order import (
    MergeResult,
    MergeTarget,
    Ordering,
    load_merge,
    reads_table,
)
from elt_assets.lake.session import SparkProvider, side_by_side
from elt_assets.lake.write import dead_letter
from elt_assets.lake.write.companions import CompanionChange, StreamTables
from elt_assets.lake.write.sync_columns import WriteSpec


@dataclass(frozen=True)
class Publication:
    """A commit of the stream that is built but not published."""

    change: TableChange
    metadata: CommitMetadata
    companions: Sequence[CompanionChange]
    # The files that hold the stream's rows after it, whether readers see them already or not; at least those
    # of them that are new.
    files: Sequence[DataFile]
    written: Sequence[DataFile]  # the new files under the table's root
    schema: t.StructType | None  # replaces the schema of the table, if it is not None
    unchanged: int = 0  # the number of rows of the batch that the table had already


@dataclass(frozen=True)
class CheckpointData:
    """The data that is new since the last commit."""

    batch: Sequence[DataFile]  # files with rows, under the table's root
    rejected_files: Sequence[DataFile]  # files with rejected records, under the dead letter's root
    rejected: int  # the number of rejected records
    state: str | None
    final: bool  # whether the sync is complete
    # Files of the dead letter that `batch` and `rejected_files` replace.
    replayed: Sequence[DataFile] = ()
    # The paths of the files with rows that depend on those before them, by the reason.
    dependent: Mapping[str, AbstractSet[str]] = field(default_factory=dict)


class CommitBuilder:
    """Builds the commits of one sync.

    Attributes:
        written_as: the fingerprint of the settings of this sync (see `Refresh`).

    Args:
        spark: provides the session; a commit without rows does not start it.
        schema: all columns of the table after the commit.
        replaces: the sync replaces all rows and the columns of the table.
        unstored: delete markers that rows are merged with, but that are not columns of the table.
    """

    def __init__(
        self,
        spark: SparkProvider,
        tables: StreamTables,
        spec: WriteSpec,
        by: Ordering,
        schema: t.StructType,
        *,
        replaces: bool,
        unstored: Sequence[t.StructField] = (),
    ):
        self._spark = spark
        self._tables = tables
        self._spec = spec
        self._by = by
        self._schema = schema
        self._merged_by = t.StructType([*schema.fields, *unstored])
        self._replaces = replaces
        self._mode = spec.stream.destination_sync_mode
        self.written_as = spec.stored_stream(tables.metadata).fingerprint

    @property
    def is_building(self) -> bool:
        """Return whether rows are written to a generation next to the present one."""
        return self._spec.truncates and self._spec.generation > self._tables.metadata.generation

    @property
    def resumed(self) -> Refresh | None:
        """The unfinished refresh that this sync resumes; None if there is none."""
        return self._spec.resumed_refresh(self._tables.metadata)

    def make(self, data: CheckpointData) -> Publication:
        """Apply the policy: Spark writes the files that the commit names."""
        if not data.dependent or not self._spec.stream.deduplicates:
            return self._make(data)
        batch, in_commit = self._resolve(data), set[str]()
        try:
            built = self._make(replace(data, batch=batch))
            in_commit = {
                file.path for file in built.files
            }  # a merge that a package adds may use them
            return built
        finally:
            lasting_paths = in_commit | {file.path for file in data.batch}
            self._tables.main.storage.discard(
                file for file in batch if file.path not in lasting_paths
            )

    def _resolve(self, data: CheckpointData) -> Sequence[DataFile]:
        """Return files with the rows of the batch, of which none depends on those before it any more."""
        main, target = self._tables.main, self._target(data)
        present = Batch(main, [*target.files, *target.tombstones])
        batch = Batch(main, data.batch)
        return changes_of_rows.resolve(
            self._spark.get(), batch, present, self._by, self._merged_by, data.dependent
        )

    def _make(self, data: CheckpointData) -> Publication:
        target = self._target(data)
        extended, merged = side_by_side(
            lambda: self._extend_history(data),
            lambda: self._merge(target, data),
        )
        files = target.apply(merged.change)
        table = self._tables.history
        last = 0 if table is None else table.metadata.generation
        epoch = max(time.time_ns() // 1000, last + 1)
        whole = [*files, *merged.tombstones]
        changed = extended or self._refresh_history(target, whole, data, epoch)
        change = self._change(merged, files, final=data.final)
        present = {file.path for file in (*target.files, *target.tombstones)}
        new = {
            file.path: file
            for file in (*data.batch, *merged.change.add, *merged.tombstones, *change.add)
            if file.path not in present
        }
        return Publication(
            change=change,
            metadata=self._metadata(merged, files, data),
            companions=[*self._dead_letter(data), *self._history(changed, data, epoch)],
            files=files,
            written=list(new.values()),
            schema=self._schema if self._replaces_columns(data) else None,
            unchanged=merged.unchanged,
        )

    def _target(self, data: CheckpointData) -> MergeTarget:
        if not self.is_building:
            return MergeTarget(self._present_files(data), self._tables.metadata.tombstones)
        resumed = self.resumed
        return (
            MergeTarget([]) if resumed is None else MergeTarget(resumed.files, resumed.tombstones)
        )

    def _present_files(self, data: CheckpointData) -> Sequence[DataFile]:
        """Return the files of the table that the merge of a checkpoint looks at.

        An append and a state need none. A partition needs only its own: its key contains the partition.
        """
        main, partition = self._tables.main, self._spec.partition
        if self._tables.history is not None:
            return main.files
        if not data.batch or not reads_table(self._mode):
            return ()
        if partition is None:
            return main.files
        files = partition_files.files_of(main, [partition])
        return [*files.own, *files.mixed]

    def _merge(self, target: MergeTarget, data: CheckpointData) -> MergeResult:
        if not data.batch:
            return _build_unchanged(target)
        main, by = self._tables.main, self._order(data)
        new, merge = Batch(main, data.batch), load_merge(self._mode)
        return merge(self._spark.get(), main, target, new, by, self._merged_by)

    def _order(self, data: CheckpointData) -> Ordering:
        """Return the order of a key's rows, with whether an unchanged row gives way to the present one.

        A rejected record may be accepted later, and stands between rows by its arrival. So an unchanged row
        that arrives after one is stored.
        """
        has_rejected = data.rejected_files or data.replayed or self._tables.dead_letter.file_count
        keeps = self._spec.skips_unchanged and not self._spec.corrects
        keeps = keeps and not self.is_building and not has_rejected
        return replace(self._by, keeps_unchanged=keeps)

    def _replaces_columns(self, data: CheckpointData) -> bool:
        """Return whether the commit of a checkpoint replaces the columns of the table."""
        return self._replaces and self.is_building and data.final

    def _change(
        self, merged: MergeResult, files: Sequence[DataFile], *, final: bool
    ) -> TableChange:
        if not self.is_building:
            return merged.change
        if not final:
            return TableChange()
        if self._spec.partition is None:
            return TableChange(files, self._tables.main.files)
        partition = self._spec.partition
        others = partition_files.plan_removal(
            self._spark.get, self._tables.main, partition, self._schema
        )
        return TableChange([*files, *others.add], others.remove)

    def _metadata(
        self, merged: MergeResult, files: Sequence[DataFile], data: CheckpointData
    ) -> CommitMetadata:
        spec, metadata = self._spec, self._tables.metadata
        after = replace(
            metadata.begin_next(spec.run_id),
            sync_id=spec.order,
            columns_at=None if self._replaces_columns(data) else self._tables.main.version,
            salt=spec.salt or metadata.salt,
            intent=spec.intent or metadata.intent,
            requested_generation=spec.requested_generation,
        )
        if data.replayed:
            return replace(after, tombstones=tuple(merged.tombstones))
        if self.is_building and not data.final:
            unfinished = (
                tuple(files),
                tuple(merged.tombstones),
                (*self._rejected_before, *data.rejected_files),
            )
            building = Refresh(spec.generation, True, data.state, *unfinished, self.written_as)
            return replace(after, refresh=building)
        return replace(
            after,
            generation=spec.generation,
            state=data.state,
            tombstones=tuple(merged.tombstones),
            refresh=None if data.final else self._progress(data.state),
        )

    def _progress(self, state: str | None) -> Refresh | None:
        """Return the unfinished refresh to store, if its rows are in the table already; otherwise None."""
        if self._spec.stream.sync_mode == "incremental" or self._spec.keeps_state:
            return None
        return Refresh(self._spec.generation, False, state, (), (), (), self.written_as)

    @property
    def _rejected_before(self) -> tuple[DataFile, ...]:
        """The dead letter files of earlier checkpoints of this generation."""
        return () if self.resumed is None else self.resumed.dead

    def _dead_letter(self, data: CheckpointData) -> list[CompanionChange]:
        table = self._tables.dead_letter
        change = TableChange(data.rejected_files, [*data.replayed, *self._list_outdated(data)])
        if not change.add and not change.remove:
            return []
        selection = table.metadata.salt if table.file_count else self._spec.selection
        is_same = selection == self._spec.selection
        salt = self._spec.selection if is_same else dead_letter.MIXED
        schema = dead_letter.schema(self._spec)
        metadata = replace(self._companion_metadata(table), salt=salt)
        return [CompanionChange(table, schema, change, metadata, data.rejected)]

    def _list_outdated(self, data: CheckpointData) -> list[DataFile]:
        """Return the dead letter files of older generations: a refresh rejects again what still does not fit.

        If another engine has rewritten files with rejected records of this refresh, nothing is removed.
        """
        if not (self.is_building and data.final):
            return []
        present = dead_letter.files_of(self._tables.dead_letter, self._spec.partition)
        kept_paths = {file.path for file in self._rejected_before}
        if not kept_paths <= {file.path for file in present}:
            return []
        return [file for file in present if file.path not in kept_paths]

    def _extend_history(self, data: CheckpointData) -> MergeResult | None:
        """Merge the batch into the history; None if there is no history, or it must be refreshed instead."""
        table = self._tables.history
        if table is None or self.is_building or not self._tables.is_history_current:
            return None
        present = MergeTarget(table.files, table.metadata.tombstones)
        if not data.batch:
            return _build_unchanged(present)
        main, spark, schema = self._tables.main, self._spark.get(), self._merged_by
        batch = Batch(main, data.batch)
        if data.replayed:
            whole = Batch(main, [*main.files, *main.metadata.tombstones])
            return history.merge_replayed(spark, table, present, batch, whole, self._by, schema)
        return history.merge(spark, table, present, batch, self._order(data), schema)

    def _refresh_history(
        self, target: MergeTarget, whole: Sequence[DataFile], data: CheckpointData, epoch: int
    ) -> MergeResult | None:
        """Refresh the history of a table that is replaced, or that the history did not follow until now.

        Args:
            whole: the files of the table's rows and deletes after the commit.
        """
        table, main = self._tables.history, self._tables.main
        if table is None or (self.is_building and not data.final):
            return None
        present = MergeTarget(table.files, table.metadata.tombstones)
        events = Batch(main, [*target.files, *target.tombstones, *data.batch])
        if not events.files and not present.files:
            return _build_unchanged(present)
        refreshed = history.refresh(
            self._spark.get(),
            table,
            present,
            events,
            Batch(main, whole),
            self._by,
            self._merged_by,
            epoch,
        )
        reach(Failpoint.HISTORY_REFRESHED)
        return refreshed

    def _history(
        self, changed: MergeResult | None, data: CheckpointData, epoch: int
    ) -> list[CompanionChange]:
        table = self._tables.history
        if table is None or changed is None:
            return []
        # A delete of a key without a version changes only tombstones: an older record may still arrive.
        is_same = tuple(changed.tombstones) == tuple(table.metadata.tombstones)
        is_current = self._tables.is_history_current
        if is_same and not changed.change.add and not changed.change.remove and is_current:
            return []
        is_refreshed = self.is_building or not is_current
        metadata = replace(
            self._companion_metadata(table),
            tombstones=tuple(changed.tombstones),
            generation=epoch if is_refreshed else table.metadata.generation,  # the last refresh
        )
        schema, records = history_schema(self._schema), Batch(table, data.batch).records
        return [CompanionChange(table, schema, changed.change, metadata, records, remade=True)]

    def _companion_metadata(self, table: Table) -> CommitMetadata:
        """Return the metadata of a companion's commit; its sequence is set when it is published."""
        return CommitMetadata(
            table.metadata.sequence, self._spec.generation, None, self._spec.run_id
        )


def _build_unchanged(target: MergeTarget) -> MergeResult:
    """Return the result of a merge without rows."""
    return MergeResult(TableChange(), target.tombstones)
