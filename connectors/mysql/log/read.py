"""One read of the log: the snapshots of tables that have none, then the changes up to the present end.

The changes are read in windows of whole transactions. Those of a window are written as Arrow files, one for
each table and form, which are the slices of its streams, and then comes the state at the window's end. The
server keeps its log by its own rules, so nothing is acknowledged to it.

A table that cannot be read is left out, and the others go on. It keeps its state, from which the next sync
reads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from connectors.cdc.fields import make_truncation_slice
from connectors.mysql.config import MySqlConfig
from connectors.mysql.log.check import check_contents
from connectors.mysql.log.dump import (
    Server,
    begin_snapshot,
    is_replaced,
    read_first_place,
    read_server,
    read_visible_position,
)
from connectors.mysql.log.state import RESET, LogState, TableState, load_state
from connectors.mysql.log.stream import LogStream
from connectors.mysql.log.windows import WindowReader
from connectors.mysql.session import Session, open_session
from connectors.sdk import Checkpoint, Slice, Wait
from connectors.sdk.groups import GroupCheckpoint, GroupItem, GroupState, StreamFailure, StreamPart
from connectors.sdk.slice_files import SliceFiles, find_slice_folder
from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol.airbyte.catalog import ConfiguredStream, StreamId


class LogRead:
    """One read of some tables of the log. `streams`: those to read; `members`: how they are configured."""

    def __init__(
        self,
        config: MySqlConfig,
        streams: Sequence[LogStream],
        members: Sequence[ConfiguredStream],
    ):
        self._config, self._streams = config, list(streams)
        self._members = {member.id: member for member in members}

    def items(self, state: GroupState | None) -> Iterator[GroupItem]:
        """Yield the slices and the states.

        Raises:
            EltError: the log or a table cannot be read, or changes are lost.
        """
        with open_session(self._config, "the log cannot be looked at") as session:
            check_contents(session, self._config)
            server = read_server(session)
            log = LogState(server.is_mariadb)
            if state is not None:
                log = load_state(state, is_mariadb=server.is_mariadb)
                self._drop_tables(log)
            failures = dict(self._check_positions(session, server, log))
        for stream in list(self._streams):
            yield from self._begin(log, stream, failures.get(stream.id))
        if self._streams:
            yield from self._read_changes(log)

    def _check_positions(
        self, session: Session, server: Server, log: LogState
    ) -> Iterator[tuple[StreamId, ConfigError]]:
        """Yield the streams for which the log does not go on from their state, and why."""
        for stream in self._streams:
            if stream.id in log.tables:
                table = log.tables[stream.id]
                try:
                    check_position(self._config, session, server, stream.id, table)
                except ConfigError as error:
                    yield stream.id, error

    def _begin(
        self, log: LogState, stream: LogStream, failure: EltError | None
    ) -> Iterator[GroupItem]:
        """Yield the slices of a table that was not read completely; if that fails, go on without it."""
        table = log.tables.get(stream.id)
        try:
            if failure is not None:
                raise failure
            if table is None and log.is_mariadb and not self._members[stream.id].deduplicates:
                yield from self._read_at_once(log, stream)
            elif table is None or not table.is_complete:
                yield from self._read_table(log, stream, table)
        except EltError as error:
            self._streams.remove(stream)
            yield StreamFailure(stream.id, error)

    def _drop_tables(self, log: LogState) -> None:
        """Remove the tables that the config does not have any more."""
        for stream in list(log.tables):
            database = stream.namespace or ""
            is_read = database in self._config.databases
            if not is_read or not self._config.reads(database, stream.name):
                del log.tables[stream]

    def _read_at_once(self, log: LogState, stream: LogStream) -> Iterator[GroupItem]:
        """Yield the slices of a table's snapshot, which is that of one position of the log.

        Ranges are read at different times, and the log repeats what they show already: a stream that appends
        would have both. So its rows are read in one transaction, whose position is known, into files.
        """
        purpose = f"{stream.id} cannot be read"
        with (
            open_session(self._config, purpose) as session,
            tempfile.TemporaryDirectory(prefix="elt-mysql-", dir=find_slice_folder()) as folder,
        ):
            server = read_server(session)
            place = read_first_place(self._config, session, server)
            files = SliceFiles(Path(folder))
            position, number = begin_snapshot(session), server.time
            for batch in stream.read_whole(session, number):
                files.write(stream.id, batch)
            yield from files.close()
            log.tables[stream.id] = TableState(
                position, number=number, moved=number, is_complete=True, place=place
            )
            yield GroupCheckpoint(log.to_state())
            yield Wait()

    def _read_table(
        self, log: LogState, stream: LogStream, table: TableState | None
    ) -> Iterator[GroupItem]:
        """Yield the slices of a table's snapshot, and states after which it can go on."""
        if table is None:
            with open_session(self._config, f"{stream.id} cannot be read") as session:
                position, server = read_visible_position(session), read_server(session)
                place = read_first_place(self._config, session, server)
            table = TableState(position, number=server.time, moved=server.time, place=place)
        for part in stream.read_snapshot(table.progress):
            if isinstance(part, Checkpoint):
                assert isinstance(part.state, dict)
                is_complete = bool(part.state.get("is_complete"))
                if is_complete:
                    yield from self._list_gone(table, stream.id)
                progress = None if is_complete else part.state
                table = replace(table, progress=progress, is_complete=is_complete)
                log.tables[stream.id] = table
                yield GroupCheckpoint(log.to_state())
            elif isinstance(part, Slice):
                data = {**part.data, "number": table.number}
                yield StreamPart(stream.id, replace(part, data=data))
            elif isinstance(part, Wait):
                yield part
            else:
                yield StreamPart(stream.id, part)
        if not table.is_complete:  # without a key, a table is one slice, and has no states
            yield from self._list_gone(table, stream.id)
            log.tables[stream.id] = replace(table, is_complete=True)
            yield GroupCheckpoint(log.to_state())

    def _list_gone(self, table: TableState, stream: StreamId) -> Iterator[StreamPart]:
        """Yield the end of the rows that the table had before it was read in full again."""
        member = self._members[stream]
        if member.deduplicates:
            number = table.number - 1
            yield StreamPart(stream, make_truncation_slice(number, number, member.key_columns))

    def _read_changes(self, log: LogState) -> Iterator[GroupItem]:
        """Yield the changes up to the present end of the log, window by window."""
        tables = {stream.id: log.tables[stream.id] for stream in self._streams}
        with open_session(self._config, "values of the log cannot be converted") as session:
            server = read_server(session)
            reader = WindowReader(
                self._config,
                self._streams,
                {name: member.key_columns for name, member in self._members.items()},
                LogState(log.is_mariadb, tables),
                server,
                session.rows,
            )
            for window in reader.windows():
                yield from window.parts
                log.tables.update(window.tables)
                yield GroupCheckpoint(log.to_state())
                yield Wait()


def check_position(
    config: MySqlConfig, session: Session, server: Server, stream: StreamId, table: TableState
) -> None:
    """Check that the log goes on from the state of a table.

    Raises:
        ConfigError: changes are lost, or may be.
    """
    lost = None
    if not table.position.is_within(server.position):
        lost = f"the server does not have all transactions that {stream} has ({table.position})"
    elif is_replaced(config, session, server, table.position, table.place):
        lost = f"the server has another log than the one that {stream} was read from"
    if lost is not None:
        raise ConfigError(
            f"{lost}: it was restored from a backup, or failed over to a server that is behind",
            guidance=f"changes may be lost: {RESET}",
        )
    if server.purged is not None and not server.purged.is_within(table.position):
        raise ConfigError(
            f"the server has removed a part of its log that {stream} needs",
            guidance=f"changes are lost: {RESET}, and let the server keep its log longer "
            "(binlog_expire_logs_seconds)",
        )
