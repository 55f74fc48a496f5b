"""Changes of the log as rows of the stream: all those of a table in a batch of messages at once.

A large value that did not change is not in the log: it is null, with the reason SOURCE_UNCHANGED, and the
lake takes the value of the row's former version. After a change of the key there is none, and the value stays
unknown and recorded, unless the table has the replica identity FULL: then the log has all values of before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.cdc.changes import ChangeFiles, add_log_fields
from connectors.cdc.reader import ReadScope
from connectors.cdc.texts import RESET
from connectors.postgres.catalog import LSN, Column
from connectors.postgres.dialect import quote_name
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
from connectors.postgres.log.state import SlotState
from connectors.postgres.log.values import ConvertByServer, convert_texts
from connectors.postgres.stream import LogStream
from connectors.sdk.arrow_records import list_changes, report_changes
from connectors.sdk.columns.conversion import Converted
from elt_assets.errors import ConfigError
from elt_assets.protocol import messages
from elt_assets.protocol.catalog import StreamId


class MessageWriter:
    """Writes the changes of messages into the files of a window.

    Args:
        files: gets them.
        scope: the streams, as they are configured: only columns that the catalog has are read.
        log: tells which changes are in the tables already.
        ask: lets the server convert values.

    Attributes:
        first_undeclared: the place of the first transaction with a value of a column which the catalog does
            not declare, of a stream that stops there, if the files have changes from before it.
    """

    def __init__(
        self,
        files: ChangeFiles,
        scope: ReadScope[LogStream],
        log: SlotState,
        ask: ConvertByServer,
    ):
        self._files, self._log, self._ask = files, log, ask
        tables = {stream: scope.streams[stream].table for stream in files.keys}
        self._streams = {table.relation.oid: stream for stream, table in tables.items()}
        self._columns = {
            stream: table.choose_columns(scope.members[stream]) for stream, table in tables.items()
        }
        self._undeclared = {
            stream: table.list_undeclared(scope.members[stream]) for stream, table in tables.items()
        }
        self._least: int | None = None
        self.first_undeclared: int | None = None
        self._decoder = MessageDecoder(frozenset(self._streams))

    def add(self, batch: pa.RecordBatch) -> None:
        """Write the changes of a batch of messages.

        Raises:
            EltError: the batch cannot be read. What is an error of one stream is in the files: the log has no
                key of a row, or the server does not know a value.
        """
        for part in self._decoder.decode(batch.column(0)):
            stream = self._streams[part.relation.oid]
            if isinstance(part, Truncation):
                self._files.attempt(stream, self._write_truncation, stream, part)
            else:
                self._files.attempt(stream, self._write_changes, stream, part)

    @property
    def begin(self) -> str:
        """The Begin message of the last transaction, as hexadecimal digits; empty if there was none."""
        return self._decoder.begin.hex()

    def _write_truncation(self, stream: StreamId, truncation: Truncation) -> None:
        state = self._log.tables[stream]
        (number,) = number_changes(
            state.snapshots, np.array([truncation.transaction]), np.array([truncation.lsn])
        )
        if number >= 0 and truncation.lsn >= state.lsn:
            names = [column.name for column in self._columns[stream]]
            self._files.truncate(stream, names, int(number), truncation.time)

    def _write_changes(self, stream: StreamId, changes: Changes) -> None:
        state = self._log.tables[stream]
        numbers = number_changes(state.snapshots, changes.transactions, changes.lsns)
        chosen_rows = np.flatnonzero((numbers >= 0) & (changes.lsns >= state.lsn))
        if not len(chosen_rows):
            return
        self._find_undeclared(stream, changes, chosen_rows)
        stored = {column.name for column in self._columns[stream]}
        self._files.add_absent(stream, stored.difference(changes.relation.columns))
        if state.form is not None:
            _require_order(changes.relation, state.form)
            for name, values in zip(changes.relation.columns, changes.new, strict=True):
                if name not in stored and name not in state.form.left_out:
                    count = int((values.lengths[chosen_rows] >= 0).sum())
                    self._files.add_unstored(stream, name, count)
        rows = _Rows(self._columns[stream], self._files.keys[stream], changes, chosen_rows)
        self._files.write(stream, rows.build(numbers, self._ask))

    def _find_undeclared(self, stream: StreamId, changes: Changes, chosen_rows: Numbers) -> None:
        """Look for values of columns that the catalog does not declare."""
        lsns, has_value = changes.lsns[chosen_rows], np.zeros(len(chosen_rows), bool)
        for name, values in zip(changes.relation.columns, changes.new, strict=True):
            if name in self._undeclared[stream]:
                has_value |= values.lengths[chosen_rows] >= 0
        self._least = min(filter(None, (self._least, int(lsns.min()))))
        first = int(lsns[has_value].min()) if has_value.any() else None
        if first is not None and self.first_undeclared is None and self._least < first:
            self.first_undeclared = first


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
            guidance=RESET,
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
        times = self._changes.times[self._source]
        columns = pa.RecordBatch.from_arrays(arrays, names=[c.name for c in self._columns])
        batch = add_log_fields(columns, LSN, numbers[self._source], times, self._is_end)
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
                guidance=RESET,
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
                    guidance=f"run ALTER TABLE {table} REPLICA IDENTITY DEFAULT; and {RESET}",
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
