"""Publication of commits, and the resolution of conflicts between writers.

Delta makes commits atomic. This module adds rules for what was committed since the commit was prepared:

- another run of the same writer (the sequence in the table's transaction of its `app_id`): ConcurrentSync;
- a RESTORE of the table: ConcurrentSync;
- a column with a different type, or added with a different type: ConcurrentSync;
- files that the commit removes were replaced by a compaction or another engine: Superseded;
- anything else, such as a different partition, or a compaction of different files: the commit is retried.

After a failed attempt, the commits that are in the table are searched for this commit's name (`elt.commit`):
the attempt may have succeeded although its outcome is unknown. Then it is not repeated.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync, SystemFailure, TransientError
from elt_assets.failpoints import Failpoint, reach
from elt_assets.lake.delta import attachments, log
from elt_assets.lake.delta.commit_metadata import COMPACTION, CommitMetadata, version_app_id
from elt_assets.lake.delta.files import Change, DataFile, Files
from elt_assets.lake.delta.log import Entry
from elt_assets.lake.delta.opening import delta_schema, enable_ntz, load, retyped, spark_schema
from elt_assets.storage import conditional_writes

ATTEMPTS = 100
"""Attempts for a commit whose conflicts are harmless. Each takes milliseconds; with many partitions,
some writers lose often."""
NO_RETRIES = 0
"""Retries by delta-rs: a stale commit that is retried after a compaction would duplicate moved rows."""


class Superseded(TransientError):
    """A commit cannot replace files, because a compaction or another engine has replaced them."""


@dataclass(frozen=True)
class Basis:
    """The basis of a commit.

    `version`: the version of the table from which the commit was prepared. `schema`: the columns of the new
    files that the commit adds. `last_restore`: as in `log`; None if it was not read yet.
    """

    version: int
    schema: t.StructType
    last_restore: int | None = None


@dataclass(frozen=True)
class Commit:
    """A commit to publish.

    If `schema` is given, it replaces the table's schema; the files that `change` removes must then be all
    files of the table.
    """

    app_id: str
    change: Change
    metadata: CommitMetadata
    records: int
    basis: Basis
    schema: t.StructType | None = None


@dataclass(frozen=True)
class Published:
    """A published commit: the newest snapshot, the version of the commit, its metadata, and the last restore
    before it (see `Basis`)."""

    delta: DeltaTable
    version: int
    metadata: CommitMetadata
    last_restore: int


def publish(delta: DeltaTable, storage: Files, commit: Commit) -> Published:
    """Publish a commit exactly once. Before each attempt, the commits since its basis are checked.

    Raises:
        ConcurrentSync: another run with this `app_id` has committed first, the table was restored, or the
            table's columns were changed; nothing was published.
        Superseded: files that the change removes no longer exist; nothing was published.
        SystemFailure: the commit failed.
    """
    conditional_writes.require(storage.place)
    change = replace(commit.change, add=storage.with_statistics(commit.change.add))
    commit = replace(commit, change=change)
    metadata = replace(commit.metadata, commit=commit.metadata.commit or uuid.uuid4().hex)
    values, attached = attachments.detach(storage, metadata.to_dict(), metadata.attachments)
    metadata = replace(metadata, attachments=attached)
    # A restore since the basis refuses the commit, so the last one is that of the basis.
    restored = commit.basis.last_restore
    restored = log.last_restore(delta) if restored is None else restored
    for _ in range(ATTEMPTS):
        others = log.since(delta, commit.basis.version)
        version = _published_version(others, metadata)
        if version is None:
            # In the snapshot of the basis the sequence is known. delta-rs would read the whole log for it.
            if int(delta.version()) != commit.basis.version:
                _refuse_newer_sequence(delta, commit.app_id, metadata.sequence)
                _refuse_restored(delta, others)
                refuse_retyped(delta, commit.basis.schema)
            if commit.schema is not None:
                enable_ntz(delta, commit.schema)
            _refuse_superseded(delta, commit.change, whole=commit.schema is not None)
            version = int(delta.version()) + 1
            if commit.metadata.columns_at is None and commit.schema is not None:
                metadata = replace(metadata, columns_at=version)
            own = {**values, **metadata.columns_value(), **_more_values(commit, restored)}
            reach(Failpoint.COMMIT_READY)
            try:
                _write(delta, commit, own, metadata)
            except CommitFailedError:
                delta = load(storage.place)
                time.sleep(random.uniform(0, 0.02))
                continue
            reach(Failpoint.COMMIT_PUBLISHED)
        delta.update_incremental()
        return Published(delta, version, metadata, restored)
    raise SystemFailure(
        f"a commit to the table {delta.table_uri} failed {ATTEMPTS} times: other runs committed first",
        guidance="nothing was published; run it again when fewer runs write to this table",
    )


def refuse_overtaken(delta: DeltaTable, app_id: str, sequence: int, basis: Basis) -> None:
    """Refuse to continue from a stale basis, before anything is published.

    Raises:
        ConcurrentSync: another run has committed with this sequence, or the table was restored.
    """
    _refuse_newer_sequence(delta, app_id, sequence)
    _refuse_restored(delta, log.since(delta, basis.version))


def refuse_retyped(delta: DeltaTable, schema: t.StructType) -> None:
    """Refuse columns that the table has with different types.

    Raises:
        ConcurrentSync: a run with a different catalog has changed a type, or has added the column first.
    """
    changed = retyped(spark_schema(delta), schema)
    if changed:
        raise ConcurrentSync(
            f"another run changed columns of the table {delta.table_uri} first: {', '.join(changed)}",
            guidance="this run wrote nothing more; the next run uses the table's new columns",
        )


def reorganise(delta: DeltaTable, storage: Files, change: Change) -> DeltaTable:
    """Publish a compaction: a commit that moves rows to new files.

    Raises:
        Superseded: the files no longer exist, or every attempt failed; nothing was published.
    """
    conditional_writes.require(storage.place)
    values = {COMPACTION: "compaction"}
    properties = CommitProperties(custom_metadata=values, max_commit_retries=NO_RETRIES)
    actions: list[AddAction | RemoveAction] = [file.add(moved=True) for file in change.add]
    actions += [file.remove(moved=True) for file in change.remove]
    for _ in range(ATTEMPTS):
        _refuse_superseded(delta, change)
        try:
            delta.create_write_transaction(
                actions, "append", delta.schema(), commit_properties=properties
            )
        except CommitFailedError:
            delta = load(storage.place)
            time.sleep(random.uniform(0, 0.02))
        else:
            reach(Failpoint.COMPACTION_PUBLISHED)
            delta.update_incremental()
            return delta
    raise Superseded(
        f"the table {delta.table_uri} cannot be compacted now: other runs committed first {ATTEMPTS} times",
        guidance="nothing was published; run it again when fewer runs write to this table",
    )


def sequence(delta: DeltaTable, app_id: str) -> int:
    """Return the sequence of a writer's newest commit in the loaded snapshot; 0 if there is none."""
    return int(delta.transaction_version(app_id) or 0)


def files_of(delta: DeltaTable) -> list[DataFile]:
    """Return the files of a snapshot."""
    actions = delta.get_add_actions(flatten=True)
    names = ("path", "size_bytes", "num_records")
    paths, sizes, records = (actions.column(name).to_pylist() for name in names)
    return [
        DataFile(path, size, count or 0)
        for path, size, count in zip(paths, sizes, records, strict=True)
    ]


def _more_values(commit: Commit, restored: int) -> dict[str, str]:
    """Return the values of a commit's custom metadata that `CommitMetadata` does not contain.

    They are the number of records, the writer's `app_id`, and the version of the newest RESTORE.
    """
    return {
        "elt.records": str(commit.records),
        "elt.app": commit.app_id,
        log.RESTORED_AT: str(restored),
    }


def _write(
    delta: DeltaTable, commit: Commit, values: Mapping[str, str], metadata: CommitMetadata
) -> None:
    properties = CommitProperties(
        custom_metadata=dict(values),
        max_commit_retries=NO_RETRIES,
        app_transactions=[
            Transaction(commit.app_id, metadata.sequence),
            Transaction(version_app_id(commit.app_id), int(delta.version()) + 1),
        ],
    )
    add: list[AddAction | RemoveAction] = [file.add() for file in commit.change.add]
    if commit.schema is not None:
        schema = delta_schema(commit.schema)
        delta.create_write_transaction(add, "overwrite", schema, commit_properties=properties)
        return
    remove = [file.remove() for file in commit.change.remove]
    actions: list[AddAction | RemoveAction] = [*add, *remove]
    delta.create_write_transaction(actions, "append", delta.schema(), commit_properties=properties)


def _refuse_newer_sequence(delta: DeltaTable, app_id: str, wanted: int) -> None:
    """Refuse a sequence that is not greater than the writer's sequence in the table.

    Delta only checks for conflicts with commits that are newer than the loaded snapshot. The snapshot is
    refreshed within a run, for example when a column is added. So Delta does not detect a commit that another
    run of the writer made between the start of this run and the refresh.

    Raises:
        ConcurrentSync: another run has committed with the wanted sequence or a greater one.
    """
    present = sequence(delta, app_id)
    if present >= wanted:
        raise ConcurrentSync(
            f"another run committed to the table {delta.table_uri} first (its sequence is {present} now)",
            guidance="nothing is lost: the next run continues from the data and the state of the other run; "
            "do not run two syncs of one stream at the same time",
        )


def _refuse_restored(delta: DeltaTable, others: Sequence[Entry]) -> None:
    """Refuse to commit if the table was restored.

    Raises:
        ConcurrentSync: one of the commits since the basis is a RESTORE.
    """
    if any(entry.get("operation") == log.RESTORE for entry in others):
        raise ConcurrentSync(
            f"the table {delta.table_uri} was restored to an older version during this run",
            guidance="this run wrote nothing more; the next run starts from the restored state",
        )


def _published_version(others: Sequence[Entry], metadata: CommitMetadata) -> int | None:
    """Return the version of a commit whose attempt seemed to fail, but was published; None if it was not."""
    versions = (
        int(each["version"]) for each in others if each.get("elt.commit") == metadata.commit
    )
    return next(versions, None)


def _refuse_superseded(delta: DeltaTable, change: Change, *, whole: bool = False) -> None:
    """Refuse to remove files that no longer exist; with `whole`, also if the table has further files.

    Raises:
        Superseded: the files of the table have changed.
    """
    present = {file.path for file in files_of(delta)}
    replaced = {file.path for file in change.remove}
    if not replaced <= present or (whole and replaced != present):
        raise Superseded(
            f"the files of the table {delta.table_uri} were replaced while a commit was prepared",
            guidance="nothing was published; run it again",
        )
