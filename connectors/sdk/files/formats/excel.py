"""Excel, and other workbooks that calamine reads: .xlsx, .xlsb, .xls, .ods. One sheet is read."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from importlib import import_module
from itertools import islice
from typing import Any

import pyarrow as pa

from connectors.sdk.encoding import encode
from connectors.sdk.files.formats.file_format import SAMPLE_ROWS, FilePart, estimate_rows
from connectors.sdk.files.options import ExcelOptions
from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.files.rows import FileRows, make_file_error
from connectors.sdk.files.schema import ColumnShape, Shapes
from connectors.sdk.files.storage import Storage
from elt_assets.errors import ConfigError

_BATCH_ROWS = 10_000
_EXACT = 1 << 53


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

    def _open(self, storage: Storage, file: FileVersion) -> tuple[list[str], Iterator[list[Any]]]:
        """Return the names of the columns, and the rows."""
        calamine = _import_calamine()
        with storage.open_file(file) as source:
            content = io.BytesIO(source.read())
        try:
            book = calamine.CalamineWorkbook.from_filelike(content)
            sheet = self._find_sheet(file, book)
            cells = iter(sheet.iter_rows())
            for _ in range(self.options.skip_rows):
                next(cells, None)
        except (calamine.CalamineError, calamine.PasswordError) as error:
            raise make_file_error(
                file, f"it is no workbook, or is protected: {error}", "replace it, or exclude it"
            ) from error
        first = next(cells, None)
        if first is None:
            return [], iter(())
        return self._name(file, first), cells if self.options.header else _chain(first, cells)

    def _find_sheet(self, file: FileVersion, book: Any) -> Any:
        sheet, names = self.options.sheet, book.sheet_names
        if sheet in names:
            return book.get_sheet_by_name(sheet)
        if isinstance(sheet, int) and 0 <= sheet < len(names):
            return book.get_sheet_by_index(sheet)
        raise make_file_error(
            file, f"it has no sheet {sheet!r}, only {', '.join(names)}", "correct `excel.sheet`"
        )

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
        doubles = sorted({name for name in names if names.count(name) > 1})
        if doubles:
            raise make_file_error(
                file,
                f"its header has a column twice: {doubles[0]}",
                "name them with `excel.columns`",
            )
        return names


def _import_calamine() -> Any:
    try:
        return import_module("python_calamine")
    except ModuleNotFoundError:
        raise ConfigError(
            "workbooks cannot be read: python-calamine is not installed",
            guidance='run `pip install "elt-assets[excel]"`, also on the machines of a cluster',
        ) from None


def _chain(first: list[Any], rest: Iterator[list[Any]]) -> Iterator[list[Any]]:
    yield first
    yield from rest


def _kind_of(value: Any) -> str | None:
    """Return the type of a cell; None if it is empty."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if float(value).is_integer() and abs(value) < _EXACT else "number"
    if isinstance(value, datetime):
        return "timestamp_without_timezone"
    if isinstance(value, date):
        return "date"
    return "time" if isinstance(value, time) else "string"


def _json_value(value: Any, kind: str) -> Any:
    """Return a cell as JSON has it, in a column of a type."""
    if value is None or value == "":
        return None
    if isinstance(value, datetime | date | time | timedelta):
        return _text(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        value = int(value) if value.is_integer() and abs(value) < _EXACT else value
    if kind == "string" and not isinstance(value, str):
        return _text(value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    return str(value)
