"""Commit metadata: the state of a stream and other values that belong to the data of a commit.

In this package, `table` reads it for all others, `commits` writes it, and `rollback` and `log_cut` go back
by it. `lake.write` and `lake.admin` make it for each commit. `pipeline` and `destination.tables` read in it
where a sync starts, `orchestration` what earlier runs committed, and `lake.read.changes` what only fills old
rows.

Each commit has them as custom metadata in the table's log: `elt.state`, `elt.sequence`, `elt.generation`,
`elt.run_id`, and, for internal use, `elt.app`, `elt.commit`, `elt.sync_id`, `elt.tombstones`, `elt.refresh`,
`elt.companions`, `elt.salt`, `elt.intent`, `elt.requested_generation`, `elt.columns_at`,
`elt.restored_at`, `elt.erasure`. A large value is in a separate file (see `attachments`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.lake.delta import attachments, log
from elt_assets.lake.delta.attachments import Attachment
from elt_assets.lake.delta.log import Entry
from elt_assets.lake.delta.opening import load
from elt_assets.lake.delta.snapshot import Snapshot
from elt_assets.lake.delta.storage import DataFile, TableStorage, from_json, to_json

COMPACTION = "elt.maintenance"
"""Metadata key of a compaction: a commit that moves rows to other files and changes none."""

BACKFILL = "elt.backfill"
"""Metadata key of a commit that fills columns of rows that the table had: the names of the columns."""

ERASURE = "elt.erasure"
"""Metadata key of a commit that erases rows: the id of the erasure."""

FORMER_WRITER = "elt.former_app"
"""Metadata key of the first commit of a writer that continues the commits of another one."""

_LISTS = ("files", "tombstones", "dead")


@dataclass(frozen=True)
class Refresh:
    """An unfinished refresh, which can be resumed.

    If it `truncates`, its generation is built beside the present one. `files` and `tombstones` are its files
    so far, which are invisible to readers; `dead` are its files in the dead letter table; `written_as` is the
    fingerprint of the settings that the files were written with. Otherwise its rows are in the table already.
    """

    generation: int
    truncates: bool
    state: str | None
    files: tuple[DataFile, ...]
    tombstones: tuple[DataFile, ...]
    dead: tuple[DataFile, ...]
    written_as: str

    def to_json(self) -> str:
        names = ("generation", "truncates", "state", "written_as")
        values = {name: getattr(self, name) for name in names}
        lists = {name: to_json(getattr(self, name)) for name in _LISTS}
        return json.dumps({**values, **lists})

    @classmethod
    def from_json(cls, text: str) -> Refresh:
        values = json.loads(text)
        return cls(**{**values, **{name: from_json(values[name]) for name in _LISTS}})


@dataclass(frozen=True)
class CommitMetadata:
    """The metadata of a commit; usually that of a writer's newest commit."""

    sequence: int  # increases by one with each commit of a writer
    generation: int
    state: str | None  # JSON as received; None if there is no state
    run_id: str | None = None
    commit: str | None = None  # the name of the commit
    # The name of an earlier commit with the same contents, if this one is a rollback to it or rewrites its
    # rows; "" if there is no such commit; None if the contents are new.
    same_as: str | None = None
    sync_id: int = 0  # orders the sync among the table's syncs (see `WriteSpec.began`)
    tombstones: tuple[DataFile, ...] = ()  # files of deleted keys, invisible to readers
    refresh: Refresh | None = None
    # The commit of each companion table (history, dead letter) that belongs to this one; None if it was never
    # recorded.
    companions: Mapping[str, str | None] | None = None
    salt: str | None = None  # the fingerprint of the salt that values were hashed with
    # Identifies the run that last started a refresh or set a state (see `WriteSpec.intent`).
    intent: str | None = None
    # Whether the table was restored to this commit and nothing was committed since.
    restored: bool = False
    # The `generation_id` that a platform gave to the newest generation, complete or not; None if it is
    # `generation`.
    requested_generation: int | None = None
    # The version of the table whose columns the `hidden` files have; None in a commit that replaces the
    # columns: its own version.
    columns_at: int | None = None
    # The id of the erasure that the commit is a part of; it is written, and never read back.
    erasure: str | None = None
    # The files of large values.
    attachments: Mapping[str, Attachment] = field(default_factory=dict, compare=False, repr=False)

    @property
    def hidden(self) -> tuple[DataFile, ...]:
        """All files that belong to the table and are invisible to readers."""
        building = () if self.refresh is None else (*self.refresh.files, *self.refresh.tombstones)
        return (*self.tombstones, *building)

    def list_new_hidden(self, before: CommitMetadata) -> list[DataFile]:
        """Return the files of `hidden` that earlier metadata does not have."""
        present = {file.path for file in before.hidden}
        return [file for file in self.hidden if file.path not in present]

    @property
    def stands_for(self) -> str | None:
        """The name of the commit whose contents the table has."""
        return self.commit if self.same_as is None else self.same_as or None

    def begin_next(self, run_id: str | None) -> CommitMetadata:
        """Return what the writer's next commit has of this one: all but its number, its run, and its name and
        the name of an equal commit, since the contents of the next one are new."""
        return replace(
            self, sequence=self.sequence + 1, run_id=run_id, commit=None, same_as=None, erasure=None
        )

    def to_dict(self) -> dict[str, str]:
        """Return the custom metadata for the commit."""
        values = {
            "elt.state": self.state or "",
            "elt.sequence": str(self.sequence),
            "elt.generation": str(self.generation),
            "elt.run_id": self.run_id or "",
            "elt.commit": self.commit or "",
            "elt.sync_id": str(self.sync_id),
        }
        if self.same_as is not None:
            values["elt.same_as"] = self.same_as
        if self.tombstones:
            values["elt.tombstones"] = to_json(self.tombstones)
        if self.refresh is not None:
            values["elt.refresh"] = self.refresh.to_json()
        if self.companions is not None:
            values["elt.companions"] = json.dumps(self.companions)
        if self.salt is not None:
            values["elt.salt"] = self.salt
        if self.intent is not None:
            values["elt.intent"] = self.intent
        if self.requested_generation is not None:
            values["elt.requested_generation"] = str(self.requested_generation)
        if self.erasure is not None:
            values[ERASURE] = self.erasure
        return {**values, **self.columns_value()}

    def columns_value(self) -> dict[str, str]:
        """Return the part of `to_dict` that says which version has the columns of the hidden files."""
        if self.columns_at is None or not self.hidden:
            return {}
        return {"elt.columns_at": str(self.columns_at)}


def current_metadata(delta: Snapshot | None, storage: TableStorage, app_id: str) -> CommitMetadata:
    """Return the commit metadata of a writer that belongs to the snapshot's data.

    After a restore (by any engine) it is that of the restored version. Its sequence is the newest one, since
    a restore does not change transaction versions.

    Raises:
        SystemFailure: the log no longer contains it.
    """
    newest = None if delta is None else delta.transaction_version(app_id)
    if delta is None or newest is None:
        return CommitMetadata(0, 0, None)
    entry = _read_recorded_commit(delta, storage, app_id)
    if entry is not None and int(entry["elt.sequence"]) == int(newest):
        return metadata_of(storage, entry)
    for entry in commits_of(delta, storage, app_id):
        metadata = metadata_of(storage, entry)
        restored = log.last_restore(delta) > int(entry["version"])
        return replace(metadata, sequence=max(metadata.sequence, int(newest)), restored=restored)
    if _had_commits_before(delta, storage, app_id):
        raise SystemFailure(
            f"the table {delta.table_uri} had a state, but its log no longer contains the commit with it",
            guidance="move the table away to read the stream from the beginning; set a longer "
            "delta.logRetentionDuration in the engine that cleans the log",
        )
    return CommitMetadata(int(newest), 0, None, restored=True)


def _had_commits_before(delta: Snapshot, storage: TableStorage, app_id: str) -> bool:
    """Return whether a writer had commits before those that the log has: after an erasure, or an engine that
    cleans the log, it begins with a later version than the first."""
    oldest = min(int(entry["version"]) for entry in log.read_newest_first(delta))
    if oldest == 0:
        return False
    try:
        return load(storage.location, oldest).transaction_version(app_id) is not None
    except ConfigError:  # the log has no checkpoint of it
        return True


def _read_recorded_commit(delta: Snapshot, storage: TableStorage, app_id: str) -> Entry | None:
    """Return the newest commit of a writer, read at the version that the table's transactions record.

    No other commit is read. None if the version is not recorded, or a restore has undone the commit.
    """
    version = delta.transaction_version(version_app_id(app_id))
    if version is None or log.last_restore(delta) > version:
        return None
    entry = log.read_info(storage, int(version))
    return entry if entry is not None and is_commit_of(entry, app_id) else None


def version_app_id(app_id: str) -> str:
    """Return the transaction id under which a writer's commits record their own table version."""
    return f"{app_id}#version"


def commits_of(delta: Snapshot, storage: TableStorage, app_id: str) -> Iterator[Entry]:
    """Yield the effective commits of one writer, the newest first, and those of the one that it continues."""
    for entry in effective_commits(delta, storage):
        if is_commit_of(entry, app_id):
            yield entry
            app_id = entry.get(FORMER_WRITER, app_id)


class PastCommit(NamedTuple):
    """A commit of one writer: its time, the version of the table that it made, and its metadata."""

    time: dt.datetime
    version: int
    metadata: CommitMetadata


def past_commits(delta: Snapshot, storage: TableStorage, app_id: str) -> Iterator[PastCommit]:
    """Yield a writer's effective commits, the newest first: without those that a restore undid.

    Ends at the first commit whose metadata is no longer complete.
    """
    for entry in commits_of(delta, storage, app_id):
        time = dt.datetime.fromtimestamp(entry["timestamp"] / 1000, dt.timezone.utc)
        try:
            metadata = metadata_of(storage, entry)
        except SystemFailure:  # vacuum has removed an attachment that is older than the retention
            return
        yield PastCommit(time, int(entry["version"]), metadata)


def newest_writer(delta: Snapshot) -> str | None:
    """Return the `app_id` of the newest commit of this project; None if there is none."""
    return next(
        (entry["elt.app"] for entry in log.read_newest_first(delta) if entry.get("elt.app")), None
    )


def is_commit_of(entry: Entry, app_id: str) -> bool:
    """Return whether a commit is one of the writer's."""
    return "elt.sequence" in entry and entry.get("elt.app", app_id) == app_id


def content_commit(entry: Entry) -> str | None:
    """Return the name of the commit whose contents the table has after this one."""
    same_as = entry.get("elt.same_as")
    return (entry.get("elt.commit") if same_as is None else same_as) or None


def companions_of(entry: Entry) -> dict[str, str | None] | None:
    """Return the commits of the companion tables that belong to a commit; None if it does not record them."""
    text = entry.get("elt.companions")
    return None if text is None else dict(json.loads(text))


def newest_commit_by_writer(delta: Snapshot, storage: TableStorage) -> dict[str, Entry]:
    """Return the newest effective commit of every writer, by its `app_id`.

    A writer that another one continues from a later commit is left out.
    """
    newest: dict[str, Entry] = {}
    continued: set[str] = set()
    for entry in effective_commits(delta, storage):
        app = entry.get("elt.app")
        if app and app not in continued:
            newest.setdefault(app, entry)
        if FORMER_WRITER in entry and entry[FORMER_WRITER] not in newest:
            continued.add(entry[FORMER_WRITER])
    return newest


def list_undone_writers(delta: Snapshot, storage: TableStorage) -> list[str]:
    """Return the writers of which a restore has undone every commit that the log has, by their `app_id`."""
    present = {entry.get("elt.app") for entry in effective_commits(delta, storage)}
    writers = (entry.get("elt.app") for entry in log.read_newest_first(delta))
    return list(dict.fromkeys(app for app in writers if app and app not in present))


def hidden_since(delta: Snapshot, storage: TableStorage, oldest: int) -> set[str]:
    """Return the paths of hidden files that the present version needs, or any version since a time.

    Hidden files are tombstones, files of unfinished refreshes, and attachments.

    Args:
        oldest: the time, in epoch milliseconds.
    """
    newest = newest_commit_by_writer(delta, storage)
    entries = {int(entry["version"]): entry for entry in newest.values()}
    complete: set[Any] = set()  # writers whose commits since that time are all in `entries`
    for entry in log.read_newest_first(delta):
        app = entry.get("elt.app")
        if FORMER_WRITER in entry and entry["timestamp"] < oldest:
            complete.add(entry[FORMER_WRITER])
        if "elt.sequence" in entry and app not in complete:
            entries[int(entry["version"])] = entry
            if entry["timestamp"] < oldest:  # the newest version at that time
                complete.add(app)
    return set().union(*(hidden_of(storage, entry) for entry in entries.values()))


def hidden_of(storage: TableStorage, entry: Entry) -> set[str]:
    """Return the paths of the hidden files that a commit names, attachments included."""
    paths = set(attachments.paths(entry))
    with contextlib.suppress(SystemFailure):  # removed while the retention was shorter
        paths.update(file.path for file in metadata_of(storage, entry).hidden)
    return paths


def metadata_of(storage: TableStorage, entry: Entry) -> CommitMetadata:
    """Return the metadata of a commit, attachments included.

    Raises:
        SystemFailure: the file of an attachment is missing.
    """
    attached = attachments.read(storage, entry)
    values = {**entry, **{key: attachment.value for key, attachment in attached.items()}}
    refresh, requested = values.get("elt.refresh"), values.get("elt.requested_generation")
    columns_at = values.get("elt.columns_at")
    return CommitMetadata(
        sequence=int(values["elt.sequence"]),
        generation=int(values["elt.generation"]),
        state=values.get("elt.state") or None,
        run_id=values.get("elt.run_id") or None,
        commit=values.get("elt.commit") or None,
        same_as=values.get("elt.same_as"),
        sync_id=int(values.get("elt.sync_id") or 0),
        tombstones=from_json(values.get("elt.tombstones")),
        refresh=None if refresh is None else Refresh.from_json(refresh),
        companions=companions_of(values),
        salt=values.get("elt.salt"),
        intent=values.get("elt.intent"),
        requested_generation=None if requested is None else int(requested),
        columns_at=None if columns_at is None else int(columns_at),
        attachments=attached,
    )


def effective_commits(delta: Snapshot, storage: TableStorage) -> Iterator[Entry]:
    """Yield the commits that no restore has undone, the newest first."""
    ceiling: int | None = None
    for entry in log.read_newest_first(delta):
        if ceiling is not None and int(entry["version"]) > ceiling:
            continue
        if entry.get("operation") == log.RESTORE:
            ceiling = _find_restored_version(delta, storage, entry)
        else:
            yield entry


def _find_restored_version(delta: Snapshot, storage: TableStorage, entry: Entry) -> int:
    """Return the version that a RESTORE commit returned to.

    A restore by time does not record the version, and engines interpret the time differently. Then the
    result is the oldest of the latest consecutive versions with the same files: its state cannot be ahead of
    the files.

    Raises:
        SystemFailure: no version has the same files.
    """
    recorded = str((entry.get("operationParameters") or {}).get("version"))
    if recorded.isdigit():
        return int(recorded)
    restored, match = _files(storage, int(entry["version"])), None
    for version in range(int(entry["version"]) - 1, -1, -1):
        same = _files(storage, version) == restored
        if match is not None and not same:
            break
        match = version if same else match
    if match is None:
        raise SystemFailure(
            f"the table {delta.table_uri} was restored (version {entry['version']}), but no earlier version "
            "has the same files",
            guidance="restore it again by version, so that the state of that version can be found",
        )
    return match


def _files(storage: TableStorage, version: int) -> set[str]:
    return set(load(storage.location, version).delta_table.file_uris())
