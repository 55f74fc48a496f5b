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
comes after its snapshot, with a number less than those of its rows (`connectors.cdc.read`).

Tests: `tests/connectors/mysql/test_log.py`, `tests/connectors/mysql/test_log_positions.py`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

from connectors.cdc import reader
from connectors.cdc.reader import Json, LogState
from connectors.cdc.texts import RESET_ALL
from connectors.mysql.log.position import Position, parse_position
from connectors.sdk.groups import GroupState
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId

_MARIADB, _MYSQL = "mariadb", "mysql"
DROPPED, RENAMED = "dropped", "renamed"


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


@dataclass(frozen=True)
class TableState(reader.TableState):
    """What is known of one table. Its `progress` is a state of `connectors.mysql.stream`.

    Attributes:
        position: its transactions are in the table.
        number: the last one of `_ab_cdc_cursor`.
        moved: when the position was moved, in microseconds since 1970.
        place: of the end of the last transaction; of the beginning of the log's file, if none was read.
        absence: why there is no table of the name (DROPPED, RENAMED); empty if there is one.
    """

    position: Position
    number: int
    moved: int
    place: Place | None = None
    absence: str = ""

    def to_json(self) -> dict[str, Any]:
        json: dict[str, Any] = {
            "gtids": str(self.position),
            "number": self.number,
            "moved": self.moved,
            "complete": self.is_complete,
        }
        if self.progress is not None:
            json["progress"] = dict(self.progress)
        if self.place is not None:
            json["place"] = asdict(self.place)
        if self.absence:
            json["absence"] = self.absence
        return json


BinlogState = LogState[TableState]
"""A state of the tables of a server."""


def describe_log(*, is_mariadb: bool) -> Json:
    """Return what the states have of a server: its kind. The server itself may be replaced."""
    return {"server": _MARIADB if is_mariadb else _MYSQL}


def compute_digest(events: Iterable[bytes]) -> str:
    """Return a short text that is another one for other events.

    Events end with their CRC, so that the CRC of a whole event is the same for all.
    """
    digest = blake2b(digest_size=8)
    for event in events:
        digest.update(event)
    return digest.hexdigest()


def load_state(
    state_to_load: GroupState, *, is_mariadb: bool, is_configured: Callable[[StreamId], bool]
) -> BinlogState:
    """Return a state, without the tables that the config does not have any more.

    Args:
        is_mariadb: what the server is.

    Raises:
        ConfigError: it is not of this source, or of another kind of server.
    """
    loaded = reader.load_state(state_to_load, _parse_log, _parse_table, is_configured)
    if loaded.shared != describe_log(is_mariadb=is_mariadb):
        raise ConfigError(
            f"the state is of a server of the kind {loaded.shared['server']}, and this one is not",
            guidance=f"if the database has moved, {RESET_ALL}",
        )
    return loaded


def _parse_log(shared: Json) -> Json:
    return describe_log(is_mariadb={_MARIADB: True, _MYSQL: False}[shared["server"]])


def _parse_table(json: Json, shared: Json) -> TableState:
    place = json.get("place")
    return TableState(
        parse_position(json["gtids"], is_mariadb=shared["server"] == _MARIADB),
        int(json["number"]),
        int(json["moved"]),
        None if place is None else Place(**place),
        str(json.get("absence", "")),
        progress=json.get("progress"),
        is_complete=bool(json["complete"]),
    )
