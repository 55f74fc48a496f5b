"""Changes of the log as files, which tasks read: rows of the stream, with the number and time of each.

A change of a row's key is a delete of the old key, and the row under the new one. A column that the rows of
the log do not have was added or renamed after they were written: it is null, and a warning says so. A table
that was emptied is one row, which stands for the deletes of all rows (`connectors.cdc.truncations`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors.cdc.columns import describe_absent
from connectors.cdc.fields import UPDATED_AT
from connectors.cdc.truncations import make_truncation
from connectors.mysql import kinds
from connectors.mysql.convert import make_batch
from connectors.mysql.log import fields
from connectors.mysql.log.events import Rows
from connectors.mysql.log.fields import Field
from connectors.mysql.log.forms import Row, TableForm
from connectors.mysql.log.rollbacks import Rollbacks
from connectors.mysql.log.state import LogState
from connectors.mysql.log.stream import CURSOR, LogStream
from connectors.mysql.log.texts import Ask, TextConverter
from connectors.mysql.sql import quote_name
from connectors.mysql.tables import Column
from connectors.sdk.groups import StreamPart
from connectors.sdk.items import Slice, Warn
from connectors.sdk.slice_files import SliceFiles
from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol.airbyte.catalog import DELETED_AT, StreamId

Keys = Mapping[StreamId, Sequence[str]]
_TIME = pa.timestamp("us", "UTC")
_BATCH_ROWS, _BATCH_BYTES = 50_000, 16 << 20
_TIMES = {fields.TIMESTAMP: kinds.UTC_MOMENT, fields.DATETIME: kinds.MOMENT}


@dataclass
class _Batch:
    """Rows of a table that are not in a file yet. `ends`: whether each is a deleted row."""

    form: TableForm
    rows: list[Row] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)
    size: int = 0

    def add(self, row: Row, number: int, time: int, *, is_end: bool) -> None:
        self.rows.append(row)
        self.numbers.append(number)
        self.times.append(time)
        self.ends.append(is_end)
        self.size += sum(map(len, filter(None, row)))

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= _BATCH_ROWS or self.size >= _BATCH_BYTES


class ChangeFiles:
    """The files of the changes of some streams.

    Args:
        folder: gets the files.
        streams: whose changes are wanted.
        keys: the columns of their keys.
        log: tells the number of each table's last change.
        ask: asks the server for texts.
        failures: gets the errors of streams whose changes cannot be read, and has those that were read
            before: they have no files.
    """

    def __init__(
        self,
        folder: Path,
        streams: Sequence[LogStream],
        keys: Keys,
        log: LogState,
        ask: Ask,
        failures: dict[StreamId, EltError],
    ):
        self._keys, self._failures = keys, failures
        self._files = SliceFiles(folder)
        self._streams = {stream.id: stream for stream in streams}
        self._batches: dict[StreamId, _Batch] = {}
        self._texts = TextConverter(ask)
        self._absent: dict[StreamId, set[str]] = {}
        self._rollbacks = Rollbacks()
        self.numbers = {stream.id: log.tables[stream.id].number for stream in streams}

    def begin(self) -> None:
        """Begin a transaction."""
        self._rollbacks.begin()

    def set_savepoint(self, name: str) -> None:
        """Set a savepoint in the transaction."""
        self._rollbacks.set_savepoint(name, self.numbers)

    def roll_back(self, savepoint: str | None) -> None:
        """Remove what was added after a savepoint, or in the whole transaction.

        Raises:
            ConfigError: there is no such savepoint.
        """
        self._rollbacks.roll_back(self.numbers, savepoint)

    def add(self, name: StreamId, rows: Rows, time: int) -> None:
        """Add the rows of a change of a stream.

        Args:
            time: of its commit, in microseconds since 1970.

        Raises:
            EltError: the log does not have what is needed of them.
        """
        stream = self._streams[name]
        self._rollbacks.add(name, self.numbers[name])
        batch = self._batches.get(stream.id)
        if batch is None or batch.form != rows.form:
            self._flush(stream)
            batch = self._batches[stream.id] = _Batch(rows.form)
        number = self.numbers[stream.id]
        for row, is_end in _list_events(rows, _find_key(self._keys[stream.id], rows.form)):
            number += 1
            batch.add(row, number, time, is_end=is_end)
        self.numbers[stream.id] = number
        if batch.is_full:
            self._flush(stream)

    def truncate(self, name: StreamId, time: int) -> None:
        """Add that the table of a stream has no rows any more. `time`: as for `add`."""
        stream = self._streams[name]
        self._rollbacks.add(name, self.numbers[name])
        self._flush(stream)
        number = self.numbers[name] = self.numbers[name] + 1
        names = [column.name for column in stream.columns]
        row = make_truncation(names, self._keys[name], CURSOR, number, time)
        self._files.write(stream.id, row)

    def close(self) -> Iterator[StreamPart]:
        """Yield the files as slices of their streams, and warnings."""
        for stream in self._streams.values():
            try:
                self._flush(stream)
            except ConfigError as error:
                self._failures.setdefault(stream.id, error)
            if stream.id in self._absent:
                yield StreamPart(stream.id, Warn(describe_absent(self._absent[stream.id])))
        for part in self._files.close():
            if part.stream not in self._failures:
                yield from self._list_valid(part)

    def _list_valid(self, part: StreamPart) -> Iterator[StreamPart]:
        """Yield a slice without the rows that were rolled back, if it has others."""
        void = self._rollbacks.void.get(part.stream)
        if not void:
            yield part
            return
        assert isinstance(part.item, Slice) and part.item.file is not None
        file, rows = _remove_rows(part.item.file, void)
        if rows:
            yield StreamPart(part.stream, replace(part.item, file=file, rows=rows))

    def _flush(self, stream: LogStream) -> None:
        batch = self._batches.pop(stream.id, None)
        if batch is not None:
            self._files.write(stream.id, self._build(stream, batch))

    def _build(self, stream: LogStream, batch: _Batch) -> pa.RecordBatch:
        places = {described.name.lower(): n for n, described in enumerate(batch.form.fields)}
        columns, count = stream.columns, len(batch.rows)
        texts = []
        for column in columns:
            place = places.get(column.name.lower())
            if place is None:
                self._absent.setdefault(stream.id, set()).add(column.name)
                texts.append(pa.nulls(count, pa.binary()))
                continue
            described = batch.form.fields[place]
            _require_time(stream, column, described)
            values = pa.array([row[place] for row in batch.rows], pa.binary())
            texts.append(self._texts.convert(described, column, values))
        names = [column.name for column in columns]
        made = make_batch(names, [column.kind for column in columns], texts)
        times = pa.array(batch.times, pa.int64()).cast(_TIME)
        ends = pa.array(batch.ends)
        made = made.append_column(CURSOR, pa.array(batch.numbers, pa.int64()))
        made = made.append_column(UPDATED_AT, times)
        return made.append_column(DELETED_AT, pa.compute.if_else(ends, times, None))


def _remove_rows(file: str, void: list[tuple[int, int]]) -> tuple[str, int]:
    """Write the rows of a file that are not void into another one; return its path, and how many they are.

    Args:
        void: as in `Rollbacks`.
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
                for number in batch.column(CURSOR).to_pylist()
            ]
            valid = batch.filter(pa.array(is_valid, pa.bool_()))
            rows += len(valid)
            writer.write_batch(valid)
    return str(path), rows


def _list_events(rows: Rows, key: Sequence[int]) -> Iterator[tuple[Row, bool]]:
    """Yield the rows that are there after a change, and those that are not any more.

    Args:
        key: the places of the columns of the key.
    """
    if not rows.before:
        for row in rows.after:
            yield row, False
        return
    if not rows.after:
        for row in rows.before:
            yield row, True
        return
    for before, after in zip(rows.before, rows.after, strict=True):
        if any(before[place] != after[place] for place in key):
            yield before, True
        yield after, False


def _find_key(key: Sequence[str], form: TableForm) -> list[int]:
    """Return the places of the key's columns in rows of the log.

    Raises:
        ConfigError: the rows do not have them.
    """
    names = [described.name.lower() for described in form.fields]
    missing = [name for name in key if name.lower() not in names]
    if missing:
        raise ConfigError(
            f"the log has rows of {quote_name(form.database, form.name)} without the columns "
            f"{', '.join(missing)} of the key: it was changed after they were written",
            guidance="reset the stream (`elt reset`), so that it is read in full",
        )
    return [names.index(name.lower()) for name in key]


def _require_time(stream: LogStream, column: Column, described: Field) -> None:
    """Check that a time of the log is one of the column's kind: with a time zone, or without.

    Raises:
        ConfigError: the type of the column was changed after it was written.
    """
    form = _TIMES.get(described.type)
    if form is not None and {form, column.kind.form} == set(_TIMES.values()):
        raise ConfigError(
            f"stream {stream.id}: the type of the column {column.name!r} was changed between DATETIME and "
            "TIMESTAMP after rows of the log were written",
            guidance="reset the stream (`elt reset`), so that it is read in full",
        )


def add_snapshot_fields(batch: pa.RecordBatch, data: Mapping[str, Any]) -> pa.RecordBatch:
    """Return the rows of a snapshot with its number and time. `data`: of their slice."""
    count = len(batch)
    number = pa.scalar(data["number"], pa.int64())
    batch = batch.append_column(CURSOR, pa.repeat(number, count))
    batch = batch.append_column(UPDATED_AT, pa.repeat(number.cast(_TIME), count))
    return batch.append_column(DELETED_AT, pa.nulls(count, _TIME))
