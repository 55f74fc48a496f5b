"""Streams of tables that are read from a log: the fields that their rows have, and their group.

The module imports no Arrow, as it is imported when streams are listed. What reads the log is imported when it
is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from connectors.cdc.reader import ReadScope
from connectors.cdc.texts import UPDATED_AT
from connectors.sdk.columns.types import INT64, TIMESTAMP_UTC
from connectors.sdk.groups import GroupItem, GroupState, StreamGroup
from connectors.sdk.slices import SlicedStream
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import (
    DELETED_AT,
    FULL_REFRESH,
    INCREMENTAL,
    ConfiguredStream,
    StreamId,
)
from elt_assets.protocol.messages import FOLLOW, FollowRequest

if TYPE_CHECKING:
    import pyarrow as pa

_CHANGES, _READ = "connectors.cdc.changes", "connectors.cdc.read"


def list_taken(columns: Iterable[str], cursor: str) -> list[str]:
    """Return the columns of a table that have names of the fields of its changes, in any case of letters."""
    names = {cursor, UPDATED_AT, DELETED_AT}
    return sorted(name for name in columns if name.lower() in names)


class LogStream(SlicedStream):
    """A table that is read from the log: its snapshot, then its changes, with the number and time of each.

    A source adds it to its own stream of a table, as the first base class. The rows of a full refresh have no
    number and time.

    Attributes:
        cursor: the field with the number of a change, as other sources of Airbyte name it.
    """

    cursor: str

    @property
    def column_names(self) -> Sequence[str]:
        """The names of the table's columns."""
        raise NotImplementedError(f"{type(self).__name__} must define `column_names`")

    def join(self, group: StreamGroup) -> None:
        """Become a stream of a log, with the fields of its changes."""
        self.group = group
        self.supported_sync_modes = (FULL_REFRESH, INCREMENTAL)
        self.source_defined_cursor = True
        self.cursor_field = [self.cursor]
        time = TIMESTAMP_UTC.describe()
        added = {self.cursor: INT64.describe(), UPDATED_AT: time, DELETED_AT: time}
        properties = {**self.json_schema["properties"], **added}
        self.json_schema = {**self.json_schema, "properties": properties}

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        if "truncation" in data:
            yield import_module(_CHANGES).make_truncation(
                self.column_names, data["key"], self.cursor, data["truncation"], data["time"]
            )
            return
        for batch in super().read_slice(data):
            if "number" in data:
                number, time = data["number"], data["time"]
                yield import_module(_CHANGES).number_snapshot(batch, self.cursor, number, time)
            else:
                yield batch


Stream = TypeVar("Stream", bound=LogStream)


def _parse_follow(member: ConfiguredStream) -> FollowRequest | None:
    """Return how long the log is to be followed.

    Raises:
        ConfigError: the request is not valid.
    """
    text = member.extra.get(FOLLOW)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=FollowRequest)
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"`{FOLLOW}` of {member.id} is not valid: {error}",
            guidance='write {"seconds": 3300, "every": 5}',
        ) from None


class LogGroup(StreamGroup, Generic[Stream]):
    """The tables of a log, which are read together.

    Args:
        reader: the module and the class of the `LogReader`, as in `package.module:Class`. It is made of the
            config and a `ReadScope`.
    """

    def __init__(self, reader: str, config: Any):
        self._reader, self._config = reader, config
        self._streams: dict[StreamId, Stream] = {}

    def add(self, stream: Stream) -> Stream:
        """Make a stream one of the log."""
        stream.join(self)
        self._streams[stream.id] = stream
        return stream

    def read(
        self,
        members: Sequence[ConfiguredStream],
        state: GroupState | None,
        *,
        is_acknowledged: bool,
    ) -> Iterator[GroupItem]:
        scope = ReadScope(
            {member.id: self._streams[member.id] for member in members},
            {member.id: member for member in members},
            is_acknowledged,
            _parse_follow(members[0]),
        )
        cursor = self._streams[members[0].id].cursor
        module, _, name = self._reader.partition(":")
        reader = getattr(import_module(module), name)(self._config, scope)
        yield from import_module(_READ).read_log(reader, scope, cursor, state)
