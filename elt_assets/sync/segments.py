"""Segments: files of a stream's raw records on local disk, one record a line, staged for the table.

`session`, `streams` and `documents` write them, `committer` gives them to the sinks (`lake.write`,
`destination.tables`), and `lake.write.parsing` parses them; `lake.write.dead_letter` makes one of the records
to replay.

A segment consists of pieces. The lines of a piece have one form. In the form ROWS, a line is an object of
this project: the record's `data` as received, `emitted_at` in epoch milliseconds, and its own `meta` if it
has one. In the other forms, a line is a whole RECORD message as received. Nothing is decoded and encoded
again. A record's place in its stream within the sync is that of its line.

A session may have any number of streams that take turns: `OpenFiles` limits the files that it keeps open.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal, Protocol

from elt_assets.errors import SystemFailure
from elt_assets.protocol.codec import decode
from elt_assets.protocol.message_rules import describe_unexpected_document, parse_reference
from elt_assets.protocol.messages import NULL, Form, RawRecord, RecordLines
from elt_assets.protocol.singer import decode_record

MAX_OPEN = 128
"""Files of segments that are open at the same time. Some systems allow a process 256 files of all kinds."""


class Closable(Protocol):
    """A file that can be closed for a while: its next use opens it again."""

    def pause(self) -> None:
        """Write what is buffered, and close the file."""


class OpenFiles:
    """The open files of one session. If there are too many, the one that was opened first is paused.

    A use of an open file costs nothing here, so a busy file may be paused as well. Then it is opened again.
    """

    def __init__(self, limit: int = MAX_OPEN):
        self._limit = limit
        self._files: dict[Closable, None] = {}

    def add(self, file: Closable) -> None:
        """Make room for a file that is about to be opened.

        Raises:
            OSError: the contents of another file cannot be written.
        """
        while len(self._files) >= self._limit:
            oldest = next(iter(self._files))
            del self._files[oldest]
            oldest.pause()
        self._files[file] = None

    def remove(self, file: Closable) -> None:
        """Forget a file that was closed."""
        self._files.pop(file, None)


_ROW = b'{"data":%b,"emitted_at":%d}\n'
_ROW_WITH_META = b'{"data":%b,"emitted_at":%d,"meta":%b}\n'
_BUFFER = 1 << 20
UNBOUNDED = (sys.maxsize, sys.maxsize)
_PIECE_SIZE = 4 << 20
"""Maximum size in bytes of a piece of messages with more than one run, so that tasks can share the work."""
_PIECE_MS = 1_000
"""Age in milliseconds at which such a piece ends, because its lines share one `received_at`."""
_MIN_RUN = 64
"""Minimum number of lines for which a piece of messages begins after a piece of rows."""
_MAX_PIECES = 1_000
"""Number of pieces after which a new one begins for its size only."""
_MAX_EMITTED_AT = 1e14
"""Limit of `emitted_at` in epoch milliseconds: the year 5138. Nanoseconds would overflow a timestamp."""


@dataclass(frozen=True)
class Piece:
    """Consecutive lines of a segment in one form."""

    form: Form
    # `offset`, `size`: the position of its first byte in the file, and its length in bytes
    offset: int
    size: int
    first: int  # the position of its first record in the stream within the sync, from 0
    records: int  # the number of its lines
    # the time in epoch milliseconds at which its lines were received, for a line without a usable
    # time of its own. Lines in the form ROWS have one.
    received_at: int = 0
    # `stream`, `namespace`: what each line, in another form than ROWS, names as its stream
    stream: str = ""
    namespace: str | None = None


@dataclass(frozen=True)
class Segment:
    """A closed segment file of `records` lines and `size` bytes, in pieces that follow each other."""

    path: Path
    records: int
    size: int
    pieces: Sequence[Piece]


def refuse_foreign(segment: Segment, number: int, line: int) -> None:
    """Refuse a line that is no record of the stream.

    Args:
        number: of its piece; `line`: its number there, from 0.

    Raises:
        SystemFailure: the line is malformed, or it is not a record of the stream.
        ConfigError: the record refers to a file.
    """
    piece = segment.pieces[number]
    with segment.path.open("rb") as source:
        source.seek(piece.offset)
        text = next(itertools.islice(source, line, None))
    record = _decode(piece.form, text[:-1], piece.stream, piece.namespace)
    refuse_document(record)
    raise SystemFailure(
        f"a RECORD line of stream {piece.stream!r} cannot be decoded: {text[:200]!r}",
        guidance="this is a defect of the connector; the sync stops so that no data is lost",
    )


def refuse_document(record: RawRecord) -> None:
    """Refuse a record that refers to a document.

    Raises:
        ConfigError: the record has a reference.
    """
    if parse_reference(record.file_reference, record.stream) is not None:
        raise describe_unexpected_document(record.stream)


def records(run: RecordLines) -> Iterator[RawRecord]:
    """Yield the records of a run.

    Raises:
        SystemFailure: a line is malformed, or it is not a record of the stream.
    """
    for line in run.lines.split(b"\n")[:-1]:
        record = _decode(run.form, line, run.sent_name, run.namespace)
        record.stream = run.stream
        yield record


def _decode(form: Form, line: bytes, stream: str, namespace: str | None) -> RawRecord:
    record = decode_record(line) if form is Form.SINGER else decode(line)
    if isinstance(record, RawRecord) and (record.stream, record.namespace) == (stream, namespace):
        return record
    raise SystemFailure(
        f"a RECORD line of stream {stream!r} names its type or its stream twice, with different values",
        guidance="this is a defect of the connector; the sync stops so that no data is lost",
    )


class SegmentWriter:
    """A writer that appends records to one segment file and can cut the file back to a mark.

    Args:
        first_sequence: the position of the first record in the stream within the sync.
        limits: records and bytes at which the segment is full.
        open_files: the open files of the session. The writer may be paused when another one opens its file.

    Attributes:
        filtered: the number of records that were received and are not stored.
    """

    def __init__(
        self,
        path: Path,
        first_sequence: int,
        limits: tuple[int, int] = UNBOUNDED,
        open_files: OpenFiles | None = None,
    ):
        self.path = path
        self.size = 0
        self.filtered = 0
        self._full_at = first_sequence + limits[0]
        self._max_bytes = limits[1]
        self._first = first_sequence
        self._next = first_sequence
        self._open_files = OpenFiles() if open_files is None else open_files
        self._open("wb")
        self._mark: tuple[int, int] = (0, first_sequence)
        self._pieces: list[Piece] = []  # their sizes are not known until the segment is closed
        self._is_in_rows = False

    def _open(self, mode: Literal["wb", "ab"]) -> None:
        self._open_files.add(self)
        self._file: IO[bytes] = self.path.open(mode, buffering=_BUFFER)
        self._write: Callable[[bytes], int] = self._file.write

    def pause(self) -> None:
        """Close the file until the next record.

        Raises:
            OSError: the disk is full or not available.
        """
        self._write = self._write_again
        self._file.close()

    def _write_again(self, line: bytes) -> int:
        self._open("ab")
        return self._write(line)

    @property
    def records(self) -> int:
        return self._next - self._first

    @property
    def received(self) -> int:
        """Return the number of records that were received, including those that are not stored."""
        return self.records + self.filtered

    @property
    def next_sequence(self) -> int:
        return self._next

    @property
    def at_mark(self) -> bool:
        """Return whether no record was appended after the last mark."""
        return self._mark == (self.size, self._next)

    @property
    def documents(self) -> tuple[int, int]:
        """Return the number of documents of the records, and their bytes."""
        return 0, 0

    def append(self, record: RawRecord) -> bool:
        """Append one record; return whether the segment is full.

        Raises:
            OSError: the disk is full or not available.
            ConfigError: the record refers to a document.
        """
        if record.file_reference is not NULL:
            refuse_document(record)
        if not self._is_in_rows:
            self._begin(Piece(Form.ROWS, self.size, 0, self._next, 0))
        sequence = self._next
        self.size += self._write(_row(record))
        self._next = sequence = sequence + 1
        return sequence >= self._full_at or self.size >= self._max_bytes

    def append_run(self, run: RecordLines) -> RecordLines | None:
        """Append the lines of a run up to the one with which the segment is full.

        Returns:
            The other lines, which may be none, if the segment is full; else None.

        Raises:
            OSError: as `append`.
            SystemFailure: as `records`.
            ConfigError: as `append`.
        """
        if self._is_in_rows and (run.count < _MIN_RUN or len(self._pieces) >= _MAX_PIECES):
            return self.append_records(run)
        taken, rest = _split(run, self._full_at - self._next, self._max_bytes - self.size)
        self._begin_messages(taken)
        self.size += self._write(taken.lines)
        self._next += taken.count
        return rest

    def append_records(self, run: RecordLines) -> RecordLines | None:
        """Append like `append_run`, but record by record."""
        for number, record in enumerate(records(run), 1):
            if self.append(record):
                return _split(run, number, sys.maxsize)[1]
        return None

    def _begin_messages(self, run: RecordLines) -> None:
        """Begin a piece for a run of messages, unless the run belongs to the present piece."""
        read_at = int(time.time() * 1000)
        new = Piece(run.form, self.size, 0, self._next, 0, read_at, run.sent_name, run.namespace)
        last = self._pieces[-1] if self._pieces else None
        if (
            last is None
            or self.size + len(run.lines) - last.offset > _PIECE_SIZE
            or (new.received_at - last.received_at >= _PIECE_MS and len(self._pieces) < _MAX_PIECES)
            or (new.form, new.stream, new.namespace) != (last.form, last.stream, last.namespace)
        ):
            self._begin(new)

    def _begin(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._is_in_rows = piece.form is Form.ROWS

    def mark(self) -> None:
        """Record the present position: a state covers everything before it."""
        self._mark = (self.size, self._next)

    def cut_to_mark(self) -> None:
        """Remove the records after the last mark."""
        if self._file.closed:
            self._open("ab")
        self._file.flush()
        self.size, self._next = self._mark
        self._file.seek(self.size)
        self._file.truncate()
        while self._pieces and self._pieces[-1].offset >= self.size:
            self._pieces.pop()
        self._is_in_rows = bool(self._pieces) and self._pieces[-1].form is Form.ROWS

    def close(self) -> Segment:
        self._open_files.remove(self)
        self._file.close()
        starts = [*((piece.offset, piece.first) for piece in self._pieces), (self.size, self._next)]
        pieces = [
            replace(piece, size=offset - piece.offset, records=first - piece.first)
            for piece, (offset, first) in zip(self._pieces, starts[1:], strict=True)
        ]
        return Segment(self.path, self.records, self.size, pieces)

    def discard(self) -> None:
        self._open_files.remove(self)
        with contextlib.suppress(
            OSError
        ):  # the disk may be full, and the buffered bytes are not needed
            self._file.close()
        self.path.unlink(missing_ok=True)


def _split(run: RecordLines, count: int, size: int) -> tuple[RecordLines, RecordLines | None]:
    """Split a run after `count` lines, or after the line that reaches `size` bytes, whichever is first.

    Returns:
        Both parts. The first one has at least one line; the second one is None if both limits are beyond
        the end of the run.
    """
    if run.count < count and len(run.lines) < size:
        return run, None
    end = run.lines.find(b"\n", max(size - 1, 0)) + 1 or len(run.lines)
    taken = run.lines.count(b"\n", 0, end)
    if taken > count:
        first = b"\n".join(run.lines.split(b"\n", count)[:count])
        taken, end = count, len(first) + 1
    return (
        replace(run, lines=run.lines[:end], count=taken),
        replace(run, lines=run.lines[end:], count=run.count - taken),
    )


def _row(record: RawRecord, received_at: float | None = None) -> bytes:
    """Return the line of a record in the form ROWS. `received_at`: the time now, if it is None."""
    emitted_at = record.emitted_at
    if emitted_at is None or not 0 <= emitted_at < _MAX_EMITTED_AT:  # absent, or in another unit
        emitted_at = time.time() * 1000 if received_at is None else received_at
    if record.meta is NULL:
        return _ROW % (record.data, emitted_at)
    return _ROW_WITH_META % (record.data, emitted_at, record.meta)
