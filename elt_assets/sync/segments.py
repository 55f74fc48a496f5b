"""Segments: files of a stream's raw records on local disk, one record a line, staged for the table.

A segment consists of pieces. The lines of a piece have one form. In the form ROWS, a line is the record's
`data` as received, with up to three properties of this project added at its end: in a JSON object the last of
equal names wins. In the other forms, a line is a whole RECORD message as received. Nothing is decoded and
encoded again.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO

from elt_assets.errors import SystemFailure
from elt_assets.protocol.airbyte.codec import decode
from elt_assets.protocol.airbyte.messages import NULL, RawRecord

EXTRACTED_AT = "_elt:extracted_at"
"""The property with the extraction time in epoch milliseconds, from the record's `emitted_at`."""
SEQUENCE = "_elt:sequence"
"""The property with the record's position in its stream within this sync, from 0: the extraction order."""
META = "_elt:meta"
"""The property with the record's own `meta`; absent if the record has none."""
NOT_AN_OBJECT = "_airbyte_not_an_object"
"""The property with `data` that is not a JSON object. Its line has no SEQUENCE, so it is rejected."""
PLACE = "_elt:place"
"""The property that has the position, in place of SEQUENCE, in a line with NOT_AN_OBJECT."""

_TAIL = b'%b,"' + EXTRACTED_AT.encode() + b'":%d,"' + SEQUENCE.encode() + b'":%d}\n'
_BUFFER = 1 << 20
UNBOUNDED = (sys.maxsize, sys.maxsize)
_MAX_EMITTED_AT = 1e14
"""Limit of `emitted_at` in epoch milliseconds: the year 5138. Nanoseconds would overflow a timestamp."""


class Form(Enum):
    """The form of the lines of a piece."""

    ROWS = "rows"
    """The data of a record, with the properties of this project."""
    AIRBYTE = "airbyte"
    """A RECORD message of the Airbyte Protocol."""
    SINGER = "singer"
    """A RECORD message of Singer."""


@dataclass(frozen=True)
class Piece:
    """Consecutive lines of a segment in one form.

    Attributes:
        offset, size: the position of its first byte in the file, and its length in bytes.
        first: the position of its first record in the stream (see SEQUENCE).
        records: the number of its lines.
        received_at: the time in epoch milliseconds at which its lines were received, for a line without a
            usable time of its own. Lines in the form ROWS have one.
        stream, namespace: what each line, in another form than ROWS, names as its stream.
    """

    form: Form
    offset: int
    size: int
    first: int
    records: int
    received_at: int = 0
    stream: str = ""
    namespace: str | None = None


@dataclass(frozen=True)
class Segment:
    """A closed segment file of `records` lines and `size` bytes, in pieces that follow each other."""

    path: Path
    records: int
    size: int
    pieces: Sequence[Piece]


def row_line(piece: Piece, number: int, line: bytes) -> bytes:
    """Return a line of a piece in the form ROWS.

    Args:
        number: the number of the line in its piece, from 0.
        line: the line, with its newline.

    Raises:
        SystemFailure: the line is malformed, or it is not a record of the stream.
    """
    if piece.form is Form.ROWS:
        return line
    record = decode(line[:-1])
    if not isinstance(record, RawRecord) or (record.stream, record.namespace) != (
        piece.stream,
        piece.namespace,
    ):
        raise SystemFailure(
            f"a RECORD line of stream {piece.stream!r} names its type or its stream twice, with different "
            "values",
            guidance="this is a defect of the connector; the sync stops so that no data is lost",
        )
    return _row(record, piece.first + number, piece.received_at)


class SegmentWriter:
    """A writer that appends records to one segment file and can cut the file back to a mark.

    Args:
        first_sequence: SEQUENCE of the first record.
        limits: records and bytes at which the segment is full.
    """

    def __init__(self, path: Path, first_sequence: int, limits: tuple[int, int] = UNBOUNDED):
        self.path = path
        self.size = 0
        self._full_at = first_sequence + limits[0]
        self._max_bytes = limits[1]
        self._first = first_sequence
        self._next = first_sequence
        self._file: IO[bytes] = path.open("wb", buffering=_BUFFER)
        self._write = self._file.write
        self._mark: tuple[int, int] = (0, first_sequence)

    @property
    def records(self) -> int:
        return self._next - self._first

    @property
    def next_sequence(self) -> int:
        return self._next

    @property
    def at_mark(self) -> bool:
        """Return whether no record was appended after the last mark."""
        return self._mark == (self.size, self._next)

    def append(self, record: RawRecord) -> bool:
        """Append one record; return whether the segment is full.

        Raises:
            OSError: the disk is full or not available.
        """
        sequence = self._next
        self.size += self._write(_row(record, sequence, None))
        self._next = sequence = sequence + 1
        return sequence >= self._full_at or self.size >= self._max_bytes

    def mark(self) -> None:
        """Record the present position: a state covers everything before it."""
        self._mark = (self.size, self._next)

    def cut_to_mark(self) -> None:
        """Remove the records after the last mark."""
        self._file.flush()
        self.size, self._next = self._mark
        self._file.seek(self.size)
        self._file.truncate()

    def close(self) -> Segment:
        self._file.close()
        whole = Piece(Form.ROWS, 0, self.size, self._first, self.records)
        return Segment(self.path, self.records, self.size, [whole])

    def discard(self) -> None:
        with contextlib.suppress(
            OSError
        ):  # the buffered bytes are not needed; the disk may be full
            self._file.close()
        self.path.unlink(missing_ok=True)


class FilteredSegmentWriter(SegmentWriter):
    """A segment writer that filters each record first.

    It is a separate class so that streams without a filter need no check for each record.
    """

    def __init__(
        self,
        path: Path,
        first_sequence: int,
        record_filter: Callable[[RawRecord], RawRecord],
        limits: tuple[int, int] = UNBOUNDED,
    ):
        super().__init__(path, first_sequence, limits)
        self._filter = record_filter

    def append(self, record: RawRecord) -> bool:
        return super().append(self._filter(record))


def _row(record: RawRecord, sequence: int, received_at: int | None) -> bytes:
    """Return the line of a record in the form ROWS. `received_at`: the time now, if it is None."""
    data, at = bytes(record.data), record.emitted_at
    if at is None or not 0 <= at < _MAX_EMITTED_AT:  # absent, or in another unit
        at = time.time() * 1000 if received_at is None else received_at
    if record.meta is not NULL or data[:2] != b'{"':
        return _general_row(record, at, sequence)
    return _TAIL % (data[:-1], at, sequence)


def _general_row(record: RawRecord, at: float, sequence: int) -> bytes:
    """Return the line of any record: it may have `meta`, have no fields or not be an object."""
    data = bytes(record.data)
    if not data.startswith(b"{"):
        return b'{"%b":%b,"%b":%d}\n' % (NOT_AN_OBJECT.encode(), data, PLACE.encode(), sequence)
    head = data[:-1]
    if record.meta is not NULL:
        comma = b"" if head.strip() == b"{" else b","
        head = b'%b%b"%b":%b' % (head, comma, META.encode(), bytes(record.meta))
    line = _TAIL % (head, at, sequence)
    return line if head.strip() != b"{" else line.replace(b",", b"", 1)
