"""Parsers of files: each reads a file of bytes and yields the values in it, one after another."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, TypeVar, cast

from connectors.declarative.requests.decoding.json_body import decode
from connectors.declarative.requests.records.paths import MISSING, value_at_names

Text = TypeVar("Text", bytes, str)
Parse = Callable[[BinaryIO], Iterator[Any]]
"""Yields the values in a file. It raises `BadFile` if the file has another format."""

_GZIP = b"\x1f\x8b"
MAX_FIELD = 1 << 30
"""Number of characters that a field of a CSV file may have."""
csv.field_size_limit(MAX_FIELD)
MAX_PIECE = 1 << 30
"""Number of bytes, or of characters, of a file or a line that is in memory as a whole. A small compressed
file can become any size."""
_CHUNK = 1 << 20


class BadFile(ValueError):
    """A file that does not have the expected format. The text continues "the body of …"."""


class TruncatedFile(BadFile):
    """A file that ends too early."""


def json_values(file: BinaryIO) -> Iterator[Any]:
    """Yield the elements of a JSON list, or the single value."""
    content = _whole(file)
    if not content.strip():
        return
    found = _json(content, "is not JSON")
    yield from found if isinstance(found, list) else [found]


def json_lines(file: BinaryIO) -> Iterator[Any]:
    """Yield the value of each line; empty lines are left out."""
    for number, line in enumerate(_lines(file.readline), 1):
        if line.strip():
            yield _json(line, f"has no JSON in line {number}")


def json_items(path: str, encoding: str) -> Parse:
    """Return a parser that yields the elements of the list at a path with dots between its names."""

    def parse(file: BinaryIO) -> Iterator[Any]:
        content = _whole(file)
        if not content.strip():
            return
        body = _json(_text(content, encoding).encode(), "is not JSON")
        found = value_at_names(body, path.split("."))
        if found is not MISSING and found is not None:
            yield from found if isinstance(found, list) else [found]

    return parse


def csv_rows(encoding: str, delimiter: str, nulls: Sequence[str]) -> Parse:
    """Return a parser that yields the rows of a CSV file as objects.

    Args:
        encoding: the encoding of the file.
        delimiter: the character between two fields, which may be written as an escape such as `\\t`.
        nulls: the texts that stand for null.
    """
    if delimiter.startswith("\\"):
        delimiter = delimiter.encode().decode("unicode_escape")
    written = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
    null = frozenset(nulls)

    def parse(file: BinaryIO) -> Iterator[Any]:
        lines = _lines(io.TextIOWrapper(file, encoding=written).readline)
        reader = csv.DictReader(lines, delimiter=delimiter)
        try:
            for row in reader:
                if None in row:
                    raise BadFile(
                        f"has a row with more fields than the header, in line {reader.line_num}"
                    )
                if null:
                    yield {name: None if value in null else value for name, value in row.items()}
                else:
                    yield row
        except (csv.Error, UnicodeError) as error:
            raise BadFile(f"is not CSV in the encoding {encoding}: {error}") from None

    return parse


def text_lines(file: BinaryIO) -> Iterator[Any]:
    """Yield each line as an object with the field `record`."""
    for line in _whole(file).splitlines():
        yield {"record": _text(line, "utf-8")}


def without_nulls(inner: Parse) -> Parse:
    """Return a parser that leaves out the null bytes of a file, which some APIs send, for another parser."""

    def parse(file: BinaryIO) -> Iterator[Any]:
        with io.BufferedReader(_WithoutNulls(file)) as filtered:
            yield from inner(cast("BinaryIO", filtered))

    return parse


class _WithoutNulls(io.RawIOBase):
    """A file without the null bytes of another one."""

    def __init__(self, file: BinaryIO):
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while read := self._file.read(len(buffer)):
            kept = read.replace(b"\0", b"")
            if kept:
                buffer[: len(kept)] = kept
                return len(kept)
        return 0


def gunzipped(inner: Parse) -> Parse:
    """Return a parser that decompresses a file, if it is compressed with gzip, for another parser."""

    def parse(file: BinaryIO) -> Iterator[Any]:
        buffered = io.BufferedReader(cast("io.RawIOBase", file))
        if buffered.peek(2)[:2] != _GZIP:
            yield from inner(buffered)
            return
        try:
            with gzip.GzipFile(fileobj=buffered, mode="rb") as unpacked:
                yield from inner(cast("BinaryIO", unpacked))
        except EOFError:
            raise TruncatedFile("ends within data that is compressed with gzip") from None
        except (OSError, zlib.error) as error:
            raise BadFile(f"is not valid gzip: {error}") from None

    return parse


def unzipped(inner: Parse) -> Parse:
    """Return a parser that yields what another parser finds in each file of a ZIP archive."""

    def parse(file: BinaryIO) -> Iterator[Any]:
        try:
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    if not member.is_dir():
                        with archive.open(member) as unpacked:
                            yield from inner(cast("BinaryIO", unpacked))
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise BadFile(f"is not a valid ZIP archive: {error}") from None

    return parse


def _whole(file: BinaryIO) -> bytes:
    """Return the content of a file.

    Raises:
        BadFile: it is too large.
    """
    pieces, size = [], 0
    while piece := file.read(_CHUNK):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_PIECE:
            raise BadFile(f"has more than {MAX_PIECE} bytes when it is decompressed")
    return b"".join(pieces)


def _lines(readline: Callable[[int], Text]) -> Iterator[Text]:
    """Yield lines.

    Raises:
        BadFile: a line is too long.
    """
    while line := readline(MAX_PIECE + 1):
        if len(line) > MAX_PIECE:
            raise BadFile(f"has a line with more than {MAX_PIECE} bytes when it is decompressed")
        yield line


def _json(content: bytes, what: str) -> Any:
    try:
        return decode(content)
    except ValueError as error:
        if "truncated" in str(error):
            raise TruncatedFile("ends within a JSON value") from None
        raise BadFile(f"{what}: {error}") from None


def _text(content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeError as error:
        raise BadFile(f"is not text in the encoding {encoding}: {error}") from None
