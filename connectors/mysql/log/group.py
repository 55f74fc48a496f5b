"""The tables that are read from the log, with one state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from connectors.mysql.config import MySqlConfig
from connectors.mysql.log.stream import LogStream
from connectors.mysql.tables import Table
from connectors.sdk.groups import GroupItem, GroupState, StreamGroup
from elt_assets.protocol.airbyte.catalog import ConfiguredStream, StreamId

_READ = "connectors.mysql.log.read"
"""The module is imported when it is used: pyarrow is slow to import."""


class LogGroup(StreamGroup):
    """The tables of a server, whose changes come from one log."""

    def __init__(self, config: MySqlConfig):
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
        streams = [self._streams[member.id] for member in members]
        yield from import_module(_READ).LogRead(self._config, streams, members).items(state)
