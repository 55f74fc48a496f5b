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
snapshot, with a number less than those of its rows (`connectors.cdc.read`).

Tests: `tests/connectors/postgres/test_log_state.py`, `tests/connectors/postgres/test_log.py`,
`tests/connectors/postgres/test_log_servers.py`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from connectors.cdc import reader
from connectors.cdc.reader import Json, LogState
from connectors.cdc.texts import RESET, RESET_ALL
from connectors.postgres.log.forms import TableForm
from connectors.postgres.log.slot import Server, format_lsn, parse_lsn
from connectors.postgres.log.snapshots import TableSnapshot
from connectors.sdk.groups import GroupState
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId


@dataclass(frozen=True)
class TableState(reader.TableState):
    """What is known of one table. Its `progress` is a position of `connectors.postgres.position`.

    Attributes:
        lsn: its transactions before this position of the log are in it.
        snapshots: those in which it was read, the oldest first, as long as the log may have transactions that
            they show.
        begin: the Begin message of the last transaction before the position, as hexadecimal digits: its
            position, time and number. Empty if none was read.
        oid: tells a table that was made again; 0 in states of former releases.
        form: of the table before the log was read up to the position; None in states of former releases.
        timeline: that of the log up to the position; 0 for the one that all tables of the state had first.
    """

    lsn: int
    snapshots: tuple[TableSnapshot, ...] = ()
    begin: str = ""
    oid: int = 0
    form: TableForm | None = None
    timeline: int = 0

    def to_json(self) -> dict[str, Any]:
        json: dict[str, Any] = {"lsn": format_lsn(self.lsn), "complete": self.is_complete}
        if self.progress is not None:
            json["position"] = dict(self.progress)
        if self.begin:
            json["begin"] = self.begin
        if self.oid:
            json["oid"] = self.oid
        if self.timeline:
            json["timeline"] = self.timeline
        if self.form is not None:
            json["form"] = self.form.to_json()
        if self.snapshots:
            json["snapshots"] = [snapshot.to_json() for snapshot in self.snapshots]
        return json

    @classmethod
    def parse(cls, json: Json) -> TableState:
        snapshots = [
            TableSnapshot.parse(
                part["transactions"],
                int(part["number"]),
                is_partial=bool(part.get("partial")),
                replayed=int(part.get("replayed", 0)),
            )
            for part in json.get("snapshots", ())
        ]
        return cls(
            parse_lsn(json["lsn"]),
            tuple(snapshots),
            str(json.get("begin", "")),
            int(json.get("oid", 0)),
            TableForm.parse(json["form"]) if "form" in json else None,
            int(json.get("timeline", 0)),
            progress=json.get("position"),
            is_complete=bool(json["complete"]),
        )

    def add_snapshot(
        self, transactions: str, lsn: int, *, is_partial: bool = False, replayed: int = 0
    ) -> TableState:
        """Return the state with a snapshot in which the table is read now.

        Args:
            lsn: the log's end after it was taken; of a standby, before.
            is_partial: whether only new partitions are read.
            replayed: see `TableSnapshot`.
        """
        if self.snapshots:
            lsn = max(lsn, self.snapshots[-1].number + 2)
        added = TableSnapshot.parse(transactions, lsn, is_partial=is_partial, replayed=replayed)
        return replace(self, snapshots=(*self.snapshots, added))

    def is_of(self, oid: int) -> bool:
        """Return whether the state is of a table, and not of one that had its name before."""
        return self.oid in (0, oid)

    def forget_files(self) -> TableState:
        """Return the state of a table that was truncated."""
        return self if self.form is None else replace(self, form=self.form.forget_files())

    def move(self, lsn: int, begin: str) -> TableState:
        """Return the state at a position of the log.

        The transactions after it have ended after the snapshots whose number is not greater: these are of no
        use any more.

        Args:
            begin: of the last transaction before it; empty for the one that the state has.
        """
        begin = begin or self.begin
        if self.is_complete and all(snapshot.number <= lsn for snapshot in self.snapshots):
            return replace(self, lsn=lsn, begin=begin, progress=None, snapshots=())
        return replace(self, lsn=lsn, begin=begin)


SlotState = LogState[TableState]
"""A state of the tables of a slot."""


def describe_log(slot: str, server: Server) -> Json:
    """Return what the states have of the log that a slot keeps."""
    log: Json = {"slot": slot, "timeline": server.timeline}
    return {**log, "system": server.identity} if server.identity else log


def _parse_log(shared: Json) -> Json:
    return describe_log(
        str(shared["slot"]), Server(0, int(shared["timeline"]), str(shared.get("system", "")))
    )


def find_timeline(log: SlotState, table: TableState) -> int:
    """Return the timeline of the log up to the position of a table."""
    return table.timeline or int(log.shared["timeline"])


def load_state(
    state_to_load: GroupState, slot: str, is_configured: Callable[[StreamId], bool]
) -> SlotState:
    """Return a state, without the tables that the config does not have any more.

    Raises:
        ConfigError: it is not of this source, or of another slot.
    """
    loaded = reader.load_state(
        state_to_load, _parse_log, lambda table, _: TableState.parse(table), is_configured
    )
    if loaded.shared["slot"] != slot:
        raise ConfigError(
            f"the state is of the slot {loaded.shared['slot']!r}, and the config has {slot!r}",
            guidance=f"correct `slot`, or {RESET_ALL}",
        )
    return loaded


def require_same_log(log: SlotState, server: Server) -> None:
    """Check that the log of a server goes on from a state.

    Raises:
        ConfigError: changes are lost, or may be.
    """
    identity = log.shared.get("system", "")
    if identity and server.identity and identity != server.identity:
        raise ConfigError(
            f"the state is of the server {identity}, and this one is {server.identity}",
            guidance=f"if the database has moved, {RESET_ALL}",
        )
    latest = max((table.lsn for table in log.tables.values()), default=0)
    timelines = {find_timeline(log, table) for table in log.tables.values()}
    if timelines - {server.timeline} or server.lsn < latest:
        timeline = ", ".join(map(str, sorted(timelines)))
        raise ConfigError(
            f"the log of the server is another one: it is at {format_lsn(server.lsn)} of the timeline "
            f"{server.timeline}, and the state at {format_lsn(latest)} of {timeline}; the server "
            "was restored from a backup, or failed over to a standby that had not synchronized the slot",
            guidance=f"changes may be lost: {RESET_ALL}",
        )


def drop_behind(log: SlotState, confirmed: int) -> dict[StreamId, ConfigError]:
    """Remove the tables whose changes the slot does not have any more; return the error of each.

    Args:
        confirmed: the position of the slot.
    """
    behind = [name for name, table in log.tables.items() if table.lsn < confirmed]
    for name in behind:
        del log.tables[name]
    return {
        name: ConfigError(
            f"the slot {log.shared['slot']!r} is at {format_lsn(confirmed)}, after {name}: something else "
            "reads the slot, or the state is an old one; the changes between are lost",
            guidance=f"let each connection have a `slot` of its own, and {RESET}",
        )
        for name in behind
    }
