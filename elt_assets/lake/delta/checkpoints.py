"""Checkpoints of a Delta table's log: what one says of a table besides its files, and when one is due.

Only the columns of the protocol, the metadata and the transactions are read. They are small, while the list
of files is nearly all of a checkpoint.

Spec: Delta Transaction Log Protocol, Checkpoints
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from elt_assets.lake.delta.files import TableStorage
from elt_assets.lake.delta.log import FOLDER
from elt_assets.machine_faults import first_line

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


def path_of(version: int) -> str:
    """Return the path of a checkpoint in one file, under the table's root."""
    return f"{FOLDER}/{version:020d}.checkpoint.parquet"


def read_newest(storage: TableStorage) -> Checkpoint | None:
    """Return the checkpoint that `_last_checkpoint` names; None if it names none.

    Raises:
        OtherForm: the checkpoint has several parts, or is one of the second kind.
        DamagedCheckpoint: the checkpoint cannot be read.
        OSError: the store failed.
    """
    try:
        text = storage.read_text(HINT)
        hint = None if text is None else json.loads(text)
        version = -1 if hint is None else int(hint["version"])
    except (ValueError, TypeError, LookupError) as error:
        raise DamagedCheckpoint(HINT, error) from error
    if hint is None:
        return None
    if hint.get("parts") or hint.get("v2Checkpoint"):
        raise OtherForm("its newest checkpoint has several parts, or is one of the second kind")
    info = storage.system.get_file_info(f"{storage.root}/{path_of(version)}")
    return _read(_Identity(storage, storage.uri, version, info.size, info.mtime_ns))


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
    path = path_of(file.version)
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
