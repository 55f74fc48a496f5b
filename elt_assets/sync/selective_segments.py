"""A writer of segments that looks at each record: it applies a filter, and takes the records' documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elt_assets.protocol.messages import NULL, RawRecord, RecordLines
from elt_assets.sync.documents import SegmentDocuments
from elt_assets.sync.open_files import OpenFiles
from elt_assets.sync.segments import UNBOUNDED, Segment, SegmentWriter


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
