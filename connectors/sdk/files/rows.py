"""Batches of the rows of a file: with the columns of the file, and rows that are rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from connectors.sdk.arrow_records import make_json_rows
from connectors.sdk.encoding import encode
from connectors.sdk.files.options import CsvOptions, ExcelOptions
from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.files.schema import MODIFIED, PATH
from elt_assets.errors import ConfigError, EltError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UTC = pa.timestamp("us", "UTC")
MAX_TEXT = 1 << 20
"""Maximum characters of a bad line that a rejected record has."""

_COMPRESSED = {
    "gzip": b"\x1f\x8b",
    "bz2": b"BZh",
    "zstd": b"\x28\xb5\x2f\xfd",
    "lz4": b"\x04\x22\x4d\x18",
}
"""The first bytes of compressed files."""
_MAX_NAMES = 200
"""Maximum characters of the names of columns in an error."""


@dataclass(frozen=True)
class FileRows:
    """Makes the batches of a file.

    Args:
        file_columns: whether rows have the columns of their file. A field of the same name in the file wins.
        rejects: whether lines that cannot be read become rejected records; otherwise they are an error.
    """

    file: FileVersion
    file_columns: bool
    rejects: bool

    @property
    def _values(self) -> dict[str, Any]:
        return {PATH: self.file.path, MODIFIED: describe_time(self.file)}

    @property
    def head(self) -> bytes:
        """The start of a record in JSON, up to its first own field."""
        return encode(self._values)[:-1] + b"," if self.file_columns else b"{"

    def complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the columns of the file."""
        if not self.file_columns:
            return batch
        values = {
            PATH: pa.scalar(self.file.path, pa.string()),
            MODIFIED: pa.scalar(self.file.modified // 1000, pa.int64()).cast(_UTC),
        }
        for name, value in values.items():
            if name not in batch.schema.names:
                batch = batch.append_column(name, pa.repeat(value, len(batch)))
        return batch

    def make_records(self, objects: Sequence[bytes]) -> pa.RecordBatch:
        """Return a batch of records from objects in JSON."""
        head = self.head
        short = head.rstrip(b",")
        records = [
            (short if _is_empty(text) else head) + text[1:] if text[:1] == b"{" else text
            for text in objects
        ]
        return make_json_rows(pa.array(records, pa.binary()))

    def reject(self, unit: str, number: int, reason: str, text: bytes | str) -> bytes:
        """Return the rejected record of a line, in JSON.

        Args:
            unit: what the number counts: `line` or `row`.

        Raises:
            ConfigError: bad lines are errors.
        """
        if not self.rejects:
            raise ConfigError(
                f"the file {self.file.path} cannot be read: {unit} {number}: {reason}",
                guidance="correct the line, or set `bad_lines: reject`",
            )
        if isinstance(text, bytes):
            text = text.decode("utf-8", "backslashreplace")
        line = {"file": self.file.path, unit: number, "error": reason, "text": text[:MAX_TEXT]}
        return encode([line])


def refuse_compressed(file: FileVersion, data: bytes) -> None:
    """Refuse a file of text whose bytes are compressed although its name does not say so.

    Raises:
        ConfigError: they are.
    """
    for kind, mark in _COMPRESSED.items():
        if data.startswith(mark):
            raise make_file_error(
                file,
                f"it is compressed ({kind}), and neither its name nor the config says so",
                f"set `compression: {kind}`, or give the file a name that ends in .csv.gz or such",
            )


def refuse_doubles(file: FileVersion, columns: Iterable[str], guidance: str) -> None:
    """Refuse a file with two columns of one name: a record has one value of each.

    Raises:
        ConfigError: there are two.
    """
    doubles = sorted(name for name, count in Counter(columns).items() if count > 1)
    if doubles:
        names = ", ".join(doubles)[:_MAX_NAMES]
        raise make_file_error(file, f"it has a column twice: {names}", guidance)


def name_columns(
    file: FileVersion, first: Sequence[str], options: CsvOptions | ExcelOptions, *, is_counted: bool
) -> list[str]:
    """Return the names of the columns of a table: those of the config, or of the first row, or numbers.

    Args:
        is_counted: whether the first row has all columns.

    Raises:
        ConfigError: the config names fewer or more columns, or two have one name.
    """
    section, names = options.section, options.columns
    if names is None:
        texts = first if options.header else [""] * len(first)
        names = [text or f"column_{number}" for number, text in enumerate(texts, 1)]
    elif is_counted and len(names) != len(first):
        why = f"its first row has {len(first)} columns, and `columns` {len(names)}"
        hint = ", or `csv.delimiter`" if section == "csv" else ""
        raise make_file_error(file, why, f"correct `{section}.columns`{hint}")
    guidance = f"name the columns with `{section}.columns`; without a header, set `{section}.header: false`"
    refuse_doubles(file, names, guidance)
    return names


def describe_time(file: FileVersion) -> str:
    """Return the time of modification of a file, as JSON has it."""
    moment = _EPOCH + timedelta(microseconds=file.modified // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _is_empty(text: bytes) -> bool:
    """Return whether an object in JSON has no fields."""
    return len(text) < 64 and text[1:].lstrip() == b"}"


def make_file_error(file: FileVersion, why: str, guidance: str) -> EltError:
    """Return the error of a file that its owner has to correct."""
    return ConfigError(f"the file {file.path} cannot be read: {why}", guidance=guidance)
