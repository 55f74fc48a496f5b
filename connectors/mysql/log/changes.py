"""Changes of the log as rows of the stream.

**A part of an open transaction may be rolled back.** A server with rows in its log (`binlog_format = ROW`)
leaves out what is rolled back, but for a transaction that also changed a table without transactions (MyISAM,
Aria) or made a temporary one. The changes of tables without transactions are then a transaction of the log of
their own, and stay. Those of the other tables come with their savepoints: what is between SAVEPOINT and
ROLLBACK TO it was rolled back, and a transaction that ends with ROLLBACK as a whole.

The rows may be in files already when that is known. So their numbers are noted, and they are removed when the
files are complete.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa

from connectors.cdc.changes import ChangeFiles, RowFiles
from connectors.cdc.texts import RESET, RESET_ALL
from connectors.mysql.dialect import quote_name
from connectors.mysql.log import fields
from connectors.mysql.log.events import Rows, Statement
from connectors.mysql.log.fields import Field
from connectors.mysql.log.forms import Row, TableForm
from connectors.mysql.log.texts import TextConverter
from connectors.mysql.log.tokens import TokenReader, split_tokens
from connectors.mysql.rows import convert_batch
from connectors.mysql.stream import LogStream
from connectors.mysql.tables import Column
from connectors.sdk.columns.types import TIMESTAMP, TIMESTAMP_UTC
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId

_TIMES = {fields.TIMESTAMP: TIMESTAMP_UTC, fields.DATETIME: TIMESTAMP}


Numbers = dict[StreamId, int]
"""The number of the last change of each stream."""


@dataclass
class Rollbacks:
    """What is rolled back.

    Attributes:
        void: gets the numbers of changes that were rolled back, as `ChangeFiles` has them.
        numbers: those of the last changes.
    """

    void: defaultdict[StreamId, list[tuple[int, int]]]
    numbers: Mapping[StreamId, int]
    _start: Numbers = field(default_factory=dict)
    _savepoints: dict[str, Numbers] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin a transaction."""
        self._start, self._savepoints = {}, {}

    def add(self, stream: StreamId) -> None:
        """Add that a stream is changed next."""
        self._start.setdefault(stream, self.numbers[stream])

    def set_savepoint(self, name: str) -> None:
        """Set a savepoint; an earlier one of the name is gone."""
        self._savepoints.pop(name, None)
        self._savepoints[name] = {stream: self.numbers[stream] for stream in self._start}

    def roll_back(self, savepoint: str | None) -> None:
        """Take back what was changed after a savepoint, or in the whole transaction.

        Raises:
            ConfigError: the log does not have the savepoint.
        """
        since: Numbers = {}
        if savepoint is not None:
            if savepoint not in self._savepoints:
                raise ConfigError(
                    f"the log has changes that were rolled back to a savepoint that it lacks: {savepoint!r}",
                    guidance=RESET_ALL,
                )
            since = self._savepoints[savepoint]
            names = list(self._savepoints)
            for later in names[names.index(savepoint) + 1 :]:
                del self._savepoints[later]
        for stream, start in self._start.items():
            first = since.get(stream, start)
            if first < self.numbers[stream]:
                self.void[stream].append((first, self.numbers[stream]))


def read_savepoint(statement: Statement) -> tuple[bool, str | None] | None:
    """Return whether a statement rolls back, and the name of its savepoint; None if it is about none.

    Names of savepoints are compared without regard to case.
    """
    if statement.text.lstrip()[:8].upper() not in ("ROLLBACK", "SAVEPOIN"):
        return None
    reader = TokenReader(split_tokens(statement.text, statement.sql_mode), "", folds=True)
    if reader.take("SAVEPOINT"):
        return False, reader.take_database()
    reader.skip()
    reader.take("WORK")
    if not reader.take("TO"):
        return True, None
    reader.take("SAVEPOINT")
    return True, reader.take_database()


class RowWriter:
    """Writes the rows of the log into the files of a window.

    Args:
        files: gets them.
        streams: whose changes are wanted.
        numbers: that of the last change of each stream.

    Attributes:
        rollbacks: takes rows back.
    """

    def __init__(
        self,
        files: ChangeFiles,
        streams: Mapping[StreamId, LogStream],
        numbers: Mapping[StreamId, int],
        texts: TextConverter,
    ):
        self._streams, self._texts = streams, texts
        columns = {name: stream.column_names for name, stream in streams.items()}
        self._rows: RowFiles[TableForm, Row] = RowFiles(
            files, columns, numbers, self._build, cache(self._is_open)
        )
        self.numbers, self.flush = self._rows.numbers, self._rows.flush
        self.rollbacks = Rollbacks(files.void, self.numbers)

    def add(self, stream: StreamId, rows: Rows, time: int) -> None:
        """Add the rows of a change of a stream.

        Args:
            time: of its commit, in microseconds since 1970.

        Raises:
            EltError: the log does not have what is needed of them.
        """
        self.rollbacks.add(stream)
        self._rows.add(stream, rows.form, rows.before, rows.after, time)

    def truncate(self, stream: StreamId, time: int) -> None:
        """Add that the table of a stream has no rows any more. `time`: as for `add`."""
        self.rollbacks.add(stream)
        self._rows.truncate(stream, time)

    def _is_open(self, stream: StreamId) -> bool:
        """Return whether the user may read all columns of a table: the log has the others, too."""
        try:
            self._texts.ask(
                f"SELECT * FROM {quote_name(stream.namespace or '', stream.name)} LIMIT 0"
            )
        except ConfigError:
            return False
        return True

    def _build(
        self,
        stream: StreamId,
        form: TableForm,
        places: Sequence[int | None],
        rows: Sequence[Row],
    ) -> pa.RecordBatch:
        columns, texts = self._streams[stream].columns, []
        for column, place in zip(columns, places, strict=True):
            if place is None:
                texts.append(pa.nulls(len(rows), pa.binary()))
                continue
            described = form.fields[place]
            _require_time(stream, column, described)
            values = pa.array([row[place] for row in rows], pa.binary())
            texts.append(self._texts.convert(described, column, values))
        return convert_batch(columns, texts)


def _require_time(stream: StreamId, column: Column, described: Field) -> None:
    """Check that a time of the log is one of the column's kind: with a time zone, or without.

    Raises:
        ConfigError: the type of the column was changed after it was written.
    """
    former = _TIMES.get(described.type)
    if former is not None and {former, column.type} == set(_TIMES.values()):
        raise ConfigError(
            f"stream {stream}: the type of the column {column.name!r} was changed between DATETIME and "
            "TIMESTAMP after rows of the log were written",
            guidance=RESET,
        )
