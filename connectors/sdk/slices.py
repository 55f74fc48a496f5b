"""Streams that are read by slices: tasks read them side by side, as Arrow.

`SlicedStream.slices` divides a read into slices, and says which state is reached when those before it are
complete. `read_slice` reads one of them. In a sync to the lake, Spark's tasks do that; the records never pass
through the process of the source. Any other reader gets the same rows as RECORD messages.

A slice's `data` is all that a task knows of it, besides the config: the task runs the program up to its call
of `run`, and opens the streams of that source again. So a slice must be readable from any machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from connectors.sdk.items import Checkpoint, Estimate, Item, Measure, Page, Slice, Wait, Warn
from connectors.sdk.programs import find_source
from connectors.sdk.stream import Stream
from elt_assets.errors import SystemFailure
from elt_assets.protocol.catalog import ConfiguredStream

if TYPE_CHECKING:  # a source that only lists its streams needs no Arrow
    import pyarrow as pa

_RECORDS = "connectors.sdk.arrow_records"
"""The module that makes records of Arrow. It is imported when it is used: pyarrow is slow to import."""
_FILES = "connectors.sdk.slice_files"
Part = Slice | Wait | Checkpoint | Estimate | Warn | Measure


class SlicedStream(Stream):
    """The base class of streams that are read by slices. Subclasses write `slices` and `read_slice`."""

    def slices(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterable[Part]:
        """Yield the slices of a read, and a `Checkpoint` wherever a later read can resume.

        A `Checkpoint` covers the slices before it. `Wait` returns when they are read, and committed if a
        state covers them: a stream that keeps something open for its slices, such as the snapshot of a
        database, closes it after that.

        Args:
            state: that of the last acknowledged checkpoint; None to read from the beginning.

        Raises:
            EltError: the source cannot be read; its class names who must act.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `slices`")

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a slice, in batches that fit in memory, with a column for each field.

        The types need not be those of the table: what Arrow cannot take over without a loss is converted
        from JSON, as the values of a RECORD are. `report_changes` of `connectors.sdk.arrow_records` adds the
        values that the source has changed, and `make_json_rows` makes a batch of rows in JSON.

        Args:
            data: that of the slice.

        Raises:
            EltError: the slice cannot be read; its class names who must act.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `read_slice`")

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        """Yield the rows of all slices as records, one slice after another."""
        for part in self.slices(configured, state):
            if isinstance(part, Slice):
                yield from read_as_pages(self, part)
            elif not isinstance(part, Wait):
                yield part


def read_as_pages(stream: SlicedStream, part: Slice) -> Iterator[Page]:
    """Yield the rows of a slice as records."""
    convert = import_module(_RECORDS).page_of
    if part.file is None:
        batches = stream.read_slice(part.data)
    else:
        batches = import_module(_FILES).read_slice_file(
            part.file, has_changes=part.file_has_changes
        )
    for batch in batches:
        yield convert(batch, stream.json_schema)


@dataclass
class SliceReader:
    """Reads the slices of one stream in a task.

    Args:
        module: the module of the program that is the source.
        config: the config of the source, as JSON.
        configured: the configured stream, as JSON.
    """

    module: str
    config: bytes = field(repr=False)
    configured: bytes
    _stream: SlicedStream | None = field(default=None, init=False, repr=False)

    def read(self, data: bytes) -> Iterator[pa.RecordBatch]:
        """Return the rows of a slice."""
        return self.stream.read_slice(msgspec.json.decode(data))

    def read_file(self, file: Any, *, has_changes: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the file of a slice, a path or an open file. `has_changes`: see `Slice`."""
        batches: Iterator[pa.RecordBatch] = import_module(_FILES).read_slice_file(
            file, has_changes=has_changes
        )
        return batches

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch | None, pa.Array | None]:
        """Return the fields of a batch, and the changes of its rows.

        Returns:
            The fields: None if the rows are records in JSON. The changes: None if there are none.
        """
        records = import_module(_RECORDS)
        if records.has_json_rows(batch):
            return None, None
        fields, changes = records.split_changes(batch)
        return fields, changes

    def write_lines(self, batch: pa.RecordBatch, emitted_at: int) -> bytes:
        """Return the rows of a batch as lines of JSON: see `lines_of`."""
        lines: bytes = import_module(_RECORDS).lines_of(batch, self.stream.json_schema, emitted_at)
        return lines

    @property
    def stream(self) -> SlicedStream:
        """The stream, which is opened once in a task.

        Raises:
            EltError: the source cannot be opened.
        """
        if self._stream is None:
            self._stream = _open(self.module, self.config, self.configured)
        return self._stream


def _open(module: str, config: bytes, configured: bytes) -> SlicedStream:
    source = find_source(module)
    stream_to_read = ConfiguredStream.from_json(configured)
    source.selected = [stream_to_read.stream.name]
    for stream in source.open(msgspec.json.decode(config)):
        if stream.id == stream_to_read.id and isinstance(stream, SlicedStream):
            return stream
    raise source.refusal(stream_to_read.stream.name) or SystemFailure(
        f"the source has no stream {str(stream_to_read.id)!r} any more",
        guidance="run `elt discover`, and remove the stream if it is gone",
    )
