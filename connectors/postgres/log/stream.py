"""A table that is read from the log: its snapshot, then its changes, with the number and time of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from connectors.cdc.fields import add_log_fields
from connectors.postgres.catalog import LSN, Table
from connectors.postgres.config import PostgresConfig
from connectors.postgres.stream import TableStream
from connectors.sdk.groups import StreamGroup
from elt_assets.protocol.airbyte.catalog import FULL_REFRESH, INCREMENTAL

if TYPE_CHECKING:
    import pyarrow as pa

_CHANGES, _TRUNCATIONS = "connectors.postgres.log.changes", "connectors.cdc.truncations"
"""The modules are imported with the first batch: pyarrow is slow to import."""


class LogStream(TableStream):
    """The rows of a table, and its changes. The rows of a full refresh have no number and time."""

    def __init__(self, config: PostgresConfig, table: Table, group: StreamGroup):
        super().__init__(config, table)
        self.group = group
        self.supported_sync_modes = (FULL_REFRESH, INCREMENTAL)
        self.source_defined_cursor = True
        self.cursor_field = [LSN]
        self.json_schema = add_log_fields(self.json_schema, LSN)

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        if "truncation" in data:
            names = [column.name for column in self.table.columns]
            yield import_module(_TRUNCATIONS).read_truncation(names, LSN, data)
            return
        changes = import_module(_CHANGES)
        for batch in super().read_slice(data):
            yield batch if "number" not in data else changes.add_snapshot_fields(batch, data)
