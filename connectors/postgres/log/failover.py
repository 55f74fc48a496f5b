"""A standby that was promoted, and whose slot goes on where that of the former primary was.

From version 17 on a standby synchronizes slots that are made for it (`failover_slot`). After its promotion
the log goes on from a place, the fork, before which it is the same. What the former primary wrote after the
fork is lost, and the new primary writes other transactions there. So a state may go on only if all that it
has is before the fork. The server does not tell the fork; what is known is:

1. **The server is the same cluster**: its system identifier is that of the state.
2. **The position of the slot is before the fork**: a standby synchronizes a slot only to a position up to
   which it has the log. That the slot was synchronized, and not made again by somebody, is a column of it
   (`synced`), which stays when the standby is promoted.
3. **The last transaction of each table** is before that position, or the slot gives it: the same position,
   time and number in its Begin message. Else the table has what the new primary lacks.
4. **A snapshot** of which the state still tells is before that position, or the table is read in full again:
   the new primary may give the numbers of transactions that it shows to others.

A table that fulfils this has nothing from after its last transaction, though its position may be later: it
goes on after that transaction, or at the position of the slot. The changes from there up to the former
position get numbers that are greater than that position, as rows of the table may have numbers up to it.

Everything else is an error, of the table or of all: `tests/connectors/postgres/test_failover.py`
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from connectors.cdc.texts import RESET
from connectors.postgres.log.slot import Server, Slot, format_lsn
from connectors.postgres.log.snapshots import TableSnapshot
from connectors.postgres.log.state import SlotState, TableState, find_timeline
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId


def read_commit(begin: str) -> int:
    """Return the position of the commit of a Begin message in hexadecimal digits."""
    return int(begin[2:18], 16)


def has_failed_over(log: SlotState, server: Server, slot: Slot) -> bool:
    """Return whether a server is a standby of that of a state, which was promoted with the slot."""
    identity = log.shared.get("system", "")
    is_same = bool(identity) and identity == server.identity
    return is_same and slot.is_synced and bool(_list_earlier(log, server))


def _list_earlier(log: SlotState, server: Server) -> list[StreamId]:
    """Return the tables whose states are of an earlier timeline than that of the server."""
    tables = log.tables.items()
    return [name for name, table in tables if find_timeline(log, table) < server.timeline]


def follow(
    log: SlotState, server: Server, slot: Slot, begins: Collection[str]
) -> dict[StreamId, ConfigError]:
    """Let a state go on at a new primary; return the error of each table that cannot, which is removed.

    Args:
        begins: the Begin messages of tables that the slot gives.
    """
    lost: dict[StreamId, ConfigError] = {}
    for name in _list_earlier(log, server):
        table = log.tables[name]
        problem = _find_problem(table, slot, begins)
        if problem:
            del log.tables[name]
            lost[name] = ConfigError(
                f"the server was failed over, and {name} {problem}",
                guidance=f"changes may be lost, or the lake have what the new primary lacks: {RESET}",
            )
        else:
            log.tables[name] = replace(_move_back(table, slot), timeline=server.timeline)
    return lost


def _find_problem(table: TableState, slot: Slot, begins: Collection[str]) -> str:
    """Return why a table cannot go on, as the end of a sentence; empty if it can."""
    if table.begin and read_commit(table.begin) >= slot.confirmed and table.begin not in begins:
        lsn = format_lsn(read_commit(table.begin))
        return f"has the transaction at {lsn}, which the new primary does not have"
    if any(snapshot.number >= slot.confirmed for snapshot in table.snapshots):
        return "was read in a snapshot that the new primary may not know"
    return ""


def _move_back(table: TableState, slot: Slot) -> TableState:
    """Return a table at the first position after what it has."""
    lsn = slot.confirmed
    if table.begin and read_commit(table.begin) >= lsn:
        lsn = read_commit(table.begin) + 1
    if lsn >= table.lsn:
        return table
    former = TableSnapshot(0, 0, frozenset(), table.lsn, is_partial=True, replayed=lsn)
    return replace(table, lsn=lsn, snapshots=(*table.snapshots, former))
