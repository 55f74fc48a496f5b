"""Excel, and other workbooks that calamine reads: .xlsx, .xlsb, .xls, .ods. One sheet is read.

A cell with an error (`#DIV/0!`) is its text: in a column of another type, a value that does not fit, so the
lake records that it becomes null. It says nothing of the type of its column.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from connectors.sdk.encoding import encode
from connectors.sdk.files.formats.file_format import SAMPLE_ROWS, FilePart, estimate_rows
from connectors.sdk.files.formats.workbooks import read_sheet
from connectors.sdk.files.options import ExcelOptions
from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.files.rows import FileRows, make_file_error, refuse_doubles
from connectors.sdk.files.schema import ColumnShape, Shapes
from connectors.sdk.files.storage import Storage

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
        return self._name(file, first), cells if self.options.header else chain([first], cells)

    def _name(self, file: FileVersion, first: Sequence[Any]) -> list[str]:
        names = self.options.columns
        if names is None:
            texts = [_text(cell) if self.options.header else "" for cell in first]
            names = [text or f"column_{number}" for number, text in enumerate(texts, 1)]
        elif len(names) != len(first):
            raise make_file_error(
                file,
                f"its sheet has {len(first)} columns, and `columns` {len(names)}",
                "correct `excel.columns`",
            )
        refuse_doubles(file, names, "name them with `excel.columns`")
        return names


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
