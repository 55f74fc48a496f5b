"""Windows of the log: the changes of some whole transactions as files, and how far each table is then."""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from connectors.mysql.config import MySqlConfig
from connectors.mysql.log.changes import ChangeFiles, Keys
from connectors.mysql.log.dump import Server, locate, read_events
from connectors.mysql.log.events import Begin, End, EventDecoder, Rows, Statement
from connectors.mysql.log.forms import TableName
from connectors.mysql.log.position import Gtid, Position
from connectors.mysql.log.state import RESET, LogState, Place, TableState
from connectors.mysql.log.statements import Effect, find_effects
from connectors.mysql.log.stream import LogStream
from connectors.mysql.log.texts import Ask
from connectors.sdk import Slice, Warn
from connectors.sdk.groups import StreamPart
from connectors.sdk.slice_files import find_slice_folder
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import StreamId

_QUIET_BYTES, _QUIET_MICROSECONDS = 16 << 20, 3600 * 1_000_000
"""How much of the log without a change of the streams, and how long a time, moves the position: each move is
a commit of every table, but the server removes its log after some time."""


@dataclass(frozen=True)
class Window:
    """What was read. `parts`: slices and warnings; `tables`: the states after them."""

    parts: Sequence[StreamPart]
    tables: Mapping[StreamId, TableState]


class WindowReader:
    """Reads the log from the position that all tables have, up to its present end.

    Args:
        keys: the columns of the streams' keys.
        log: the state of the streams.
        server: as it is now.
        ask: asks the server for texts.
    """

    def __init__(
        self,
        config: MySqlConfig,
        streams: Sequence[LogStream],
        keys: Keys,
        log: LogState,
        server: Server,
        ask: Ask,
    ):
        self._config, self._streams, self._keys, self._log = config, streams, keys, log
        self._server, self._ask = server, ask
        self._ids = {(stream.namespace or "", stream.name): stream.id for stream in streams}
        self._decoder = EventDecoder(self._is_wanted, log.is_mariadb)
        self._reached: Position = log.position
        self._begin: Begin | None = None
        self._has_rows = False
        self._place: Place | None = None
        self._altered: set[StreamId] = set()
        self._warnings: list[StreamPart] = []
        self._size = self._unmoved = 0

    def windows(self) -> Iterator[Window]:
        """Yield the windows. The files of one are removed when the next one is read.

        Raises:
            EltError: the log cannot be read, or changes are lost.
        """
        target = self._server.position
        if target.is_within(self._reached):
            return
        folder = Path(tempfile.mkdtemp(prefix="elt-mysql-log-", dir=find_slice_folder()))
        try:
            events = read_events(self._config, self._reached, is_mariadb=self._log.is_mariadb)
            is_last = False
            while not is_last:
                files = ChangeFiles(folder, self._streams, self._keys, self._log, self._ask)
                is_last = self._fill(files, events, target)
                window = self._close(files)
                if window is not None:
                    yield window
                    self._log.tables.update(window.tables)
                    self._unmoved = 0
                for path in folder.iterdir():
                    path.unlink()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _fill(self, files: ChangeFiles, events: Iterator[bytes], target: Position) -> bool:
        """Read transactions into files. Return whether they were the last ones."""
        self._size = 0
        for event in events:
            self._size += len(event)
            self._unmoved += len(event)
            if not self._add(files, event):
                continue
            if target.is_within(self._reached):
                return True
            if self._size >= self._config.window_megabytes << 20:
                return False
        return True

    def _add(self, files: ChangeFiles, event: bytes) -> bool:
        """Add what an event says. Return whether a transaction ends with it."""
        is_end = False
        for entry in self._decoder.decode(event):
            if isinstance(entry, Begin):
                self._begin, self._has_rows = entry, False
                continue
            if self._begin is None:
                raise ConfigError(
                    "the log has changes without the number (GTID) of their transaction",
                    guidance=f"set gtid_mode = ON, and {RESET}",
                )
            if isinstance(entry, Rows):
                self._has_rows = True
                files.add(entry, self._begin.time)
            elif isinstance(entry, Statement):
                self._apply(files, entry, self._begin)
            elif isinstance(entry, End):
                self._reached.add(self._begin.gtid)
                self._place = self._locate(event)
                is_end = True
        return is_end

    def _is_wanted(self, table: TableName, gtid: Gtid) -> bool:
        stream = self._ids.get(table)
        return stream is not None and self._log.lacks(stream, gtid)

    def _locate(self, event: bytes) -> Place:
        identity, file = self._server.identity, self._decoder.file
        return Place(identity, file, locate(event), zlib.crc32(event))

    def _apply(self, files: ChangeFiles, statement: Statement, begin: Begin) -> None:
        """Add what a statement says, warn of it, or refuse it.

        Raises:
            ConfigError: the log does not say which rows it changed.
        """
        is_rollback = statement.text[:8].upper() == "ROLLBACK" and self._has_rows
        if is_rollback or statement.text[:11].upper() == "XA ROLLBACK":
            raise ConfigError(
                f"the log has changes of the transaction {begin.gtid} that were rolled back",
                guidance=RESET,
            )
        for table, effect in find_effects(statement, self._ids):
            stream = self._ids[table]
            if not self._log.lacks(stream, begin.gtid):
                continue
            if effect is Effect.EMPTIED:
                files.truncate(table, begin.time)
            elif effect is not Effect.ALTERED:
                raise ConfigError(
                    f"stream {stream}: {effect.value} (transaction {begin.gtid})",
                    guidance="reset the stream (`elt reset`), so that it is read in full"
                    + (
                        ", and set binlog_format = ROW in all sessions"
                        if effect is Effect.ROWS_HIDDEN
                        else ""
                    ),
                )
            elif stream not in self._altered:
                self._altered.add(stream)
                text = (
                    "the table was altered. Rows that are read already keep the values that they had: a new "
                    "column is null in them. If the statement gave them other values, reset the stream "
                    "(`elt reset`)"
                )
                self._warnings.append(StreamPart(stream, Warn(text)))

    def _close(self, files: ChangeFiles) -> Window | None:
        """Return what was read; None if it is not worth a commit."""
        parts = list(files.close())
        warnings, self._warnings = self._warnings, []
        parts = [*warnings, *parts]
        has_slices = any(isinstance(part.item, Slice) for part in parts)
        since = min(table.moved for table in self._log.tables.values())
        is_due = self._unmoved >= _QUIET_BYTES or self._server.time - since >= _QUIET_MICROSECONDS
        if not has_slices and not warnings and not is_due:
            return None
        moved = {
            stream: table.move(self._reached, files.numbers[stream], self._server.time, self._place)
            for stream, table in self._log.tables.items()
        }
        return Window(parts, moved)
