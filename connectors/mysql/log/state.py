"""States of a read of the log: how far each table is.

**Each change once.** The position of a table is the transactions that are in it. Rows and position are one
commit of the table, so the tables may have different positions: the log is read from what they have in
common, and each leaves out what is in its own.

**A snapshot and the log.** A stream that appends is read in one transaction, of whose position its rows are
(MariaDB; MySQL does not tell this position). Any other is read in ranges, by several connections, which have
no snapshot in common. The position of a new table is taken before its rows are read, and has no transaction
that a later query does not show. The ranges are read at different times, so they may show changes that come
after the position. The log repeats these, in their order, and when it has been read up to its end, each row
is what the server has.

**Numbers.** A table keeps the row of a key with the greatest `_ab_cdc_cursor`. Rows of a snapshot have the
time at which the table was begun, in microseconds, and the changes have the numbers after it, one after
another. A read that is repeated from a position gives a change the same number. A table that is read anew has
a later time, which is greater than all numbers before, unless it changed more than a million times a second.

**The same log.** Transactions are named by numbers, which a server that was restored from a backup gives a
second time, and MariaDB's name no server but by a number that people choose. So a position is proven by
events of the log, which have times: the server must have the same at the same place. This is the end of the
last transaction; of a table of which only a snapshot was read, it is how the log's file begins.

**A table that is read in full again**, after a reset, has rows in the lake that may be gone: a truncation
comes after its snapshot, with a number less than those of its rows (`connectors.cdc.fields`).

Tests: `tests/connectors/mysql/test_log.py`, `tests/connectors/mysql/test_log_positions.py`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import Any

from connectors.mysql.log.position import Gtid, Position, find_common, parse_position
from connectors.sdk.groups import GroupState
from elt_assets.errors import ConfigError
from elt_assets.protocol.airbyte.catalog import StreamId

_FORM = 1
_MARIADB, _MYSQL = "mariadb", "mysql"
DROPPED, RENAMED = "dropped", "renamed"
RESET = "reset the streams of the connection (`elt reset`), so that they are read in full"


@dataclass(frozen=True)
class Place:
    """Events of a server's log, by which a later sync knows that the log is the same.

    `server`: its identity. `offset`, `end`: where the events begin in the file, and where the last one ends
    or a place in it; 0 for one event. `digest`: of them. `size`: that the file had at least, in bytes.
    """

    server: str
    file: str
    offset: int
    digest: str
    end: int = 0
    size: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class TableState:
    """What is known of one table.

    Attributes:
        position: its transactions are in the table.
        number: the last one of `_ab_cdc_cursor`.
        moved: when the position was moved, in microseconds since 1970.
        progress: the state of its snapshot, if it is not complete.
        place: of the end of the last transaction; of the beginning of the log's file, if none was read.
        absence: why there is no table of the name (DROPPED, RENAMED); empty if there is one.
    """

    position: Position
    number: int
    moved: int
    progress: Mapping[str, Any] | None = None
    is_complete: bool = False
    place: Place | None = None
    absence: str = ""

    def to_json(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "gtids": str(self.position),
            "number": self.number,
            "moved": self.moved,
            "complete": self.is_complete,
        }
        if self.progress is not None:
            state["progress"] = dict(self.progress)
        if self.place is not None:
            state["place"] = self.place.to_json()
        if self.absence:
            state["absence"] = self.absence
        return state

    def move(
        self, position: Position, number: int, moved: int, place: Place | None, absence: str
    ) -> TableState:
        """Return the state with the transactions of a position as well."""
        return replace(
            self,
            position=self.position.union(position),
            number=number,
            moved=moved,
            place=place or self.place,
            absence=absence,
        )


@dataclass
class LogState:
    """A state of the group of tables."""

    is_mariadb: bool
    tables: dict[StreamId, TableState] = field(default_factory=dict)

    @property
    def position(self) -> Position:
        """The transactions that all tables have."""
        return find_common([table.position for table in self.tables.values()])

    def lacks(self, stream: StreamId, gtid: Gtid) -> bool:
        """Return whether a table does not have a transaction yet."""
        return gtid not in self.tables[stream].position

    def to_state(self) -> GroupState:
        """Return the state as the SDK sends it."""
        shared = {"form": _FORM, "server": _MARIADB if self.is_mariadb else _MYSQL}
        tables = {name: table.to_json() for name, table in self.tables.items()}
        return GroupState(shared, tables, is_independent=True)


def compute_digest(events: Iterable[bytes]) -> str:
    """Return a short text that is another one for other events.

    Events end with their CRC, so that the CRC of a whole event is the same for all.
    """
    digest = blake2b(digest_size=8)
    for event in events:
        digest.update(event)
    return digest.hexdigest()


def load_state(state: GroupState, *, is_mariadb: bool) -> LogState:
    """Return a state.

    Args:
        is_mariadb: what the server is.

    Raises:
        ConfigError: it is not of this source, or of another kind of server.
    """
    shared = state.shared
    try:
        is_known, kind = shared["form"] == _FORM, shared["server"]
        was_mariadb = {_MARIADB: True, _MYSQL: False}[kind]
        tables = {
            name: _parse_table(part, is_mariadb=was_mariadb) for name, part in state.streams.items()
        }
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
    if was_mariadb != is_mariadb:
        raise ConfigError(
            f"the state is of a server of the kind {kind}, and this one is not",
            guidance=f"if the database has moved, {RESET}",
        )
    return LogState(is_mariadb, tables)


def _parse_table(state: Mapping[str, Any], *, is_mariadb: bool) -> TableState:
    place = state.get("place")
    return TableState(
        parse_position(state["gtids"], is_mariadb=is_mariadb),
        int(state["number"]),
        int(state["moved"]),
        state.get("progress"),
        bool(state["complete"]),
        None if place is None else Place(**place),
        str(state.get("absence", "")),
    )
