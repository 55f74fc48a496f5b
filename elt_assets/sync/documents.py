"""The documents of a stream's records: files that its source transfers as they are.

Used by `streams`; `pipeline` and `destination` give the place, a transfer of `lake.write.documents`.

`SelectiveSegmentWriter` looks at each record that is staged: it applies the stream's filter, and takes the
records' documents.

A document is in its place before the segment of its record is closed, so before any commit that names it. A
kill leaves documents that no row names; maintenance removes them (`lake.admin.maintenance`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Raw

from elt_assets.protocol.message_rules import (
    FileReference,
    add_stored_reference,
    describe_unexpected_document,
    parse_reference,
)
from elt_assets.protocol.messages import NULL, RawRecord, RecordLines
from elt_assets.sync.segments import UNBOUNDED, OpenFiles, Segment, SegmentWriter

_OBJECT = ord("{")


class Documents(Protocol):
    """The place of the documents of one stream."""

    def add(self, reference: FileReference) -> tuple[str, int] | None:
        """Begin to copy a document. Return its path below the stream's table, and its bytes; None if the
        stream's documents are not stored.

        Raises:
            EltError: the document cannot be used; or an earlier one could not be copied.
        """

    def skip(self, reference: FileReference) -> None:
        """Remove the document of a record that is not stored from the staging folder."""

    def finish(self, paths: Sequence[str]) -> None:
        """Wait until documents are in their places.

        Raises:
            EltError: one could not be copied; and again when it is called again.
        """

    def remove(self, paths: Sequence[str]) -> None:
        """Remove documents whose records are not stored after all."""


class SegmentDocuments:
    """The documents of the records of one segment.

    Args:
        stream: the name of the stream.
        documents: None if a record of the stream must not have a document.
    """

    def __init__(self, stream: str, documents: Documents | None):
        self._stream = stream
        self._documents = documents
        self._paths: list[str] = []
        self._sizes: list[int] = []
        self._mark = 0

    @property
    def count(self) -> int:
        """The number of documents of the records that are stored."""
        return len(self._paths)

    @property
    def bytes(self) -> int:
        """The bytes of these documents."""
        return sum(self._sizes)

    def attach(self, record: RawRecord) -> None:
        """Begin to copy the document of a record, and write its place into the record's data.

        A record that is no object is rejected by the lake, so its document is not stored.

        Raises:
            ConfigError: the stream must not have documents.
            EltError: as `Documents.add`.
        """
        reference = parse_reference(record.file_reference, self._stream)
        record.file_reference = NULL
        if reference is None:
            return
        if self._documents is None:
            raise describe_unexpected_document(self._stream)
        if memoryview(record.data)[0] != _OBJECT:
            self._documents.skip(reference)
            return
        stored = self._documents.add(reference)
        if stored is not None:
            path, size = stored
            self._paths.append(path)
            self._sizes.append(size)
            record.data = add_stored_reference(record.data, reference, path, size)

    def skip(self, reference: Raw) -> None:
        """Remove the document of a record that is not stored from the staging folder."""
        parsed = parse_reference(reference, self._stream)
        if parsed is not None and self._documents is not None:
            self._documents.skip(parsed)

    def mark(self) -> None:
        self._mark = len(self._paths)

    def cut_to_mark(self) -> None:
        """Remove the documents of the records after the last mark."""
        self._remove(self._mark)

    def finish(self) -> None:
        """Wait until all documents are in their places.

        Raises:
            EltError: one could not be copied.
        """
        if self._documents is not None:
            self._documents.finish(self._paths)

    def discard(self) -> None:
        self._remove(0)

    def _remove(self, first: int) -> None:
        paths, self._paths = self._paths[first:], self._paths[:first]
        del self._sizes[first:]
        if paths and self._documents is not None:
            self._documents.remove(paths)


class SelectiveSegmentWriter(SegmentWriter):
    """A segment writer that filters each record first, and counts those that are not stored.

    It is a separate class so that streams without filter and documents need no check for each record.

    Args:
        record_filter: None if all records are stored as they are.
        documents: takes the documents of the records that are stored.
    """

    def __init__(
        self,
        path: Path,
        first_sequence: int,
        record_filter: Callable[[RawRecord], RawRecord | None] | None,
        documents: SegmentDocuments,
        limits: tuple[int, int] = UNBOUNDED,
        open_files: OpenFiles | None = None,
    ):
        super().__init__(path, first_sequence, limits, open_files)
        self._filter = record_filter
        self._documents = documents
        self._filtered_at_mark = 0

    @property
    def documents(self) -> tuple[int, int]:
        return self._documents.count, self._documents.bytes

    def append(self, record: RawRecord) -> bool:
        reference = record.file_reference
        stored = record if self._filter is None else self._filter(record)
        if stored is not None:
            if reference is not NULL:
                self._documents.attach(stored)
            return super().append(stored)
        if reference is not NULL:
            self._documents.skip(reference)
        self.filtered += 1
        return False

    def mark(self) -> None:
        super().mark()
        self._documents.mark()
        self._filtered_at_mark = self.filtered

    def cut_to_mark(self) -> None:
        super().cut_to_mark()
        self._documents.cut_to_mark()
        self.filtered = self._filtered_at_mark

    def close(self) -> Segment:
        self._documents.finish()
        return super().close()

    def discard(self) -> None:
        super().discard()
        self._documents.discard()

    def append_run(self, run: RecordLines) -> RecordLines | None:
        """Append like `SegmentWriter.append_run`, but record by record: no unfiltered line is written."""
        return self.append_records(run)
