"""Files of batches that are slices of streams: what a source cannot read twice, or not in a task.

A log of changes is read once for all tables. Its changes are written as files of Arrow, and each file is a
slice of its stream (`Slice.file`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors.sdk.arrow_records import list_changes, report_changes, split_changes
from connectors.sdk.groups import StreamPart
from connectors.sdk.items import Slice
from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import CHANGES_COLUMN, SLICES_FOLDER

FILE_ROWS, FILE_BYTES = 500_000, 64 << 20
"""The size of a file from which the next one begins: a file is read by one task."""


def find_slice_folder() -> Path | None:
    """Return the folder that the reader of slices has made for their files; None if there is no such reader,
    and the source itself reads the files."""
    folder = os.environ.get(SLICES_FOLDER)
    return Path(folder) if folder else None


def name_file(file: str) -> str:
    """Return the path of a file below the folder for files of slices.

    Raises:
        SystemFailure: it is elsewhere.
    """
    folder = find_slice_folder()
    if folder is None or not Path(file).is_relative_to(folder):
        raise SystemFailure(
            f"the file of a slice is not in the folder for files of slices: {file}",
            guidance="let the source write it to the folder that `find_slice_folder` returns",
        )
    return Path(file).relative_to(folder).as_posix()


@dataclass
class _File:
    path: Path
    schema: pa.Schema
    writer: Any
    rows: int = 0
    size: int = 0

    @property
    def has_room(self) -> bool:
        return self.rows < FILE_ROWS and self.size < FILE_BYTES

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return a batch in the types of the file; None if it has others. Columns of nulls have any type."""
        if batch.schema.equals(self.schema):
            return batch
        if batch.schema.names != self.schema.names:
            return None
        pairs = zip(batch.schema.types, self.schema.types, strict=True)
        if any(kind != other and not pa.types.is_null(kind) for kind, other in pairs):
            return None
        return batch.cast(self.schema)


class SliceFiles:
    """Files in a folder, some for each stream."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._files: dict[StreamId, list[_File]] = {}

    def write(self, stream: StreamId, batch: pa.RecordBatch) -> None:
        """Add a batch to the files of a stream."""
        batch = put_changes_last(batch)
        files = self._files.setdefault(stream, [])
        fitted = files[-1].fit(batch) if files and files[-1].has_room else None
        if fitted is None:
            if files:
                files[-1].writer.close()
                files[-1].writer = None
            files.append(self._open(batch.schema))
            fitted = batch
        file = files[-1]
        file.writer.write_batch(fitted)
        file.rows += len(batch)
        file.size += batch.nbytes

    def _open(self, schema: pa.Schema) -> _File:
        count = sum(len(files) for files in self._files.values())
        path = self._folder / f"{count}.arrow"
        return _File(path, schema, pa.ipc.new_stream(str(path), schema))

    def close(self) -> Iterator[StreamPart]:
        """Yield the files as slices of their streams."""
        for stream, files in self._files.items():
            for number, file in enumerate(files):
                if file.writer is not None:
                    file.writer.close()
                part = Slice(
                    f"changes {number}", {}, file.rows, str(file.path), file_has_changes=True
                )
                yield StreamPart(stream, part)


def put_changes_last(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the fields of a batch, and then its changes, for a file with `file_has_changes`."""
    fields, changes = split_changes(batch)
    reported = list_changes({}, len(batch)) if changes is None else changes
    return fields.append_column(CHANGES_COLUMN, reported)


def read_slice_file(file: Any, *, has_changes: bool = True) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file, a path or an open file."""
    opened = pa.memory_map(file) if isinstance(file, str) else contextlib.nullcontext(file)
    with opened as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            last = batch.num_columns - 1
            if has_changes:
                yield report_changes(batch.remove_column(last), batch.column(last))
            else:
                yield batch
