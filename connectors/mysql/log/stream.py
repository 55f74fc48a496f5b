"""A table that is read from the log: its snapshot, then its changes, with the number and time of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from connectors.cdc.fields import add_log_fields
from connectors.mysql.config import MySqlConfig
from connectors.mysql.session import Session
from connectors.mysql.stream import TableStream
from connectors.mysql.tables import Column, Table
from connectors.sdk.groups import StreamGroup
from connectors.sdk.slices import Part
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, INCREMENTAL

if TYPE_CHECKING:
    import pyarrow as pa

CURSOR = "_ab_cdc_cursor"
_CHANGES, _TRUNCATIONS = "connectors.mysql.log.changes", "connectors.cdc.truncations"
"""The modules are imported with the first batch: pyarrow is slow to import."""


class LogStream(TableStream):
    """The rows of a table, and its changes. The rows of a full refresh have no number and time."""

    def __init__(self, config: MySqlConfig, table: Table, group: StreamGroup):
        super().__init__(config, table)
        self.group = group
        self.supported_sync_modes = (FULL_REFRESH, INCREMENTAL)
        self.source_defined_cursor = True
        self.cursor_field = [CURSOR]
        self.json_schema = add_log_fields(self.json_schema, CURSOR)

    @property
    def columns(self) -> Sequence[Column]:
        return self._table.columns

    def read_snapshot(self, progress: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield the slices of the table, and the states after them.

        Args:
            progress: the last state; None to begin.
        """
        with self._open() as session:
            state = None if progress is None else dict(progress)
            yield from self._read_all(session, state or {}, self._require_same(session, state))

    def read_whole(self, session: Session, number: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows as a session sees them. `number`: of the snapshot."""
        for batch in self._read_rows(session, ""):
            yield import_module(_CHANGES).add_snapshot_fields(batch, {"number": number})

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        if "truncation" in data:
            names = [column.name for column in self.columns]
            yield import_module(_TRUNCATIONS).read_truncation(names, CURSOR, data)
            return
        for batch in super().read_slice(data):
            if "number" not in data:
                yield batch
            else:
                yield import_module(_CHANGES).add_snapshot_fields(batch, data)
