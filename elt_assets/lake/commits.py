"""Commits: what they say, who is first, and how one is undone.

Atomicity is Delta's. What is ours: a writer that was overtaken is refused by its transaction id; a
conflict that is none (another partition, a compaction of other files) is tried again; a commit whose
outcome is unknown is looked up by its name, never repeated blindly.
"""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass, replace

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync, SystemFailure, TransientError
from elt_assets.lake.files import Change, DataFile
from elt_assets.lake.head import COMPACTION, Head, commits
from elt_assets.lake.opening import delta_schema, enable_ntz

ATTEMPTS = 100
"""For a commit whose conflicts are none. Each is milliseconds; among many partitions some lose often."""
NO_RETRIES = 0
"""Of delta-rs's own: they carry a stale commit past a compaction, and so double what that moved."""
_LOOKED_AT = 100
"""Commits among which one of unknown outcome is looked for."""


class Superseded(TransientError):
    """Files that a commit would have replaced were replaced by another: a compaction, or another engine."""


@dataclass(frozen=True)
class Commit:
    """What is to be published. `schema` replaces the table's, and then all files must be removed."""

    app_id: str
    change: Change
    head: Head
    records: int
    schema: t.StructType | None = None


def publish(delta: DeltaTable, commit: Commit) -> tuple[DeltaTable, Head]:
    """Publish once, whatever happens on the way.

    Returns:
        the table at its newest snapshot, and the head as committed.

    Raises:
        ConcurrentSync: another writer of this `app_id` was first; nothing was published.
        Superseded: files that the change removes are gone; nothing was published.
        SystemFailure: the commit failed.
    """
    head = replace(commit.head, commit=commit.head.commit or uuid.uuid4().hex)
    for _ in range(ATTEMPTS):
        refuse_overtaken(delta, commit.app_id, commit.head.sequence)
        if commit.schema is not None:
            enable_ntz(delta, commit.schema)
        _refuse_superseded(delta, commit.change, whole=commit.schema is not None)
        try:
            _write(delta, commit, head)
        except CommitFailedError:
            delta = DeltaTable(delta.table_uri)
            if _is_published(delta, commit.app_id, head):
                return delta, head
            time.sleep(random.uniform(0, 0.02))
        else:
            delta.update_incremental()
            return delta, head
    raise SystemFailure(
        f"committing to {delta.table_uri} failed {ATTEMPTS} times, each time overtaken by others",
        guidance="nothing was published; run it again when fewer runs write to this table",
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


def version_of(delta: DeltaTable, app_id: str, name: str) -> int:
    """The newest version with the contents of a commit.

    Raises:
        SystemFailure: the log does not tell.
    """
    for version, head in commits(delta, app_id):
        if head is not None and head.stands_for == name:
            return version
    raise _cannot_undo(delta, name)


def undone(delta: DeltaTable, app_id: str, name: str | None) -> tuple[Change, Head]:
    """What takes back a writer's commits after the one named (None: all of them), and what that one said.

    Compactions on the way are taken back too: they moved what is to go.

    Raises:
        SystemFailure: the log does not tell, or others have rewritten the files since.
    """
    present = {file.path: file for file in files_of(delta)}
    wanted, before = dict(present), Head(0, 0, None)
    for version, head in commits(delta, app_id, compactions=True):
        if head is not None and name is not None and head.stands_for == name:
            before = head
            break
        earlier, later = _at(delta, version - 1), _at(delta, version)
        added = later.keys() - earlier.keys()
        if not added <= wanted.keys():
            raise _cannot_undo(delta, name)
        wanted = {path: file for path, file in wanted.items() if path not in added}
        wanted.update({path: earlier[path] for path in earlier.keys() - later.keys()})
    else:
        if name is not None:
            raise _cannot_undo(delta, name)
    add = [file for path, file in wanted.items() if path not in present]
    remove = [file for path, file in present.items() if path not in wanted]
    return Change(add, remove), before


def _at(delta: DeltaTable, version: int) -> dict[str, DataFile]:
    return {file.path: file for file in files_of(DeltaTable(delta.table_uri, version=version))}


def _cannot_undo(delta: DeltaTable, name: str | None) -> SystemFailure:
    return SystemFailure(
        f"the table {delta.table_uri} should be taken back to commit {name}, "
        "and its log no longer tells how",
        guidance="move this table away: it is begun anew; what it held stays where you move it",
    )


def _write(delta: DeltaTable, commit: Commit, head: Head) -> None:
    metadata = {**head.metadata(), "elt.records": str(commit.records), "elt.app": commit.app_id}
    properties = CommitProperties(
        custom_metadata=metadata,
        max_commit_retries=NO_RETRIES,
        app_transactions=[Transaction(commit.app_id, head.sequence)],
    )
    add: list[AddAction | RemoveAction] = [file.add() for file in commit.change.add]
    if commit.schema is not None:
        schema = delta_schema(commit.schema)
        delta.create_write_transaction(add, "overwrite", schema, commit_properties=properties)
        return
    remove = [file.remove() for file in commit.change.remove]
    actions: list[AddAction | RemoveAction] = [*add, *remove]
    delta.create_write_transaction(actions, "append", delta.schema(), commit_properties=properties)


def refuse_overtaken(delta: DeltaTable, app_id: str, wanted: int) -> None:
    """Delta refuses a stale snapshot; but whatever refreshes ours (a new column does) would hide
    there that another run has committed since.

    Raises:
        ConcurrentSync: the sequence that is wanted is taken.
    """
    present = sequence(delta, app_id)
    if present >= wanted:
        raise _overtaken(delta, present)


def _overtaken(delta: DeltaTable, present: int) -> ConcurrentSync:
    return ConcurrentSync(
        f"another run committed to {delta.table_uri} first (sequence {present})",
        guidance="this run changed nothing more; the other one's data and state stand",
    )


def _is_published(delta: DeltaTable, app_id: str, head: Head) -> bool:
    """A commit that failed may have been published all the same: its name tells."""
    present = sequence(delta, app_id)
    if present < head.sequence:
        return False
    if any(entry.get("elt.commit") == head.commit for entry in delta.history(_LOOKED_AT)):
        return True
    raise _overtaken(delta, present)


def _refuse_superseded(delta: DeltaTable, change: Change, *, whole: bool = False) -> None:
    """What is replaced must still be there, and, where it was the whole, nothing else."""
    present = {file.path for file in files_of(delta)}
    replaced = {file.path for file in change.remove}
    if not replaced <= present or (whole and replaced != present):
        raise Superseded(
            f"{delta.table_uri} was rewritten while a commit was made",
            guidance="nothing was published; run it again",
        )
