"""One read of the log: the snapshots of tables that have none, then the changes up to the present end.

The changes are read in windows. Those of a window are written as Arrow files, one for each table and form,
which are the slices of its streams. When they are committed, with the position of the window's end, the slot
is moved there. A read that is interrupted leaves the slot where it was, and its files are removed.

A table that cannot be read is left out, and the others go on. It keeps its state, and the slot keeps the log
for it, until it is read again, reset, or excluded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from connectors.postgres.check import read_version
from connectors.postgres.config import PostgresConfig
from connectors.postgres.log.changes import ChangeFiles
from connectors.postgres.log.check import check_publication
from connectors.postgres.log.forms import TableForm, describe_rewritten, read_forms
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
from connectors.postgres.log.start import TableStart
from connectors.postgres.log.state import RESET, LogState, load_state
from connectors.postgres.log.stream import LogStream
from connectors.postgres.session import Answers, open_session
from connectors.sdk import Wait
from connectors.sdk.groups import (
    GroupCheckpoint,
    GroupItem,
    GroupState,
    StreamFailure,
    StreamPart,
)
from connectors.sdk.items import Warn
from connectors.sdk.slice_files import find_slice_folder
from elt_assets.errors import ConfigError, EltError, TransientError
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
        self._config, self._streams, self._members = config, streams, list(members)
        self._is_acknowledged = is_acknowledged
        self._is_new_slot = self._keeps_slot = False
        self._behind: Mapping[StreamId, ConfigError] = {}
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
        forms = self._read_forms()
        rewritten: dict[StreamId, list[str]] = {}
        for member in list(self._members):
            stream = self._streams[member.id]
            form = forms[stream.table.relation.oid]
            table = log.tables.get(member.id)
            if table is not None and table.is_complete and table.form is not None:
                rewritten[member.id] = form.list_rewritten(table.form)
            read = TableStart(self._config, stream, member, form, is_new_slot=self._is_new_slot)
            try:
                if member.id in self._behind:
                    raise self._behind[member.id]
                yield from read.items(log, slot.confirmed)
            except EltError as error:
                yield self._fail(member.id, error)
        # One that is not complete, for the transactions of others, gets its changes after its next snapshot.
        self._members = [member for member in self._members if log.tables[member.id].is_complete]
        if self._members:
            truncated: set[StreamId] = set()
            yield from self._read_changes(log, slot.confirmed, truncated)
            for member in self._members:
                if rewritten.get(member.id) and member.id not in truncated:
                    yield StreamPart(member.id, Warn(describe_rewritten(rewritten[member.id])))
                    form = forms[self._streams[member.id].table.relation.oid]
                    log.tables[member.id] = log.tables[member.id].take_files(form)
                    yield GroupCheckpoint(log.to_state())

    def _fail(self, stream: StreamId, error: EltError) -> StreamFailure:
        """Go on without a stream. Its state stays as it is, so the slot is not moved any more."""
        self._members = [member for member in self._members if member.id != stream]
        return StreamFailure(stream, error)

    def _read_forms(self) -> dict[int, TableForm]:
        """Return what the tables are now, before the end of the log is looked for."""
        relations = [self._streams[member.id].table.relation for member in self._members]
        with open_session(self._config, "the form of the tables is looked at") as session:
            check_publication(session, self._config, relations)
            return read_forms(session, relations, self._publication, read_version(session))

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
        log.check(server)
        self._behind = log.drop_behind(slot.confirmed)
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
        """Return the state of a first read. A slot that exists stays where it is: it may keep changes for
        streams that are not read now, and of which no state tells."""
        if exists:
            self._keeps_slot = True
        else:
            create_slot(self._config, self._slot)
            self._is_new_slot = True
        with open_session(self._config, f"the slot {self._slot!r} is looked at") as session:
            slot = find_slot(session, self._slot)
        if slot is None:
            raise TransientError(
                f"the slot {self._slot!r} was dropped when it was to be read",
                guidance="run it again",
            )
        return LogState(self._slot, server.identity, server.timeline), slot

    def _has_all(self, log: LogState) -> bool:
        """Return whether all tables of the slot are read: else the others need the log that it keeps."""
        is_whole = {member.id for member in self._members}.issuperset(log.tables)
        return is_whole and not self._keeps_slot

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

    def _read_changes(
        self, log: LogState, confirmed: int, truncated: set[StreamId]
    ) -> Iterator[GroupItem]:
        """Yield the changes up to the present end of the log, window by window.

        Args:
            truncated: gets the streams that were.
        """
        with open_session(self._config, "the end of the log is looked for") as session:
            end = read_server(session).lsn
        start = confirmed
        while start < end and self._members:
            moves = self._is_acknowledged and self._has_all(log)
            start = min(start + (self._config.window_megabytes << 20), end) if moves else end
            with tempfile.TemporaryDirectory(
                prefix="elt-pg-log-", dir=find_slice_folder()
            ) as folder:
                files = self._write_changes(log, start, Path(folder))
                for stream, error in files.failures.items():
                    yield self._fail(stream, error)
                truncated |= files.truncated
                slices = list(files.close())
                places = [log.tables[member.id].lsn for member in self._members]
                stored = min(places, default=start)
                if not slices and not files.failures and start - stored < QUIET_BYTES:
                    continue
                yield from slices
                for member in self._members:
                    log.tables[member.id] = log.tables[member.id].move(start, files.begin)
                for stream in files.truncated - files.failures.keys():
                    log.tables[stream] = log.tables[stream].forget_files()
                yield GroupCheckpoint(log.to_state())
                yield Wait()
            if moves and self._has_all(log):
                advance_slot(self._config, self._slot, start)

    def _write_changes(self, log: LogState, end: int, folder: Path) -> ChangeFiles:
        """Return the changes of the transactions that were committed before a position, in a folder."""
        with Answers(self._config, "values of the log are converted") as answers:
            files = ChangeFiles(folder, self._streams, self._members, log, answers.rows)
            for batch in peek(self._config, self._slot, self._publication, end):
                files.add(batch)
        return files
