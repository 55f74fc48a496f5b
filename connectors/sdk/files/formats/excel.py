"""Excel, and other workbooks that calamine reads: .xlsx, .xlsb, .xls, .ods. One sheet is read.

A cell with an error (`#DIV/0!`) is its text: in a column of another type, a value that does not fit, so the
lake records that it becomes null. It says nothing of the type of its column.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa

from connectors.sdk.encoding import encode
from connectors.sdk.files.formats.file_format import SAMPLE_ROWS, FilePart, estimate_rows
from connectors.sdk.files.options import ExcelOptions
from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.files.rows import FileRows, make_file_error, name_columns
from connectors.sdk.files.schema import ColumnShape, Shapes
from connectors.sdk.files.storage import Storage
from elt_assets.errors import ConfigError

_BATCH_ROWS = 10_000
_EXACT = 1 << 53
_KINDS = {
    "datetime": "timestamp_without_timezone",
    "date": "date",
    "time": "time",
    "timedelta": "string",
    "error": None,
}
"""The types of cells that are a list of their type and their text."""
_PROGRAM = Path(__file__).with_name("excel_program.py")
_LENGTH_BYTES = 4
_CHUNK = 4 << 20


@dataclass(frozen=True)
class Excel:
    """The format of workbooks."""

    options: ExcelOptions
    mixed: str = "string"

    def sample(self, storage: Storage, file: FileVersion) -> Shapes:
        names, rows = self._open(storage, file)
        shapes: Shapes = {name: ColumnShape() for name in names}
        for row in islice(rows, SAMPLE_ROWS):
            for name, value in zip(names, row, strict=False):
                kind = _kind_of(value)
                if kind is not None:
                    shapes[name].kinds.add(kind)
        return shapes

    def split(self, storage: Storage, file: FileVersion) -> Sequence[FilePart]:
        del storage
        return [FilePart(estimate_rows(file, 100, compressed=True))]

    def read(
        self, storage: Storage, rows: FileRows, part: FilePart, kinds: Mapping[str, str]
    ) -> Iterator[pa.RecordBatch]:
        del part
        names, cells = self._open(storage, rows.file)
        order = [kinds.get(name, "string") for name in names]
        while page := list(islice(cells, _BATCH_ROWS)):
            records = []
            for row in page:
                values = map(_json_value, row, order)
                record = dict(zip(names, values, strict=False))
                if any(value is not None for value in record.values()):
                    records.append(encode(record))
            if records:
                yield rows.make_records(records)

    def _open(
        self, storage: Storage, file: FileVersion
    ) -> tuple[list[str], Iterator[Sequence[Any]]]:
        """Return the names of the columns, and the rows."""
        cells = read_sheet(storage, file, self.options.sheet, self.options.skip_rows)
        first = next(cells, None)
        if first is None:
            return [], iter(())
        names = name_columns(file, list(map(_text, first)), self.options, is_counted=True)
        return names, cells if self.options.header else chain([first], cells)


def _kind_of(value: Any) -> str | None:
    """Return the type of a cell; None if it is empty."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if float(value).is_integer() and abs(value) < _EXACT else "number"
    return _KINDS[value[0]] if isinstance(value, list) else "string"


def _json_value(value: Any, kind: str) -> Any:
    """Return a cell as JSON has it, in a column of a type."""
    if value is None or value == "":
        return None
    if isinstance(value, list):
        return _text(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        value = int(value) if value.is_integer() and abs(value) < _EXACT else value
    if kind == "string" and not isinstance(value, str):
        return _text(value)
    return value


def _text(value: Any) -> str:
    """Return the text of a cell. A number has all its digits, and no exponent."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):  # its type and its text
        return str(value[1])
    if isinstance(value, float) and math.isfinite(value):
        text = format(Decimal(repr(value)), "f")
        return text.removesuffix(".0") if value else "0"
    return str(value)


def read_sheet(
    storage: Storage, file: FileVersion, sheet: str | int, skip_rows: int
) -> Iterator[Sequence[Any]]:
    """Yield the rows of a sheet. A time, or an error, is a list of its type and its text.

    Raises:
        ConfigError: it is no workbook, has no such sheet, or takes too much memory.
    """
    if find_spec("python_calamine") is None:
        raise ConfigError(
            "workbooks cannot be read: python-calamine is not installed",
            guidance='run `pip install "elt-assets[excel]"`, also on the machines of a cluster',
        )
    if file.size > storage.megabytes << 20:
        raise MemoryError
    options = {"sheet": sheet, "skip_rows": skip_rows, "megabytes": storage.megabytes}
    with _start() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(options).encode() + b"\n")
            with storage.open_file(file) as source:
                while chunk := source.read(_CHUNK):
                    process.stdin.write(chunk)
            process.stdin.close()
        with closing(_read_answers(process.stdout, storage.megabytes << 20)) as answers:
            for answer in answers:
                yield from _read_rows(file, sheet, answer)


def _read_rows(file: FileVersion, sheet: str | int, answer: Any) -> Sequence[Sequence[Any]]:
    if "problem" in answer:
        raise make_file_error(file, answer["problem"], "replace it, or exclude it")
    if "sheets" in answer:
        names = ", ".join(answer["sheets"])
        raise make_file_error(
            file, f"it has no sheet {sheet!r}, only {names}", "correct `excel.sheet`"
        )
    rows: Sequence[Sequence[Any]] = answer["rows"]
    return rows


@contextmanager
def _start() -> Iterator[subprocess.Popen[bytes]]:
    """Start the program; it ends with the context."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, str(_PROGRAM)], **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def _read_answers(output: IO[bytes], most: int) -> Generator[Any, None, None]:
    """Yield the answers of the program.

    Raises:
        MemoryError: the program ended before it had read the sheet, which it does if it gets no memory.
    """
    while True:
        length = int.from_bytes(head := output.read(_LENGTH_BYTES), "big")
        if len(head) < _LENGTH_BYTES or length > most:
            raise MemoryError
        if not length:
            return
        data = output.read(length)
        if len(data) < length:
            raise MemoryError
        yield msgspec.msgpack.decode(data)
