"""Changes of the log as files, which tasks read: rows of the stream, with the number and time of each change.

A change of a row's key is a delete of the old key, and the row under the new one. A large value that did not
change is not in the log: it is null, with the reason SOURCE_UNCHANGED, and the lake takes the value of the
row's former version. After a change of the key there is none, and the value stays unknown and recorded,
unless the table has the replica identity FULL: then the log has all values of before. A truncated table is
one row, which stands for the deletes of all rows (`connectors.cdc.truncations`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.cdc.columns import describe_absent, describe_unstored
from connectors.cdc.fields import UPDATED_AT
from connectors.cdc.truncations import make_truncation
from connectors.postgres.arrow_values import Converted
from connectors.postgres.catalog import LSN, Column
from connectors.postgres.log.forms import TableForm
from connectors.postgres.log.messages import (
    DELETE,
    INSERT,
    NULL,
    UNCHANGED,
    UPDATE,
    Changes,
    Flags,
    MessageDecoder,
    Numbers,
    Relation,
    Truncation,
    Values,
    gather,
)
from connectors.postgres.log.snapshots import number_changes
from connectors.postgres.log.state import LogState
from connectors.postgres.log.stream import LogStream
from connectors.postgres.log.values import ConvertByServer, convert_texts
from connectors.postgres.sql import quote_name
from connectors.sdk.arrow_records import list_changes, report_changes
from connectors.sdk.groups import StreamPart
from connectors.sdk.items import Warn
from connectors.sdk.slice_files import SliceFiles
from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol.airbyte import messages
from elt_assets.protocol.airbyte.catalog import DELETED_AT, ConfiguredStream, StreamId

_TIME = pa.timestamp("us", "UTC")


class ChangeFiles:
    """The files of the changes of some streams.

    Args:
        folder: gets the files.
        streams: whose changes are stored.
        members: these streams as they are configured: only columns that the catalog has are read.
        log: tells which changes are in the tables already.
        ask: lets the server convert values.

    Attributes:
        truncated: the streams of which all rows were removed.
        failures: the streams whose changes cannot be read, and why: these have no files.
    """

    def __init__(
        self,
        folder: Path,
        streams: Mapping[StreamId, LogStream],
        members: Sequence[ConfiguredStream],
        log: LogState,
        ask: ConvertByServer,
    ):
        self._log, self._ask = log, ask
        chosen = [streams[member.id] for member in members]
        self._streams = {stream.table.relation.oid: stream for stream in chosen}
        self._columns = {
            member.id: streams[member.id].table.choose_columns(member) for member in members
        }
        self._keys = {member.id: member.key_columns for member in members}
        self._absent: dict[StreamId, set[str]] = {}
        self._unstored: dict[StreamId, Counter[str]] = {}
        self.truncated: set[StreamId] = set()
        self.failures: dict[StreamId, EltError] = {}
        self._decoder = MessageDecoder(frozenset(self._streams))
        self._files = SliceFiles(folder)

    def add(self, batch: pa.RecordBatch) -> None:
        """Write the changes of a batch of messages.

        Raises:
            EltError: the batch cannot be read. What is an error of one stream is in `failures`: the log has
                no key of a row, or the server does not know a value.
        """
        for part in self._decoder.decode(batch.column(0)):
            stream = self._streams[part.relation.oid]
            if stream.id in self.failures:
                continue
            try:
                if isinstance(part, Truncation):
                    self._write_truncation(stream, part)
                else:
                    self._write_changes(stream, part)
            except ConfigError as error:
                self.failures[stream.id] = error

    @property
    def begin(self) -> str:
        """The Begin message of the last transaction, as hexadecimal digits; empty if there was none."""
        return self._decoder.begin.hex()

    def close(self) -> Iterator[StreamPart]:
        """Yield the files as slices of their streams, and warnings."""
        for stream, names in self._absent.items():
            if stream not in self.failures:
                yield StreamPart(stream, Warn(describe_absent(names)))
        for stream, counts in self._unstored.items():
            if stream not in self.failures:
                yield StreamPart(stream, Warn(describe_unstored(counts)))
        yield from (part for part in self._files.close() if part.stream not in self.failures)

    def _write_truncation(self, stream: LogStream, truncation: Truncation) -> None:
        state = self._log.tables[stream.id]
        (number,) = number_changes(
            state.snapshots, np.array([truncation.transaction]), np.array([truncation.lsn])
        )
        if number >= 0 and truncation.lsn >= state.lsn:
            self.truncated.add(stream.id)
            names = [column.name for column in self._columns[stream.id]]
            row = make_truncation(names, self._keys[stream.id], LSN, int(number), truncation.time)
            self._files.write(stream.id, row)

    def _write_changes(self, stream: LogStream, changes: Changes) -> None:
        state = self._log.tables[stream.id]
        numbers = number_changes(state.snapshots, changes.transactions, changes.lsns)
        chosen_rows = np.flatnonzero((numbers >= 0) & (changes.lsns >= state.lsn))
        if not len(chosen_rows):
            return
        stored = {column.name for column in self._columns[stream.id]}
        absent = stored.difference(changes.relation.columns)
        if absent:
            self._absent.setdefault(stream.id, set()).update(absent)
        if state.form is not None:
            _require_order(changes.relation, state.form)
            self._count_unstored(stream.id, changes, chosen_rows, stored | state.form.left_out)
        rows = _Rows(self._columns[stream.id], self._keys[stream.id], changes, chosen_rows)
        self._files.write(stream.id, rows.build(numbers, self._ask))

    def _count_unstored(
        self, stream: StreamId, changes: Changes, chosen_rows: Numbers, others: AbstractSet[str]
    ) -> None:
        """Count the values of columns that came after the catalog. `others`: the names of the other
        columns."""
        for name, values in zip(changes.relation.columns, changes.new, strict=True):
            if name not in others:
                count = int((values.lengths[chosen_rows] >= 0).sum())
                if count:
                    self._unstored.setdefault(stream, Counter())[name] += count


def _require_order(relation: Relation, form: TableForm) -> None:
    """Check that names of columns are of the same columns as in the catalog: the log has them by their
    numbers.

    Raises:
        ConfigError: two have exchanged their names when the rows were written.
    """
    numbers = [form.columns[name][0] for name in relation.columns if name in form.columns]
    if numbers != sorted(numbers):
        raise ConfigError(
            "columns had the names of others when rows of the log were written: "
            f"{', '.join(relation.columns)}",
            guidance="reset the stream (`elt reset`), so that it is read in full",
        )


class _Rows:
    """The rows that some changes of a table become.

    Args:
        chosen_rows: the numbers of these changes, in their order.
    """

    def __init__(
        self, columns: Sequence[Column], key: Sequence[str], changes: Changes, chosen_rows: Numbers
    ):
        self._columns, self._key, self._changes = columns, key, changes
        self._places = {name: place for place, name in enumerate(changes.relation.columns)}
        self._has_old_rows = bool((changes.operations[chosen_rows] != INSERT).any())
        moved = chosen_rows[self._find_moved(chosen_rows)]
        order = np.argsort(np.concatenate([2 * chosen_rows + 1, 2 * moved]))
        self._source = np.concatenate([chosen_rows, moved])[order]
        is_end = np.concatenate(
            [changes.operations[chosen_rows] == DELETE, np.ones(len(moved), bool)]
        )
        self._is_end: Flags = is_end[order]

    def build(self, numbers: Numbers, ask: ConvertByServer) -> pa.RecordBatch:
        """Return them. `numbers`: of all changes, for `_ab_cdc_lsn`."""
        self._require_keys()
        arrays: list[pa.Array] = []
        nulled: dict[tuple[str, str], pa.Array] = {}
        for column in self._columns:
            values = self._values(column.name)
            if values is None:
                arrays.append(pa.nulls(len(self._source)))
                continue
            array, invalid = self._convert(column, values, ask)
            arrays.append(array)
            if invalid is not None:
                nulled[column.name, messages.INVALID] = invalid
            is_unchanged = values.lengths == UNCHANGED
            if is_unchanged.any():
                nulled[column.name, messages.UNCHANGED] = pa.array(is_unchanged)
        times = pa.array(self._changes.times[self._source], pa.int64()).cast(_TIME)
        ends = pc.if_else(pa.array(self._is_end), times, pa.scalar(None, _TIME))
        arrays += [pa.array(numbers[self._source]), times, ends]
        names = [*(column.name for column in self._columns), LSN, UPDATED_AT, DELETED_AT]
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        return report_changes(batch, list_changes(nulled, len(batch)))

    def _convert(self, column: Column, values: Values, ask: ConvertByServer) -> Converted:
        """Return the values of a column as a snapshot has them, and which were made null.

        Raises:
            ConfigError: one is of another type.
        """
        relation = self._changes.relation
        server_type = relation.types[self._places[column.name]]
        try:
            return convert_texts(gather(self._changes.data, values), column, server_type, ask)
        except ValueError:
            table = quote_name(relation.schema, relation.name)
            raise ConfigError(
                f"the log has a value of the column {column.name!r} of {table} that is not of its type "
                f"{column.declared}: the type was changed after the value was written",
                guidance="reset the stream (`elt reset`), so that it is read in full",
            ) from None

    def _values(self, name: str) -> Values | None:
        """Return the values of a column; None if the table had no such column then.

        A large value that did not change is in the old values, if these have it: all of them for the replica
        identity FULL, else those of the key.
        """
        place = self._places.get(name)
        if place is None:
            return None
        old, new = self._changes.old[place], self._changes.new[place]
        is_known = (new.lengths == UNCHANGED) & (old.lengths != NULL)
        new = new.replace(is_known, old)
        return new.take(self._source).replace(self._is_end, old.take(self._source))

    def _require_keys(self) -> None:
        """Check that the log has the key of each row that is updated or deleted. A partition may have another
        replica identity than its root, which the log describes.

        Raises:
            ConfigError: the log has other columns of the rows before a change.
        """
        relation = self._changes.relation
        for name in self._key:
            values = self._values(name)
            is_missing = self._has_old_rows and name not in relation.identity
            if is_missing or values is None or (values.lengths[self._is_end] == NULL).any():
                table = quote_name(relation.schema, relation.name)
                raise ConfigError(
                    f"the log does not have {name!r} of the primary key of rows of {table} that are "
                    "updated or deleted",
                    guidance=f"run ALTER TABLE {table} REPLICA IDENTITY DEFAULT; and reset the stream "
                    "(`elt reset`), so that it is read in full",
                )

    def _find_moved(self, chosen_rows: Numbers) -> Flags:
        """Return which of the changes change the key of their row."""
        changes = self._changes
        is_moved = np.zeros(len(chosen_rows), bool)
        updated = np.flatnonzero(
            (changes.operations[chosen_rows] == UPDATE) & changes.has_old[chosen_rows]
        )
        if not len(updated):
            return is_moved
        rows = chosen_rows[updated]
        for name in self._key:
            place = self._places.get(name)
            if place is None:
                continue
            old, new = changes.old[place].take(rows), changes.new[place].take(rows)
            differs = pc.not_equal(gather(changes.data, old), gather(changes.data, new))
            is_moved[updated] |= np.asarray(pc.fill_null(differs, False))
        return is_moved


def add_snapshot_fields(batch: pa.RecordBatch, data: Mapping[str, Any]) -> pa.RecordBatch:
    """Return the rows of a snapshot with its number and time. `data`: of their slice."""
    count = len(batch)
    time = pa.scalar(int(data["time"] * 1_000_000), pa.int64()).cast(_TIME)
    batch = batch.append_column(LSN, pa.repeat(data["number"], count))
    batch = batch.append_column(UPDATED_AT, pa.repeat(time, count))
    return batch.append_column(DELETED_AT, pa.nulls(count, _TIME))
