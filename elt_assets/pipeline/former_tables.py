"""Tables that a stream had under former names: its own, its `table`, or the `prefix` or `namespace`.

Used by `orchestration.renaming`, before a sync and for `elt rename`.

The state of a stream is in its table. So a stream whose table is elsewhere would be read from the beginning,
into a new table. Its former table is found without a list of all tables: it is where an event says, or in a
folder of the connection without being the table of a configured stream.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow.fs as pafs
from msgspec import Raw, json

from elt_assets.connection import list_places, load_connection
from elt_assets.errors import ConfigError
from elt_assets.lake.columns.names import table_name
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.delta.table import Table
from elt_assets.lake.write.companions import SUFFIXES, app_id
from elt_assets.lake.write.paths import Levels
from elt_assets.lake.write.sync_columns import make_declared_schema, stream_part
from elt_assets.pipeline.stream import STATES, ConnectionStream, key_levels, table_path, table_root
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import State
from elt_assets.protocol.wire import read
from elt_assets.storage.location import Location

_log = logging.getLogger(__name__)

_decode_object = json.Decoder(dict[str, Raw]).decode


@dataclass(frozen=True)
class FormerTable:
    """A table of a connection that none of its streams has by its present names."""

    levels: Levels  # its path below the root of the lake
    writer: str  # the id in transactions of the stream that wrote it
    # whether that is the present id of the stream; otherwise no stream of the connection has it
    is_own: bool
    has_same_columns: bool  # whether it has the columns that the stream would have

    @property
    def name(self) -> str:
        """The path as users write it."""
        return "/".join(level for level in self.levels if level != STATES)

    @property
    def stream(self) -> str:
        """The key of the stream that wrote it, as text."""
        return self.writer.removeprefix("elt:")


def find_former_tables(
    lake: Location, stream: ConnectionStream, recorded: Iterable[Levels] = ()
) -> list[FormerTable]:
    """Return the tables that may be those of a stream under former names.

    Args:
        recorded: paths at which events say that the stream had its table.

    Raises:
        ConfigError: a table at a recorded path cannot be opened. Another one may be of anyone, and is left
            out with a warning.
    """
    connection = stream.connection
    current_paths = {
        tuple(level.casefold() for level in levels)
        for settings in connection.streams
        for path in [table_path(connection, settings.id)]
        for levels in (path.levels, path.other)
    }
    recorded = list(recorded)
    places = dict.fromkeys([*recorded, *_list_folders(lake, stream)])
    tables = (
        _describe(lake, stream, levels, is_recorded=levels in recorded)
        for levels in places
        if tuple(level.casefold() for level in levels) not in current_paths
    )
    return [table for table in tables if table is not None]


def find_table_of_others(
    lake: Location, stream: ConnectionStream, levels: Levels
) -> FormerTable | None:
    """Return the table at a path if a stream of another connection wrote it, as the connection was called.

    A move to the stream that was killed may have given the table its new writer already.

    Raises:
        ConfigError: it cannot be opened; or that stream is still configured.
    """
    place = lake.child(*levels)
    is_path = all(level not in {"", ".", ".."} for level in levels)
    table = Table(place, "") if is_path and is_table(place) else None
    newest = None if table is None else table.newest_writer
    if table is None or newest is None:
        return None
    if newest.startswith(f"elt:{stream.connection.name}/"):
        begun = table.move
        if begun is None or begun.target != "/".join(stream.table_path.levels):
            return None
        return FormerTable(levels, begun.former, is_own=False, has_same_columns=True)
    writer = newest.partition("|")[0]
    if writer in _list_configured_writers(writer):
        raise ConfigError(
            f"{place} is the table of {writer.removeprefix('elt:')}, which is configured",
            guidance="remove that stream first, with `elt remove`, which keeps its table; or write another "
            f"`table` for {stream.name}; nothing was changed",
        )
    return FormerTable(levels, writer, is_own=False, has_same_columns=True)


def _list_configured_writers(writer: str) -> set[str]:
    """Return the ids in transactions of the streams of the connection that an id names, if it is configured.

    Raises:
        ConfigError: the definition of the connection cannot be read.
    """
    name = connection_of_writer(writer)
    places = [place for place in list_places() if place.name == name]
    return {
        app_id(key_levels(name, settings.id))
        for place in places
        for settings in load_connection(place).streams
    }


def connection_of_writer(writer: str) -> str:
    """Return the name of the connection whose stream has an id in transactions."""
    return writer.removeprefix("elt:").partition("/")[0]


def stream_of_writer(writer: str) -> str:
    """Return the name of the stream that has an id in transactions, after its namespace and a slash."""
    return writer.removeprefix("elt:").partition("/")[2]


def _list_folders(lake: Location, stream: ConnectionStream) -> Iterator[Levels]:
    """Yield the folders in which the tables of a connection are, and in which they would be by its name."""
    connection = stream.connection
    namespace = stream.stream.id.namespace
    inner = () if namespace is None else (table_name(namespace),)
    for name in dict.fromkeys([connection.lake_namespace, connection.name]):
        above = (*table_root(connection), name, *inner)
        system, path = lake.child(*above).file_system()
        for info in system.get_file_info(pafs.FileSelector(path, allow_not_found=True)):
            is_companion = info.base_name.endswith(tuple(SUFFIXES.values()))
            if info.type == pafs.FileType.Directory and not is_companion:
                yield (*above, info.base_name)


def _describe(
    lake: Location, stream: ConnectionStream, levels: Levels, *, is_recorded: bool
) -> FormerTable | None:
    """Return a table of the stream, or of no stream of its connection; None for any other."""
    connection, place = stream.connection, lake.child(*levels)
    own = app_id(stream.levels)
    try:
        table = Table(place, own) if is_table(place) else None
        newest = None if table is None else table.newest_writer
    except ConfigError as error:
        if is_recorded:
            raise
        _log.warning(
            "It is not known whether %s was the table of %s: %s", place, stream.name, error.message
        )
        return None
    if table is None or newest is None:
        return None
    if table.move is not None and table.move.writer == own:
        return FormerTable(levels, table.move.former, is_own=True, has_same_columns=True)
    writer = own if newest == own or newest.startswith(f"{own}|") else newest.partition("|")[0]
    others = {app_id(key_levels(connection.name, other.id)) for other in connection.streams}
    is_ours = writer.startswith(f"elt:{connection.name}/") and writer not in others
    if writer != own and not is_ours:
        return None
    declared = stream_part(make_declared_schema(stream.make_stored_stream()))
    names = [{name.casefold() for name in s.names} for s in (declared, stream_part(table.schema))]
    return FormerTable(levels, writer, writer == own, names[0] == names[1])


def refuse_former_tables(
    lake: Location, stream: ConnectionStream, recorded: Iterable[Levels]
) -> None:
    """Refuse to read a stream without a table from the beginning if it has one under former names.

    A table of a former stream with the same columns counts too, unless the stream names its `table`.

    Raises:
        ConfigError: says where the former table is, and how to move it.
    """
    tables = find_former_tables(lake, stream, recorded)
    own = [table for table in tables if table.is_own]
    similar = [table for table in tables if table.has_same_columns and not table.is_own]
    path = "/".join(stream.table_path.levels)
    for table in own[:1]:
        raise ConfigError(
            f"{stream.name} would be read from the beginning, into a new table {path}: its table and its "
            f"state are at {table.name}",
            guidance=f"run `{rename_command(stream, table)}` to move them; or write the former `namespace`, "
            "`prefix` and `table` again; or move the former table away",
        )
    if similar and stream.settings.table is None:
        table = similar[0]
        raise ConfigError(
            f"{stream.name} would be read from the beginning, into a new table {path}; {table.name} has the "
            f"same columns and a state, and its stream {table.stream} is no longer configured",
            guidance=f"if the stream was renamed, run `{rename_command(stream, table)}`; if it is another "
            "stream, write its `table`, or move the former table away",
        )


def rename_command(stream: ConnectionStream, former: FormerTable) -> str:
    """Return the command that moves a former table to a stream."""
    return f"elt rename {stream.connection.name} {former.name} {stream.stream.id}"


def rename_state(text: str, former: str, stream: StreamId) -> str:
    """Return a state in which the stream has its present name.

    Args:
        former: the former name, after its former namespace and a slash if it had one.
    """
    state = State.from_json(text)
    if state.stream is not None:
        state.stream.stream_descriptor = stream.descriptor
    elif state.global_ is not None:
        for entry in state.global_.stream_states:
            named = entry.stream_descriptor.id
            if former == "/".join(filter(None, (named.namespace, named.name))):
                entry.stream_descriptor = stream.descriptor
    elif state.data is not None:
        name = former.rpartition("/")[2]
        with contextlib.suppress(ValueError):  # no object: it has no names of streams
            entries = read(_decode_object, state.data)
            state.data = Raw(
                json.encode({stream.name if key == name else key: v for key, v in entries.items()})
            )
    return state.text
