"""A search for a value in all files of folders, or objects of a store, in whatever form a file has it.

`find_value` and `find_in_store` open what they know: Parquet (each page of each column, dictionaries
included, and the values as a reader gets them), Avro, archives, JSON in JSON, and databases of SQLite (the
values of all tables, and the raw pages, which include free ones, also where a value lies in two of them).
Whatever a file is, its raw bytes are searched too, which finds statistics, indexes and metadata, and the
write-ahead log of a database. So is the name of each file.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import sqlite3
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.support.object_store import ObjectStore

_MAX_DEPTH = 5


@dataclass(frozen=True)
class Place:
    """Where a value was found: the file, and the part of it."""

    path: PurePath
    part: str


def find_value(value: str, *folders: Path) -> list[Place]:
    """Return all places that have a text, in UTF-8, UTF-16, URLs, base64, or escaped in JSON."""
    needles = _needles(value)
    return [
        Place(path, part)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
        for part in _search_file(str(path.relative_to(folder)), path.read_bytes(), value, needles)
    ]


OLD, UNFINISHED = "older version", "unfinished upload"


def find_in_store(value: str, store: ObjectStore, prefix: str = "") -> list[Place]:
    """Return all places in a bucket, as `find_value`, in older versions of its objects too.

    An unfinished upload is a place whatever it has: no request reads its parts.
    """
    client, needles, places = store.client, _needles(value), list[Place]()
    below = {"Bucket": store.bucket, "Prefix": prefix}
    for page in client.get_paginator("list_object_versions").paginate(**below):
        for item in page.get("Versions", ()):
            name, version = item["Key"], item["VersionId"]
            chosen = {"VersionId": version} if version != "null" else {}
            answer = client.get_object(Bucket=store.bucket, Key=name, **chosen)
            for part in _search_file(name, answer["Body"].read(), value, needles):
                label = part if item["IsLatest"] else f"{OLD}: {part}"
                places.append(Place(PurePosixPath(name), label))
    for page in client.get_paginator("list_multipart_uploads").paginate(**below):
        names = [PurePosixPath(upload["Key"]) for upload in page.get("Uploads", ())]
        places += [Place(name, UNFINISHED) for name in names]
    return places


def _search_file(name: str, data: bytes, value: str, needles: list[bytes]) -> Iterator[str]:
    if any(needle in name.encode() for needle in needles):
        yield "name"
    yield from _search(data, value, needles, 0)


def _needles(value: str) -> list[bytes]:
    escaped = json.dumps(value)[1:-1].encode()
    texts = {
        value.encode(),
        value.encode("utf-16-le"),
        value.encode("utf-16-be"),
        escaped,
        json.dumps(escaped.decode())[1:-1].encode(),
        urllib.parse.quote(value, safe="").encode(),
        urllib.parse.quote_plus(value).encode(),
        value.encode().hex().encode(),
    }
    for shift in range(3):  # the text may begin at each place of a group of three bytes
        coded = base64.b64encode(b"\0" * shift + value.encode())
        whole = coded[4 if shift else 0 : len(coded) - 4]
        if len(whole) >= 8:
            texts |= {whole, whole.translate(bytes.maketrans(b"+/", b"-_"))}
    return sorted(texts)


def _search(data: bytes, value: str, needles: list[bytes], depth: int) -> Iterator[str]:
    """Yield the parts of some bytes that have the value."""
    if any(needle in data for needle in needles):
        yield "bytes"
    if depth == _MAX_DEPTH:
        return
    for name, inner in _open(data):
        for part in _search(inner, value, needles, depth + 1):
            yield f"{name}: {part}"


def _open(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what is in some bytes of a known form."""
    if data[:4] == b"PAR1" and data[-4:] == b"PAR1":
        yield from _open_parquet(data)
    elif data[:4] == b"Obj\x01":
        yield from _open_avro(data)
    elif data[:16] == b"SQLite format 3\0":
        yield from _open_sqlite(data)
    elif data[:2] == b"\x1f\x8b":
        with suppress(OSError, EOFError, zlib.error):
            yield "gzip", gzip.decompress(data)
    elif data[:4] == b"PK\x03\x04":
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                yield f"zip {name}", archive.read(name)
    elif data[:4] == b"\x28\xb5\x2f\xfd":
        with suppress(OSError, pa.ArrowInvalid), pa.input_stream(io.BytesIO(data), "zstd") as file:
            yield "zstd", file.read()
    elif data[:1] in (b"{", b"["):
        yield from _open_json(data)


def _open_json(data: bytes) -> Iterator[tuple[str, bytes]]:
    for line in data.split(b"\n"):
        with suppress(ValueError, RecursionError):
            for text in _strings(json.loads(line)):
                if "\\" in text or text[:1] in ("{", "["):
                    yield "json", text.encode("utf-8", "surrogatepass")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


# Parquet


def _open_parquet(data: bytes) -> Iterator[tuple[str, bytes]]:
    file = pq.ParquetFile(io.BytesIO(data))
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            for kind, page in _pages(data, chunk):
                yield f"{chunk.path_in_schema} {kind} page", page
    for name, column in zip(file.schema_arrow.names, file.read().columns, strict=True):
        for array in column.chunks:
            yield f"{name} values", b"\n".join(_texts(array))


def _texts(array: pa.Array) -> Iterator[bytes]:
    """Yield the values of an array, at any depth, as bytes."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield from _texts(array.dictionary)
    elif pa.types.is_struct(kind):
        for inner in array.flatten():
            yield from _texts(inner)
    elif pa.types.is_map(kind):
        yield from _texts(array.keys)
        yield from _texts(array.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _texts(array.flatten())
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        yield from (value for value in array.to_pylist() if value is not None)
    else:
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            texts = pc.cast(array, pa.string()).to_pylist()
            yield from (text.encode() for text in texts if text is not None)


_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3


def _pages(data: bytes, chunk: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the decompressed pages of a column chunk.

    Spec: Parquet, Data Pages; Thrift compact protocol
    """
    starts = [chunk.data_page_offset]
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        starts.append(chunk.dictionary_page_offset)
    position = min(starts)
    end = position + chunk.total_compressed_size
    while position < end:
        header, body = _Thrift(data, position).struct()
        kind, whole, size = header[1], header[2], header[3]
        page = data[body : body + size]
        levels, is_compressed = 0, chunk.compression != "UNCOMPRESSED"
        if kind == _DATA_2:
            levels = header[8][5] + header[8][6]
            is_compressed = is_compressed and header[8].get(7, True)
        if is_compressed and size > levels:
            codec = pa.Codec(chunk.compression.lower())
            page = page[:levels] + codec.decompress(page[levels:], whole - levels).to_pybytes()
        yield {_DATA: "data", _DATA_2: "data", _DICTIONARY: "dictionary"}.get(kind, "other"), page
        position = body + size


class _Thrift:
    """A reader of structs in Thrift's compact protocol."""

    def __init__(self, data: bytes, position: int):
        self.data, self.position = data, position

    def byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self) -> tuple[dict[int, Any], int]:
        """Return the fields by their numbers, and the position after the struct."""
        fields: dict[int, Any] = {}
        last = 0
        while (head := self.byte()) != 0:
            last = last + (head >> 4) if head >> 4 else self.zigzag()
            fields[last] = self.value(head & 0x0F)
        return fields, self.position

    def value(self, kind: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self.byte()
        if kind in (4, 5, 6):
            return self.zigzag()
        if kind == 7:
            self.position += 8
            return None
        if kind == 8:
            size = self.varint()
            self.position += size
            return self.data[self.position - size : self.position]
        if kind in (9, 10):
            head = self.byte()
            size = self.varint() if head >> 4 == 15 else head >> 4
            return [self.value(head & 0x0F) for _ in range(size)]
        assert kind == 12, kind
        return self.struct()[0]


# Avro


def _open_avro(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the blocks of an Avro file.

    Spec: Avro, Object Container Files
    """
    reader = _Thrift(data, 4)
    metadata: dict[bytes, bytes] = {}
    while count := reader.zigzag():
        if count < 0:
            reader.zigzag()
        for _ in range(abs(count)):
            name, value = (_avro_bytes(reader) for _ in range(2))
            metadata[name] = value
    reader.position += 16
    codec = metadata.get(b"avro.codec", b"null")
    while reader.position < len(data):
        reader.zigzag()
        block = _avro_bytes(reader)
        reader.position += 16
        if codec == b"deflate":
            block = zlib.decompress(block, -15)
        elif codec == b"zstandard":
            with pa.input_stream(io.BytesIO(block), "zstd") as file:
                block = file.read()
        else:
            assert codec == b"null", codec
        yield "avro block", block


def _avro_bytes(reader: _Thrift) -> bytes:
    size = reader.zigzag()
    reader.position += size
    return reader.data[reader.position - size : reader.position]


# SQLite


@contextmanager
def _open_copy(data: bytes) -> Iterator[sqlite3.Connection]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "copy.db"
        path.write_bytes(data)
        with closing(sqlite3.connect(path)) as database:
            yield database


def _open_sqlite(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the values of a database, and pages that may be two parts of a value.

    Spec: SQLite, Database File Format, Cell Payload Overflow Pages
    """
    with suppress(sqlite3.Error), _open_copy(data) as database:
        database.text_factory = bytes
        names = database.execute("select name from sqlite_master where type = 'table'").fetchall()
        for (name,) in names:
            for row in database.execute(f'select * from "{name.decode()}"'):
                for value in row:
                    if isinstance(value, bytes):
                        yield f"table {name.decode()}", value
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else size
    count = len(data) // size
    for number in range(count):
        page = data[number * size : (number + 1) * size]
        after = int.from_bytes(page[:4], "big")
        if 0 < after <= count:
            start = (after - 1) * size
            yield "page", page[-512:] + data[start + 4 : start + 516]
