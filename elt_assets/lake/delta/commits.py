"""Commits: what they say, and who is first.

Atomicity is Delta's. What is ours: a writer that was overtaken is refused by its transaction id; a
conflict that is none (another partition, a compaction of other files) is tried again; a commit whose
outcome is unknown is looked up by its name, never repeated blindly.
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
from elt_assets.lake.delta import attachments, log
from elt_assets.lake.delta.commit_metadata import COMPACTION, CommitMetadata, version_app
from elt_assets.lake.delta.files import Change, DataFile, Files
from elt_assets.lake.delta.log import Entry
from elt_assets.lake.delta.opening import delta_schema, enable_ntz, retyped, spark_schema

ATTEMPTS = 100
"""For a commit whose conflicts are none. Each is milliseconds; among many partitions some lose often."""
NO_RETRIES = 0
"""Of delta-rs's own: they carry a stale commit past a compaction, and so double what that moved."""


class Superseded(TransientError):
    """Files that a commit would have replaced were replaced by another: a compaction, or another engine."""


@dataclass(frozen=True)
class Basis:
    """What a commit was prepared on: the table's version, and the columns that its files are written in."""

    version: int
    schema: t.StructType


@dataclass(frozen=True)
class Commit:
    """What is to be published. `schema` replaces the table's, and then all files must be removed."""

    app_id: str
    change: Change
    head: CommitMetadata
    records: int
    basis: Basis
    schema: t.StructType | None = None


@dataclass(frozen=True)
class Published:
    """A commit that was made: the newest snapshot, the commit's own version, the head as committed."""

    delta: DeltaTable
    version: int
    head: CommitMetadata


def publish(delta: DeltaTable, storage: Files, commit: Commit) -> Published:
    """Publish once, whatever happens on the way. What others committed is looked at before each attempt.

    Raises:
        ConcurrentSync: another writer of this `app_id` was first, the table was restored, or its columns
            were changed; nothing was published.
        Superseded: files that the change removes are gone; nothing was published.
        SystemFailure: the commit failed.
    """
    change = replace(commit.change, add=storage.with_statistics(commit.change.add))
    commit = replace(commit, change=change)
    head = replace(commit.head, commit=commit.head.commit or uuid.uuid4().hex)
    metadata, attached = attachments.detach(storage, head.metadata(), head.attachments)
    head = replace(head, attachments=attached)
    for _ in range(ATTEMPTS):
        others = log.since(delta, commit.basis.version)
        version = _published(others, head)
        if version is None:
            _refuse_overtaken(delta, commit.app_id, head.sequence)
            _refuse_restored(delta, others)
            if others:
                refuse_retyped(delta, commit.basis.schema)
            if commit.schema is not None:
                enable_ntz(delta, commit.schema)
            _refuse_superseded(delta, commit.change, whole=commit.schema is not None)
            version = int(delta.version()) + 1
            try:
                _write(delta, commit, {**metadata, **_told(delta, commit)}, head)
            except CommitFailedError:
                delta = DeltaTable(delta.table_uri)
                time.sleep(random.uniform(0, 0.02))
                continue
        delta.update_incremental()
        return Published(delta, version, head)
    raise SystemFailure(
        f"committing to {delta.table_uri} failed {ATTEMPTS} times: other runs committed first each time",
        guidance="nothing was published; run it again when fewer runs write to this table",
    )


def refuse_overtaken(delta: DeltaTable, app_id: str, sequence: int, basis: Basis) -> None:
    """Refuse to continue from a basis that others have made stale, before anything is published.

    Raises:
        ConcurrentSync: the sequence is taken, or the table was restored.
    """
    _refuse_overtaken(delta, app_id, sequence)
    _refuse_restored(delta, log.since(delta, basis.version))


def refuse_retyped(delta: DeltaTable, schema: t.StructType) -> None:
    """Refuse columns that the table has with other types.

    Raises:
        ConcurrentSync: a run with another catalog has changed a type, or added the column first.
    """
    changed = retyped(spark_schema(delta), schema)
    if changed:
        raise ConcurrentSync(
            f"another run changed columns of the table {delta.table_uri} first: {', '.join(changed)}",
            guidance="this run changed nothing more; the next one reads with the table's columns",
        )


def reorganise(delta: DeltaTable, change: Change) -> DeltaTable:
    """Publish the same rows in other files.

    Raises:
        Superseded: the files are gone; nothing was published.
    """
    told = {COMPACTION: "compaction"}
    properties = CommitProperties(custom_metadata=told, max_commit_retries=NO_RETRIES)
    actions: list[AddAction | RemoveAction] = [file.add(moved=True) for file in change.add]
    actions += [file.remove(moved=True) for file in change.remove]
    for _ in range(ATTEMPTS):
        _refuse_superseded(delta, change)
        try:
            delta.create_write_transaction(
                actions, "append", delta.schema(), commit_properties=properties
            )
        except CommitFailedError:
            delta = DeltaTable(delta.table_uri)
            time.sleep(random.uniform(0, 0.02))
        else:
            delta.update_incremental()
            return delta
    raise Superseded(f"{delta.table_uri} is written to too often to be compacted now")


def sequence(delta: DeltaTable, app_id: str) -> int:
    """Of the newest commit of a writer that the handle knows; 0 if there is none."""
    return int(delta.transaction_version(app_id) or 0)


def files_of(delta: DeltaTable) -> list[DataFile]:
    """The files of a snapshot."""
    actions = delta.get_add_actions(flatten=True)
    names = ("path", "size_bytes", "num_records")
    paths, sizes, records = (actions.column(name).to_pylist() for name in names)
    return [
        DataFile(path, size, count or 0)
        for path, size, count in zip(paths, sizes, records, strict=True)
    ]


def _told(delta: DeltaTable, commit: Commit) -> dict[str, str]:
    """Return the metadata of a commit besides its head's."""
    restored = log.last_restore(delta)
    return {
        "elt.records": str(commit.records),
        "elt.app": commit.app_id,
        log.RESTORED_AT: str(restored),
    }


def _write(
    delta: DeltaTable, commit: Commit, metadata: Mapping[str, str], head: CommitMetadata
) -> None:
    properties = CommitProperties(
        custom_metadata=dict(metadata),
        max_commit_retries=NO_RETRIES,
        app_transactions=[
            Transaction(commit.app_id, head.sequence),
            Transaction(version_app(commit.app_id), int(delta.version()) + 1),
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


def _refuse_overtaken(delta: DeltaTable, app_id: str, wanted: int) -> None:
    """Delta itself refuses a stale snapshot only: whatever refreshes ours (a new column does) would hide
    there that another run has committed since.

    Raises:
        ConcurrentSync: the sequence that is wanted is taken.
    """
    present = sequence(delta, app_id)
    if present >= wanted:
        raise ConcurrentSync(
            f"another run committed to {delta.table_uri} first (sequence {present})",
            guidance="this run changed nothing more; the other one's data and state stand",
        )


def _refuse_restored(delta: DeltaTable, others: Sequence[Entry]) -> None:
    """
    Raises:
        ConcurrentSync: one of the commits since the basis took the table back.
    """
    if any(entry.get("operation") == log.RESTORE for entry in others):
        raise ConcurrentSync(
            f"the table {delta.table_uri} was restored to an older version during this run",
            guidance="this run changed nothing more; the next one starts from the restored state",
        )


def _published(others: Sequence[Entry], head: CommitMetadata) -> int | None:
    """Return the version of a commit that was published though its attempt failed; None if it was not."""
    found = (int(each["version"]) for each in others if each.get("elt.commit") == head.commit)
    return next(found, None)


def _refuse_superseded(delta: DeltaTable, change: Change, *, whole: bool = False) -> None:
    """What is replaced must still be there, and, where it was the whole, nothing else."""
    present = {file.path for file in files_of(delta)}
    replaced = {file.path for file in change.remove}
    if not replaced <= present or (whole and replaced != present):
        raise Superseded(
            f"{delta.table_uri} was rewritten while a commit was made",
            guidance="nothing was published; run it again",
        )
