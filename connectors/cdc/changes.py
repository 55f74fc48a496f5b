"""Changes of the log as files, which tasks read: rows of the stream, with the number and time of each change.

A change of a row's key is a delete of the old key, and the row under the new one. A log says of a truncated
table that all rows are gone, but not which rows there were: that is one row, which stands for the deletes of
all rows with a number that is not greater. A column that the rows of the log do not have is null, and a
column that the catalog does not have is not stored: a warning says so of each.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.cdc.texts import RESET, UPDATED_AT, describe_absent, describe_unstored
from connectors.sdk.arrow_records import list_changes, report_changes
from connectors.sdk.groups import StreamPart
from connectors.sdk.items import Slice, Warn
from connectors.sdk.slice_files import SliceFiles
from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol.catalog import DELETED_AT, StreamId
from elt_assets.protocol.messages import TRUNCATED

_TIME = pa.timestamp("us", "UTC")
_BATCH_ROWS, _BATCH_BYTES = 50_000, 16 << 20
_MAX_WARNINGS = 5
"""Warnings of a stream in a window: many statements may alter one table."""
Parameters = ParamSpec("Parameters")
Row = TypeVar("Row", bound=Sequence[Sized | None])
"""The texts of a row's columns."""


def add_log_fields(
    columns: pa.RecordBatch, cursor: str, numbers: Any, times: Any, is_deleted: Any
) -> pa.RecordBatch:
    """Return the rows of changes.

    Args:
        columns: their values in the columns of the table.
        cursor: the field for `numbers`.
        times: of the changes, in microseconds since 1970.
        is_deleted: whether each row is one that was deleted.
    """
    moments = pa.array(times, pa.int64()).cast(_TIME)
    ends = pc.if_else(pa.array(is_deleted, pa.bool_()), moments, pa.scalar(None, _TIME))
    fields = [
        pa.field(cursor, pa.int64()),
        pa.field(UPDATED_AT, _TIME),
        pa.field(DELETED_AT, _TIME),
    ]
    return pa.RecordBatch.from_arrays(
        [*columns.columns, pa.array(numbers, pa.int64()), moments, ends],
        schema=pa.schema([*columns.schema, *fields]),
    )


def number_snapshot(batch: pa.RecordBatch, cursor: str, number: int, time: int) -> pa.RecordBatch:
    """Return the rows of a snapshot with its number and time."""
    numbers, times = (np.full(len(batch), value, np.int64) for value in (number, time))
    return add_log_fields(batch, cursor, numbers, times, np.zeros(len(batch), bool))


def make_truncation(
    columns: Sequence[str], key: Sequence[str], cursor: str, number: int, time: int
) -> pa.RecordBatch:
    """Return a delete of all rows that a table had, as a batch of one row.

    Args:
        columns, key: the names of the table's columns, and of those of its key.
    """
    reasons = {(name, TRUNCATED): pa.array([True]) for name in key or columns}
    values = pa.RecordBatch.from_arrays([pa.nulls(1) for _ in columns], names=list(columns))
    row = add_log_fields(values, cursor, [number], [time], [True])
    return report_changes(row, list_changes(reasons, 1))


class ChangeFiles:
    """The files of the changes of some streams in a window.

    Args:
        folder: gets the files.
        cursor: the field with the number of a change.
        keys: the columns of the streams' keys. A stream that has failed has none any more.

    Attributes:
        truncated: the streams of which all rows were removed.
        failures: the streams whose changes cannot be read, and why: these have no files.
        void: the numbers of changes that were rolled back, of each stream: after the first, up to the second.
        oldest: the time of the commit of the oldest change; None if there is no change.
    """

    def __init__(self, folder: Path, cursor: str, keys: Mapping[StreamId, Sequence[str]]):
        self._folder, self.cursor, self.keys = folder, cursor, dict(keys)
        self.void: defaultdict[StreamId, list[tuple[int, int]]] = defaultdict(list)
        self.begin_window()

    def begin_window(self) -> None:
        """Remove what the window before had."""
        for path in self._folder.iterdir():
            path.unlink()
        self._files = SliceFiles(self._folder)
        self._absent: defaultdict[StreamId, set[str]] = defaultdict(set)
        self._unstored: defaultdict[StreamId, Counter[str]] = defaultdict(Counter)
        self._warnings: defaultdict[StreamId, list[str]] = defaultdict(list)
        self.oldest: dt.datetime | None = None
        self.truncated: set[StreamId] = set()
        self.failures: dict[StreamId, EltError] = {}
        self.void.clear()

    def attempt(
        self,
        stream: StreamId,
        add: Callable[Parameters, object],
        *args: Parameters.args,
        **options: Parameters.kwargs,
    ) -> None:
        """Add something of a stream by a function. If it raises a ConfigError, the other streams go on."""
        if stream not in self.failures and stream in self.keys:
            try:
                add(*args, **options)
            except ConfigError as error:
                self.failures[stream] = error

    def write(self, stream: StreamId, rows: pa.RecordBatch) -> None:
        """Add rows of a stream."""
        if UPDATED_AT in rows.schema.names:
            oldest = pc.min(rows.column(UPDATED_AT)).as_py()
            self.oldest = min(filter(None, (self.oldest, oldest)), default=None)
        self._files.write(stream, rows)

    def truncate(self, stream: StreamId, columns: Sequence[str], number: int, time: int) -> None:
        """Add that the table of a stream has no rows any more."""
        self.truncated.add(stream)
        self.write(stream, make_truncation(columns, self.keys[stream], self.cursor, number, time))

    def add_absent(self, stream: StreamId, columns: Iterable[str]) -> None:
        """Add columns that rows of the log do not have, for a warning."""
        for column in columns:
            self._absent[stream].add(column)

    def add_unstored(self, stream: StreamId, column: str, count: int) -> None:
        """Add how many changes have a value of a column that is not stored, for a warning."""
        if count:
            self._unstored[stream][column] += count

    def warn(self, stream: StreamId, text: str) -> None:
        """Warn of a stream, once in a window."""
        texts = self._warnings[stream]
        if text not in texts and len(texts) < _MAX_WARNINGS:
            texts.append(text)

    def close(self) -> Iterator[StreamPart]:
        """Yield the warnings, and the files as slices of their streams."""
        for stream, texts in self._warnings.items():
            yield from (StreamPart(stream, Warn(text)) for text in texts)
        for stream, names in self._absent.items():
            if stream not in self.failures:
                yield StreamPart(stream, Warn(describe_absent(names)))
        for stream, counts in self._unstored.items():
            if stream not in self.failures:
                yield StreamPart(stream, Warn(describe_unstored(counts)))
        for part in self._files.close():
            if part.stream not in self.failures:
                yield from self._list_valid(part)

    def _list_valid(self, part: StreamPart) -> Iterator[StreamPart]:
        """Yield a slice without the rows that were rolled back, if it has others."""
        void = self.void.get(part.stream)
        if not void:
            yield part
            return
        assert isinstance(part.item, Slice) and part.item.file is not None
        file, rows = _remove_rows(part.item.file, self.cursor, void)
        if rows:
            yield StreamPart(part.stream, replace(part.item, file=file, rows=rows))


def _remove_rows(file: str, cursor: str, void: Sequence[tuple[int, int]]) -> tuple[str, int]:
    """Write the rows of a file that are not void into another one; return its path, and how many they are.

    Args:
        void: as in `ChangeFiles`.
    """
    path, rows = Path(file).with_suffix(".valid"), 0
    starts, ends = sorted(first for first, _ in void), sorted(last for _, last in void)
    with (
        pa.memory_map(file) as source,
        pa.ipc.open_stream(source) as reader,
        pa.ipc.new_stream(str(path), reader.schema) as writer,
    ):
        for batch in reader:
            # As many ranges have begun before a number as have ended, if it is in none.
            is_valid = [
                bisect_left(starts, number) == bisect_left(ends, number)
                for number in batch.column(cursor).to_pylist()
            ]
            valid = batch.filter(pa.array(is_valid, pa.bool_()))
            rows += len(valid)
            writer.write_batch(valid)
    return str(path), rows


class RowForm(Protocol):
    """What a log says of rows: the names of their columns. Its text is the name of their table."""

    @property
    def names(self) -> Sequence[str]: ...


Form = TypeVar("Form", bound=RowForm)


@dataclass
class _Batch(Generic[Form, Row]):
    """Rows of a table that are not in a file yet. `key`: the places of the columns of the key."""

    form: Form
    key: Sequence[int]
    rows: list[Row] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    is_deleted: list[bool] = field(default_factory=list)
    size: int = 0

    def add(self, row: Row, number: int, time: int, *, is_deleted: bool) -> None:
        self.rows.append(row)
        self.numbers.append(number)
        self.times.append(time)
        self.is_deleted.append(is_deleted)
        self.size += sum(map(len, filter(None, row)))

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= _BATCH_ROWS or self.size >= _BATCH_BYTES


class RowFiles(Generic[Form, Row]):
    """Changes of a log that is read row by row: numbered one after another, and written in batches.

    Names of columns are compared without regard to case, as in SQL.

    Args:
        files: gets them.
        columns: the names of the columns of the streams' tables.
        numbers: that of the last change of each stream.
        build: returns the columns of a stream, from the form of rows, the place of each column in them (None
            if they do not have it), and the rows.
        is_open: tells whether the user may read all columns of a table. Values of others are not missed.

    Attributes:
        numbers: those of the last changes.
    """

    def __init__(
        self,
        files: ChangeFiles,
        columns: Mapping[StreamId, Sequence[str]],
        numbers: Mapping[StreamId, int],
        build: Callable[[StreamId, Form, Sequence[int | None], Sequence[Row]], pa.RecordBatch],
        is_open: Callable[[StreamId], bool] = lambda _: True,
    ):
        self._files, self._columns, self._build, self._is_open = files, columns, build, is_open
        self.numbers = dict(numbers)
        self._batches: dict[StreamId, _Batch[Form, Row]] = {}

    def add(
        self, stream: StreamId, form: Form, before: Sequence[Row], after: Sequence[Row], time: int
    ) -> None:
        """Add changes of rows of one kind: inserts have none `before`, and deletes have none `after`.

        Args:
            time: of the changes, in microseconds since 1970.

        Raises:
            EltError: the rows do not have the key, or those before cannot be built.
        """
        batch = self._batches.get(stream)
        if batch is None or batch.form != form:
            self._flush(stream)
            batch = self._batches[stream] = _Batch(form, self._find_key(stream, form))
        number = self.numbers[stream]
        for row, is_deleted in _list_rows(before, after, batch.key):
            number += 1
            batch.add(row, number, time, is_deleted=is_deleted)
        self.numbers[stream] = number
        if batch.is_full:
            self._flush(stream)

    def truncate(self, stream: StreamId, time: int) -> None:
        """Add that the table of a stream has no rows any more."""
        self._flush(stream)
        self.numbers[stream] += 1
        self._files.truncate(stream, self._columns[stream], self.numbers[stream], time)

    def flush(self) -> None:
        """Write the rows that are not in a file yet."""
        for stream in list(self._batches):
            self._files.attempt(stream, self._flush, stream)
        self._batches.clear()

    def _find_key(self, stream: StreamId, form: Form) -> list[int]:
        """Return the places of the key's columns in rows of the log.

        Raises:
            ConfigError: the rows do not have them.
        """
        names, key = [name.lower() for name in form.names], self._files.keys[stream]
        missing = [name for name in key if name.lower() not in names]
        if missing:
            raise ConfigError(
                f"the log has rows of {form} without the columns {', '.join(missing)} of the key: it was "
                "changed after they were written",
                guidance=RESET,
            )
        return [names.index(name.lower()) for name in key]

    def _flush(self, stream: StreamId) -> None:
        batch = self._batches.pop(stream, None)
        if batch is None:
            return
        others = {name.lower(): place for place, name in enumerate(batch.form.names)}
        columns = self._columns[stream]
        places = [others.pop(name.lower(), None) for name in columns]
        pairs = zip(columns, places, strict=True)
        self._files.add_absent(stream, [name for name, place in pairs if place is None])
        for place in others.values() if others and self._is_open(stream) else ():
            count = sum(row[place] is not None for row in batch.rows)
            self._files.add_unstored(stream, batch.form.names[place], count)
        values = self._build(stream, batch.form, places, batch.rows)
        cursor = self._files.cursor
        rows = add_log_fields(values, cursor, batch.numbers, batch.times, batch.is_deleted)
        self._files.write(stream, rows)


def _list_rows(
    before: Sequence[Row], after: Sequence[Row], key: Sequence[int]
) -> Iterator[tuple[Row, bool]]:
    """Yield the rows that are there after changes, and those that are not any more."""
    if not before:
        for row in after:
            yield row, False
    elif not after:
        for row in before:
            yield row, True
    else:
        for old, new in zip(before, after, strict=True):
            if any(old[place] != new[place] for place in key):
                yield old, True
            yield new, False
