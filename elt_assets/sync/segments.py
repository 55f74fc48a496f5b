"""Segments: a stream's raw records on local disk, one line each, on their way to the table.

A line is the record's `data` as received, with three properties of ours spliced in at its end
(where, in a JSON object, the last of equal names wins): nothing is decoded or encoded again.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from elt_assets.protocol.airbyte.messages import NULL, RawRecord

EXTRACTED_AT = "_elt:extracted_at"
"""Epoch milliseconds, from the record's `emitted_at`."""
SEQUENCE = "_elt:sequence"
"""The record's place in its stream within this sync, from 0: the extraction order."""
META = "_elt:meta"
"""The record's own `meta`, where it has one."""
NOT_AN_OBJECT = "_airbyte_not_an_object"
"""Holds `data` that is no JSON object. Such a line has no SEQUENCE, and is rejected for it."""
PLACE = "_elt:place"
"""What SEQUENCE would be, of such a line."""

_TAIL = b'%b,"' + EXTRACTED_AT.encode() + b'":%d,"' + SEQUENCE.encode() + b'":%d}\n'
_BUFFER = 1 << 20
UNBOUNDED = (sys.maxsize, sys.maxsize)
_LATEST = 1e14
"""Epoch milliseconds, in the year 5138. Nanoseconds would overflow a timestamp."""


@dataclass(frozen=True)
class Segment:
    """A closed segment file: `records` lines, `size` bytes."""

    path: Path
    records: int
    size: int


class SegmentWriter:
    """Appends records to one segment file; can be cut back to a mark.

    Args:
        most: records and bytes at which it is full.
    """

    def __init__(self, path: Path, first_sequence: int, most: tuple[int, int] = UNBOUNDED):
        self.path = path
        self.size = 0
        self._full_at = first_sequence + most[0]
        self._most_bytes = most[1]
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
        """Whether no record came after the last mark."""
        return self._mark == (self.size, self._next)

    def append(self, record: RawRecord) -> bool:
        """Stage one record; returns whether the segment is full.

        Raises:
            OSError: the disk is full or gone.
        """
        data, at, here = bytes(record.data), record.emitted_at, self._next
        if at is None or not 0 <= at < _LATEST:  # left out, or in other units: then it is now
            at = time.time() * 1000
        if record.meta is not NULL or data[:2] != b'{"':
            line = self._unusual(record, at)
        else:
            line = _TAIL % (data[:-1], at, here)
        self.size += self._write(line)
        self._next = here = here + 1
        return here >= self._full_at or self.size >= self._most_bytes

    def mark(self) -> None:
        """Remember this point: everything before it belongs to a state."""
        self._mark = (self.size, self._next)

    def cut_to_mark(self) -> None:
        """Forget the records after the last mark."""
        self._file.flush()
        self.size, self._next = self._mark
        self._file.seek(self.size)
        self._file.truncate()

    def close(self) -> Segment:
        self._file.close()
        return Segment(self.path, self.records, self.size)

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # what is buffered need not reach a full disk
            self._file.close()
        self.path.unlink(missing_ok=True)

    def _unusual(self, record: RawRecord, at: float) -> bytes:
        data = bytes(record.data)
        if not data.startswith(b"{"):
            return b'{"%b":%b,"%b":%d}\n' % (
                *(NOT_AN_OBJECT.encode(), data),
                *(PLACE.encode(), self._next),
            )
        head = data[:-1]
        if record.meta is not NULL:
            comma = b"" if head.strip() == b"{" else b","
            head = b'%b%b"%b":%b' % (head, comma, META.encode(), bytes(record.meta))
        line = _TAIL % (head, at, self._next)
        return line if head.strip() != b"{" else line.replace(b",", b"", 1)


class FilteredSegmentWriter(SegmentWriter):
    """A segment whose records pass a filter first. A class of its own, so that streams without one
    do not pay for asking."""

    def __init__(
        self,
        path: Path,
        first_sequence: int,
        record_filter: Callable[[RawRecord], RawRecord],
        most: tuple[int, int] = UNBOUNDED,
    ):
        super().__init__(path, first_sequence, most)
        self._filter = record_filter

    def append(self, record: RawRecord) -> bool:
        return super().append(self._filter(record))
