"""Publication of commits, with the resolution of conflicts between writers; the list of a table's files.

Used by `table`: the other modules publish with its `Table`. `rollback` lists files with this one.

Delta makes commits atomic. This module adds rules for what was committed since the commit was prepared:

- another run of the same writer (the sequence in the table's transaction of its `app_id`): ConcurrentSync;
- a RESTORE of the table, or an erasure of rows: ConcurrentSync;
- a column with a different type, or added with a different type: ConcurrentSync;
- files that the commit removes were replaced by a compaction or another engine: Superseded;
- a rule that this project does not keep (see `rules`): UnsupportedTable;
- anything else, such as a different partition, or a compaction of different files: the commit is retried.

How a commit whose outcome is unknown is resolved: see `outcome`.

What a kill leaves, so that nothing is lost or doubled:

- COMMIT_READY: new files that no log names. Readers see the version before; the next run starts from its
  state and reads the same records again, or combines the files again, and a vacuum removes the new ones.
  `tests/lake/test_crash_points.py::test_a_first_sync_survives_a_kill_at_any_point`
- COMMIT_PUBLISHED: rows and state in one entry of the log, which is there as a whole. The next run starts
  after them.
  `tests/lake/test_crash_points.py::test_a_merge_survives_a_kill_at_any_point`
- COMPACTION_PUBLISHED: the same rows in new files, and the state as before. The replaced files stay for older
  versions, until a vacuum.
  `tests/lake/test_crash_points.py::test_a_compaction_survives_a_kill_at_any_point`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction, RemoveAction, Transaction
from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync, SystemFailure
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta import attachments, log, outcome
from elt_assets.lake.delta.commit_metadata import (
    BACKFILL,
    COMPACTION,
    ERASURE,
    FORMER_WRITER,
    CommitMetadata,
    current_metadata,
    version_app_id,
)
from elt_assets.lake.delta.log import Entry
from elt_assets.lake.delta.opening import delta_schema, enable_ntz, find_retyped, refuse_unusable
from elt_assets.lake.delta.outcome import Superseded
from elt_assets.lake.delta.rules import UnsupportedTable, refuse_unwritable, spark_schema
from elt_assets.lake.delta.snapshot import Snapshot
from elt_assets.lake.delta.storage import DataFile, TableChange, TableStorage
from elt_assets.lake.worker.parquet import serialize
from elt_assets.storage import conditional_writes

PARTITION_PREFIX = "partition."
"""The beginning of the columns of `add_actions` with the values of partition columns."""


@dataclass(frozen=True)
class Basis:
    """The basis of a commit."""

    version: int  # the version of the table from which the commit was prepared
    schema: t.StructType  # the columns of the new files that the commit adds
    last_restore: int | None = None  # as in `log`; None if it was not read yet


@dataclass(frozen=True)
class Commit:
    """A commit to publish."""

    app_id: str
    change: TableChange
    metadata: CommitMetadata
    records: int
    basis: Basis
    before: CommitMetadata  # the metadata of the writer's previous commit
    # Replaces the table's schema; the files that `change` removes must then be all files of the table.
    schema: t.StructType | None = None
    # The writer whose commits this writer continues from this one on, while the table is moved.
    former: str | None = None


@dataclass(frozen=True)
class PublishedCommit:
    """A published commit: its version, its metadata, and the last restore before it (see `Basis`)."""

    version: int
    metadata: CommitMetadata
    last_restore: int


def publish(delta: Snapshot, storage: TableStorage, commit: Commit) -> PublishedCommit:
    """Publish a commit exactly once, and move `delta` to it.

    Before each attempt, the commits since its basis are checked. If `delta` knows of none, nothing is read:
    the commit gets the version after its basis, or another writer has it.

    Raises:
        ConcurrentSync: another run with this `app_id` has committed first, the table was restored, or the
            table's columns were changed; nothing was published.
        Superseded: files that the change removes no longer exist; nothing was published.
        UnsupportedTable: another engine gave the table a rule that this project does not keep; nothing was
            published.
        NotPublished: an attachment could not be written; nothing was published.
        Exception: as `publish_once`.
    """
    conditional_writes.require(storage.location)
    change = replace(commit.change, add=storage.add_statistics(commit.change.add))
    _verify_partitions(delta, change)
    commit = replace(commit, change=change)
    metadata = replace(commit.metadata, commit=commit.metadata.commit or outcome.new_name())
    try:
        values, attached = attachments.detach(
            storage, metadata.to_dict(), metadata.attachments, commit.before.to_dict()
        )
    except OSError as error:
        raise outcome.NotPublished(delta.table_uri, error) from error
    metadata = replace(metadata, attachments=attached)
    # A restore since the basis refuses the commit, so the last one is that of the basis.
    restored = commit.basis.last_restore
    restored = log.last_restore(delta) if restored is None else restored
    values = {
        **values,
        "elt.records": str(commit.records),
        "elt.app": commit.app_id,
        log.RESTORED_AT: str(restored),
        **({} if commit.former is None else {FORMER_WRITER: commit.former}),
    }

    def write() -> None:
        is_move = commit.former is not None
        refuse_unwritable(delta, replaces=commit.schema is not None, moves=is_move)
        # In the snapshot of the basis the sequence is known. delta-rs would read the whole log for it.
        if int(delta.version()) != commit.basis.version:
            refuse_overtaken(delta, commit.app_id, metadata.sequence, commit.basis)
            refuse_retyped(delta, commit.basis.schema)
            refuse_unusable(delta)
        if commit.schema is not None:
            enable_ntz(delta, commit.schema)
        _refuse_superseded(delta, commit.change, whole=commit.schema is not None)
        columns = _add_columns_version(metadata, commit, int(delta.version()) + 1).columns_value()
        reach(Failpoint.COMMIT_READY)
        _write(delta, commit, {**values, **columns}, metadata)
        reach(Failpoint.COMMIT_PUBLISHED)

    def has(newest: Snapshot) -> bool | None:
        return _has_contents(current_metadata(newest, storage, commit.app_id), metadata, commit)

    assert metadata.commit is not None
    version = outcome.publish_once(delta, metadata.commit, write, has)
    return PublishedCommit(version, _add_columns_version(metadata, commit, version), restored)


def _has_contents(present: CommitMetadata, metadata: CommitMetadata, commit: Commit) -> bool | None:
    """Return whether a writer's present commit is a given one or follows it; None if that cannot be told.

    An erasure keeps the name of the contents. So they are those of the commit, or those that it was built on.
    """
    own, before = metadata.stands_for, commit.before.stands_for
    if present.commit == metadata.commit:
        return True
    if present.restored:
        return None
    if present.sequence <= metadata.sequence:
        return False
    is_known = own != before and present.stands_for in (own, before)
    return present.stands_for == own if is_known else None


def _add_columns_version(metadata: CommitMetadata, commit: Commit, version: int) -> CommitMetadata:
    """Return metadata that names the version with the columns of the hidden files, if that is the commit's
    own version: a commit that replaces the columns, and an erasure, after which no older version is there."""
    is_own = commit.schema is not None or metadata.erasure is not None
    if metadata.columns_at is not None or not is_own:
        return metadata
    return replace(metadata, columns_at=version)


def refuse_overtaken(delta: Snapshot, app_id: str, sequence: int, basis: Basis) -> None:
    """Refuse to continue from a stale basis, before anything is published.

    Raises:
        ConcurrentSync: another run has committed with this sequence, the table was restored, or rows of it
            were erased: files of this run may be gone with those of the erased rows.
    """
    _refuse_newer_sequence(delta, app_id, sequence)
    others = log.read_since(delta, basis.version)
    _refuse_restored(delta, others)
    if _may_be_erased(delta, others, basis.version):
        raise ConcurrentSync(
            f"rows of the table {delta.table_uri} were erased during this run (`elt erase`)",
            guidance="this run wrote nothing more; the next run starts from the same state",
        )


def _may_be_erased(delta: Snapshot, others: Sequence[Entry], basis: int) -> bool:
    """Return whether rows were erased since a version, or the log does not tell: it begins after it.

    An erasure cuts the log, and the entry that it leaves first may be that of a sync which came after it.
    """
    oldest = min((int(entry["version"]) for entry in others), default=basis + 1)
    is_whole = oldest == basis + 1 or delta.version() == basis
    return not is_whole or any(ERASURE in entry for entry in others)


def refuse_retyped(delta: Snapshot, schema: t.StructType) -> None:
    """Refuse columns that the table has with different types.

    Raises:
        ConcurrentSync: a run with a different catalog has changed a type, or has added the column first.
    """
    changed = find_retyped(spark_schema(delta), schema)
    if changed:
        raise ConcurrentSync(
            f"another run changed columns of the table {delta.table_uri} first: {', '.join(changed)}",
            guidance="this run wrote nothing more; the next run uses the table's new columns",
        )


def reorganise(
    delta: Snapshot, storage: TableStorage, change: TableChange, backfilled: Sequence[str] = ()
) -> None:
    """Publish a compaction: a commit that moves rows to new files. `delta` moves to the newest snapshot.

    Args:
        backfilled: columns that the moved rows have values in now, and had none before.

    Raises:
        Superseded: the files no longer exist, or every attempt failed; nothing was published.
        UnsupportedTable: as for `publish`.
        Exception: as `publish_once`.
    """
    conditional_writes.require(storage.location)
    _verify_partitions(delta, change)
    name = outcome.new_name()
    what = {COMPACTION: "backfill", BACKFILL: ",".join(backfilled)} if backfilled else {}
    properties = outcome.properties({COMPACTION: "compaction", outcome.NAME: name, **what})
    moved = not backfilled
    actions: list[AddAction | RemoveAction] = [file.add(moved=moved) for file in change.add]
    actions += [file.remove(moved=moved) for file in change.remove]
    basis = int(delta.version())

    def write() -> None:
        refuse_unwritable(delta)
        if _may_be_erased(delta, log.read_since(delta, basis), basis):
            raise Superseded(
                f"rows of the table {delta.table_uri} were erased while a commit was prepared",
                guidance="nothing was published; run it again",
            )
        _refuse_superseded(delta, change)
        refuse_unusable(delta)
        reach(Failpoint.COMMIT_READY)
        delta.create_write_transaction(actions, "append", delta.schema(), properties)
        reach(Failpoint.COMPACTION_PUBLISHED)

    def has(newest: Snapshot) -> bool | None:
        present = {file.path for file in files_of(newest)}
        if any(file.path in present for file in change.add):
            return True
        return False if any(file.path in present for file in change.remove) else None

    outcome.publish_once(delta, name, write, has)


def sequence(delta: Snapshot, app_id: str) -> int:
    """Return the sequence of a writer's newest commit in the loaded snapshot; 0 if there is none."""
    return int(delta.transaction_version(app_id) or 0)


def add_actions(delta: Snapshot) -> pa.Table:
    """Return the files of a snapshot with their statistics, one row a file, in flat columns.

    Raises:
        UnsupportedTable: another engine wrote a file of a table with partition columns: it lacks them.
    """
    actions = pa.table(delta.delta_table.get_add_actions(flatten=True))
    if delta.metadata().partition_columns:
        for path in actions.column("path").to_pylist():
            if not DataFile(path, 0, 0).is_own:
                raise UnsupportedTable(
                    f"another engine wrote the file {path} of the table {delta.table_uri}, which has "
                    "partition columns; such files lack these columns",
                    guidance="restore the version before with that engine, or move the table away; only "
                    "`elt_maintenance` compacts tables with `partition_by`",
                )
    return actions


def files_of(delta: Snapshot) -> list[DataFile]:
    """Return the files of a snapshot: one object for each file of the table."""
    return list_files(add_actions(delta))


def list_files(actions: pa.Table) -> list[DataFile]:
    """Return the files in rows of `add_actions`."""
    names = ("path", "size_bytes", "num_records")
    paths, sizes, records = (actions.column(name).to_pylist() for name in names)
    return [
        DataFile(path, size, count or 0, partition=partition)
        for path, size, count, partition in zip(
            paths, sizes, records, _list_partitions(actions), strict=True
        )
    ]


def _list_partitions(actions: pa.Table) -> list[dict[str, str | None]]:
    """Return the values of the partition columns of each file, as the log has them."""
    names = [name for name in actions.schema.names if name.startswith(PARTITION_PREFIX)]
    if not names:
        return [{}] * actions.num_rows
    return [
        {name.removeprefix(PARTITION_PREFIX): serialize(value) for name, value in row.items()}
        for row in actions.select(names).to_pylist()
    ]


def _verify_partitions(delta: Snapshot, change: TableChange) -> None:
    """Check that each new file has one value in each partition column.

    Raises:
        SystemFailure: a file was written without a split by these columns; nothing was published.
    """
    names = set(delta.metadata().partition_columns)
    for file in change.add:
        if file.partition.keys() != names:
            raise SystemFailure(
                f"the file {file.path} of the table {delta.table_uri} has partition values of "
                f"{sorted(file.partition)}, but the partition columns of the table are {sorted(names)}",
                guidance="nothing was committed; report it with this message",
            )


def _write(
    delta: Snapshot, commit: Commit, values: Mapping[str, str], metadata: CommitMetadata
) -> None:
    version = int(delta.version()) + 1
    properties = outcome.properties(
        dict(values),
        [
            Transaction(commit.app_id, metadata.sequence),
            Transaction(version_app_id(commit.app_id), version),
        ],
    )
    add: list[AddAction | RemoveAction] = [file.add() for file in commit.change.add]
    if commit.schema is not None:
        schema = delta_schema(commit.schema)
        delta.create_write_transaction(add, "overwrite", schema, properties)
        return
    is_erasure = metadata.erasure is not None
    remove = [file.remove(erased=is_erasure) for file in commit.change.remove]
    actions: list[AddAction | RemoveAction] = [*add, *remove]
    delta.create_write_transaction(actions, "append", delta.schema(), properties)


def _refuse_newer_sequence(delta: Snapshot, app_id: str, needed: int) -> None:
    """Refuse a sequence that is not greater than the writer's sequence in the table.

    Delta only checks for conflicts with commits that are newer than the loaded snapshot. The snapshot is
    refreshed within a run, for example when a column is added. So Delta does not detect a commit that another
    run of the writer made between the start of this run and the refresh.

    Raises:
        ConcurrentSync: another run has committed with the wanted sequence or a greater one.
    """
    newest = sequence(delta, app_id)
    if newest >= needed:
        raise ConcurrentSync(
            f"another run committed to the table {delta.table_uri} first (its sequence is {newest} now)",
            guidance="nothing is lost: the next run continues from the data and the state of the other run; "
            "do not run two syncs of one stream at the same time",
        )


def _refuse_restored(delta: Snapshot, others: Sequence[Entry]) -> None:
    """Refuse to commit if the table was restored.

    Raises:
        ConcurrentSync: one of the commits since the basis is a RESTORE.
    """
    if any(entry.get("operation") == log.RESTORE for entry in others):
        raise ConcurrentSync(
            f"the table {delta.table_uri} was restored to an older version during this run",
            guidance="this run wrote nothing more; the next run starts from the restored state",
        )


def _refuse_superseded(delta: Snapshot, change: TableChange, *, whole: bool = False) -> None:
    """Refuse to remove files that no longer exist; with `whole`, also if the table has further files.

    A commit that removes no file needs no look at the files of the table.

    Raises:
        Superseded: the files of the table have changed.
    """
    if not change.remove and not whole:
        return
    paths = add_actions(delta).column("path")
    replaced = pa.array({file.path for file in change.remove}, paths.type)
    is_complete = pc.all(pc.is_in(replaced, paths)).as_py() is not False
    if not is_complete or (whole and len(replaced) != len(paths)):
        raise Superseded(
            f"the files of the table {delta.table_uri} were replaced while a commit was prepared",
            guidance="nothing was published; run it again",
        )
