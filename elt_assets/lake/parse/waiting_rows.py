"""Lines of segments that wait for the exact parse, as rows in one file.

A job of the exact parse costs more than 100,000 clean lines do, however few lines it parses. So the lines
that are not clean are collected from all segments of a commit, and one job parses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from elt_assets.lake.parse.segment_parsing import UncleanLine
from elt_assets.protocol.airbyte.messages import Form
from elt_assets.sync.segments import Segment, row_line

_BUFFER = 1 << 20


class WaitingRows:
    """A file of lines in the form ROWS, beside the segment that the first of them is from.

    Attributes:
        count: the number of its lines.
        size: its size in bytes.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self.count = 0
        self.size = 0

    def add(self, segment: Segment, lines: Iterable[UncleanLine]) -> None:
        """Add lines of a segment.

        Raises:
            OSError: the disk is full or not available.
        """
        if self._path is None:
            self._path = segment.path.with_suffix(".rows")
        with self._path.open("ab", buffering=_BUFFER) as out, segment.path.open("rb") as source:
            for number, line, offset, size in lines:
                source.seek(offset)
                self.size += out.write(row_line(segment.pieces[number], line, source.read(size)))
                self.count += 1

    @contextmanager
    def taken(self) -> Iterator[tuple[Path, int]]:
        """Yield the file and the number of its lines, at least one; remove the file at the end."""
        assert self._path is not None
        try:
            yield self._path, self.count
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the file and forget its lines."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self._path, self.count, self.size = None, 0, 0


@contextmanager
def as_rows(segment: Segment) -> Iterator[Path]:
    """Yield a file with all lines of a segment in the form ROWS."""
    if all(piece.form is Form.ROWS for piece in segment.pieces):
        yield segment.path
        return
    target = segment.path.with_suffix(".all.rows")
    try:
        with segment.path.open("rb") as source, target.open("wb", buffering=_BUFFER) as out:
            out.writelines(_rows(segment, source))
        yield target
    finally:
        target.unlink(missing_ok=True)


def _rows(segment: Segment, source: IO[bytes]) -> Iterator[bytes]:
    for piece in segment.pieces:
        source.seek(piece.offset)
        for line in range(piece.records):
            yield row_line(piece, line, source.readline())
