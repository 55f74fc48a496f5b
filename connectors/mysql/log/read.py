"""One read of the server's log.

The server keeps its log by its own rules, so nothing is acknowledged to it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterable
from dataclasses import replace
from pathlib import Path

from connectors.cdc.changes import ChangeFiles, number_snapshot
from connectors.cdc.reader import LogReader, LogState, ReadScope, Snapshot, TableItems, Window
from connectors.cdc.texts import RESET_ALL
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
from connectors.mysql.log.position import Position
from connectors.mysql.log.state import BinlogState, TableState, describe_log, load_state
from connectors.mysql.log.windows import WindowReader
from connectors.mysql.session import Session, open_session
from connectors.mysql.stream import LogStream
from connectors.mysql.tables import list_tables
from connectors.sdk import Slice
from connectors.sdk.groups import GroupState
from connectors.sdk.slice_files import SliceFiles, find_slice_folder
from connectors.sdk.slices import Part
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId


class BinlogReader(LogReader[TableState]):
    """The read of the log by one sync."""

    def __init__(self, config: MySqlConfig, scope: ReadScope[LogStream]):
        self._config, self._scope = config, scope
        self._is_mariadb = False
        self._lost: dict[StreamId, ConfigError] = {}
        self._windows: WindowReader

    def load(self, state: GroupState | None) -> BinlogState:
        with open_session(self._config, "the log cannot be looked at") as session:
            check_contents(session, self._config)
            server = read_server(session)
            self._is_mariadb = server.is_mariadb
            if state is None:
                return LogState(describe_log(is_mariadb=server.is_mariadb))
            log = load_state(state, is_mariadb=server.is_mariadb, is_configured=self._is_configured)
            for stream in self._scope.streams.keys() & log.tables.keys():
                lost = self._find_loss(session, server, stream, log.tables[stream])
                if lost is not None:
                    self._lost[stream] = lost
        return log

    def _find_loss(
        self, session: Session, server: Server, stream: StreamId, table: TableState
    ) -> ConfigError | None:
        """Return an error if the log does not go on from a table's state: changes are lost, or may be."""
        lost = None
        if not table.position.is_within(server.position):
            lost = f"the server does not have all transactions that {stream} has ({table.position})"
        elif is_replaced(self._config, session, server, table.position, table.place):
            lost = f"the server has another log than the one that {stream} was read from"
        if lost is not None:
            return ConfigError(
                f"{lost}: it was restored from a backup, or failed over to a server that is behind",
                guidance=f"changes may be lost: {RESET_ALL}",
            )
        if server.purged is not None and not server.purged.is_within(table.position):
            return ConfigError(
                f"the server has removed a part of its log that {stream} needs",
                guidance=f"changes are lost: {RESET_ALL}, and let the server keep its log longer "
                "(binlog_expire_logs_seconds)",
            )
        return None

    def _is_configured(self, stream: StreamId) -> bool:
        """Return whether the config has a stream, which this read may have or not."""
        database = stream.namespace or ""
        return database in self._config.databases and self._config.reads(database, stream.name)

    def snapshot(self, log: BinlogState, stream: StreamId) -> TableItems[TableState]:
        if stream in self._lost:
            raise self._lost[stream]
        table = log.tables.get(stream)
        if table is not None and table.is_complete:
            return
        if table is None and self._is_mariadb and not self._scope.members[stream].deduplicates:
            yield from self._read_at_once(stream)
            return
        if table is None:
            with open_session(self._config, f"{stream} cannot be read") as session:
                position = read_visible_position(session)
                table = self._make_table(session, position)
        parts = self._scope.streams[stream].list_ranges(table.progress)
        yield _make_snapshot(table, parts)

    def _read_at_once(self, stream: StreamId) -> TableItems[TableState]:
        """Yield a table's snapshot that is that of one position of the log.

        Ranges are read at different times, and the log repeats what they show already: a stream that appends
        would have both. So its rows are read in one transaction, whose position is known, into files.
        """
        with (
            self._scope.streams[stream].open_at_server() as session,
            tempfile.TemporaryDirectory(prefix="elt-mysql-", dir=find_slice_folder()) as folder,
        ):
            files = SliceFiles(Path(folder))
            table = self._make_table(session, None)
            table_stream = self._scope.streams[stream]
            for batch in table_stream.read_rows(session):
                files.write(
                    stream,
                    number_snapshot(batch, table_stream.cursor, table.number, table.number),
                )
            parts = [part.item for part in files.close() if isinstance(part.item, Slice)]
            yield replace(_make_snapshot(table, parts), is_held=True)

    def _make_table(self, session: Session, position: Position | None) -> TableState:
        """Return the state of a table before its rows are read.

        Args:
            position: None for that of a transaction that begins now.
        """
        server = read_server(session)
        place = read_first_place(self._config, session, server)
        position = begin_snapshot(session) if position is None else position
        return TableState(position, server.time, server.time, place)

    def changes(self, log: BinlogState, files: ChangeFiles) -> Generator[Window, None, None]:
        with open_session(self._config, "values of the log cannot be converted") as session:
            server = read_server(session)
            self._windows = WindowReader(
                self._config, self._scope, log, files, server, session.rows
            )
            yield from self._windows.windows()

    def move(self, stream: StreamId, table: TableState) -> TableState:
        return self._windows.move(stream, table)

    def is_current(self) -> bool:
        tables = {stream.id: stream.table for stream in self._scope.streams.values()}
        names = sorted({stream.name for stream in tables})
        with open_session(self._config, "the tables cannot be looked at") as session:
            present = {
                StreamId(table.name, table.database): table
                for table in list_tables(session, self._config, names)
            }
        return all(
            name in present
            and (present[name].columns, present[name].indexes) == (table.columns, table.indexes)
            for name, table in tables.items()
        )


def _make_snapshot(table: TableState, parts: Iterable[Part]) -> Snapshot[TableState]:
    return Snapshot(table, table.number, table.number, parts, table.number)
