"""A table that is read from the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectors.cdc import stream
from connectors.mysql.session import Session
from connectors.mysql.stream import TableStream
from connectors.mysql.tables import Column
from connectors.sdk.slices import Part

if TYPE_CHECKING:
    import pyarrow as pa

CURSOR = "_ab_cdc_cursor"


class LogStream(stream.LogStream, TableStream):
    """The rows of a table, and its changes."""

    cursor = CURSOR

    @property
    def columns(self) -> Sequence[Column]:
        return self._table.columns

    @property
    def column_names(self) -> Sequence[str]:
        return [column.name for column in self.columns]

    def list_ranges(self, progress: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield the slices of the table, and the states after them.

        Args:
            progress: the last state; None to begin.
        """
        with self._open() as session:
            state = None if progress is None else dict(progress)
            yield from self._read_all(session, state or {}, self._require_same(session, state))

    def read_whole(self, session: Session) -> Iterator[pa.RecordBatch]:
        """Yield all rows as a session sees them."""
        yield from self._read_rows(session, "")
