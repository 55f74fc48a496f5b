"""The tables that are read from the log, with one state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from connectors.postgres.catalog import Table
from connectors.postgres.config import PostgresConfig
from connectors.postgres.log.slot import hold_slot
from connectors.postgres.log.stream import LogStream
from connectors.sdk.groups import GroupCheckpoint, GroupItem, GroupState, StreamGroup
from elt_assets.protocol.airbyte.catalog import ConfiguredStream, StreamId

_READ = "connectors.postgres.log.read"
"""The module is imported when it is used: numpy and pyarrow are slow to import."""


class LogGroup(StreamGroup):
    """The tables of a publication, whose changes come from one slot."""

    def __init__(self, config: PostgresConfig):
        self._config = config
        self._streams: dict[StreamId, LogStream] = {}

    def add(self, table: Table) -> LogStream:
        """Return the stream of a table."""
        stream = LogStream(self._config, table, self)
        self._streams[stream.id] = stream
        return stream

    def read(
        self,
        members: Sequence[ConfiguredStream],
        state: GroupState | None,
        *,
        is_acknowledged: bool,
    ) -> Iterator[GroupItem]:
        read_type = import_module(_READ).LogRead
        read = read_type(self._config, self._streams, members, is_acknowledged=is_acknowledged)
        with hold_slot(self._config, self._config.slot or "") as require_hold:
            for item in read.items(state):
                if isinstance(item, GroupCheckpoint):
                    require_hold()
                yield item
