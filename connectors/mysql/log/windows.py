"""Windows of the log: the changes of some whole transactions as files, and how far each table is then."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from connectors.mysql.config import MySqlConfig
from connectors.mysql.log.changes import ChangeFiles, Keys
from connectors.mysql.log.dump import Server, locate, read_events
from connectors.mysql.log.events import Begin, End, EventDecoder, Rows, Statement
from connectors.mysql.log.forms import TableName, fold_name
from connectors.mysql.log.position import Gtid, Position
from connectors.mysql.log.rollbacks import read_savepoint
from connectors.mysql.log.state import (
    DROPPED,
    RENAMED,
    RESET,
    LogState,
    Place,
    TableState,
    compute_digest,
)
from connectors.mysql.log.statements import Effect, describe, find_effects
from connectors.mysql.log.stream import LogStream
from connectors.mysql.log.texts import Ask, TextConverter
from connectors.sdk import Slice
from connectors.sdk.groups import StreamFailure, StreamPart
from connectors.sdk.items import Warn
from connectors.sdk.slice_files import find_slice_folder
from elt_assets.errors import ConfigError, EltError
from elt_assets.protocol.airbyte.catalog import StreamId

_QUIET_BYTES, _QUIET_MICROSECONDS = 16 << 20, 3600 * 1_000_000
"""How much of the log without a change of the streams, and how long a time, moves the position: each move is
a commit of every table, but the server removes its log after some time."""

_EMPTYING = {Effect.EMPTIED, Effect.DROPPED, Effect.CREATED, Effect.CREATED_IF_ABSENT}
_MAX_WARNINGS = 5
"""Warnings of a stream in a window: many statements may alter one table."""
_KEEPS = (
    "Rows that are read already keep the values that they had, also of a column that was dropped and added "
    "again; a new column is null in them. If the statement gave them other values, reset the stream "
    "(`elt reset`)"
)
_ALTERED = f"the table was altered. {_KEEPS}"
_COPIED = (
    "the table was replaced by one whose name is that of a copy by gh-ost or pt-online-schema-change. If it "
    f"is no such copy, reset the stream (`elt reset`). {_KEEPS}"
)
_PERHAPS_CHANGED = (
    "the log has a statement in place of the rows that it changed. If it changed rows of tables of this "
    "connection by a trigger, a view, a function or a foreign key, the log lacks them: reset the streams "
    "(`elt reset`). Set binlog_format = ROW in all sessions"
)


@dataclass(frozen=True)
class Window:
    """What was read. `parts`: slices, warnings and failures; `tables`: the states after them."""

    parts: Sequence[StreamPart | StreamFailure]
    tables: Mapping[StreamId, TableState]


class WindowReader:
    """Reads the log from the position that all tables have, up to its present end.

    A table that cannot be read is left out from there on: it keeps its state of the window before.

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
        self._config, self._streams, self._keys, self._log = config, list(streams), keys, log
        self._server, self._ask = server, ask
        self._ids = {
            self._fold((stream.namespace or "", stream.name)): stream.id for stream in streams
        }
        self._decoder = EventDecoder(self._is_wanted, TextConverter(ask).read_text, log.is_mariadb)
        self._reached: Position = log.position
        self._begin: Begin | None = None
        self._place: Place | None = None
        self._absence = {stream: table.absence for stream, table in log.tables.items()}
        self._warnings: dict[StreamId, list[str]] = {}
        self._warns_of_others = True
        self._failures: dict[StreamId, EltError] = {}
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
                files = ChangeFiles(
                    folder, self._streams, self._keys, self._log, self._ask, self._failures
                )
                is_last = self._fill(files, events, target)
                window = self._close(files)
                if window is not None:
                    yield window
                    self._log.tables.update(window.tables)
                    self._unmoved = 0
                self._leave_failed()
                if not self._streams:
                    return
                for path in folder.iterdir():
                    path.unlink()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _leave_failed(self) -> None:
        """Go on without the streams that have failed."""
        self._streams = [stream for stream in self._streams if stream.id not in self._failures]
        for stream in self._failures.keys() & self._log.tables.keys():
            del self._log.tables[stream]

    def _fail_alone(self, stream: StreamId, add: Callable[[], None]) -> None:
        """Add something of a stream; if it cannot be read, the others go on."""
        if stream in self._failures:
            return
        try:
            add()
        except ConfigError as error:
            self._failures[stream] = error

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
                self._begin = entry
                files.begin()
                continue
            if self._begin is None:
                raise ConfigError(
                    "the log has changes without the number (GTID) of their transaction",
                    guidance=f"set gtid_mode = ON, and {RESET}",
                )
            if isinstance(entry, Rows):
                name = self._ids[self._fold((entry.form.database, entry.form.name))]
                self._fail_alone(name, partial(files.add, name, entry, self._begin.time))
            elif isinstance(entry, Statement):
                self._apply(files, entry, self._begin)
            elif isinstance(entry, End):
                self._reached.add(self._begin.gtid)
                self._place = self._locate(event)
                is_end = True
        return is_end

    def _fold(self, table: TableName) -> TableName:
        return fold_name(table, folds=self._server.folds)

    def _is_wanted(self, table: TableName, gtid: Gtid) -> bool:
        stream = self._ids.get(self._fold(table))
        if stream is None or stream in self._failures:
            return False
        return self._log.lacks(stream, gtid)

    def _locate(self, event: bytes) -> Place:
        identity, file = self._server.identity, self._decoder.file
        return Place(identity, file, locate(event), compute_digest([event]))

    def _apply(self, files: ChangeFiles, statement: Statement, begin: Begin) -> None:
        """Add what a statement says, warn of it, or refuse it.

        Raises:
            ConfigError: the log does not say which rows it changed.
        """
        if statement.text[:11].upper() == "XA ROLLBACK":
            raise ConfigError(
                f"the log has changes of the transaction {begin.gtid} that were rolled back",
                guidance=RESET,
            )
        savepoint = read_savepoint(statement)
        if savepoint is not None:
            rolls_back, name = savepoint
            if rolls_back:
                files.roll_back(name)
            elif name is not None:
                files.set_savepoint(name)
            return
        for table, effect in find_effects(statement, self._ids, folds=self._server.folds):
            stream = self._ids[table]
            if stream not in self._failures and self._log.lacks(stream, begin.gtid):
                apply = partial(self._apply_effect, files, stream, effect, statement, begin)
                self._fail_alone(stream, apply)

    def _apply_effect(
        self,
        files: ChangeFiles,
        stream: StreamId,
        effect: Effect,
        statement: Statement,
        begin: Begin,
    ) -> None:
        absence = self._absence[stream]
        if effect is Effect.RENAMED:
            self._absence[stream] = RENAMED
            return
        if effect is Effect.COPY_RENAMED and absence != DROPPED:
            self._absence[stream] = ""
            self._warn(stream, f"{_COPIED}: {describe(statement)}")
        elif effect is Effect.ALTERED:
            self._warn(stream, f"{_ALTERED}: {describe(statement)}")
        elif effect is Effect.PERHAPS_CHANGED:
            if self._warns_of_others:
                self._warns_of_others = False
                self._warn(stream, f"{_PERHAPS_CHANGED}: {describe(statement)}")
        elif effect in _EMPTYING:
            is_new = effect in (Effect.EMPTIED, Effect.DROPPED) or absence == RENAMED
            if is_new or (effect is Effect.CREATED and absence != DROPPED):
                files.truncate(stream, begin.time)
            self._absence[stream] = DROPPED if effect is Effect.DROPPED else ""
        else:
            hint = ", and set binlog_format = ROW in all sessions"
            raise ConfigError(
                f"stream {stream}: {effect.value}: {describe(statement)} (transaction {begin.gtid})",
                guidance="reset the stream (`elt reset`), so that it is read in full"
                + (hint if effect is Effect.ROWS_HIDDEN else ""),
            )

    def _warn(self, stream: StreamId, text: str) -> None:
        texts = self._warnings.setdefault(stream, [])
        if text not in texts and len(texts) < _MAX_WARNINGS:
            texts.append(text)

    def _close(self, files: ChangeFiles) -> Window | None:
        """Return what was read; None if it is not worth a commit."""
        parts: list[StreamPart | StreamFailure] = list(files.close())
        failures = [
            StreamFailure(stream, error)
            for stream, error in self._failures.items()
            if stream in self._log.tables
        ]
        warnings = [
            StreamPart(stream, Warn(text))
            for stream, texts in self._warnings.items()
            for text in texts
        ]
        self._warnings.clear()
        has_slices = any(
            isinstance(part, StreamPart) and isinstance(part.item, Slice) for part in parts
        )
        parts = [*warnings, *failures, *parts]
        since = min(table.moved for table in self._log.tables.values())
        is_due = self._unmoved >= _QUIET_BYTES or self._server.time - since >= _QUIET_MICROSECONDS
        if not has_slices and not warnings and not failures and not is_due:
            return None
        moved = {
            stream: table.move(
                self._reached,
                files.numbers[stream],
                self._server.time,
                self._place,
                self._absence[stream],
            )
            for stream, table in self._log.tables.items()
            if stream not in self._failures
        }
        return Window(parts, moved)
