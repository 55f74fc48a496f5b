"""The log of a Delta table: its entries, one for each version, and its checkpoints.

Used by the other modules of `lake.delta`, most by `snapshot` and `commit_metadata`, by `lake.read.changes`
and by `lake.admin`.

The project reads the entries itself. `DeltaTable.history` holds Python's global lock while it waits for a
store, so that one slow answer stops every thread of the process, and it counts versions down over entries
without a commitInfo.

The versions of a log are consecutive. An engine that cleans the log removes a prefix of it, and so does an
erasure (`log_cut`). So the entries that follow a present one, up to the first that is missing, are all up to
the newest. If the entry of a snapshot's own version is gone, nothing may follow it, although the table has
newer versions (`is_cut`).

First the entries: the metadata of each commit, and the files that it adds and removes. Then the checkpoints:
what one says of a table besides its files, and when one is due. Only the columns of the protocol, the
metadata and the transactions are read. They are small, while the list of files is nearly all of a checkpoint.

Spec: Delta Transaction Log Protocol, Delta Log Entries; Checkpoints
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import count
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.lake.delta.storage import TableStorage
from elt_assets.machine_faults import first_line

FOLDER = "_delta_log"
RESTORE = "RESTORE"
"""Delta's name of the operation that restores a table to an older version."""
RESTORED_AT = "elt.restored_at"
"""Metadata key of a commit: the version of the newest RESTORE before it; -1 if there is none."""
_READERS = 16
"""Entries of an object store that are read at the same time."""
_OF_FILES = ('{"add":', '{"remove":')
"""The beginnings of the lines about files. Most lines of a large entry are such."""

Entry = Mapping[str, Any]
"""One commit in the log: `version`, `timestamp` (epoch milliseconds), `operation`, and custom metadata."""


class Versioned(Protocol):
    """A snapshot of a table. `recent`: the metadata of its newest commits that were read, by version."""

    @property
    def storage(self) -> TableStorage: ...

    @property
    def recent(self) -> Mapping[int, Entry]: ...

    def version(self) -> int: ...


@dataclass(frozen=True)
class FileChanges:
    """The files of one commit: paths `added`, and paths `removed` with their time (epoch milliseconds)."""

    added: frozenset[str]
    removed: Mapping[str, int]
    replaces_schema: bool


@dataclass(frozen=True)
class LogEntry:
    """The actions of one version of the table in `storage`."""

    storage: TableStorage
    version: int
    text: str

    @property
    def info(self) -> Entry:
        """The commit's metadata. An engine may leave it out; the time is then that of the entry's file."""
        info: dict[str, Any] = {}
        for action in self.actions(files=False):
            info |= action.get("commitInfo") or {}
        if "timestamp" not in info:
            info["timestamp"] = self.storage.modification_time(path_of(self.version))
        return {**info, "version": self.version}

    def actions(self, *, files: bool = True) -> Iterator[dict[str, Any]]:
        """Yield the actions, each of which has one key.

        Args:
            files: also those that add or remove a file. Without them, only the last of their lines is parsed:
                that shows whether the entry was cut off.

        Raises:
            ConfigError: a line is not an object of JSON.
        """
        lines = [line for line in self.text.split("\n") if line]
        for line in lines:
            if files or line is lines[-1] or not line.startswith(_OF_FILES):
                try:
                    action = json.loads(line)
                except ValueError as error:
                    raise damage(self.storage, self.version, "is not whole", str(error)) from error
                if not isinstance(action, dict):
                    raise damage(self.storage, self.version, "is not valid", "a line is no object")
                if files or not ("add" in action or "remove" in action):
                    yield action


def path_of(version: int) -> str:
    """Return the path of an entry under the table's root."""
    return f"{FOLDER}/{version:020d}.json"


def read(storage: TableStorage, version: int) -> LogEntry | None:
    """Return one entry; None if the log does not contain it.

    Raises:
        ConfigError: it is not text.
    """
    try:
        text = storage.read_text(path_of(version))
    except UnicodeDecodeError as error:
        raise damage(storage, version, "is not valid", str(error)) from error
    return None if text is None else LogEntry(storage, version, text)


def read_after(storage: TableStorage, version: int) -> Iterator[LogEntry]:
    """Yield the entries after a version, up to the newest one, the oldest first.

    Raises:
        ConfigError: an entry is lost. It is noticed on a disk only, and if the one after it is there.
    """
    for entry in _read_until_missing(storage, version + 1, 1):
        version = entry.version
        yield entry
    if storage.location.is_object_store or not storage.exists(path_of(version + 2)):
        return
    if version >= 0 and is_cut(storage, version):
        return
    if not storage.exists(path_of(version + 1)):  # else other writers have just committed both
        raise damage(storage, version + 1, "is lost")


def is_cut(storage: TableStorage, version: int) -> bool:
    """Return whether the log does not have the entry of a version any more, whatever it has after it."""
    return not storage.exists(path_of(version))


def damage(
    storage: TableStorage, version: int, fault: str, detail: str | None = None
) -> ConfigError:
    """Return the error that an entry is damaged. `fault`: what is wrong with it, as a predicate."""
    return ConfigError(
        f"the log of the table {storage.uri} is damaged: its entry {path_of(version)} {fault}",
        guidance="restore that file from a backup of the lake; or, if it is the newest entry, remove it: "
        "the next sync reads again what that commit contained; or move the table away to read the stream "
        "from the beginning",
        detail=detail,
    )


def read_newest_first(delta: Versioned) -> Iterator[Entry]:
    """Yield the commits up to a snapshot, the newest first. Older entries are read only when needed."""
    version = delta.version()
    while version in delta.recent:
        yield delta.recent[version]
        version -= 1
    yield from (entry.info for entry in _read_until_missing(delta.storage, version, -1))


def read_since(delta: Versioned, version: int) -> list[Entry]:
    """Return the commits after a version, up to the snapshot, the newest first."""
    entries = []
    if version < delta.version():
        for entry in read_newest_first(delta):
            if entry["version"] <= version:
                break
            entries.append(entry)
    return entries


def read_info(storage: TableStorage, version: int) -> Entry | None:
    """Return one commit by its version; None if the log no longer contains it."""
    entry = read(storage, version)
    return None if entry is None else entry.info


def file_changes(storage: TableStorage, version: int) -> FileChanges:
    """Return the files that one commit adds and removes.

    Raises:
        SystemFailure: the log no longer contains the commit.
    """
    entry = read(storage, version)
    if entry is None:
        raise SystemFailure(
            f"version {version} of the table {storage.uri} is missing from its log",
            guidance="set a longer delta.logRetentionDuration in the engine that cleans the log",
        )
    actions = list(entry.actions())
    return FileChanges(
        frozenset(unquote(action["add"]["path"]) for action in actions if "add" in action),
        {
            unquote(action["remove"]["path"]): int(action["remove"].get("deletionTimestamp") or 0)
            for action in actions
            if "remove" in action
        },
        any("metaData" in action for action in actions),
    )


def find_removed_since(delta: Versioned, oldest: int) -> set[str]:
    """Return the paths of files that were removed from the table at or after a time (epoch milliseconds)."""
    paths: set[str] = set()
    for entry in read_newest_first(delta):
        if int(entry["timestamp"]) < oldest:
            break
        removed = file_changes(delta.storage, int(entry["version"])).removed
        paths |= {path for path, time in removed.items() if time >= oldest}
    return paths


def last_restore(delta: Versioned) -> int:
    """Return the version of the newest RESTORE commit; -1 if there is none.

    Each commit of this project records that version (`RESTORED_AT`), so few entries are read.
    """
    for entry in read_newest_first(delta):
        if entry.get("operation") == RESTORE:
            return int(entry["version"])
        if RESTORED_AT in entry:
            return int(entry[RESTORED_AT])
    return -1


def _read_until_missing(storage: TableStorage, first: int, step: int) -> Iterator[LogEntry]:
    """Yield the entries from a version on, up or down, until one is missing.

    In an object store they are read at the same time, twice as many each time: most callers need one or two.
    """
    if not storage.location.is_object_store:
        yield from _stop_at_missing(read(storage, version) for version in count(first, step))
        return
    with ThreadPoolExecutor(_READERS) as pool:
        size = 1
        while True:
            versions = range(first, first + step * size, step)
            entries = list(pool.map(partial(read, storage), versions))
            yield from _stop_at_missing(entries)
            if None in entries:
                return
            first, size = first + step * size, min(2 * size, _READERS)


def _stop_at_missing(entries: Iterable[LogEntry | None]) -> Iterator[LogEntry]:
    """Yield entries up to the first that is missing."""
    for entry in entries:
        if entry is None:
            return
        yield entry


HINT = f"{FOLDER}/_last_checkpoint"
"""The path of the file that names the newest checkpoint, under the table's root."""
MAX_ENTRIES = 1000
"""Entries after a checkpoint from which another one is due in any case."""
MAX_SHARE = 100
"""Maximum ratio of the size of a checkpoint to that of the entries since. Until it falls below, the next one
waits: a large table with small commits does not write its list of files again for each few of them."""
MAX_BYTES = 8 << 20
"""Bytes of entries after a checkpoint from which another one is due: an opening reads them."""
_COLUMNS = (
    *("txn.appId", "txn.version", "protocol"),
    *(
        "metaData.id",
        "metaData.schemaString",
        "metaData.partitionColumns",
        "metaData.configuration",
    ),
)


class OtherForm(Exception):
    """The log has a valid form that is not read here, such as a checkpoint in several parts."""


class DamagedCheckpoint(Exception):
    """The checkpoint that `_last_checkpoint` names is lost or not whole, or that file itself is damaged.

    `path`: of the damaged file, under the table's root.
    """

    def __init__(self, path: str, reason: object = ""):
        super().__init__(f"{path} is lost or damaged{f': {reason}' if reason else ''}")
        self.path = path


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint without its files."""

    version: int
    size: int  # bytes of its file
    protocol: Mapping[str, Any]  # the action `protocol`
    metadata: Mapping[str, Any]  # four values of the action `metaData`, as in the log
    transactions: pa.StructArray  # the columns `appId` and `version`

    def sequence(self, app_id: str) -> int | None:
        """Return the transaction version of an application; None if there is none."""
        index = pc.index(self.transactions.field("appId"), app_id).as_py()
        return None if index < 0 else int(self.transactions.field("version")[index].as_py())


def checkpoint_path_of(version: int) -> str:
    """Return the path of a checkpoint in one file, under the table's root."""
    return f"{FOLDER}/{version:020d}.checkpoint.parquet"


def read_newest(storage: TableStorage) -> Checkpoint | None:
    """Return the checkpoint that `_last_checkpoint` names; None if it names none.

    Raises:
        OtherForm: the checkpoint has several parts, or is one of the second kind.
        DamagedCheckpoint: the checkpoint cannot be read.
        OSError: the store failed.
    """
    version, hint = _read_hint(storage)
    if version < 0:
        return None
    if hint.get("parts") or hint.get("v2Checkpoint"):
        raise OtherForm("its newest checkpoint has several parts, or is one of the second kind")
    info = storage.system.get_file_info(f"{storage.root}/{checkpoint_path_of(version)}")
    return _read(_Identity(storage, storage.uri, version, info.size, info.mtime_ns))


def find_checkpoint_version(storage: TableStorage) -> int:
    """Return the version of the newest checkpoint that is known; -1 if none is."""
    try:
        return _read_hint(storage)[0]
    except DamagedCheckpoint:
        return -1


def _read_hint(storage: TableStorage) -> tuple[int, Mapping[str, Any]]:
    """Return the version of the checkpoint that `_last_checkpoint` names, -1 if there is none, and all that
    it says."""
    try:
        text = storage.read_text(HINT)
        hint = {"version": -1} if text is None else json.loads(text)
        return int(hint["version"]), hint
    except (ValueError, TypeError, LookupError) as error:
        raise DamagedCheckpoint(HINT, error) from error


@dataclass(frozen=True)
class _Identity:
    """A checkpoint's file. One that was written again, in a table that was created again, is another one."""

    storage: TableStorage = field(compare=False)
    uri: str
    version: int
    size: int | None
    modified: int | None


@lru_cache(maxsize=4)
def _read(file: _Identity) -> Checkpoint:
    """Read a checkpoint, which does not change. A backfill opens its table for each partition."""
    path = checkpoint_path_of(file.version)
    try:
        with file.storage.open_path(path) as source:
            size, columns = source.size(), pq.ParquetFile(source).read(list(_COLUMNS))
        metadata = _only(columns["metaData"])
        return Checkpoint(
            file.version,
            size,
            _only(columns["protocol"]),
            {**metadata, "configuration": dict(metadata["configuration"] or ())},
            _drop_nulls(columns["txn"]),
        )
    except (OSError, pa.ArrowInvalid, LookupError, ValueError) as error:
        raise DamagedCheckpoint(path, first_line(error)) from error


def is_due(version: int, interval: int, entries: int, size: int, checkpoint_size: int) -> bool:
    """Return whether a checkpoint of a version is due.

    Args:
        interval: the property `delta.checkpointInterval`. Only one writer of so many looks at the sizes.
        entries: the number of entries since the newest checkpoint.
        size: bytes of these entries.
        checkpoint_size: bytes of the newest checkpoint; 0 if there is none.
    """
    if size >= MAX_BYTES:
        return True
    is_turn = (version + 1) % interval == 0
    return is_turn and (entries >= MAX_ENTRIES or size * MAX_SHARE >= checkpoint_size)


def _drop_nulls(column: pa.ChunkedArray) -> pa.StructArray:
    values = pc.drop_null(column).combine_chunks()
    return values if isinstance(values, pa.StructArray) else values.chunk(0)


def _only(column: pa.ChunkedArray) -> dict[str, Any]:
    (value,) = _drop_nulls(column).to_pylist()
    return dict(value)
