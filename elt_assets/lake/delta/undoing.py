"""What takes a writer's commits back: the change of files that undoes them and nothing of other writers."""

from __future__ import annotations

from dataclasses import dataclass, field

from deltalake import DeltaTable
from pyspark.sql import types as t

from elt_assets.errors import SystemFailure
from elt_assets.lake.delta import log
from elt_assets.lake.delta.commit_metadata import (
    COMPACTION,
    CommitMetadata,
    head_of,
    in_force,
    is_of,
    stands_for,
)
from elt_assets.lake.delta.commits import files_of
from elt_assets.lake.delta.files import Change, DataFile, Files
from elt_assets.lake.delta.log import Entry, FileChanges
from elt_assets.lake.delta.opening import spark_schema


@dataclass(frozen=True)
class Undoing:
    """What undoes commits: the files to add (their paths) and to remove, the schema to return to if one of
    the commits replaced it, and what the commit before them said."""

    add: list[str]
    remove: list[DataFile]
    schema: t.StructType | None
    before: CommitMetadata

    def change(self, storage: Files) -> Change:
        """Return the change of files; those to be added are read again for their statistics."""
        return Change(storage.describe(self.add), self.remove)


@dataclass
class _Traced:
    """Files that hold rows of undone commits (`tainted`), and files that they removed (`lost`)."""

    tainted: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)

    def own(self, changes: FileChanges) -> None:
        """Follow a commit that is to be undone."""
        removed = changes.removed.keys()
        returned = self.lost & changes.added  # by a commit that took back another one
        self.lost = (self.lost | (removed - self.tainted)) - returned
        self.tainted = (self.tainted - removed) | (changes.added - returned)

    def moved(self, changes: FileChanges) -> None:
        """Follow a compaction: it matters only if it moved rows of an undone commit."""
        removed = changes.removed.keys()
        if self.tainted & removed:
            self.lost |= removed - self.tainted
            self.tainted = (self.tainted - removed) | changes.added


def version_of(delta: DeltaTable, app_id: str, name: str) -> int:
    """Return the newest version with the contents of a writer's commit: that of the last compaction before
    the writer's next commit, if there is one, since the files from before it may have been removed.

    Raises:
        SystemFailure: the log no longer has it.
    """
    compacted = None
    for entry in in_force(delta):
        if not is_of(entry, app_id):
            if COMPACTION in entry and compacted is None:
                compacted = int(entry["version"])
        elif stands_for(entry) == name:
            return int(entry["version"]) if compacted is None else compacted
        else:
            compacted = None
    raise _cannot_undo(delta, name)


def undone(delta: DeltaTable, storage: Files, app_id: str, name: str | None) -> Undoing:
    """Find what takes back a writer's commits after the one named (None: all of them).

    Commits of other writers stay, and so do compactions of their files. A compaction that moved rows of
    the undone commits is taken back with them.

    Raises:
        SystemFailure: the log no longer has them, or others have replaced the files since.
    """
    entries, before = _after(delta, storage, app_id, name)
    traced, schema_from = _Traced(), None
    for entry in reversed(entries):
        version = int(entry["version"])
        changes = log.file_changes(storage, version)
        if is_of(entry, app_id):
            traced.own(changes)
            if changes.replaces_schema and schema_from is None:
                schema_from = version - 1
        elif COMPACTION in entry:
            traced.moved(changes)
        elif traced.tainted & changes.removed.keys():
            raise _cannot_undo(delta, name)
    present = {file.path: file for file in files_of(delta)}
    if not traced.tainted <= present.keys() or traced.lost & present.keys():
        raise _cannot_undo(delta, name)
    schema = None
    if schema_from is not None:
        schema = spark_schema(DeltaTable(delta.table_uri, version=schema_from))
        if traced.tainted != present.keys():
            raise _cannot_undo(delta, name)
    return Undoing(
        sorted(traced.lost), [present[path] for path in sorted(traced.tainted)], schema, before
    )


def _after(
    delta: DeltaTable, storage: Files, app_id: str, name: str | None
) -> tuple[list[Entry], CommitMetadata]:
    """Return the commits in force after the one named, the newest first, and what that one said."""
    found: list[Entry] = []
    for entry in in_force(delta):
        if is_of(entry, app_id) and name is not None and stands_for(entry) == name:
            return found, head_of(storage, entry)
        found.append(entry)
    if name is not None:
        raise _cannot_undo(delta, name)
    return found, CommitMetadata(0, 0, None)


def _cannot_undo(delta: DeltaTable, name: str | None) -> SystemFailure:
    return SystemFailure(
        f"the table {delta.table_uri} must be taken back to commit {name}, but its log no longer has "
        "what that needs, or another engine has rewritten the files",
        guidance="move this table away: a new one is made; what it held stays where you move it",
    )
