"""Windows of the log: the changes of some whole transactions as files, and how far each table is then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from connectors.cdc.changes import ChangeFiles
from connectors.cdc.reader import ReadScope, Window
from connectors.cdc.texts import RESET, RESET_ALL
from connectors.mysql.config import MySqlConfig
from connectors.mysql.log.changes import RowWriter, read_savepoint
from connectors.mysql.log.dump import Server, locate, read_events
from connectors.mysql.log.events import Begin, End, EventDecoder, Rows, Statement
from connectors.mysql.log.forms import TableName, fold_name
from connectors.mysql.log.position import Gtid, MariaDbPosition, Position, find_common
from connectors.mysql.log.state import (
    DROPPED,
    RENAMED,
    BinlogState,
    Place,
    TableState,
    compute_digest,
)
from connectors.mysql.log.statements import Effect, describe, find_effects
from connectors.mysql.log.texts import Ask, TextConverter
from connectors.mysql.stream import LogStream
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId

_QUIET_BYTES, _QUIET_MICROSECONDS = 16 << 20, 3600 * 1_000_000
"""How much of the log without a change of the streams, and how long a time, moves the position: each move is
a commit of every table, but the server removes its log after some time."""

_EMPTYING = {Effect.EMPTIED, Effect.DROPPED, Effect.CREATED, Effect.CREATED_IF_ABSENT}
_KEEPS = (
    "Rows that are read already keep the values that they had, also of a column that was dropped and added "
    f"again; a new column is null in them. If the statement gave them other values, {RESET}"
)
_ALTERED = f"the table was altered. {_KEEPS}"
_COPIED = (
    "the table was replaced by one whose name is that of a copy by gh-ost or pt-online-schema-change. If it "
    f"is no such copy, {RESET}. {_KEEPS}"
)
_PERHAPS_CHANGED = (
    "the log has a statement in place of the rows that it changed. If it changed rows of tables of this "
    f"connection by a trigger, a view, a function or a foreign key, the log lacks them: {RESET_ALL}. Set "
    "binlog_format = ROW in all sessions"
)


class WindowReader:
    """Reads the log from the position that all tables have, up to its present end.

    Args:
        log: the state of the streams.
        files: gets the changes of those that are read. One that has failed is left out from there on.
        server: as it is now.
        ask: asks the server for texts.
    """

    def __init__(
        self,
        config: MySqlConfig,
        scope: ReadScope[LogStream],
        log: BinlogState,
        files: ChangeFiles,
        server: Server,
        ask: Ask,
    ):
        self._config, self._files, self._server = config, files, server
        self._tables = {name: log.tables[name] for name in files.keys}
        self._ids = {
            self._fold((stream.namespace or "", stream.name)): stream for stream in self._tables
        }
        texts = TextConverter(ask)
        numbers = {name: table.number for name, table in self._tables.items()}
        self._writer = RowWriter(files, scope.streams, numbers, texts)
        self._decoder = EventDecoder(self._is_wanted, texts.read_text, server.is_mariadb)
        self._reached: Position = find_common([t.position for t in self._tables.values()])
        self._unproven = {
            name: table.position.list_beyond(self._reached)
            for name, table in self._tables.items()
            if isinstance(table.position, MariaDbPosition)
            and isinstance(self._reached, MariaDbPosition)
        }
        self._begin: Begin | None = None
        self._place: Place | None = None
        self._absence = {name: table.absence for name, table in self._tables.items()}
        self._warns_of_others = True
        # A window ends with a statement that alters a table: a stream that has to stop at a new column keeps
        # what is before it.
        self._is_altered = False
        self._size = self._unmoved = 0

    def windows(self) -> Iterator[Window]:
        """Yield after each window.

        Raises:
            EltError: the log cannot be read, or changes are lost.
        """
        target = self._server.position
        if target.is_within(self._reached):
            return
        events = read_events(self._config, self._reached, is_mariadb=self._server.is_mariadb)
        is_last = False
        while not is_last:
            is_last = self._fill(events, target)
            self._writer.flush()
            since = min(self._tables[name].moved for name in self._files.keys)
            is_old = self._server.time - since >= _QUIET_MICROSECONDS
            is_due = is_old or self._unmoved >= _QUIET_BYTES
            yield Window(is_due=is_due, is_last=is_last)

    def move(self, stream: StreamId, table: TableState) -> TableState:
        """Return the state of a table with the transactions up to here."""
        self._unmoved = 0
        moved = replace(
            table,
            position=table.position.union(self._reached),
            number=self._writer.numbers[stream],
            moved=self._server.time,
            place=self._place or table.place,
            absence=self._absence[stream],
        )
        self._tables[stream] = moved
        return moved

    def _fill(self, events: Iterator[bytes], target: Position) -> bool:
        """Write transactions into files. Return whether they were the last ones."""
        self._size = 0
        for event in events:
            self._size += len(event)
            self._unmoved += len(event)
            if not self._add(event):
                continue
            if target.is_within(self._reached):
                return True
            if self._is_altered:
                self._is_altered = False
                return False
            if self._size >= self._config.window_megabytes << 20:
                return False
        return True

    def _add(self, event: bytes) -> bool:
        """Add what an event says. Return whether a transaction ends with it."""
        is_end = False
        for entry in self._decoder.decode(event):
            if isinstance(entry, Begin):
                self._begin = entry
                self._writer.rollbacks.begin()
                self._prove(entry.gtid)
                continue
            if self._begin is None:
                raise ConfigError(
                    "the log has changes without the number (GTID) of their transaction",
                    guidance=f"set gtid_mode = ON, and {RESET_ALL}",
                )
            if isinstance(entry, Rows):
                name = self._ids[self._fold((entry.form.database, entry.form.name))]
                self._files.attempt(name, self._writer.add, name, entry, self._begin.time)
            elif isinstance(entry, Statement):
                self._apply(entry, self._begin)
            elif isinstance(entry, End):
                self._reached.add(self._begin.gtid)
                self._place = self._locate(event)
                is_end = True
        return is_end

    def _prove(self, gtid: Gtid) -> None:
        """Check that the log has the last transactions of the tables that are before others.

        MariaDB numbers the transactions of a domain, so a replica that was promoted before it had all of them
        gives their numbers to others. The server proves the place from which it is read, and no more.
        """
        for stream, lasts in self._unproven.items():
            last = lasts.get(gtid.source)
            if last is not None and gtid.number >= last.number:
                del lasts[gtid.source]
                if gtid != last:
                    self._files.attempt(stream, _refuse_branch, stream, last, gtid)

    def _fold(self, table: TableName) -> TableName:
        return fold_name(table, folds=self._server.folds)

    def _is_wanted(self, table: TableName, gtid: Gtid) -> bool:
        stream = self._ids.get(self._fold(table))
        return stream is not None and self._lacks(stream, gtid)

    def _lacks(self, stream: StreamId, gtid: Gtid) -> bool:
        """Return whether a table does not have a transaction yet, and is still read."""
        if stream in self._files.failures or stream not in self._files.keys:
            return False
        return gtid not in self._tables[stream].position

    def _locate(self, event: bytes) -> Place:
        identity, file = self._server.identity, self._decoder.file
        return Place(identity, file, locate(event), compute_digest([event]))

    def _apply(self, statement: Statement, begin: Begin) -> None:
        """Add what a statement says, warn of it, or refuse it.

        Raises:
            ConfigError: the log does not say which rows it changed.
        """
        if statement.text[:11].upper() == "XA ROLLBACK":
            raise ConfigError(
                f"the log has changes of the transaction {begin.gtid} that were rolled back",
                guidance=RESET_ALL,
            )
        savepoint = read_savepoint(statement)
        if savepoint is not None:
            rolls_back, name = savepoint
            if rolls_back:
                self._writer.rollbacks.roll_back(name)
            elif name is not None:
                self._writer.rollbacks.set_savepoint(name)
            return
        for table, effect in find_effects(statement, self._ids, folds=self._server.folds):
            stream = self._ids[table]
            if self._lacks(stream, begin.gtid):
                self._files.attempt(stream, self._apply_effect, stream, effect, statement, begin)

    def _apply_effect(
        self, stream: StreamId, effect: Effect, statement: Statement, begin: Begin
    ) -> None:
        absence = self._absence[stream]
        if effect is Effect.RENAMED:
            self._absence[stream] = RENAMED
            return
        if effect is Effect.COPY_RENAMED and absence != DROPPED:
            self._absence[stream] = ""
            self._is_altered = True
            self._files.warn(stream, f"{_COPIED}: {describe(statement)}")
        elif effect is Effect.ALTERED:
            self._is_altered = True
            self._files.warn(stream, f"{_ALTERED}: {describe(statement)}")
        elif effect is Effect.PERHAPS_CHANGED:
            if self._warns_of_others:
                self._warns_of_others = False
                self._files.warn(stream, f"{_PERHAPS_CHANGED}: {describe(statement)}")
        elif effect in _EMPTYING:
            is_new = effect in (Effect.EMPTIED, Effect.DROPPED) or absence == RENAMED
            if is_new or (effect is Effect.CREATED and absence != DROPPED):
                self._writer.truncate(stream, begin.time)
            self._absence[stream] = DROPPED if effect is Effect.DROPPED else ""
        else:
            hint = ", and set binlog_format = ROW in all sessions"
            raise ConfigError(
                f"stream {stream}: {effect.value}: {describe(statement)} (transaction {begin.gtid})",
                guidance=RESET + (hint if effect is Effect.ROWS_HIDDEN else ""),
            )


def _refuse_branch(stream: StreamId, last: Gtid, other: Gtid) -> None:
    raise ConfigError(
        f"the server does not have the transaction {last} that {stream} has, and has {other} in its "
        "place: it was failed over to before it had all transactions, or restored from a backup",
        guidance=f"changes may be lost: {RESET}",
    )
