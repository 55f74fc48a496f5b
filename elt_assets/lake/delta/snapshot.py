"""A table at one version, as its log describes it, without the list of its files.

`opening` returns it; all of `lake.delta` works on it, and others get a `Table`.

delta-rs reads the whole list when it opens a table, and goes through it at each update: with 100,000 files in
100,000 commits, 600 ms and 400 ms on a local disk. Most syncs need no file of the table, only its columns,
its properties and the sequence of one writer. `Snapshot` reads these from the newest checkpoint and the
entries after it. It lets delta-rs open the table when files are needed, or if the log has a form that is not
read here (`OtherForm`). A part of the log that is damaged is an error that names it, or a warning if delta-rs
can do without it: it is never the slow way without a word.

Why the newest entry is found without a listing: see `log`. `_last_checkpoint` may be outdated. Then the entry
of its version must still be present, and the entries that follow it are all up to the newest.

Spec: Delta Transaction Log Protocol, Action Reconciliation; Checkpoints
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake import __version__ as delta_version
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.table import ProtocolVersions
from deltalake.transaction import AddAction, PostCommitHookProperties, RemoveAction

from elt_assets.errors import ConcurrentSync, ConfigError
from elt_assets.lake.delta import log
from elt_assets.lake.delta.log import MAX_ENTRIES, DamagedCheckpoint, Entry, LogEntry, OtherForm
from elt_assets.lake.delta.storage import TableStorage
from elt_assets.machine_faults import first_line, translate

_log = logging.getLogger(__name__)

CONFLICT = "Failed to commit transaction: "
"""The beginning of the error for a version that exists, as delta-rs, a store or the disk says. Other errors
of the same class are refusals."""
_RECENT = 256
"""The number of newest commits whose metadata a snapshot keeps."""
_ENGINE = f"delta-rs:py-{delta_version}"
"""The format of entries is that of delta-rs, so they name it as their engine."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_PATH = re.compile(r"[\w/.=:-]*", re.ASCII)
"""Paths that are the same in the log; in others, delta-rs encodes characters as it expects them."""
_NO_HOOK = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class TableMetadata(NamedTuple):
    """The properties of a table, and the columns that it is partitioned by."""

    # Delta's id of the table. It goes with the table when its folder is moved or copied, and a table that is
    # created again has another one.
    id: str
    configuration: dict[str, str]
    partition_columns: list[str]


@dataclass(frozen=True)
class TableDescription:
    """The description of a table at a version in its log, without its files."""

    version: int
    protocol: ProtocolVersions
    metadata: TableMetadata
    schema: str
    sequence: Callable[[str], int | None]  # returns the transaction version of an application
    # Version and size of the newest checkpoint that is known; -1 and 0 if none is.
    checkpoint: tuple[int, int] = (-1, 0)


class Snapshot:
    """A table at one version. It has the methods of `DeltaTable` that need no files.

    Attributes:
        recent: the metadata of the newest commits, by version: of all that were read.
    """

    def __init__(
        self, storage: TableStorage, description: TableDescription, delta: DeltaTable | None = None
    ):
        self.storage = storage
        self.recent: dict[int, Entry] = {}
        self._description = description
        self._sequences: dict[str, int] = {}
        self._bytes = 0
        self._new_entry: LogEntry | None = None
        self._delta = delta

    @classmethod
    def from_delta(cls, delta: DeltaTable, storage: TableStorage) -> Snapshot:
        """Return the snapshot of a table that delta-rs has opened."""
        metadata = delta.metadata()
        properties = TableMetadata(
            str(metadata.id), metadata.configuration, metadata.partition_columns
        )
        schema = delta.schema().to_json()
        return cls(
            storage,
            TableDescription(
                int(delta.version()),
                delta.protocol(),
                properties,
                schema,
                delta.transaction_version,
            ),
            delta,
        )

    @classmethod
    def newest(cls, storage: TableStorage) -> Snapshot:
        """Return the newest snapshot.

        Raises:
            TableNotFoundError: there is no table.
            EltError: it cannot be opened.
        """
        return cls.read(storage) or cls.from_delta(open_with_files(storage, None), storage)

    @classmethod
    def read(cls, storage: TableStorage) -> Snapshot | None:
        """Return the newest snapshot; None if delta-rs must read the log, or if there is none.

        Raises:
            ConfigError: an entry of the log is damaged.
        """
        try:
            return cls._read_log(storage)
        except OtherForm as reason:
            _log.debug("The log of the table %s is read by delta-rs: %s", storage.uri, reason)
        except (DamagedCheckpoint, OSError) as error:
            # delta-rs says more of a fault of a store, and may not need what is damaged.
            _warn_once(storage.uri, first_line(error))
        return None

    @classmethod
    def _read_log(cls, storage: TableStorage) -> Snapshot | None:
        description = _read_checkpoint(storage)
        snapshot = None if description is None else cls(storage, description)
        first = -1 if snapshot is None else snapshot.version()
        for number, entry in enumerate(log.read_after(storage, first)):
            if number > 2 * MAX_ENTRIES:
                raise OtherForm(f"more than {2 * MAX_ENTRIES} entries follow its newest checkpoint")
            if snapshot is None:
                snapshot = cls(storage, _describe_first(entry))
            snapshot._apply(entry)
        return snapshot

    @property
    def table_uri(self) -> str:
        return self.storage.uri

    def version(self) -> int:
        return self._description.version

    def protocol(self) -> ProtocolVersions:
        return self._description.protocol

    def metadata(self) -> TableMetadata:
        return self._description.metadata

    def schema(self) -> Schema:
        return Schema.from_json(self._description.schema)

    def transaction_version(self, app_id: str) -> int | None:
        """Return the transaction version of an application; None if there is none."""
        if app_id in self._sequences:
            return self._sequences[app_id]
        return self._description.sequence(app_id)

    @property
    def delta_table(self) -> DeltaTable:
        """The table at this version, as delta-rs opens it: with the list of all files."""
        version = self.version()
        if self._delta is not None and int(self._delta.version()) < version:
            with _explain_errors(self.storage, version):
                self._delta.update_incremental()
        if self._delta is None or int(self._delta.version()) != version:
            try:
                self._delta = open_with_files(self.storage, version)
            except (TableNotFoundError, ConfigError) as error:
                if log.find_checkpoint_version(self.storage) <= version:
                    raise
                raise ConcurrentSync(
                    f"the table {self.table_uri} has no version {version} any more: rows of it were erased "
                    "meanwhile (`elt erase`), or another engine cleaned its log",
                    guidance="run it again: it begins with the newest version",
                ) from error
        return self._delta

    def update_incremental(self) -> None:
        """Move to the newest version, or to that which this snapshot has just written.

        The entry of the latter is known, so nothing is read. A checkpoint is written if one is due.
        """
        entry, self._new_entry = self._new_entry, None
        if entry is not None:
            self._apply(entry)
            self._checkpoint_if_due()
            return
        before = self.version()
        for entry in log.read_after(self.storage, before):
            self._apply(entry)
        # What follows a version that is gone may be a commit that counts for nobody (`outcome`).
        if log.is_cut(self.storage, before):
            newest = Snapshot.newest(self.storage)
            if newest.version() > before:
                self.become(newest)

    def leave_removed_version(self) -> None:
        """Move on before a commit if the log begins after this version: the next one may seem to be free.

        In a store, delta-rs reads the entry of this version in any case, unless it has done so before.
        """
        was_read = self._delta is not None and int(self._delta.version()) == self.version()
        is_looked_at = was_read or not self.storage.location.is_object_store
        if is_looked_at and log.is_cut(self.storage, self.version()):
            self.update_incremental()

    def become(self, newest: Snapshot) -> None:
        """Move to a snapshot that was read anew."""
        self.__dict__.update(newest.__dict__)

    def create_write_transaction(
        self,
        actions: Sequence[AddAction | RemoveAction],
        mode: str,
        schema: Schema,
        properties: CommitProperties,
    ) -> None:
        """Write the next version, as `DeltaTable.create_write_transaction` does. `update_incremental` moves
        to it.

        On a local file system, no file of the table is looked at: the entry gets its name if no other has it.

        Raises:
            CommitFailedError: another writer has written that version; nothing was published.
            Exception: an error of delta-rs or of the disk.
        """
        entry = LogEntry(self.storage, self.version() + 1, commit_text(actions, properties))
        is_plain = all(_PLAIN_PATH.fullmatch(action.path) for action in actions)
        if self.storage.location.path is None or mode != "append" or not is_plain:
            self.delta_table.create_write_transaction(
                list(actions),
                mode,
                schema,
                commit_properties=properties,
                post_commithook_properties=_NO_HOOK,
            )
        else:
            self._write(entry)
        self._new_entry = entry if mode == "append" else None

    def _write(self, entry: LogEntry) -> None:
        path = log.path_of(entry.version)
        try:
            self.storage.create_text(path, entry.text)
        except FileExistsError as error:
            raise CommitFailedError(f"{CONFLICT}{path} exists") from error

    def _apply(self, entry: LogEntry) -> None:
        """Move to the version of the next entry.

        Raises:
            ConfigError: the entry is damaged.
        """
        with _refuse_damage(entry):
            self._apply_actions(entry)

    def _apply_actions(self, entry: LogEntry) -> None:
        description = self._description
        protocol, metadata, schema = description.protocol, description.metadata, description.schema
        for action in entry.actions(files=False):
            if "protocol" in action:
                protocol = _protocol(action["protocol"])
            elif "metaData" in action:
                metadata, schema = _metadata(action["metaData"])
            elif "txn" in action:
                self._sequences[action["txn"]["appId"]] = int(action["txn"]["version"])
        self._description = replace(
            description,
            version=entry.version,
            protocol=protocol,
            metadata=metadata,
            schema=schema,
        )
        self._bytes += len(entry.text)
        self.recent[entry.version] = entry.info
        self.recent.pop(entry.version - _RECENT, None)

    def _checkpoint_if_due(self) -> None:
        """Write a checkpoint if one is due. The commit counts without it, and a later one tries again."""
        version, (before, size) = self.version(), self._description.checkpoint
        interval = int(self.metadata().configuration.get("delta.checkpointInterval", "100"))
        if log.is_due(version, interval, version - before, self._bytes, size):
            self.write_checkpoint()

    @property
    def log_length(self) -> int:
        """The number of entries after the newest checkpoint, all of which an opening of the table reads."""
        before, _ = self._description.checkpoint
        if before < 0:
            before = log.find_checkpoint_version(self.storage)
        return self.version() - before

    def write_checkpoint(self) -> None:
        """Write a checkpoint of this version; if that is not possible, there is a warning.

        There is none of a version that an erasure has removed since, with older checkpoints: the log begins
        with a newer one.
        """
        version = self.version()
        if log.is_cut(self.storage, version):
            return
        try:
            self.delta_table.create_checkpoint()
        except (DeltaError, OSError) as error:
            _log.warning(
                "Version %d of the table %s was committed, although no checkpoint of it could be written "
                "(%s). A later commit tries it again; until then, opening the table takes longer.",
                version,
                self.table_uri,
                first_line(error),
            )
            return
        size = self.storage.size(log.checkpoint_path_of(version))
        self._description = replace(self._description, checkpoint=(version, size))
        self._bytes = 0


@lru_cache(maxsize=256)
def _warn_once(uri: str, reason: str) -> None:
    """Log that a table is opened the slow way, once in a process for each reason."""
    _log.warning(
        "The table %s is opened with the list of all its files, which takes longer: %s", uri, reason
    )


@contextmanager
def _refuse_damage(entry: LogEntry) -> Iterator[None]:
    """Raise what an entry lacks, or has with another type, as an error that names the entry."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise log.damage(entry.storage, entry.version, "is not valid", reason) from error


def open_with_files(storage: TableStorage, version: int | None) -> DeltaTable:
    """Open a table with delta-rs, at its newest version or at the given one.

    Raises:
        TableNotFoundError: there is no table.
        EltError: it cannot be opened.
    """
    location = storage.location
    with _explain_errors(storage, version):
        return DeltaTable(location.uri, version=version, storage_options=location.for_delta)


@contextmanager
def _explain_errors(storage: TableStorage, version: int | None) -> Iterator[None]:
    """Raise an error of delta-rs that a table cannot be opened as an error that says what to do."""
    try:
        yield
    except TableNotFoundError:
        raise
    except DeltaError as error:
        fault = translate(error, f"while the table {storage.uri} was opened")
        if fault is not None:  # of the store, not of the table
            raise fault from error
        raise ConfigError(
            f"the table {storage.uri} cannot be opened"
            + (f" at version {version}" if version is not None else "")
            + f": {first_line(error)}",
            guidance=_repair(storage),
        ) from error


def _repair(storage: TableStorage) -> str:
    """Return what to do about a table that cannot be opened."""
    away = "move the table away to read the stream from the beginning"
    try:
        log.read_newest(storage)
    except DamagedCheckpoint as error:
        if not storage.exists(log.path_of(0)):
            return f"restore the checkpoint {error.path} from a backup of the lake, or {away}"
        return (
            f"the newest checkpoint is lost or damaged: remove {log.HINT} and {error.path} from the "
            "table's folder; no row and no state is lost, since the log has all entries since the first one"
        )
    except (OtherForm, OSError) as reason:
        _log.debug("The checkpoint of the table %s is not known: %s", storage.uri, reason)
    return f"repair it with the engine that wrote it last, or {away}"


def commit_text(actions: Sequence[AddAction | RemoveAction], properties: CommitProperties) -> str:
    """Return the entry of a commit, as delta-rs writes it.

    Characters are not escaped: delta-rs reads the two escapes of one beyond U+FFFF as another character.
    """
    info = {
        "timestamp": int(time.time() * 1000),
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "engineInfo": _ENGINE,
        **(properties.custom_metadata or {}),
    }
    lines: list[dict[str, Any]] = [{"commitInfo": info}]
    lines += map(_action_json, actions)
    lines += (
        {"txn": {"appId": transaction.app_id, "version": transaction.version}}
        for transaction in properties.app_transactions or ()
    )
    return "".join(f"{_encode_line(line)}\n" for line in lines)


def _encode_line(line: dict[str, Any]) -> str:
    text = json.dumps(line, separators=(",", ":"), ensure_ascii=False)
    # Half of a surrogate pair, which only the metadata of a commit may have, has no form but its escape.
    return text if text.isascii() or not _SURROGATE.search(text) else json.dumps(line)


def _action_json(action: AddAction | RemoveAction) -> dict[str, Any]:
    if isinstance(action, AddAction):
        return {
            "add": {
                "path": action.path,
                "partitionValues": action.partition_values,
                "size": action.size,
                "modificationTime": action.modification_time,
                "dataChange": action.data_change,
                "stats": action.stats,
            }
        }
    return {
        "remove": {
            "path": action.path,
            "deletionTimestamp": action.deletion_timestamp,
            "dataChange": action.data_change,
            "extendedFileMetadata": True,
            "partitionValues": action.partition_values,
            "size": action.size,
        }
    }


def _read_checkpoint(storage: TableStorage) -> TableDescription | None:
    checkpoint = log.read_newest(storage)
    if checkpoint is None:
        return None
    if not storage.exists(log.path_of(checkpoint.version)):
        raise OtherForm("the entries after its newest checkpoint may have been removed")
    try:
        metadata, schema = _metadata(checkpoint.metadata)
        protocol = _protocol(checkpoint.protocol)
    except (LookupError, TypeError) as error:
        raise DamagedCheckpoint(log.checkpoint_path_of(checkpoint.version), error) from error
    return TableDescription(
        checkpoint.version,
        protocol,
        metadata,
        schema,
        checkpoint.sequence,
        (checkpoint.version, checkpoint.size),
    )


def _describe_first(entry: LogEntry) -> TableDescription:
    """Return the description of a table whose first entry is given."""
    with _refuse_damage(entry):
        first: dict[str, Any] = {}
        for action in entry.actions(files=False):
            first |= action
        metadata, schema = _metadata(first["metaData"])
        protocol = _protocol(first["protocol"])
    return TableDescription(entry.version, protocol, metadata, schema, lambda _: None)


def _protocol(action: Mapping[str, Any]) -> ProtocolVersions:
    return ProtocolVersions(
        int(action["minReaderVersion"]),
        int(action["minWriterVersion"]),
        action.get("writerFeatures"),
        action.get("readerFeatures"),
    )


def _metadata(action: Mapping[str, Any]) -> tuple[TableMetadata, str]:
    properties = TableMetadata(
        str(action["id"]),
        dict(action.get("configuration") or {}),
        list(action.get("partitionColumns") or ()),
    )
    return properties, str(action["schemaString"])
