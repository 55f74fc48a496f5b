"""The rows of a query as CSV, JSON or Parquet, written as they are computed; for `elt sql`.

First the values that a format has no type for, as texts; then a writer for each format (`FORMATS`); then
where they write: to stdout, or to a file that gets its name when it is whole.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from elt_assets.errors import ConfigError

_encoder = msgspec.json.Encoder(enc_hook=str)
"""Encodes days and times in ISO 8601, bytes in Base64, and decimals as texts, which are exact in every
reader. JSON has no NaN and no infinity: they are null."""
_PLAIN = (
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_null),
    *(pa.types.is_date, pa.types.is_timestamp, pa.types.is_time),
)
"""The types that CSV has; all others are written as JSON."""


def encode_json(value: Any) -> bytes:
    """Return a value as JSON on one line."""
    return _encoder.encode(value)


def list_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows by the names of their columns."""
    rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="strict")
    return rows


def refuse_same_names(schema: pa.Schema) -> None:
    """Refuse rows in which two columns have one name.

    Raises:
        ConfigError: names the columns.
    """
    names = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if names:
        raise ConfigError(
            f"two columns of the result have the name {', '.join(map(repr, names))}",
            guidance="give each another one: SELECT a.id AS a_id, b.id AS b_id …",
        )


class RowWriter(Protocol):
    """Writes rows in one format."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""

    def close(self) -> None:
        """Write the end; the file stays open."""


class CsvWriter:
    """Writes a line of names, and a line for each row. A null is empty, and an empty text is `""`."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema):
        fields = [
            field if _is_plain(field.type) else pa.field(field.name, pa.string())
            for field in schema
        ]
        self._schema = pa.schema(fields)
        self._writer = pa.csv.CSVWriter(sink, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [
            column if _is_plain(column.type) else _describe_values(column)
            for column in batch.columns
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


class JsonWriter:
    """Writes an array of objects, each on a line of its own."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema):
        refuse_same_names(schema)
        self._sink, self._separator = sink, b"[\n"

    def write(self, batch: pa.RecordBatch) -> None:
        for row in list_rows(batch):
            self._sink.write(self._separator + encode_json(row))
            self._separator = b",\n"

    def close(self) -> None:
        self._sink.write(b"[]\n" if self._separator == b"[\n" else b"\n]\n")


class ParquetWriter:
    """Writes a Parquet file."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema):
        refuse_same_names(schema)
        try:
            self._writer = pq.ParquetWriter(sink, schema, compression="zstd")
        except pa.ArrowNotImplementedError as error:
            raise ConfigError(
                f"Parquet has no type for a column: {error}",
                guidance="cast it: SELECT CAST(x AS VARCHAR)",
            ) from error

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


FORMATS: Mapping[str, Callable[[BinaryIO, pa.Schema], RowWriter]] = MappingProxyType(
    {"csv": CsvWriter, "json": JsonWriter, "parquet": ParquetWriter}
)
"""The formats of files."""


@contextlib.contextmanager
def open_output(file: Path | None) -> Iterator[BinaryIO]:
    """Open a file that is written whole or not at all; None for stdout.

    A file that is replaced keeps its mode.

    Raises:
        ConfigError: it cannot be written.
    """
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as sink:
            yield sink
        if file.exists():
            draft.chmod(file.stat().st_mode & 0o777)
        draft.replace(file)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror or error}",
            guidance=f"make {file.parent} a folder that you can write, and make room on the disk",
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _is_plain(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _PLAIN)


def _describe_values(column: pa.Array) -> pa.Array:
    """Return values as texts: a text as it is, all others as JSON."""
    values = (
        None if value is None else value if isinstance(value, str) else encode_json(value).decode()
        for value in column.to_pylist(maps_as_pydicts="strict")
    )
    return pa.array(values, pa.string())
