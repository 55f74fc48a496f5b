"""States of a read of the log: how far each table is, and what the snapshot of each has shown.

**Each change once.** The position of a table is the end of the log up to which its transactions are in it. A
transaction counts by the beginning of its commit record, as for the server's slot, so none is between two
reads. Rows and position are one commit of the table, so the tables may have different positions: each leaves
out what is before its own. The slot is moved to the least of them, when all are committed. It is created
before a table's snapshot, so a transaction that the snapshot does not show comes from the slot. One that it
shows comes too if it ended after the slot's position: it is left out by its number, which the snapshot tells
exactly. Positions would not do: a transaction is visible a moment after its commit record is written.

**The same log.** A server that was restored from a backup may write other transactions where the state has
been. Its slot is then before the position of the state, as it is after a kill between a commit and the move
of the slot: the last transaction of the state must be there (`connectors.postgres.log.read`).

**A snapshot that was interrupted** goes on in a later one, S2, and what changed since the first, S1, is read
again (see `connectors.postgres.position`). Only deletes are missing there: so transactions that S1 does not
show are kept. A row that S2 has shown must not go back to an older version: each row has a number in the
column `_ab_cdc_lsn`, and the table keeps the row with the greatest. Rows of a snapshot have a number that is
not less than those of all transactions that it shows; a transaction that it does not show gets a greater one
(`connectors.postgres.log.snapshots`).

**A partition that is new** may have come with rows, which are not in the log: it is read in a snapshot of its
own, S3 (`connectors.postgres.log.forms`). Its rows have the number of S3; what S3 does not show gets a
greater one, as above. A partition that was made empty has its rows in the log, too: they come twice, and the
table that deduplicates has each once.

**A table that is read in full again**, after a reset, or because another one has its name now (the log does
not tell: it is known by its number, OID), has rows in the lake that may be gone: a truncation comes after its
snapshot, with a number less than those of its rows (`connectors.cdc.fields`).

Tests: `tests/connectors/postgres/test_log_state.py`, `tests/connectors/postgres/test_log.py`,
`tests/connectors/postgres/test_log_servers.py`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from connectors.postgres.log.forms import TableForm
from connectors.postgres.log.lsn import format_lsn, parse_lsn
from connectors.postgres.log.slot import Server
from connectors.postgres.log.snapshots import TableSnapshot
from connectors.sdk.groups import GroupState
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import StreamId

_FORM = 1
RESET = "reset the streams of the connection (`elt reset`), so that they are read in full"


@dataclass(frozen=True)
class TableState:
    """What is known of one table.

    Attributes:
        lsn: its transactions before this position of the log are in it.
        position: the state of its snapshot, if it is not complete: see `connectors.postgres.position`.
        snapshots: those in which it was read, the oldest first, as long as the log may have transactions that
            they show.
        begin: the Begin message of the last transaction before the position, as hexadecimal digits: its
            position, time and number. Empty if none was read.
        oid: tells a table that was made again; 0 in states of former releases.
        form: of the table before the log was read up to the position; None in states of former releases.
    """

    lsn: int
    position: Mapping[str, Any] | None = None
    snapshots: tuple[TableSnapshot, ...] = ()
    is_complete: bool = False
    begin: str = ""
    oid: int = 0
    form: TableForm | None = None

    def to_json(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "lsn": format_lsn(self.lsn),
            "complete": self.is_complete,
        }
        if self.position is not None:
            state["position"] = dict(self.position)
        if self.begin:
            state["begin"] = self.begin
        if self.oid:
            state["oid"] = self.oid
        if self.form is not None:
            state["form"] = self.form.to_json()
        if self.snapshots:
            state["snapshots"] = [snapshot.to_json() for snapshot in self.snapshots]
        return state

    @classmethod
    def parse(cls, state: Mapping[str, Any]) -> TableState:
        snapshots = [
            TableSnapshot.parse(
                part["transactions"], int(part["number"]), is_partial=bool(part.get("partial"))
            )
            for part in state.get("snapshots", ())
        ]
        lsn = parse_lsn(state["lsn"])
        is_complete, begin = bool(state["complete"]), str(state.get("begin", ""))
        oid = int(state.get("oid", 0))
        form = TableForm.parse(state["form"]) if "form" in state else None
        return cls(lsn, state.get("position"), tuple(snapshots), is_complete, begin, oid, form)

    def add_snapshot(self, transactions: str, lsn: int, *, is_partial: bool = False) -> TableState:
        """Return the state with a snapshot in which the table is read now. `lsn`: the log's end after it was
        taken. `is_partial`: only new partitions are read."""
        if self.snapshots:
            lsn = max(lsn, self.snapshots[-1].number + 2)
        added = TableSnapshot.parse(transactions, lsn, is_partial=is_partial)
        return replace(self, snapshots=(*self.snapshots, added))

    def is_of(self, oid: int) -> bool:
        """Return whether the state is of a table, and not of one that had its name before."""
        return self.oid in (0, oid)

    def forget_files(self) -> TableState:
        """Return the state of a table that was truncated."""
        return self if self.form is None else replace(self, form=self.form.forget_files())

    def take_files(self, form: TableForm) -> TableState:
        """Return the state with the files of a form, when it was told that they are others."""
        return (
            self if self.form is None else replace(self, form=replace(self.form, parts=form.parts))
        )

    def move(self, lsn: int, begin: str) -> TableState:
        """Return the state at a position of the log.

        The transactions after it have ended after the snapshots whose number is not greater: these are of no
        use any more.

        Args:
            begin: of the last transaction before it; empty for the one that the state has.
        """
        begin = begin or self.begin
        if self.is_complete and all(snapshot.number <= lsn for snapshot in self.snapshots):
            return replace(self, lsn=lsn, begin=begin, position=None, snapshots=())
        return replace(self, lsn=lsn, begin=begin)


@dataclass
class LogState:
    """A state of the group of tables: which log it is, and how far each table is."""

    slot: str
    identity: str
    timeline: int
    tables: dict[StreamId, TableState] = field(default_factory=dict)

    @property
    def lsn(self) -> int | None:
        """The position before which no table needs the log; None if there is no table."""
        return min((table.lsn for table in self.tables.values()), default=None)

    def to_state(self) -> GroupState:
        """Return the state as the SDK sends it."""
        shared = {"form": _FORM, "slot": self.slot, "timeline": self.timeline}
        if self.identity:
            shared["system"] = self.identity
        tables = {name: table.to_json() for name, table in self.tables.items()}
        return GroupState(shared, tables, is_independent=True)

    def check(self, server: Server) -> None:
        """Check that the log goes on from this state.

        Raises:
            ConfigError: changes are lost, or may be.
        """
        if self.identity and server.identity and self.identity != server.identity:
            raise ConfigError(
                f"the state is of the server {self.identity}, and this one is {server.identity}",
                guidance=f"if the database has moved, {RESET}",
            )
        latest = max((table.lsn for table in self.tables.values()), default=0)
        if self.timeline != server.timeline or server.lsn < latest:
            raise ConfigError(
                f"the log of the server is another one: it is at {format_lsn(server.lsn)} of the timeline "
                f"{server.timeline}, and the state at {format_lsn(latest)} of {self.timeline}; the server "
                "was restored from a backup, or failed over",
                guidance=f"changes may be lost: {RESET}",
            )

    def drop_behind(self, confirmed: int) -> dict[StreamId, ConfigError]:
        """Remove the tables whose changes the slot does not have any more; return the error of each.

        Args:
            confirmed: the position of the slot.
        """
        behind = [name for name, table in self.tables.items() if table.lsn < confirmed]
        for name in behind:
            del self.tables[name]
        return {
            name: ConfigError(
                f"the slot {self.slot!r} is at {format_lsn(confirmed)}, after {name}: something else reads "
                "the slot, or the state is an old one; the changes between are lost",
                guidance="let each connection have a `slot` of its own, and reset the stream "
                "(`elt reset`), so that it is read in full",
            )
            for name in behind
        }


def load_state(state: GroupState, slot: str) -> LogState:
    """Return a state.

    Raises:
        ConfigError: it is not of this source, or of another slot.
    """
    shared = state.shared
    try:
        is_known = shared["form"] == _FORM
        tables = {name: TableState.parse(part) for name, part in state.streams.items()}
        identity, timeline = str(shared.get("system", "")), int(shared["timeline"])
        loaded = LogState(str(shared["slot"]), identity, timeline, tables)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            "the state is not one of `incremental: log`",
            guidance=f"after a change of `incremental`, {RESET}",
        ) from None
    if not is_known:
        raise ConfigError(
            "the state is of a newer version of this source",
            guidance=f"install that version, or {RESET}",
        )
    if loaded.slot != slot:
        raise ConfigError(
            f"the state is of the slot {loaded.slot!r}, and the config has {slot!r}",
            guidance=f"correct `slot`, or {RESET}",
        )
    return loaded
