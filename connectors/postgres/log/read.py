"""One read of the log: the snapshots of tables that have none, then the changes up to the present end.

The changes are read in windows. Those of a window are written as Arrow files, one for each table and form,
which are the slices of its streams. When they are committed, with the position of the window's end, the slot
is moved there. A read that is interrupted leaves the slot where it was, and its files are removed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from connectors.postgres.config import PostgresConfig
from connectors.postgres.log.changes import ChangeFiles
from connectors.postgres.log.lsn import format_lsn
from connectors.postgres.log.slot import (
    Server,
    Slot,
    advance_slot,
    create_slot,
    find_slot,
    peek,
    read_server,
)
from connectors.postgres.log.state import RESET, LogState, TableState, load_state
from connectors.postgres.log.stream import LogStream
from connectors.postgres.reading import TableRead
from connectors.postgres.session import open_session
from connectors.sdk import Checkpoint, Slice, Wait, Warn
from connectors.sdk.groups import GroupCheckpoint, GroupItem, GroupState, StreamPart
from connectors.sdk.log_fields import make_truncation_slice
from connectors.sdk.slice_files import find_slice_folder
from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.airbyte.catalog import ConfiguredStream, StreamId

QUIET_BYTES = 16 << 20
"""Bytes of the log without a change of the streams from which the position is moved: each move is a commit
of every table."""


class LogRead:
    """One read of some tables of the log.

    Args:
        streams: streams of the source that are read from the log.
        members: those to read.
        is_acknowledged: see `StreamGroup.read`.
    """

    def __init__(
        self,
        config: PostgresConfig,
        streams: Mapping[StreamId, LogStream],
        members: Sequence[ConfiguredStream],
        *,
        is_acknowledged: bool,
    ):
        self._config, self._streams, self._members = config, streams, members
        self._is_acknowledged = is_acknowledged
        self._slot, self._publication = config.slot or "", config.publication or ""

    def items(self, state: GroupState | None) -> Iterator[GroupItem]:
        """Yield the slices and the states.

        Raises:
            EltError: the slot or a table cannot be read, or changes are lost.
        """
        log, slot = self._open(state)
        for text in self._list_warnings(log, slot):
            yield StreamPart(self._members[0].id, Warn(text))
        for measure in slot.measures():
            yield StreamPart(self._members[0].id, measure)
        for member in self._members:
            table = log.tables.get(member.id)
            oid = self._streams[member.id].table.relation.oid
            if table is None:
                yield from self._read_table(log, member, TableState(slot.confirmed, oid=oid))
            elif not table.is_of(oid):
                new = TableState(table.lsn, begin=table.begin, oid=oid)
                yield from self._read_table(log, member, new, is_made_again=True)
            elif not table.is_complete:
                yield from self._read_table(log, member, replace(table, oid=oid))
            else:
                log.tables[member.id] = replace(table, oid=oid)
                for warning in self._streams[member.id].table.list_warnings(member):
                    yield StreamPart(member.id, warning)
        yield from self._read_changes(log, slot.confirmed)

    def _open(self, state: GroupState | None) -> tuple[LogState, Slot]:
        """Return the state to go on from, and the slot."""
        with open_session(self._config, f"the slot {self._slot!r} is looked at") as session:
            server = read_server(session)
            slot = find_slot(session, self._slot)
        if slot is not None and slot.pid is not None:
            raise TransientError(
                f"the slot {self._slot!r} is read by the process {slot.pid} of the server",
                guidance="wait until it ends; each connection needs a `slot` of its own",
            )
        if state is None:
            return self._begin(server, exists=slot is not None)
        log = load_state(state, self._slot)
        if slot is None:
            raise ConfigError(
                f"the slot {self._slot!r} is gone: the changes since the last sync are lost",
                guidance="reset the streams of the connection (`elt reset`), so that they are read in full",
            )
        log.tables = {
            stream: table for stream, table in log.tables.items() if self._is_configured(stream)
        }
        log.check(server, slot.confirmed)
        self._require_transaction(log, slot.confirmed)
        if log.lsn is not None and slot.confirmed < log.lsn and self._has_all(log):
            # It was committed, and the slot was not moved any more; or a crash has moved it back.
            advance_slot(self._config, self._slot, log.lsn)
            slot = replace(slot, confirmed=log.lsn)
        return log, slot

    def _require_transaction(self, log: LogState, confirmed: int) -> None:
        """Check that the slot gives the last transaction of the state, if that is after its position.

        Raises:
            ConfigError: the server has another one there.
        """
        begin = max((bytes.fromhex(table.begin) for table in log.tables.values()), default=b"")
        lsn = int.from_bytes(begin[1:9], "big")
        if lsn < confirmed or not begin:
            return
        for batch in peek(self._config, self._slot, self._publication, lsn + 1):
            if begin in batch.column(0).to_pylist():
                return
        raise ConfigError(
            f"the server does not have the transaction at {format_lsn(lsn)} that the state has: it was "
            "restored from a backup",
            guidance=f"changes may be lost: {RESET}",
        )

    def _is_configured(self, stream: StreamId) -> bool:
        """Return whether the config has a stream, which this read may have or not."""
        schema = stream.namespace or ""
        return schema in self._config.schemas and self._config.reads(schema, stream.name)

    def _begin(self, server: Server, *, exists: bool) -> tuple[LogState, Slot]:
        """Return the state of a first read. A slot that exists is moved to the end of the log: what it has
        kept is in the snapshots."""
        if exists:
            advance_slot(self._config, self._slot, server.lsn)
        else:
            create_slot(self._config, self._slot)
        with open_session(self._config, f"the slot {self._slot!r} is looked at") as session:
            slot = find_slot(session, self._slot)
        if slot is None:
            raise TransientError(
                f"the slot {self._slot!r} was dropped when it was to be read",
                guidance="run it again",
            )
        return LogState(self._slot, server.identity, server.timeline), slot

    def _has_all(self, log: LogState) -> bool:
        """Return whether all tables of a state are read: else the others need the log that the slot keeps."""
        return {member.id for member in self._members}.issuperset(log.tables)

    def _list_warnings(self, log: LogState, slot: Slot) -> Iterator[str]:
        names = {member.id for member in self._members}
        absent = sorted(str(name) for name in log.tables if name not in names)
        if absent:
            yield (
                f"the slot keeps the log for streams that are not read now: {', '.join(absent)}. If they are "
                "not to be read any more, add them to `exclude`"
            )
        shortage = slot.describe_shortage(self._slot)
        if shortage is not None:
            yield shortage

    def _read_table(
        self,
        log: LogState,
        member: ConfiguredStream,
        table: TableState,
        *,
        is_made_again: bool = False,
    ) -> Iterator[GroupItem]:
        """Yield the slices of a table's snapshot, and states after which it can go on.

        Args:
            is_made_again: another table had its name when it was read.
        """
        stream = self._streams[member.id]
        with stream.open_holder() as holder:
            read = TableRead(self._config, stream.table, member, holder)
            table = table.add_snapshot(read.snapshot.transactions, read.snapshot.lsn)
            number = table.snapshots[-1].number
            gone = make_truncation_slice(
                table.snapshots[0].number - 1,
                int(read.snapshot.time * 1_000_000),
                member.key_columns,
            )
            if is_made_again:
                warning = "the table was dropped and made again: it is read in full"
                yield StreamPart(member.id, Warn(warning))
                if not member.deduplicates:
                    yield StreamPart(member.id, gone)
            for part in read.slices(None if table.position is None else dict(table.position)):
                if isinstance(part, Checkpoint):
                    assert isinstance(part.state, dict)
                    is_complete = bool(part.state["complete"])
                    if is_complete and member.deduplicates:
                        yield StreamPart(member.id, gone)
                    position = None if is_complete else part.state
                    table = replace(table, position=position, is_complete=is_complete)
                    log.tables[member.id] = table
                    yield GroupCheckpoint(log.to_state())
                elif isinstance(part, Slice):
                    data = {**part.data, "number": number, "time": read.snapshot.time}
                    yield StreamPart(member.id, replace(part, data=data))
                elif isinstance(part, Wait):
                    yield part
                else:
                    yield StreamPart(member.id, part)

    def _read_changes(self, log: LogState, confirmed: int) -> Iterator[GroupItem]:
        """Yield the changes up to the present end of the log, window by window."""
        with open_session(self._config, "the end of the log is looked for") as session:
            end = read_server(session).lsn
        moves = self._is_acknowledged and self._has_all(log)
        step = self._config.window_megabytes << 20 if moves else end
        start = unmoved = confirmed
        while start < end:
            start = min(start + step, end)
            with tempfile.TemporaryDirectory(
                prefix="elt-pg-log-", dir=find_slice_folder()
            ) as folder:
                slices, begin = self._list_changes(log, start, Path(folder))
                if not slices and start - unmoved < QUIET_BYTES:
                    continue
                yield from slices
                for member in self._members:
                    log.tables[member.id] = log.tables[member.id].move(start, begin)
                yield GroupCheckpoint(log.to_state())
                yield Wait()
            if moves:
                advance_slot(self._config, self._slot, start)
                unmoved = start

    def _list_changes(self, log: LogState, end: int, folder: Path) -> tuple[list[StreamPart], str]:
        """Return the changes of the transactions that were committed before a position, as slices whose files
        are in a folder, and the beginning of the last transaction."""
        with open_session(self._config, "values of the log are converted") as session:
            files = ChangeFiles(folder, self._streams, self._members, log, session.rows)
            for batch in peek(self._config, self._slot, self._publication, end):
                files.add(batch)
        return list(files.close()), files.begin
