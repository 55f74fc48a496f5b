"""One read of the log that a slot keeps.

When a window is committed, the slot is moved to its end, if all tables have come there. A read that is
interrupted leaves the slot where it was. A table that cannot be read keeps the slot where it is, until it is
read again, reset, or excluded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

from connectors.cdc.changes import ChangeFiles
from connectors.cdc.reader import LogReader, LogState, ReadScope, TableItems, Window
from connectors.cdc.texts import RESET_ALL
from connectors.postgres.check import read_version
from connectors.postgres.config import PostgresConfig
from connectors.postgres.log.changes import MessageWriter
from connectors.postgres.log.check import check_publication
from connectors.postgres.log.failover import follow, has_failed_over, read_commit
from connectors.postgres.log.forms import CatalogTable, describe_rewritten, read_tables
from connectors.postgres.log.slot import (
    Server,
    Slot,
    advance_slot,
    create_slot,
    find_place_before,
    find_slot,
    format_lsn,
    hold_slot,
    peek,
    read_server,
)
from connectors.postgres.log.start import TableStart
from connectors.postgres.log.state import (
    SlotState,
    TableState,
    describe_log,
    drop_behind,
    load_state,
    require_same_log,
)
from connectors.postgres.session import Answers, open_session
from connectors.postgres.stream import LogStream
from connectors.sdk.groups import GroupState
from connectors.sdk.items import Measure, Warn
from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.catalog import StreamId

QUIET_BYTES = 16 << 20
"""Bytes of the log without a change of the streams from which the position is moved: each move is a commit
of every table."""


class SlotReader(LogReader[TableState]):
    """The read of a slot."""

    def __init__(self, config: PostgresConfig, scope: ReadScope[LogStream]):
        self._config, self._scope = config, scope
        self._name, self._publication = config.slot or "", config.publication or ""
        self._slot: Slot
        self._present: dict[int, CatalogTable] = {}
        self._is_new_slot = self._keeps_slot = self._releases = False
        self._behind: dict[StreamId, ConfigError] = {}
        self._rewritten: dict[StreamId, list[str]] = {}
        self._truncated: set[StreamId] = set()
        self._end, self._begin, self._timeline = 0, "", 0
        # The window in which a column is shown that the catalog does not declare is cut before it, once.
        self._cuts = True

    def hold(self) -> AbstractContextManager[Callable[[], object]]:
        return hold_slot(self._config, self._name)

    def load(self, state: GroupState | None) -> SlotState:
        log = self._load_log(state)
        # What the tables are is read before the end of the log is looked for.
        self._present = self._read_present()
        return log

    def _read_present(self) -> dict[int, CatalogTable]:
        """Return what the tables are now, by their numbers."""
        relations = [stream.table.relation for stream in self._scope.streams.values()]
        with open_session(self._config, "the form of the tables is looked at") as session:
            check_publication(session, self._config, relations)
            version = read_version(session)
            return read_tables(session, relations, self._publication, version)

    def _load_log(self, state: GroupState | None) -> SlotState:
        """Return the state to go on from, of the slot."""
        with open_session(self._config, f"the slot {self._name!r} is looked at") as session:
            server = read_server(session)
            slot = find_slot(session, self._name)
        if slot is not None and slot.pid is not None:
            raise TransientError(
                f"the slot {self._name!r} is read by the process {slot.pid} of the server",
                guidance="wait until it ends; each connection needs a `slot` of its own",
            )
        if state is None:
            return self._load_none(server, exists=slot is not None)
        log = load_state(state, self._name, self._is_configured)
        if slot is None:
            raise ConfigError(
                f"the slot {self._name!r} is gone: the changes since the last sync are lost",
                guidance=f"{RESET_ALL}; or see `After a lost slot` in docs/postgres.md, to read only what "
                "differs",
            )
        if log.shared["timeline"] != server.timeline:
            self._timeline = server.timeline
        if has_failed_over(log, server, slot):
            begins = {begin for table in log.tables.values() if (begin := table.begin)}
            self._behind = follow(log, server, slot, self._find_begins(slot.confirmed, begins))
        require_same_log(log, server)
        self._behind |= drop_behind(log, slot.confirmed)
        self._require_transaction(log, slot.confirmed)
        lsn = min((table.lsn for table in log.tables.values()), default=0)
        if slot.confirmed < lsn and self._has_all(log, self._scope.members):
            # It was committed, and the slot was not moved any more; or a crash has moved it back.
            advance_slot(self._config, self._name, lsn)
            slot = replace(slot, confirmed=lsn)
        self._slot = slot
        return log

    def _load_none(self, server: Server, *, exists: bool) -> SlotState:
        """Return the state of a first read. A slot that exists stays where it is: it may keep changes for
        streams that are not read now, and of which no state tells."""
        if exists:
            self._keeps_slot = True
        else:
            create_slot(self._config, self._name)
            self._is_new_slot = True
        with open_session(self._config, f"the slot {self._name!r} is looked at") as session:
            slot = find_slot(session, self._name)
        if slot is None:
            raise TransientError(
                f"the slot {self._name!r} was dropped when it was to be read",
                guidance="run it again",
            )
        self._slot = slot
        return LogState(describe_log(self._name, server))

    def _is_configured(self, stream: StreamId) -> bool:
        """Return whether the config has a stream, which this read may have or not."""
        schema = stream.namespace or ""
        return schema in self._config.schemas and self._config.reads(schema, stream.name)

    def _require_transaction(self, log: SlotState, confirmed: int) -> None:
        """Check that the slot gives the last transaction of the state, if that is after its position.

        Raises:
            ConfigError: the server has another one there.
        """
        begin = max((bytes.fromhex(table.begin) for table in log.tables.values()), default=b"")
        lsn = int.from_bytes(begin[1:9], "big")
        if lsn < confirmed or not begin:
            return
        for batch in peek(self._config, self._name, self._publication, lsn + 1):
            if begin in batch.column(0).to_pylist():
                return
        raise ConfigError(
            f"the server does not have the transaction at {format_lsn(lsn)} that the state has: it was "
            "restored from a backup",
            guidance=f"changes may be lost: {RESET_ALL}",
        )

    def _find_begins(self, confirmed: int, begins: Collection[str]) -> set[str]:
        """Return those of some Begin messages that the slot gives, as hexadecimal digits."""
        messages = {bytes.fromhex(begin) for begin in begins}
        last = max((read_commit(begin) for begin in begins), default=0)
        found_begins: set[str] = set()
        if last >= confirmed:
            for batch in peek(self._config, self._name, self._publication, last + 1):
                common = messages & set(batch.column(0).to_pylist())
                found_begins |= {message.hex() for message in common}
        return found_begins

    def _has_all(self, log: SlotState, streams: Collection[StreamId]) -> bool:
        """Return whether no other table needs the log that the slot keeps."""
        return log.is_within(streams) and not self._keeps_slot

    def reports(self, log: SlotState) -> Iterator[Warn | Measure]:
        absent = sorted(str(name) for name in log.tables if name not in self._scope.members)
        if absent:
            yield Warn(
                f"the slot keeps the log for streams that are not read now: {', '.join(absent)}. If they are "
                "not to be read any more, add them to `exclude`"
            )
        shortage = self._slot.describe_shortage(self._name)
        if shortage is not None:
            yield Warn(shortage)
        yield from self._slot.measures()

    def _find_present(self, stream: StreamId) -> CatalogTable:
        """Return what a table is now."""
        return self._present[self._scope.streams[stream].table.relation.oid]

    def snapshot(self, log: SlotState, stream: StreamId) -> TableItems[TableState]:
        present, table = self._find_present(stream), log.tables.get(stream)
        if table is not None and table.is_complete and table.form is not None:
            self._rewritten[stream] = present.list_rewritten(table.form)
        if stream in self._behind:
            raise self._behind[stream]
        start = TableStart(
            self._config,
            self._scope.streams[stream],
            self._scope.members[stream],
            present,
            is_new_slot=self._is_new_slot,
            timeline=self._timeline,
        )
        yield from start.items(table, self._slot.confirmed)

    def changes(self, log: SlotState, files: ChangeFiles) -> Generator[Window, None, None]:
        with open_session(self._config, "the end of the log is looked for") as session:
            end = read_server(session).lsn
        self._end = self._slot.confirmed
        while self._end < end:
            self._releases = self._scope.is_acknowledged and self._has_all(log, files.keys)
            window_end = min(self._end + (self._config.window_megabytes << 20), end)
            self._end = window_end if self._releases else end
            first = self._fill(log, files)
            if first is not None and self._can_cut(find_place_before(first), log, files):
                # A stream that has to stop at the new column keeps what is before its transaction.
                self._cuts, self._end = False, find_place_before(first)
                files.begin_window()
                self._fill(log, files)
            self._truncated |= files.truncated
            quiet = self._end - min(log.tables[name].lsn for name in files.keys)
            yield Window(is_due=quiet >= QUIET_BYTES, is_last=self._end >= end)

    def _can_cut(self, place: int, log: SlotState, files: ChangeFiles) -> bool:
        """Return whether a window may end at a place: once, and where no table has later changes already."""
        return self._cuts and all(log.tables[name].lsn <= place for name in files.keys)

    def _fill(self, log: SlotState, files: ChangeFiles) -> int | None:
        """Write the transactions up to the end of the window; return `MessageWriter.first_undeclared`."""
        with Answers(self._config, "values of the log are converted") as answers:
            writer = MessageWriter(files, self._scope, log, answers.rows)
            for batch in peek(self._config, self._name, self._publication, self._end):
                writer.add(batch)
        self._begin = writer.begin
        return writer.first_undeclared

    def move(self, stream: StreamId, table: TableState) -> TableState:
        moved = table.move(self._end, self._begin)
        return moved.forget_files() if stream in self._truncated else moved

    def release(self, log: SlotState, files: ChangeFiles) -> None:
        if self._releases and self._has_all(log, files.keys):
            advance_slot(self._config, self._name, self._end)
            self._slot = replace(self._slot, confirmed=self._end)

    def is_current(self) -> bool:
        return self._read_present() == self._present

    def finish(self, log: SlotState, stream: StreamId) -> TableItems[TableState]:
        table, rewritten = log.tables[stream], self._rewritten.get(stream)
        if rewritten and stream not in self._truncated and table.form is not None:
            yield Warn(describe_rewritten(rewritten))
            yield replace(table, form=replace(table.form, parts=self._find_present(stream).parts))
