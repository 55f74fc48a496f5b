"""Rollback of a writer's commits: the change of files that undoes them and keeps other writers' commits.

Used by `table`, where a companion is ahead of its table (`lake.write.companions`): a writer rolls it back,
and a reader gets an older version of it (`version_of`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import types as t

from elt_assets.errors import SystemFailure
from elt_assets.lake.delta import log
from elt_assets.lake.delta.commit_metadata import (
    COMPACTION,
    CommitMetadata,
    content_commit,
    effective_commits,
    is_commit_of,
    metadata_of,
)
from elt_assets.lake.delta.commits import files_of
from elt_assets.lake.delta.log import Entry, FileChanges
from elt_assets.lake.delta.opening import load
from elt_assets.lake.delta.rules import spark_schema
from elt_assets.lake.delta.snapshot import Snapshot
from elt_assets.lake.delta.storage import DataFile, TableChange, TableStorage


@dataclass(frozen=True)
class Rollback:
    """A change that undoes commits."""

    add: list[str]  # paths of files to add
    remove: list[DataFile]  # files to remove
    schema: t.StructType | None  # the schema to return to, if one of the commits replaced it
    before: CommitMetadata  # the metadata of the commit before them

    def change(self, storage: TableStorage) -> TableChange:
        """Return the change of files. The footers of added files are read for their statistics.

        Raises:
            SystemFailure: vacuum has removed files that the change needs.
        """
        storage.refuse_lost([*self.add, *(file.path for file in self.before.hidden)])
        return TableChange(storage.describe(self.add), self.remove)


@dataclass
class _Trace:
    """Files with rows of undone commits (`tainted`), and files that those commits removed (`lost`)."""

    tainted: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)

    def add_undone(self, changes: FileChanges) -> None:
        """Apply the changes of a commit that is to be undone."""
        removed = changes.removed.keys()
        returned = self.lost & changes.added  # this commit is itself a rollback
        self.lost = (self.lost | (removed - self.tainted)) - returned
        self.tainted = (self.tainted - removed) | (changes.added - returned)

    def add_compaction(self, changes: FileChanges) -> None:
        """Apply the changes of a compaction, if it moved rows of an undone commit."""
        removed = changes.removed.keys()
        if self.tainted & removed:
            self.lost |= removed - self.tainted
            self.tainted = (self.tainted - removed) | changes.added


def version_of(delta: Snapshot, storage: TableStorage, app_id: str, name: str | None) -> int:
    """Return the newest version with the contents of a writer's commit; None: of none yet.

    That is the last compaction before the writer's next commit, if there is one: the files from before the
    compaction may have been removed.

    Raises:
        SystemFailure: the log no longer contains the commit.
    """
    compacted = oldest = None
    for entry in effective_commits(delta, storage):
        oldest = int(entry["version"])
        if not is_commit_of(entry, app_id):
            if COMPACTION in entry and compacted is None:
                compacted = oldest
        elif _has_contents_of(entry, name):
            return oldest if compacted is None else compacted
        else:
            compacted = oldest = None
    if (
        name is None and oldest is not None
    ):  # the first version, or that with which an erasure begins the log
        return oldest
    raise _cannot_undo(delta, name)


def _has_contents_of(entry: Entry, name: str | None) -> bool:
    """Return whether a writer's contents after one of its commits are those of the named one; None: as
    before its first one, as after a rollback to there and an erasure since."""
    return entry.get("elt.same_as") == "" if name is None else content_commit(entry) == name


def rollback(delta: Snapshot, storage: TableStorage, app_id: str, name: str | None) -> Rollback:
    """Return the change that undoes a writer's commits after the named one (None: all its commits).

    Commits of other writers stay, and so do compactions of their files. A compaction that moved rows of
    undone commits is undone with them.

    Raises:
        SystemFailure: the log no longer contains them, or others have replaced the files since.
    """
    entries, before = _commits_after(delta, storage, app_id, name)
    trace, schema_version = _Trace(), None
    for entry in reversed(entries):
        version = int(entry["version"])
        changes = log.file_changes(storage, version)
        if is_commit_of(entry, app_id):
            trace.add_undone(changes)
            if changes.replaces_schema and schema_version is None:
                schema_version = version - 1
        elif COMPACTION in entry:
            trace.add_compaction(changes)
        elif trace.tainted & changes.removed.keys():
            raise _cannot_undo(delta, name)
    files = {file.path: file for file in files_of(delta)}
    if not trace.tainted <= files.keys() or trace.lost & files.keys():
        raise _cannot_undo(delta, name)
    schema = None
    if schema_version is not None:
        schema = spark_schema(load(storage.location, schema_version))
        if trace.tainted != files.keys():
            raise _cannot_undo(delta, name)
    return Rollback(
        sorted(trace.lost), [files[path] for path in sorted(trace.tainted)], schema, before
    )


def _commits_after(
    delta: Snapshot, storage: TableStorage, app_id: str, name: str | None
) -> tuple[list[Entry], CommitMetadata]:
    """Return the effective commits after the named one, the newest first, and the metadata of that one."""
    entries: list[Entry] = []
    for entry in effective_commits(delta, storage):
        if is_commit_of(entry, app_id) and _has_contents_of(entry, name):
            return entries, metadata_of(storage, entry)
        entries.append(entry)
    if name is not None:
        raise _cannot_undo(delta, name)
    return entries, CommitMetadata(0, 0, None)


def _cannot_undo(delta: Snapshot, name: str | None) -> SystemFailure:
    return SystemFailure(
        f"the table {delta.table_uri} must be rolled back to commit {name}, but its log no longer contains "
        "the commits since, or another engine has rewritten the files",
        guidance="move this table away; the next sync creates a new one, and the moved one keeps its data",
    )
