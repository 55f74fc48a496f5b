"""JSON lines: each line is an object. Lines go to the lake as they stand; only their syntax is checked."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from connectors.sdk.arrow_records import make_json_rows
from connectors.sdk.files.formats.file_format import (
    PART_BYTES,
    SAMPLE_BYTES,
    SAMPLE_ROWS,
    FilePart,
    estimate_rows,
)
from connectors.sdk.files.options import JsonLinesOptions
from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.files.rows import FileRows, make_file_error, refuse_compressed
from connectors.sdk.files.schema import ColumnShape, Shapes
from connectors.sdk.files.storage import Storage, find_compression

_BLOCK = 4 << 20
_MAX_LINE = 256 << 20
_ROW_BYTES = 200
_DECODE_LINES = msgspec.json.Decoder(Raw).decode_lines
_DECODE = msgspec.json.Decoder(Raw).decode
_BREAK, _OPEN, _QUOTE, _CLOSE = b'\n{"}'


@dataclass(frozen=True)
class JsonLines:
    """The format of JSON lines. `compression`: that of the config."""

    options: JsonLinesOptions
    compression: str
    mixed: str = "json"

    @property
    def _is_utf8(self) -> bool:
        try:
            return codecs.lookup(self.options.encoding).name == "utf-8"
        except LookupError:
            return False

    def sample(self, storage: Storage, file: FileVersion) -> Shapes:
        with self._open(storage, file) as stream:
            data = stream.read(SAMPLE_BYTES)
            self._require_lines(file, data)
            if len(data) == SAMPLE_BYTES:
                data += _rest_of_line(file, stream)
        lines = data.splitlines()
        root = ColumnShape()
        for line in lines[:SAMPLE_ROWS]:
            value = _decode_object(line)
            if value is not None:
                root.add(value)
        return root.fields

    def split(self, storage: Storage, file: FileVersion) -> Sequence[FilePart]:
        del storage
        compressed = find_compression(file.path, self.compression)
        rows = estimate_rows(file, _ROW_BYTES, compressed)
        if compressed is not None or not self._is_utf8 or file.size <= PART_BYTES:
            return [FilePart(rows)]
        count = -(-file.size // PART_BYTES)
        bounds = [file.size * n // count for n in range(count + 1)]
        return [FilePart(rows // count, bounds[n], bounds[n + 1]) for n in range(count)]

    def read(
        self, storage: Storage, rows: FileRows, part: FilePart, kinds: Mapping[str, str]
    ) -> Iterator[pa.RecordBatch]:
        del kinds
        reader = _LineReader(rows)
        if part.bounds is None:
            with self._open(storage, rows.file) as stream:
                is_blank = True
                for block in _blocks(rows.file, stream.read):
                    if is_blank:
                        is_blank = self._require_lines(rows.file, block)
                    yield from reader.read(block)
            return
        first, end = part.bounds
        with storage.open_file(rows.file) as source:
            if not first:
                self._require_lines(rows.file, source.read(1024))
            reader.count_lines = lambda: _count_lines(source, first)
            for block in _range_blocks(rows.file, source, first, end):
                yield from reader.read(block)

    def _open(self, storage: Storage, file: FileVersion) -> Any:
        stream = storage.open_stream(file, self.compression)
        if self._is_utf8:
            return stream
        return pa.transcoding_input_stream(stream, self.options.encoding, "utf-8")

    @staticmethod
    def _require_lines(file: FileVersion, data: bytes) -> bool:
        """Check the beginning of a file; return whether it is blank.

        Raises:
            ConfigError: it does not begin as JSON lines do.
        """
        refuse_compressed(file, data)
        start = data.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise make_file_error(file, "its encoding is UTF-16", "set `jsonl.encoding: utf-16`")
        if start == b"[":
            raise make_file_error(
                file,
                "it is an array, and not an object in each line",
                "write one object a line: jq -c '.[]' FILE",
            )
        return not start


def _decode_object(line: bytes) -> Any:
    try:
        value = msgspec.json.decode(line.removeprefix(codecs.BOM_UTF8).decode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class _LineReader:
    """Makes the records of blocks of lines.

    Attributes:
        count_lines: returns the number of lines before the first block.
    """

    def __init__(self, rows: FileRows):
        self._rows = rows
        self._lines = 0
        self._base: int | None = None
        self.count_lines: Callable[[], int] = lambda: 0

    def read(self, block: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the records of a block of whole lines."""
        count = block.count(b"\n")
        values = self._decode(block, count)
        joined = None if values is None else join_objects(block, self._rows.head)
        if joined is not None:
            yield make_json_rows(joined)
        elif records := self._list_objects(values) or list(self._decode_each(block)):
            yield self._rows.make_records(records)
        self._lines += count

    @staticmethod
    def _decode(block: bytes, count: int) -> list[Raw] | None:
        """Return the values of lines; None if a line is something else."""
        try:
            values = _DECODE_LINES(block)
        except (msgspec.DecodeError, RecursionError):
            return None
        # The decoder also takes an object that goes over several lines.
        return values if len(values) == count else None

    @staticmethod
    def _list_objects(values: Sequence[Raw] | None) -> list[bytes]:
        """Return values that are objects; none if one is something else."""
        records = list(map(bytes, values or ()))
        return [] if any(text[:1] != b"{" for text in records) else records

    def _decode_each(self, block: bytes) -> Iterator[bytes]:
        for number, line in enumerate(block.split(b"\n"), self._lines + 1):
            text = line.strip(b" \t\r")
            if not text:
                continue
            reason = "not an object"
            try:
                _DECODE(text)
            except (msgspec.DecodeError, RecursionError) as error:
                reason = str(error)
            else:
                if text[:1] == b"{":
                    yield text
                    continue
            yield self._rows.reject("line", self._number(number), reason, text)

    def _number(self, number: int) -> int:
        if self._base is None:
            self._base = self.count_lines()
        return self._base + number


def _blocks(file: FileVersion, read: Any) -> Iterator[bytes]:
    """Yield blocks of whole lines, each with its end."""
    rest, is_first = b"", True
    while data := read(_BLOCK):
        if is_first:
            data, is_first = data.removeprefix(codecs.BOM_UTF8), False
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest += data
            _limit_line(file, len(rest))
            continue
        yield rest + data[:cut]
        rest = data[cut:]
    if rest:
        yield rest + b"\n"


def _range_blocks(file: FileVersion, source: Any, first: int, end: int) -> Iterator[bytes]:
    """Yield blocks of the lines that start in a range of a file."""
    position = max(first - 1, 0)
    source.seek(position)
    if first:  # the line that started before the range is another part's
        while data := source.read(_BLOCK):
            cut = data.find(b"\n") + 1
            if cut:
                position += cut
                break
            position += len(data)
        source.seek(position)
    if position >= end:
        return
    left = end - position

    def read(size: int) -> bytes:
        nonlocal left
        if left > 0:
            data: bytes = source.read(min(size, left))
            left -= len(data)
            if left or not data or data.endswith(b"\n"):
                return data
            left = -1
            return data + _rest_of_line(file, source)
        return b""

    yield from _blocks(file, read)


def _rest_of_line(file: FileVersion, source: Any) -> bytes:
    """Return the rest of a line, with its end."""
    rest = bytearray()
    while data := source.read(1 << 16):
        cut = data.find(b"\n") + 1
        rest += data[:cut] if cut else data
        if cut:
            break
        _limit_line(file, len(rest))
    return bytes(rest)


def _limit_line(file: FileVersion, size: int) -> None:
    if size > _MAX_LINE:
        raise make_file_error(
            file, f"a line has more than {_MAX_LINE:,} bytes", "write one object a line"
        )


def _count_lines(source: Any, first: int) -> int:
    """Return the number of lines before the first one that starts at a position or after it."""
    place = source.tell()
    source.seek(0)
    count, left = 0, first - 1
    while left > 0 and (data := source.read(min(_BLOCK, left))):
        count += data.count(b"\n")
        left -= len(data)
    source.seek(place)
    return count + 1 if first else 0


def join_objects(block: bytes, head: bytes) -> pa.Array | None:
    """Return the objects of a block of lines as bytes, each with `head` in place of its opening brace.

    A line must be an object with a field, and have nothing around it: `{"` at its begin and `}` at its end.
    That is enough, since the block is valid: a text has no line break, and elsewhere in JSON no `{` follows a
    `}`. So a line break between the two is in no value.

    Args:
        block: as many values in JSON as lines, each with its end.

    Returns:
        None if a line looks different.
    """
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == _BREAK)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if not np.all(data[starts] == _OPEN) or not np.all(data[starts + 1] == _QUOTE):
        return None
    if not np.all(data[ends - 1] == _CLOSE):
        return None
    # Of each line, the parts are the brace, the rest, and the line break.
    offsets = np.append(np.stack([starts, starts + 1, ends], axis=1).ravel(), len(block))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(block)]
    parts = pa.Array.from_buffers(pa.binary(), 3 * len(starts), buffers)
    rests = parts.take(pa.array(np.arange(1, len(parts), 3)))
    return pc.binary_join_element_wise(pa.scalar(head), rests, pa.scalar(b""))
