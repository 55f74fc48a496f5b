"""The streams of a source of files: each is read by slices, in the order of the files' times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from connectors.sdk import Checkpoint, Slice, SlicedStream
from connectors.sdk.files.formats.delimited import Delimited
from connectors.sdk.files.formats.excel import Excel
from connectors.sdk.files.formats.file_format import PART_BYTES, FileFormat, FilePart
from connectors.sdk.files.formats.json_lines import JsonLines
from connectors.sdk.files.formats.parquet import Parquet
from connectors.sdk.files.listing import FileListing
from connectors.sdk.files.options import (
    CsvOptions,
    ExcelOptions,
    FileStreamConfig,
    JsonLinesOptions,
)
from connectors.sdk.files.read_files import LIMIT, FileVersion
from connectors.sdk.files.rows import FileRows
from connectors.sdk.files.schema import kind_of_schema, make_schema, merge_shapes
from connectors.sdk.files.storage import Storage
from connectors.sdk.items import Estimate
from connectors.sdk.slices import Part
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, ConfiguredStream

_PACK_BYTES = PART_BYTES // 2
_PACK_FILES = 250
"""About the bytes, and the maximum number, of small files that are read as one slice."""
_STATES = 200
"""The entries of a state are sent at most about this often: a state may have a megabyte."""


class FileStream(SlicedStream):
    """The files that match the globs of a stream."""

    supported_sync_modes = (FULL_REFRESH, INCREMENTAL)
    source_defined_cursor = True
    is_resumable = True

    def __init__(
        self,
        stream: FileStreamConfig,
        storage: Storage,
        file_format: FileFormat,
        *,
        look_back: int,
        file_columns: bool,
    ):
        self.name = stream.name
        self.primary_key = tuple(stream.primary_key)
        self._stream, self._storage, self._format = stream, storage, file_format
        self._file_columns = file_columns
        self._listing = FileListing(stream, storage, look_back)
        self._schema: Mapping[str, Any] | None = None

    @property
    def json_schema(self) -> Mapping[str, Any]:  # type: ignore[override] # a sample is read for it
        """The schema: that of the configured stream in a read, and that of a sample of the files otherwise.

        Raises:
            EltError: the files cannot be read, or there are none.
        """
        if self._schema is None:
            self._schema = self._infer()
        return self._schema

    def check(self) -> None:
        """Read the beginning of the newest file.

        Raises:
            EltError: it cannot be read, or there is none.
        """
        self._infer(1)

    def schema_to_check(self, configured: ConfiguredStream) -> Mapping[str, Any]:
        return configured.stream.json_schema

    def has_new_data(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> bool:
        return bool(self._listing.begin(configured, state).pending)

    def slices(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Part]:
        self._schema = configured.stream.json_schema
        progress = self._listing.begin(configured, state)
        columns = self._list_kinds()
        packs = _Packs(self._storage, self._format, progress.pending)
        done, unsaved = 0, 0
        yield Estimate(packs.estimate)
        for files, parts in packs:
            for number, part in enumerate(parts):
                yield _make_slice(files, part, columns, number if len(parts) > 1 else None)
            done += len(files)
            unsaved += len(files)
            saved = progress.after(done)
            if _is_due(len(saved.recent), unsaved, is_last=done == len(progress.pending)):
                yield Checkpoint(saved.to_json())
                unsaved = 0
        if not progress.pending:
            yield Checkpoint(progress.after(0).to_json())
        if progress.deferred:
            yield self._listing.warn_of_deferred(progress)

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        self._schema = {
            "type": "object",
            "properties": {name: {"type": "object"} for name in data["nested"]},
        }
        part = FilePart(0, *(data.get("part") or ()))
        for path, modified, size in data["files"]:
            file = FileVersion(modified, path, size)
            rows = FileRows(file, self._file_columns, self._stream.bad_lines == "reject")
            with self._storage.guard_read(file):
                yield from self._format.read(self._storage, rows, part, data["kinds"])

    def _infer(self, most: int | None = None) -> Mapping[str, Any]:
        files = self._listing.list_newest()
        if not files and not self._stream.columns:
            raise self._listing.no_file(
                "correct `glob`, or name the `columns` of files that are to come"
            )
        shapes = []
        for file in files[: most or self._stream.sample_files]:
            with self._storage.guard_read(file):
                shapes.append(self._format.sample(self._storage, file))
        return make_schema(
            merge_shapes(shapes),
            self._stream.columns,
            mixed=self._format.mixed,
            file_columns=self._file_columns,
        )

    def _list_kinds(self) -> tuple[dict[str, str], list[str]]:
        """Return the types of the columns, and the names of those whose texts are JSON."""
        properties = self.json_schema.get("properties") or {}
        kinds = {name: kind_of_schema(schema) for name, schema in properties.items()}
        nested = [name for name, kind in kinds.items() if kind in ("json", "object", "array")]
        return {name: kind for name, kind in kinds.items() if kind != "string"}, nested


def make_format(stream: FileStreamConfig) -> FileFormat:
    """Return the format of the files of a stream."""
    if stream.format == "csv":
        return Delimited(stream.csv or CsvOptions.model_validate({}), stream.compression)
    if stream.format == "jsonl":
        return JsonLines(stream.jsonl or JsonLinesOptions.model_validate({}), stream.compression)
    return (
        Excel(stream.excel or ExcelOptions.model_validate({}))
        if stream.format == "excel"
        else Parquet()
    )


def _make_slice(
    files: Sequence[FileVersion],
    part: FilePart,
    columns: tuple[dict[str, str], list[str]],
    number: int | None,
) -> Slice:
    kinds, nested = columns
    key = files[0].path
    if len(files) > 1:
        key += f" and {len(files) - 1} more files"
    elif number is not None:
        key += f", part {number + 1}"
    data: dict[str, Any] = {
        "files": [[file.path, file.modified, file.size] for file in files],
        "kinds": kinds,
        "nested": nested,
    }
    if part.bounds is not None:
        data["part"] = list(part.bounds)
    return Slice(key, data, part.rows)


def _is_due(entries: int, unsaved: int, *, is_last: bool) -> bool:
    """Return whether a state is to be sent: a large one not often, one that is too large only at the end."""
    return is_last or (entries <= LIMIT and unsaved >= entries // _STATES)


@dataclass
class _Packs:
    """Groups of files that are read together, with the parts of a file that is read in several."""

    storage: Storage
    format: FileFormat
    files: Sequence[FileVersion]
    _pack: list[FileVersion] = field(default_factory=list, init=False)

    @cached_property
    def estimate(self) -> int:
        """About how many rows the files have."""
        small = [file for file in self.files if file.size <= PART_BYTES]
        large = sum(file.size for file in self.files) - sum(file.size for file in small)
        return sum(self._rows(file) for file in small) + large // 100

    def __iter__(self) -> Iterator[tuple[list[FileVersion], Sequence[FilePart]]]:
        pack: list[FileVersion] = []
        size = rows = 0
        for file in self.files:
            is_large = file.size > _PACK_BYTES
            if pack and (is_large or size + file.size > _PACK_BYTES or len(pack) >= _PACK_FILES):
                yield pack, [FilePart(rows)]
                pack, size, rows = [], 0, 0
            if is_large:
                yield [file], self.format.split(self.storage, file)
                continue
            pack.append(file)
            size += file.size
            rows += self._rows(file)
        if pack:
            yield pack, [FilePart(rows)]

    def _rows(self, file: FileVersion) -> int:
        return sum(part.rows for part in self.format.split(self.storage, file))
