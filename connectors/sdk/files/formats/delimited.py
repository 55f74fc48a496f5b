"""CSV. All columns are read as texts, and cast by the types of the stream: see `..texts`."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from connectors.sdk.arrow_records import raw_or_text
from connectors.sdk.encoding import encode
from connectors.sdk.files.formats.blocks import BlockStream
from connectors.sdk.files.formats.file_format import (
    SAMPLE_BYTES,
    SAMPLE_ROWS,
    FilePart,
    estimate_rows,
)
from connectors.sdk.files.formats.quotes import BadQuote, Quotes
from connectors.sdk.files.options import CsvOptions
from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.files.rows import FileRows, make_file_error, name_columns, refuse_compressed
from connectors.sdk.files.schema import ColumnShape, Shapes
from connectors.sdk.files.storage import Storage, find_compression
from connectors.sdk.files.texts import cast_texts, infer_kinds, json_value
from connectors.sdk.lent import lend

_ROW_BYTES = 100
_BATCH_ROWS = 1 << 16
_EMPTY = ("Empty CSV file", "Could not skip initial")
"""What pyarrow says of a file without rows."""
_LARGE = 4 << 20
"""Size of a block in bytes from which the memory of each is given back: it costs time to get it again."""
_MAX_HEAD = 64 << 20
"""Bytes in which the header of a file must end."""
_FEW_MISFITS = 50
"""A batch with more misfits becomes records as a whole; otherwise only their rows do."""


@dataclass(frozen=True)
class Delimited:
    """The format of CSV. `compression`: that of the config."""

    options: CsvOptions
    compression: str
    mixed: str = "string"

    def sample(self, storage: Storage, file: FileVersion) -> Shapes:
        head = _Head(self, storage, file, SAMPLE_BYTES)
        names = head.names
        texts: list[list[str]] = [[] for _ in names]
        for row in head.sample_rows():
            if len(row) == len(names):
                for values, text in zip(texts, row, strict=True):
                    if text not in self.options.null_values and text:
                        values.append(text)
        return {
            name: ColumnShape(infer_kinds(values))
            for name, values in zip(names, texts, strict=True)
        }

    def split(self, storage: Storage, file: FileVersion) -> Sequence[FilePart]:
        del storage
        compressed = find_compression(file.path, self.compression)
        return [FilePart(estimate_rows(file, _ROW_BYTES, compressed))]

    def read(
        self, storage: Storage, rows: FileRows, part: FilePart, kinds: Mapping[str, str]
    ) -> Iterator[pa.RecordBatch]:
        del part
        head = _Head(self, storage, rows.file, 1 << 16)
        if not head.names:
            return
        bad_rows: list[pacsv.InvalidRow] = []
        converter = _RowConverter(rows, kinds, self.options.null_values)
        with storage.open_stream(rows.file, self.compression) as stream:
            for batch in self._batches(stream, head, bad_rows):
                if bad_rows:
                    yield rows.make_records([_reject(rows, row) for row in bad_rows])
                    bad_rows.clear()
                named = pa.RecordBatch.from_arrays(batch.columns, names=head.names)
                for start in range(0, len(named), _BATCH_ROWS):
                    yield from converter.convert(named.slice(start, _BATCH_ROWS))
                del batch, named
            if bad_rows:
                yield rows.make_records([_reject(rows, row) for row in bad_rows])

    def _batches(self, stream: Any, head: _Head, bad_rows: list[Any]) -> Iterator[pa.RecordBatch]:
        options = self.options
        raw_names = [f"f{number}" for number in range(len(head.names))]

        def handle(row: pacsv.InvalidRow) -> str:
            bad_rows.append(row)
            return "skip"

        if options.encoding != "utf-8":  # here, so that each read of a block gives one
            stream = pa.transcoding_input_stream(stream, options.encoding, "utf-8")
        check = None
        if options.quote is not None:
            skipped = head.skipped_lines
            check = Quotes(options.delimiter, options.quote, options.escape, skipped).check
        blocks = BlockStream(stream, check)
        try:
            reader = pacsv.open_csv(
                pa.PythonFile(lend(blocks), mode="r"),
                read_options=pacsv.ReadOptions(
                    use_threads=False,
                    block_size=max(options.max_row_bytes, 1 << 20),
                    column_names=raw_names,
                    skip_rows=head.skipped_lines,
                ),
                parse_options=pacsv.ParseOptions(
                    delimiter=options.delimiter,
                    quote_char=options.quote or False,
                    escape_char=options.escape or False,
                    newlines_in_values=options.quote is not None,
                    invalid_row_handler=lend(handle),
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict.fromkeys(raw_names, pa.string()),
                    strings_can_be_null=True,
                    null_values=options.null_values,
                    quoted_strings_can_be_null=False,
                ),
            )
            while True:
                with blocks.allow_reads():
                    batch = reader.read_next_batch()
                yield batch
                del batch  # its memory is free while the next one is read
                if options.max_row_bytes > _LARGE:
                    pa.default_memory_pool().release_unused()
        except StopIteration:
            return
        except BadQuote as error:
            raise make_file_error(
                head.file,
                str(error),
                "correct the file, or load it whole; if its values have no quotes around them, set "
                "`csv.quote: null`",
            ) from None
        except pa.ArrowInvalid as error:
            if not any(mark in str(error) for mark in _EMPTY):
                raise self._describe(error, head.file) from error

    def _describe(self, error: Exception, file: FileVersion) -> Exception:
        text = str(error)
        if "straddling" in text:
            return make_file_error(
                file,
                f"a row has more than {self.options.max_row_bytes:,} bytes, or a quote has no end",
                "correct the file, or set `csv.max_row_bytes` or `csv.quote`",
            )
        return self.describe_encoding(text, file) if "UTF8" in text else error

    def describe_encoding(self, error: str, file: FileVersion) -> Exception:
        """Return the error of a file that has another encoding."""
        return make_file_error(
            file,
            f"its encoding is not {self.options.encoding}: {error}",
            "set `csv.encoding`, such as `latin-1`, `cp1252` or `utf-16`",
        )


def _reject(rows: FileRows, row: pacsv.InvalidRow) -> bytes:
    reason = f"{row.actual_columns} values, and not {row.expected_columns}"
    return rows.reject("row", row.number, reason, row.text)


@dataclass
class _Head:
    """The beginning of a file, and its columns.

    Attributes:
        names: the names of the columns; none if the file has no rows.
        skipped_lines: the lines before the first row.
    """

    format: Delimited
    storage: Storage
    file: FileVersion
    size: int
    names: list[str] = field(init=False)
    skipped_lines: int = field(init=False)
    _rows: Iterator[list[str]] = field(init=False, repr=False)
    _first: list[str] | None = field(init=False, repr=False)
    _header_lines: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        options = self.format.options
        size = self.size
        while not self._parse(*self._read(size)):
            if size >= max(_MAX_HEAD, options.max_row_bytes):
                raise make_file_error(
                    self.file,
                    f"its header does not end in its first {size:,} bytes",
                    "correct the file, `csv.quote` or `csv.skip_rows`",
                )
            size *= 8
        first = self._first
        if first is None:
            self.names = []
            return
        if options.header:
            self.skipped_lines += self._header_lines
        else:
            self._rows = chain([first], self._rows)
        self.names = name_columns(
            self.file, first, self.format.options, is_counted=self.format.options.header
        )

    def _parse(self, text: str, is_cut: bool) -> bool:
        """Find the first row; return whether it is whole: a line follows it, or the file ends."""
        options = self.format.options
        lines = list(io.StringIO(text, newline=""))
        if is_cut:
            del lines[-1:]
        reader = self._rows = csv.reader(
            iter(lines[options.skip_rows :]),
            delimiter=options.delimiter,
            quotechar=options.quote,
            quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
            escapechar=options.escape,
        )
        self.skipped_lines = options.skip_rows
        try:
            self._first = next((row for row in self._rows if row), None)
        except csv.Error as error:
            raise make_file_error(
                self.file, f"its header: {error}", "correct `csv.quote`"
            ) from None
        self._header_lines = reader.line_num
        return not is_cut or options.skip_rows + reader.line_num < len(lines)

    def sample_rows(self) -> Iterator[list[str]]:
        """Yield some rows."""
        try:
            yield from islice(self._rows, SAMPLE_ROWS)
        except csv.Error:  # a value is too long for this reader; that of all rows takes it
            return

    def _read(self, size: int) -> tuple[str, bool]:
        """Return the text of the first bytes, and whether there are more."""
        encoding = self.format.options.encoding
        with self.storage.open_stream(self.file, self.format.compression) as stream:
            data = stream.read(size)
        refuse_compressed(self.file, data)
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and "16" not in encoding:
            raise make_file_error(self.file, "its encoding is UTF-16", "set `csv.encoding: utf-16`")
        if data.count(0) > len(data) // 4 and "16" not in encoding and "32" not in encoding:
            raise make_file_error(
                self.file,
                "many of its bytes are zero",
                "set `csv.encoding: utf-16`; or it is no text",
            )
        is_cut = len(data) == size
        try:
            text = io.IncrementalNewlineDecoder(
                codecs.getincrementaldecoder(encoding)(), translate=False
            ).decode(data, final=not is_cut)
        except UnicodeError as error:
            raise self.format.describe_encoding(str(error), self.file) from None
        return text.removeprefix("\ufeff"), is_cut


@dataclass(frozen=True)
class _RowConverter:
    """Converts batches of texts. `kinds`: the types of the columns of the stream."""

    rows: FileRows
    kinds: Mapping[str, str]
    nulls: Sequence[str]

    def convert(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch, in their order."""
        nulls = ["", *(null for null in self.nulls if null)]
        casts = [
            cast_texts(column, self.kinds.get(name, "string"), nulls)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        masks = [np.asarray(misfits) for _, misfits in casts if misfits is not None]
        clean = pa.RecordBatch.from_arrays([v for v, _ in casts], names=batch.schema.names)
        if not masks:
            yield self.rows.complete(clean)
            return
        misfits = np.flatnonzero(np.logical_or.reduce(masks)).tolist()
        if len(misfits) > _FEW_MISFITS:
            yield self._make_records(batch, nulls)
            return
        start = 0
        for row in misfits:
            if row > start:
                yield self.rows.complete(clean.slice(start, row - start))
            yield self._make_records(batch.slice(row, 1), nulls)
            start = row + 1
        if start < len(batch):
            yield self.rows.complete(clean.slice(start))

    def _make_records(self, batch: pa.RecordBatch, nulls: Sequence[str]) -> pa.RecordBatch:
        names = batch.schema.names
        columns = [
            [_json_text(text, self.kinds.get(name, "string"), nulls) for text in column.to_pylist()]
            for name, column in zip(names, batch.columns, strict=True)
        ]
        records = [
            encode(dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)
        ]
        return self.rows.make_records(records)


def _json_text(text: str | None, kind: str, nulls: Sequence[str]) -> Any:
    if kind in ("json", "object", "array") and text is not None:
        return raw_or_text(text)
    return json_value(text, kind, nulls)
