"""The start of a table in a read of the log: its snapshot, if it has none, and what its catalog has
changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from connectors.cdc.reader import Snapshot
from connectors.postgres import snapshot as snapshots
from connectors.postgres.config import PostgresConfig
from connectors.postgres.dialect import quote_name
from connectors.postgres.log.forms import CatalogTable, TableForm, compare
from connectors.postgres.log.state import TableState
from connectors.postgres.log.waits import Writers
from connectors.postgres.reading import TableRead, can_resume
from connectors.postgres.session import Session
from connectors.postgres.stream import LogStream
from connectors.sdk.items import Warn
from connectors.sdk.slices import Part
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import ConfiguredStream

_UNFINISHED = (
    "transactions are open that have written to it, perhaps before it was published, and the next sync after "
    "their end reads what they have written: {}"
)


class TableStart:
    """What is read of a table before the changes of the log.

    Args:
        present: what the table is now.
        is_new_slot: whether the slot was made by this read, after all open transactions had ended.
        timeline: that of the state of a new table.
    """

    def __init__(
        self,
        config: PostgresConfig,
        stream: LogStream,
        member: ConfiguredStream,
        present: CatalogTable,
        *,
        is_new_slot: bool,
        timeline: int = 0,
    ):
        self._timeline = timeline
        self._config, self._stream, self._member = config, stream, member
        self._present, self._is_new_slot = present, is_new_slot
        self._oid = stream.table.relation.oid
        self._names = [column.name for column in stream.table.choose_columns(member)]

    def items(
        self, table: TableState | None, confirmed: int
    ) -> Iterator[Warn | Snapshot[TableState] | TableState]:
        """Yield the warnings, and a snapshot or the state of the table.

        Args:
            table: its last state.
            confirmed: the position of the slot.

        Raises:
            EltError: the table cannot be read, or changes of it are lost.
        """
        if self._present.unlogged:
            yield Warn(
                f"its partitions {', '.join(self._present.unlogged)} are foreign or unlogged tables: their "
                "changes are in no log, and they are not read"
            )
        if table is None:
            new = TableState(confirmed, oid=self._oid, timeline=self._timeline)
            yield from self._read_all(self._select(new, None))
        elif not table.is_of(self._oid):
            yield Warn("the table was dropped and made again: it is read in full")
            new = replace(
                TableState(table.lsn, begin=table.begin, oid=self._oid), timeline=table.timeline
            )
            yield from self._read_all(self._select(new, None), is_of_another=True)
        else:
            yield from self._go_on(table)

    def _go_on(self, table: TableState) -> Iterator[Warn | Snapshot[TableState] | TableState]:
        """Yield what has changed of a table since its last state, and what is left to read."""
        before, current = table.form, self._select(table, table.form)
        assert current.form is not None
        if before is not None:
            yield from map(Warn, compare(before, current.form, self._config.publication or ""))
        if not table.is_complete:
            yield from self._read_all(current)
            return
        yield from self._stream.table.list_warnings(self._member)
        new_parts = [] if before is None else current.form.list_new_parts(before)
        if new_parts:
            yield from self._read_parts(current, new_parts)
        else:
            yield current

    def _select(self, table: TableState, before: TableForm | None) -> TableState:
        """Return the state of a table with its present form."""
        return replace(table, oid=self._oid, form=self._present.select(self._names, before))

    def _read_all(
        self, table: TableState, *, is_of_another: bool = False
    ) -> Iterator[Warn | Snapshot[TableState]]:
        """Yield the snapshot of a table, or of what is left of it."""
        self._stream.require_hours()
        self._require_all_rows()
        if self._present.heirs:
            yield Warn(
                f"rows of {', '.join(self._present.heirs)}, which inherit from it, are not read with it: the "
                "log has their changes as their own, so publish and read each of these tables"
            )
        writers = "" if self._is_new_slot else self._find_writers(table)
        with self._open_holder() as holder:
            read = self._open_read(holder)
            table = self._add_snapshot(table, read.snapshot)
            parts = read.read_all(None if table.progress is None else dict(table.progress))
            snapshot = self._make_snapshot(read, table, parts)
            unfinished = _UNFINISHED.format(writers) if writers else ""
            yield replace(snapshot, is_of_another=is_of_another, unfinished=unfinished)

    @staticmethod
    def _add_snapshot(
        table: TableState, snapshot: snapshots.Snapshot, *, is_partial: bool = False
    ) -> TableState:
        return table.add_snapshot(
            snapshot.transactions, snapshot.lsn, is_partial=is_partial, replayed=snapshot.replayed
        )

    @staticmethod
    def _make_snapshot(
        read: TableRead, table: TableState, parts: Iterator[Part]
    ) -> Snapshot[TableState]:
        numbers = [snapshot.number for snapshot in table.snapshots]
        time = int(read.snapshot.time * 1_000_000)
        return Snapshot(table, numbers[-1], time, parts, numbers[0], is_held=True)

    def _find_writers(self, table: TableState) -> str:
        """Return which transactions may have written to the table before it was published, and are open: what
        they have written is not in the log, and not in a snapshot that is taken before their end.

        Raises:
            TransientError: there are some, and the table cannot be read in a later snapshot again.
        """
        oids = {self._oid, *self._present.parts}
        writers = Writers(self._config, oids, self._stream.table.relation.quoted)
        if can_resume(self._stream.table, self._member):
            return writers.describe(table.snapshots[0] if table.snapshots else None)
        writers.wait()
        return ""

    def _read_parts(
        self, table: TableState, parts: Sequence[int]
    ) -> Iterator[Warn | Snapshot[TableState]]:
        """Yield the snapshot of partitions that are new."""
        self._stream.require_hours()
        self._require_all_rows()
        names = ", ".join(self._present.part_names[oid] for oid in parts)
        yield Warn(f"{names} is new since the last sync, and is read in full")
        with self._open_holder() as holder:
            read = self._open_read(holder)
            table = self._add_snapshot(table, read.snapshot, is_partial=True)
            yield self._make_snapshot(read, table, read.list_slices_of(parts))

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

    def _open_holder(self) -> AbstractContextManager[Session]:
        """Open the session of a snapshot. That of a replica may show changes that come again."""
        return self._stream.open_holder(may_be_replica=self._member.deduplicates)

    def _open_read(self, holder: Session) -> TableRead:
        """Return the read of the table in the snapshot of a session, without partitions that have no log."""
        left_out = [f"ONLY {name}" for name in self._present.unlogged]
        return TableRead(self._config, self._stream.table, self._member, holder, left_out)
