"""The task that leaves rows of suppressed keys out of files, and the hashes of keys.

`lake.write.suppression` runs the task; `lake.admin.erasure` hashes the keys that it erases.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from elt_assets.lake.worker.file_tasks import write_without
from elt_assets.lake.worker.parquet import (
    Output,
    WrittenFile,
    read_keys,
)

RECORD = "record"
"""The column of a dead letter with a record as JSON."""


def hash_keys(salt: bytes, keys: Iterable[Sequence[Any]]) -> list[str]:
    """Return the hashes of keys: 32 hex digits for each, from the texts of its parts."""
    return [
        hmac.digest(salt, json.dumps([*map(_text, key)]).encode(), "sha256").hex()[:32]
        for key in keys
    ]


def _text(value: Any) -> str | None:
    is_whole = isinstance(value, float) and value.is_integer()
    return None if value is None else str(int(value) if is_whole else value)


@dataclass(frozen=True)
class SuppressionJob:
    """Files of which rows are left out."""

    files: Sequence[str]  # the path of each task's file below the root of `output`
    key: Sequence[Sequence[str]]  # column paths; of rejected records, paths of fields
    hashes: frozenset[str]
    salt: bytes
    output: Output  # gets the other rows
    is_rejected: bool = False  # the rows are rejected records


LeftOut = tuple[int, Sequence[WrittenFile]]
"""The number of rows that were left out of a file, and new files with the others; none if it was no row."""


def make_leave_out(job: SuppressionJob) -> Callable[[int], LeftOut]:
    """Return the function that writes the file of a number again, without rows of suppressed keys."""

    def leave_out(number: int) -> LeftOut:
        path = f"{job.output.root[1]}/{job.files[number]}"
        keys = _read_rejected_keys(job, path) if job.is_rejected else _read_keys(job, path)
        mask = pa.array([text in job.hashes for text in hash_keys(job.salt, keys)], pa.bool_())
        count = pc.sum(mask).as_py() or 0
        if not count:
            return 0, []
        return count, write_without(job.output, path, mask)

    return leave_out


def _read_keys(job: SuppressionJob, path: str) -> Iterable[Sequence[Any]]:
    columns = read_keys(job.output.root[0], path, job.key)
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _read_rejected_keys(job: SuppressionJob, path: str) -> Iterable[Sequence[Any]]:
    (records,) = read_keys(job.output.root[0], path, [[RECORD]])
    for text in records.to_pylist():
        yield [_field(text, part) for part in job.key]


def _field(text: str, path: Sequence[str]) -> Any:
    """Return a field of a record; None if it has none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
