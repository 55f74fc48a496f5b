"""The head of a stream in its table's log: the state that belongs to the data, and what else does.

Each commit carries it as custom metadata: `elt.state`, `elt.sequence`, `elt.generation`, `elt.run_id`
and, of this project's own, `elt.app`, `elt.commit`, `elt.sync_id`, `elt.tombstones`, `elt.refresh`,
`elt.companions`, `elt.salt`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deltalake import DeltaTable

from elt_assets.errors import SystemFailure
from elt_assets.lake.files import DataFile, from_json, to_json

COMPACTION = "elt.maintenance"
"""In the metadata of a commit that moves rows and changes none."""
_FEW = 5
"""Commits that nearly always hold what is looked for."""


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
class Head:
    """What the table's newest commit of one writer says.

    `state`: JSON as received, None if there is none. `commit`: that commit's name; `same_as`: the name
    of an earlier one whose contents it has, gone back to or written anew ("" for none). `tombstones`:
    files of deleted keys, in no reader's list. `companions`: of each table that belongs to this one
    (its history, its dead letter) the commit that belongs to this one; None if that was never told.
    `sync_id`: orders the sync among the table's (see `Landing.began`). `salt`: the fingerprint of what
    values were hashed with. `restored`: whether the table was taken back
    to this commit, and nothing was committed since.
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
    restored: bool = False

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
        return told


def read_head(delta: DeltaTable | None, app_id: str) -> Head:
    """The head that belongs to the snapshot's data.

    After a restore (by any engine) that is the one of the version restored; the sequence goes on
    from the newest, since transaction versions are not rolled back.

    Raises:
        SystemFailure: the log no longer tells.
    """
    newest = None if delta is None else delta.transaction_version(app_id)
    if delta is None or newest is None:
        return Head(0, 0, None)
    for version, head in commits(delta, app_id):
        assert head is not None
        restored = _is_below_a_restore(delta, version)
        return replace(head, sequence=max(head.sequence, int(newest)), restored=restored)
    if int(delta.history()[-1]["version"]) > 0:
        raise SystemFailure(
            f"the table {delta.table_uri} had a state, but its log no longer holds the commit of it",
            guidance="move the table away to read the stream anew, or keep the log longer "
            "(delta.logRetentionDuration)",
        )
    return Head(int(newest), 0, None, restored=True)


def commits(
    delta: DeltaTable, app_id: str, *, compactions: bool = False
) -> Iterable[tuple[int, Head | None]]:
    """The commits of one writer, by their versions, from the newest down; those that a restore took
    back left out. With `compactions` those too, as None."""
    for entry in _in_force(delta):
        if _is_of(entry, app_id):
            yield int(entry["version"]), _head(entry)
        elif compactions and COMPACTION in entry:
            yield int(entry["version"]), None


def past(delta: DeltaTable, app_id: str) -> Iterable[tuple[dt.datetime, int, Head]]:
    """As `commits`, with the time of each."""
    for entry in _in_force(delta):
        if _is_of(entry, app_id):
            time = dt.datetime.fromtimestamp(entry["timestamp"] / 1000, dt.timezone.utc)
            yield time, int(entry["version"]), _head(entry)


def writers(delta: DeltaTable) -> set[str]:
    """Whose commits the log holds, by their `app_id`."""
    return {entry["elt.app"] for entry in delta.history() if entry.get("elt.app")}


def _is_of(entry: Mapping[str, Any], app_id: str) -> bool:
    return "elt.sequence" in entry and entry.get("elt.app", app_id) == app_id


def _is_below_a_restore(delta: DeltaTable, version: int) -> bool:
    for entry in _recent(delta):
        if int(entry["version"]) <= version:
            return False
        if entry.get("operation") == "RESTORE":
            return True
    return False


def heads(delta: DeltaTable, oldest: dt.datetime) -> Iterable[Head]:
    """Every writer's head that is in force, and all that a version since then has."""
    since, in_force, stood = oldest.timestamp() * 1000, set(), set()
    for entry in _in_force(delta):
        if "elt.sequence" in entry and entry.get("elt.app") not in in_force:
            in_force.add(entry.get("elt.app"))
            yield _head(entry)
    for entry in delta.history():
        app = entry.get("elt.app")
        if "elt.sequence" in entry and (entry["timestamp"] >= since or app not in stood):
            if entry["timestamp"] < since:
                stood.add(app)
            yield _head(entry)


def _head(entry: Mapping[str, Any]) -> Head:
    refresh, companions = entry.get("elt.refresh"), entry.get("elt.companions")
    return Head(
        sequence=int(entry["elt.sequence"]),
        generation=int(entry["elt.generation"]),
        state=entry.get("elt.state") or None,
        run_id=entry.get("elt.run_id") or None,
        commit=entry.get("elt.commit") or None,
        same_as=entry.get("elt.same_as"),
        sync_id=int(entry.get("elt.sync_id") or 0),
        tombstones=from_json(entry.get("elt.tombstones")),
        refresh=None if refresh is None else Refresh.from_json(refresh),
        companions=None if companions is None else json.loads(companions),
        salt=entry.get("elt.salt"),
    )


def _in_force(delta: DeltaTable) -> Iterable[dict[str, Any]]:
    """Commits from the newest down, those that a restore took back left out."""
    ceiling: int | None = None
    for entry in _recent(delta):
        if ceiling is not None and int(entry["version"]) > ceiling:
            continue
        if entry.get("operation") == "RESTORE":
            ceiling = _restored(delta, entry)
        else:
            yield entry


def _restored(delta: DeltaTable, entry: dict[str, Any]) -> int:
    """The version that a restore went back to.

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


def _recent(delta: DeltaTable) -> Iterable[dict[str, Any]]:
    few = delta.history(_FEW)
    yield from few
    if len(few) == _FEW:
        yield from delta.history()[_FEW:]
