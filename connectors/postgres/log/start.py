"""The start of a table in a read of the log: its snapshot, if it has none, and what its catalog has
changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from connectors.cdc.fields import make_truncation_slice
from connectors.postgres.config import PostgresConfig
from connectors.postgres.log.forms import TableForm, compare
from connectors.postgres.log.state import LogState, TableState
from connectors.postgres.log.stream import LogStream
from connectors.postgres.log.waits import Writers
from connectors.postgres.reading import TableRead
from connectors.postgres.session import Session
from connectors.postgres.snapshot import Snapshot
from connectors.postgres.sql import quote_name
from connectors.sdk import Checkpoint, Slice, Wait
from connectors.sdk.groups import GroupCheckpoint, GroupItem, StreamPart
from connectors.sdk.items import Warn
from connectors.sdk.slices import Part
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import ConfiguredStream


class TableStart:
    """The items of a table that come before the changes of the log.

    Args:
        form: what the table is now.
        is_new_slot: whether the slot was made by this read, after all open transactions had ended.
    """

    def __init__(
        self,
        config: PostgresConfig,
        stream: LogStream,
        member: ConfiguredStream,
        form: TableForm,
        *,
        is_new_slot: bool,
    ):
        self._config, self._stream, self._member = config, stream, member
        self._form, self._is_new_slot = form, is_new_slot
        self._oid = stream.table.relation.oid
        self._names = [column.name for column in stream.table.choose_columns(member)]

    def items(self, log: LogState, confirmed: int) -> Iterator[GroupItem]:
        """Yield the slices, warnings and states.

        Args:
            log: gets the state of the table.
            confirmed: the position of the slot.

        Raises:
            EltError: the table cannot be read, or changes of it are lost.
        """
        table = log.tables.get(self._member.id)
        if self._form.unlogged:
            yield self._warn(
                f"its partitions {', '.join(self._form.unlogged)} are foreign or unlogged tables: their "
                "changes are in no log, and they are not read"
            )
        if table is None:
            new = TableState(confirmed, oid=self._oid)
            yield from self._read_all(log, self._select(new, None))
        elif not table.is_of(self._oid):
            yield self._warn("the table was dropped and made again: it is read in full")
            new = TableState(table.lsn, begin=table.begin, oid=self._oid)
            yield from self._read_all(log, self._select(new, None), is_made_again=True)
        else:
            before, current = table.form, self._select(table, table.form)
            assert current.form is not None
            if before is not None:
                for text in compare(before, current.form, self._config.publication or ""):
                    yield self._warn(text)
            if not table.is_complete:
                yield from self._read_all(log, current)
                return
            yield from map(self._part, self._stream.table.list_warnings(self._member))
            new_parts = [] if before is None else current.form.list_new_parts(before)
            if new_parts:
                yield from self._read_parts(log, current, new_parts)
                return
            log.tables[self._member.id] = current
            if before is not None and before != current.form:
                yield GroupCheckpoint(log.to_state())

    def _select(self, table: TableState, before: TableForm | None) -> TableState:
        """Return the state of a table with its present form."""
        return replace(table, oid=self._oid, form=self._form.select(self._names, before))

    def _read_all(
        self, log: LogState, table: TableState, *, is_made_again: bool = False
    ) -> Iterator[GroupItem]:
        """Yield the slices of the table's snapshot, and states after which it can go on.

        Args:
            is_made_again: another table had its name when it was read.
        """
        self._require_all_rows()
        if self._form.heirs:
            yield self._warn(
                f"rows of {', '.join(self._form.heirs)}, which inherit from it, are not read with it: the "
                "log has their changes as their own, so publish and read each of these tables"
            )
        older = "" if self._is_new_slot else self._find_writers(table)
        with self._stream.open_holder() as holder:
            read = self._open_read(holder)
            table = table.add_snapshot(read.snapshot.transactions, read.snapshot.lsn)
            gone = make_truncation_slice(
                table.snapshots[0].number - 1,
                int(read.snapshot.time * 1_000_000),
                self._member.key_columns,
            )
            if is_made_again and not self._member.deduplicates:
                yield self._part(gone)
            for part in read.slices(None if table.position is None else dict(table.position)):
                if not isinstance(part, Checkpoint):
                    yield self._number(part, read.snapshot, table)
                    continue
                assert isinstance(part.state, dict)
                is_complete = bool(part.state["complete"])
                if is_complete and older:
                    yield self._warn(
                        "transactions are open that have written to it, perhaps before it was published, "
                        f"and the next sync after their end reads what they have written: {older}"
                    )
                    log.tables[self._member.id] = table
                    yield GroupCheckpoint(log.to_state())
                    continue
                if is_complete and self._member.deduplicates:
                    yield self._part(gone)
                position = None if is_complete else part.state
                table = replace(table, position=position, is_complete=is_complete)
                log.tables[self._member.id] = table
                yield GroupCheckpoint(log.to_state())

    def _find_writers(self, table: TableState) -> str:
        """Return which transactions may have written to the table before it was published, and are open: what
        they have written is not in the log, and not in a snapshot that is taken before their end.

        Raises:
            TransientError: there are some, and the table cannot be read in a later snapshot again.
        """
        oids = {self._oid, *self._form.parts}
        writers = Writers(self._config, oids, self._stream.table.relation.quoted)
        member = self._member
        if member.resumable and member.deduplicates and self._stream.table.key:
            return writers.describe(table.snapshots[0] if table.snapshots else None)
        writers.wait()
        return ""

    def _read_parts(
        self, log: LogState, table: TableState, parts: Sequence[int]
    ) -> Iterator[GroupItem]:
        """Yield the slices of partitions that are new, and a state after them."""
        self._require_all_rows()
        names = ", ".join(self._form.part_names[oid] for oid in parts)
        yield self._warn(f"{names} is new since the last sync, and is read in full")
        with self._stream.open_holder() as holder:
            read = self._open_read(holder)
            table = table.add_snapshot(
                read.snapshot.transactions, read.snapshot.lsn, is_partial=True
            )
            for part in read.list_slices_of(parts):
                yield self._number(part, read.snapshot, table)
            log.tables[self._member.id] = table
            yield GroupCheckpoint(log.to_state())
            yield Wait()

    def _number(self, part: Part, snapshot: Snapshot, table: TableState) -> GroupItem:
        """Return an item of a snapshot for this stream, with the number of its rows."""
        if isinstance(part, Wait):
            return part
        if isinstance(part, Slice):
            data = {**part.data, "number": table.snapshots[-1].number, "time": snapshot.time}
            part = replace(part, data=data)
        assert not isinstance(part, Checkpoint)
        return StreamPart(self._member.id, part)

    def _require_all_rows(self) -> None:
        """Check that a snapshot shows all rows that the log has.

        Raises:
            ConfigError: row security hides some.
        """
        relation = self._stream.table.relation
        if relation.has_row_security:
            raise ConfigError(
                f"row security hides rows of {relation.quoted} from this user, and the log has them: a "
                "snapshot and the log would not be of the same rows",
                guidance=f"as a superuser: ALTER ROLE {quote_name(self._config.user)} BYPASSRLS; or read the "
                "table in full (`sync_mode: full_refresh`)",
            )

    def _open_read(self, holder: Session) -> TableRead:
        """Return the read of the table in the snapshot of a session, without partitions that have no log."""
        left_out = [f"ONLY {name}" for name in self._form.unlogged]
        return TableRead(self._config, self._stream.table, self._member, holder, left_out)

    def _warn(self, text: str) -> StreamPart:
        return self._part(Warn(text))

    def _part(self, item: Slice | Warn) -> StreamPart:
        return StreamPart(self._member.id, item)
