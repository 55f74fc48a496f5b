"""The head of a stream in its table's log: the state that belongs to the data, and what else does.

Each commit carries it as custom metadata: `elt.state`, `elt.sequence`, `elt.generation`, `elt.run_id`
and, of this project's own, `elt.app`, `elt.commit`, `elt.sync_id`, `elt.tombstones`, `elt.refresh`,
`elt.companions`, `elt.salt`, `elt.intent`, `elt.requested_generation`, `elt.columns_at`,
`elt.restored_at`. A large value stands in a file (see `attachments`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deltalake import DeltaTable

from elt_assets.errors import SystemFailure
from elt_assets.lake.delta import attachments, log
from elt_assets.lake.delta.attachments import Attachment
from elt_assets.lake.delta.files import DataFile, Files, from_json, to_json
from elt_assets.lake.delta.log import Entry

COMPACTION = "elt.maintenance"
"""Custom metadata of a commit that moves rows and changes none."""


_LISTS = ("files", "tombstones", "dead")


@dataclass(frozen=True)
class Refresh:
    """A refresh that was begun and can be resumed.

    `truncates`: its generation is being built beside the present one: `files` and `tombstones` are its
    rows so far, in no reader's list, `dead` its dead letter's; `written_as` tells what they are made by.
    Else its rows are in the table already.
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
        told = {name: getattr(self, name) for name in names}
        lists = {name: to_json(getattr(self, name)) for name in _LISTS}
        return json.dumps({**told, **lists})

    @classmethod
    def from_json(cls, text: str) -> Refresh:
        told = json.loads(text)
        return cls(**{**told, **{name: from_json(told[name]) for name in _LISTS}})


@dataclass(frozen=True)
class CommitMetadata:
    """What the table's newest commit of one writer says.

    `state`: JSON as received, None if there is none. `commit`: that commit's name; `same_as`: the name
    of an earlier one whose contents it has, gone back to or written anew ("" for none). `tombstones`:
    files of deleted keys, in no reader's list. `companions`: of each table that belongs to this one
    (its history, its dead letter) the commit that belongs to this one; None if that was never told.
    `sync_id`: orders the sync among the table's (see `WriteSpec.began`). `salt`: the fingerprint of what
    values were hashed with. `intent`: names the run that last began a refresh or a given state (see
    `WriteSpec.intent`). `restored`: whether the table was taken back to this commit, and nothing was
    committed since. `requested_generation`: the `generation_id` that a platform gave to the newest
    generation, complete or not; None where that is the generation's own number. `columns_at`: the version of
    the table in whose columns the `hidden` files are written. `attachments`: files that hold large values of
    it.
    """

    sequence: int
    generation: int
    state: str | None
    run_id: str | None = None
    commit: str | None = None
    same_as: str | None = None
    sync_id: int = 0
    tombstones: tuple[DataFile, ...] = ()
    refresh: Refresh | None = None
    companions: Mapping[str, str | None] | None = None
    salt: str | None = None
    intent: str | None = None
    restored: bool = False
    requested_generation: int | None = None
    columns_at: int | None = None
    attachments: Mapping[str, Attachment] = field(default_factory=dict, compare=False, repr=False)

    @property
    def hidden(self) -> tuple[DataFile, ...]:
        """All files that belong to the table and are in no reader's list."""
        building = () if self.refresh is None else (*self.refresh.files, *self.refresh.tombstones)
        return (*self.tombstones, *building)

    @property
    def stands_for(self) -> str | None:
        """The name of the commit whose contents the table has."""
        return self.commit if self.same_as is None else self.same_as or None

    def metadata(self) -> dict[str, str]:
        """For the commit."""
        told = {
            "elt.state": self.state or "",
            "elt.sequence": str(self.sequence),
            "elt.generation": str(self.generation),
            "elt.run_id": self.run_id or "",
            "elt.commit": self.commit or "",
            "elt.sync_id": str(self.sync_id),
        }
        if self.same_as is not None:
            told["elt.same_as"] = self.same_as
        if self.tombstones:
            told["elt.tombstones"] = to_json(self.tombstones)
        if self.refresh is not None:
            told["elt.refresh"] = self.refresh.to_json()
        if self.companions is not None:
            told["elt.companions"] = json.dumps(self.companions)
        if self.salt is not None:
            told["elt.salt"] = self.salt
        if self.intent is not None:
            told["elt.intent"] = self.intent
        if self.columns_at is not None and self.hidden:
            told["elt.columns_at"] = str(self.columns_at)
        if self.requested_generation is not None:
            told["elt.requested_generation"] = str(self.requested_generation)
        return told


def read_head(delta: DeltaTable | None, storage: Files, app_id: str) -> CommitMetadata:
    """Return the head that belongs to the snapshot's data.

    After a restore (by any engine) that is the one of the version restored; the sequence continues
    from the newest, since transaction versions are not rolled back.

    Raises:
        SystemFailure: the log no longer has it.
    """
    newest = None if delta is None else delta.transaction_version(app_id)
    if delta is None or newest is None:
        return CommitMetadata(0, 0, None)
    entry = _at_its_version(delta, storage, app_id)
    if entry is not None and int(entry["elt.sequence"]) == int(newest):
        return head_of(storage, entry)
    for entry in of_writer(delta, app_id):
        head = head_of(storage, entry)
        restored = log.last_restore(delta) > int(entry["version"])
        return replace(head, sequence=max(head.sequence, int(newest)), restored=restored)
    if int(delta.history()[-1]["version"]) > 0:
        raise SystemFailure(
            f"the table {delta.table_uri} had a state, but its log no longer holds the commit of it",
            guidance="move the table away to read the stream from the beginning, or keep the log longer "
            "(delta.logRetentionDuration)",
        )
    return CommitMetadata(int(newest), 0, None, restored=True)


def _at_its_version(delta: DeltaTable, storage: Files, app_id: str) -> Entry | None:
    """Return the newest commit of a writer by the version that the table's transactions name: no other
    commit is read, however many there are. None where it is not known, or a restore took it back."""
    version = delta.transaction_version(version_app(app_id))
    if version is None or log.last_restore(delta) > version:
        return None
    entry = log.at(storage, int(version))
    return entry if entry is not None and is_of(entry, app_id) else None


def version_app(app_id: str) -> str:
    """Return the transaction id under which a writer's commits record their own table version."""
    return f"{app_id}#version"


def of_writer(delta: DeltaTable, app_id: str) -> Iterator[Entry]:
    """Yield the commits of one writer, the newest first, without those that a restore took back."""
    return (entry for entry in in_force(delta) if is_of(entry, app_id))


def past(
    delta: DeltaTable, storage: Files, app_id: str
) -> Iterator[tuple[dt.datetime, int, CommitMetadata]]:
    """Yield time, version and head of `of_writer`'s commits, as long as what they carry is still kept."""
    for entry in of_writer(delta, app_id):
        time = dt.datetime.fromtimestamp(entry["timestamp"] / 1000, dt.timezone.utc)
        try:
            head = head_of(storage, entry)
        except SystemFailure:  # vacuum has removed a large state that is older than the retention
            return
        yield time, int(entry["version"]), head


def newest_writer(delta: DeltaTable) -> str | None:
    """Return the `app_id` of the newest commit that this project made; None if it made none."""
    return next((entry["elt.app"] for entry in log.newest(delta) if entry.get("elt.app")), None)


def is_of(entry: Entry, app_id: str) -> bool:
    """Whether a commit is one of a writer."""
    return "elt.sequence" in entry and entry.get("elt.app", app_id) == app_id


def stands_for(entry: Entry) -> str | None:
    """Return the name of the commit whose contents the table has after this one (`stands_for`)."""
    same_as = entry.get("elt.same_as")
    return (entry.get("elt.commit") if same_as is None else same_as) or None


def companions_of(entry: Entry) -> dict[str, str | None] | None:
    """Return which commits of the companions belong to a commit; None where it does not say."""
    found = entry.get("elt.companions")
    return None if found is None else dict(json.loads(found))


def in_force_by_writer(delta: DeltaTable) -> dict[str, Entry]:
    """Return every writer's newest commit in force, by its `app_id`."""
    found: dict[str, Entry] = {}
    for entry in in_force(delta):
        if entry.get("elt.app"):
            found.setdefault(entry["elt.app"], entry)
    return found


def hidden_since(delta: DeltaTable, storage: Files, oldest: int) -> set[str]:
    """Return the paths of files in no reader's list that the present version needs, or one since a time
    (epoch milliseconds): tombstones, files of unfinished refreshes, attachments."""
    entries = {int(entry["version"]): entry for entry in in_force_by_writer(delta).values()}
    stood: set[Any] = set()
    for entry in log.newest(delta):
        app = entry.get("elt.app")
        if "elt.sequence" in entry and app not in stood:
            entries[int(entry["version"])] = entry
            if entry["timestamp"] < oldest:  # the version that was the newest at that time
                stood.add(app)
    found: set[str] = set()
    for entry in entries.values():
        found.update(attachments.paths(entry))
        with contextlib.suppress(SystemFailure):  # removed while the retention was shorter
            found.update(file.path for file in head_of(storage, entry).hidden)
    return found


def head_of(storage: Files, entry: Entry) -> CommitMetadata:
    """Return what a commit says.

    Raises:
        SystemFailure: a file that holds a part of it is missing.
    """
    attached = attachments.read(storage, entry)
    values = {**entry, **{key: one.value for key, one in attached.items()}}
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


def in_force(delta: DeltaTable) -> Iterator[Entry]:
    """Yield the commits, the newest first, without those that a restore took back."""
    ceiling: int | None = None
    for entry in log.newest(delta):
        if ceiling is not None and int(entry["version"]) > ceiling:
            continue
        if entry.get("operation") == log.RESTORE:
            ceiling = _restored(delta, entry)
        else:
            yield entry


def _restored(delta: DeltaTable, entry: Entry) -> int:
    """Return the version that a restore went back to.

    One by time does not say it, and what a time means differs by engine: then it is the oldest
    version that held the same files, whose state is sure not to be ahead of them.
    """
    given = str((entry.get("operationParameters") or {}).get("version"))
    if given.isdigit():
        return int(given)
    restored, found = _files(delta, int(entry["version"])), None
    for version in range(int(entry["version"]) - 1, -1, -1):
        same = _files(delta, version) == restored
        if found is not None and not same:
            break
        found = version if same else found
    if found is None:
        raise SystemFailure(
            f"the table {delta.table_uri} was restored (version {entry['version']}), but to which "
            "version cannot be found",
            guidance="restore it again by version, so that the state that belongs to it can be found",
        )
    return found


def _files(delta: DeltaTable, version: int) -> set[str]:
    return set(DeltaTable(delta.table_uri, version=version).file_uris())
