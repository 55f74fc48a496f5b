"""Parsers of files: each reads a file of bytes and yields the values in it, one after another.

In XML, the names of elements are the names of fields. The attributes of an element are fields whose names
begin with "@". Its text is the value, or the field "#text" beside attributes and elements. Elements of the
same name form a list. Names keep the prefix of their namespace.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, TypeVar, cast
from xml.parsers import expat

from connectors.declarative.requests.decoding.json_body import decode
from connectors.sdk.limits import EXPANSION_VARIABLE, response_limits

MAX_DEPTH = 500


class BadXml(ValueError):
    """A text that is not well-formed XML, or that declares entities."""


def xml_value(content: bytes, encoding: str | None = None) -> dict[str, Any]:
    """Return the document as an object with one field, which is named as the outermost element.

    Args:
        content: the document.
        encoding: the encoding that the response names; None if the document names its own.

    Raises:
        BadXml: the document is not well-formed, or declares entities: they can make a small document a
            large one.
    """
    builder = _Builder()
    if encoding is not None:
        try:
            content, encoding = content.decode(encoding).encode(), "utf-8"
        except (UnicodeError, LookupError) as error:
            raise BadXml(str(error)) from None
    parser = expat.ParserCreate(encoding)
    parser.ordered_attributes = True
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    parser.EntityDeclHandler = _refuse_entity
    try:
        parser.Parse(content, True)
    except (
        expat.ExpatError,
        LookupError,
        ValueError,
    ) as error:  # of the encoding in its first line too
        raise BadXml(str(error)) from None
    return builder.root


class _Builder:
    """Builds the value from the events of the parser."""

    def __init__(self) -> None:
        self.root: dict[str, Any] = {}
        self._open: list[tuple[dict[str, Any], list[str]]] = [(self.root, [])]
        """The fields and the texts of each element that is open."""

    def start(self, name: str, attributes: list[str]) -> None:
        if len(self._open) > MAX_DEPTH:
            raise BadXml(f"elements are nested more than {MAX_DEPTH} deep")
        pairs = zip(attributes[::2], attributes[1::2], strict=True)
        self._open.append(({f"@{key}": value for key, value in pairs}, []))

    def text(self, text: str) -> None:
        self._open[-1][1].append(text)

    def end(self, name: str) -> None:
        fields, texts = self._open.pop()
        text = "".join(texts).strip()
        value: Any = fields
        if not fields:
            value = text or None
        elif text:
            fields["#text"] = text
        parent = self._open[-1][0]
        if name not in parent:
            parent[name] = value
        elif isinstance(parent[name], list):
            parent[name].append(value)
        else:
            parent[name] = [parent[name], value]


def _refuse_entity(*_: object) -> None:
    raise BadXml("it declares entities")


Text = TypeVar("Text", bytes, str)
Parse = Callable[[BinaryIO], Iterator[Any]]
"""Yields the values in a file. It raises `BadFile` if the file has another format."""

_GZIP = b"\x1f\x8b"
MAX_FIELD = 1 << 30
"""Number of characters that a field of a CSV file may have."""
csv.field_size_limit(MAX_FIELD)
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
    body = _json(content, "is not JSON")
    yield from body if isinstance(body, list) else [body]


def json_lines(file: BinaryIO) -> Iterator[Any]:
    """Yield the value of each line; empty lines are left out."""
    for number, line in enumerate(_lines(file.readline), 1):
        if line.strip():
            yield _json(line, f"has no JSON in line {number}")


def csv_rows(
    encoding: str, delimiter: str, nulls: Sequence[str], *, drops_null_bytes: bool = False
) -> Parse:
    """Return a parser that yields the rows of a CSV file as objects.

    Args:
        encoding: the encoding of the file.
        delimiter: the character between two fields.
        nulls: the texts that stand for null.
        drops_null_bytes: whether the null bytes of a file are left out, which some APIs send.
    """
    codec = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
    null = frozenset(nulls)

    def parse(file: BinaryIO) -> Iterator[Any]:
        lines = _lines(io.TextIOWrapper(file, encoding=codec).readline)
        if drops_null_bytes:
            lines = (line.replace("\0", "") for line in lines)
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


class _Counted(io.RawIOBase):
    """A file whose bytes are counted as they are read.

    Args:
        file: the file.
        check: called with the number of bytes so far.

    Attributes:
        size: the number of bytes so far.
    """

    def __init__(self, file: BinaryIO, check: Callable[[int], object] = lambda _: None):
        super().__init__()
        self._file = file
        self._check = check
        self.size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        self.size += len(piece)
        self._check(self.size)
        return len(piece)


def _bounded(unpacked: BinaryIO, packed: Callable[[], int]) -> BinaryIO:
    """Return a decompressed file that raises BadFile if it becomes too large for its compressed size.

    Args:
        unpacked: the file.
        packed: returns the number of compressed bytes so far.
    """
    limits = response_limits()

    def check(size: int) -> None:
        problem = limits.growth(size, packed())
        if problem:
            raise BadFile(
                f"{problem}; the environment variable {EXPANSION_VARIABLE} sets the limit"
            )

    return cast("BinaryIO", io.BufferedReader(_Counted(unpacked, check), _CHUNK))


def gunzipped(inner: Parse) -> Parse:
    """Return a parser that decompresses a file, if it is compressed with gzip, for another parser."""

    def parse(file: BinaryIO) -> Iterator[Any]:
        packed = _Counted(file)
        buffered = io.BufferedReader(packed)
        if buffered.peek(2)[:2] != _GZIP:
            yield from inner(buffered)
            return
        try:
            with gzip.GzipFile(fileobj=buffered, mode="rb") as unpacked:
                yield from inner(_bounded(cast("BinaryIO", unpacked), lambda: packed.size))
        except EOFError:
            raise TruncatedFile("ends within data that is compressed with gzip") from None
        except (OSError, zlib.error) as error:
            raise BadFile(f"is not valid gzip: {error}") from None

    return parse


def _whole(file: BinaryIO) -> bytes:
    """Return the content of a file.

    Raises:
        BadFile: it is too large.
    """
    pieces, size, most = [], 0, response_limits().body_bytes
    while piece := file.read(_CHUNK):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise BadFile(f"has more than {most} bytes when it is decompressed")
    return b"".join(pieces)


def _lines(readline: Callable[[int], Text]) -> Iterator[Text]:
    """Yield lines.

    Raises:
        BadFile: a line is too long.
    """
    most = response_limits().body_bytes
    while line := readline(most + 1):
        if len(line) > most:
            raise BadFile(f"has a line with more than {most} bytes when it is decompressed")
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
