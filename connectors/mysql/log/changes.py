"""Changes of the log as rows of the stream.

A column that the rows of the log do not have was added or renamed after they were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import pyarrow as pa

from connectors.cdc.changes import ChangeFiles, RowFiles
from connectors.cdc.texts import RESET
from connectors.mysql import kinds
from connectors.mysql.convert import make_batch
from connectors.mysql.log import fields
from connectors.mysql.log.events import Rows
from connectors.mysql.log.fields import Field
from connectors.mysql.log.forms import Row, TableForm
from connectors.mysql.log.rollbacks import Rollbacks
from connectors.mysql.log.stream import LogStream
from connectors.mysql.log.texts import TextConverter
from connectors.mysql.sql import quote_name
from connectors.mysql.tables import Column
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import StreamId

_TIMES = {fields.TIMESTAMP: kinds.UTC_MOMENT, fields.DATETIME: kinds.MOMENT}


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
        return make_batch([column.name for column in columns], [c.kind for c in columns], texts)


def _require_time(stream: StreamId, column: Column, described: Field) -> None:
    """Check that a time of the log is one of the column's kind: with a time zone, or without.

    Raises:
        ConfigError: the type of the column was changed after it was written.
    """
    form = _TIMES.get(described.type)
    if form is not None and {form, column.kind.form} == set(_TIMES.values()):
        raise ConfigError(
            f"stream {stream}: the type of the column {column.name!r} was changed between DATETIME and "
            "TIMESTAMP after rows of the log were written",
            guidance=RESET,
        )
