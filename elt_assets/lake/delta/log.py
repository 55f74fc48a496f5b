"""Entries of a Delta table's log: the metadata of each commit, and the files that it adds and removes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable

from elt_assets.errors import SystemFailure
from elt_assets.lake.delta.files import Files

RESTORE = "RESTORE"
"""Delta's name of the operation that restores a table to an older version."""
RESTORED_AT = "elt.restored_at"
"""Metadata key of a commit: the version of the newest RESTORE before it; -1 if there is none."""
_FIRST, _GROWTH = 5, 8
"""The number of entries that are read first, and the factor by which each further read is larger."""

Entry = Mapping[str, Any]
"""One commit in the log: `version`, `timestamp` (epoch milliseconds), `operation`, and custom metadata."""


@dataclass(frozen=True)
class FileChanges:
    """The files of one commit: paths `added`, and paths `removed` with their time (epoch milliseconds)."""

    added: frozenset[str]
    removed: Mapping[str, int]
    replaces_schema: bool


def newest(delta: DeltaTable) -> Iterator[Entry]:
    """Yield the commits up to a snapshot, the newest first. Older entries are read only when needed."""
    taken, limit = 0, _FIRST
    while True:
        entries = delta.history(limit)
        yield from entries[taken:]
        if len(entries) < limit:
            return
        taken, limit = limit, limit * _GROWTH


def since(delta: DeltaTable, version: int) -> list[Entry]:
    """Return the commits after a version, up to the snapshot, the newest first."""
    count = int(delta.version()) - version
    return [] if count <= 0 else [e for e in delta.history(count) if int(e["version"]) > version]


def at(storage: Files, version: int) -> Entry | None:
    """Return one commit by its version; None if the log no longer contains it."""
    for action in _actions(storage, version) or ():
        if "commitInfo" in action:
            return {**action["commitInfo"], "version": version}
    return None


def file_changes(storage: Files, version: int) -> FileChanges:
    """Return the files that one commit adds and removes.

    Raises:
        SystemFailure: the log no longer contains the commit.
    """
    actions = _actions(storage, version)
    if actions is None:
        raise SystemFailure(
            f"version {version} of the table {storage.uri} is missing from its log",
            guidance="set a longer delta.logRetentionDuration in the engine that cleans the log",
        )
    return FileChanges(
        frozenset(unquote(action["add"]["path"]) for action in actions if "add" in action),
        {
            unquote(action["remove"]["path"]): int(action["remove"].get("deletionTimestamp") or 0)
            for action in actions
            if "remove" in action
        },
        any("metaData" in action for action in actions),
    )


def removed_since(delta: DeltaTable, storage: Files, oldest: int) -> set[str]:
    """Return the paths of files that were removed from the table at or after a time (epoch milliseconds)."""
    paths: set[str] = set()
    for entry in newest(delta):
        if int(entry["timestamp"]) < oldest:
            break
        removed = file_changes(storage, int(entry["version"])).removed
        paths |= {path for path, time in removed.items() if time >= oldest}
    return paths


def last_restore(delta: DeltaTable) -> int:
    """Return the version of the newest RESTORE commit; -1 if there is none.

    Each commit of this project records that version (`RESTORED_AT`), so few entries are read.
    """
    for entry in newest(delta):
        if entry.get("operation") == RESTORE:
            return int(entry["version"])
        if RESTORED_AT in entry:
            return int(entry[RESTORED_AT])
    return -1


def _actions(storage: Files, version: int) -> list[dict[str, Any]] | None:
    text = storage.read_text(f"_delta_log/{version:020d}.json")
    return None if text is None else [json.loads(line) for line in text.splitlines() if line]
