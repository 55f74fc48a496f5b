"""A table that is read from the log."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.cdc import stream
from connectors.postgres.catalog import LSN
from connectors.postgres.stream import TableStream


class LogStream(stream.LogStream, TableStream):
    """The rows of a table, and its changes."""

    cursor = LSN

    @property
    def column_names(self) -> Sequence[str]:
        return [column.name for column in self.table.columns]
