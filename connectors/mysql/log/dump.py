"""Asks the server for its log: its position, whether it was replaced, and its events, as a replica does. The
reader (`read`, `windows`) and the check of the config use it.

Spec: MySQL, COM_BINLOG_DUMP_GTID; MariaDB, COM_BINLOG_DUMP with @slave_connect_state.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from connectors.mysql.config import MySqlConfig
from connectors.mysql.dialect import quote_text
from connectors.mysql.errors import MissingLog
from connectors.mysql.log.position import MySqlPosition, Position, parse_position
from connectors.mysql.log.state import Place, compute_digest
from connectors.mysql.session import Session, open_session

_DUMP, _DUMP_GTID = 0x12, 0x1E
ROTATE, FORMAT = 4, 15
"""Events with which a log begins."""
_ABILITIES = (
    "SET @master_binlog_checksum = @@global.binlog_checksum, "
    "@source_binlog_checksum = @@global.binlog_checksum, @mariadb_slave_capability = 4"
)
"""Tells the server that this replica knows checksums, and MariaDB's numbers of transactions."""
_NOT_BLOCKING, _THROUGH_GTID = 1, 4
_START = 4
"""The place of the first event of a file."""
_PROOF_BYTES = 1 << 16
"""How much of the beginning of a file proves that it is the same."""


@dataclass(frozen=True)
class Server:
    """What a server says of its log.

    `identity`: its number (MariaDB) or UUID (MySQL). `position`: the transactions that it has. `purged`:
    those whose events it has removed; None for MariaDB. `time`: its clock, in microseconds since 1970.
    `folds`: whether it compares names of tables without regard to case.
    """

    is_mariadb: bool
    identity: str
    position: Position
    purged: Position | None
    time: int
    folds: bool


def read_server(session: Session) -> Server:
    """Return the state of a server's log."""
    is_mariadb = session.is_mariadb
    names = "@@server_id, @@gtid_binlog_pos, ''"
    if not is_mariadb:
        names = "@@server_uuid, @@gtid_executed, @@gtid_purged"
    clock = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"
    query = f"SELECT {names}, {clock}, @@lower_case_table_names"
    ((identity, position, purged, time, folds),) = session.rows(query)
    return Server(
        is_mariadb,
        str(identity),
        parse_position(str(position), is_mariadb=is_mariadb),
        None if is_mariadb else parse_position(str(purged), is_mariadb=False),
        int(str(time)),
        folds != "0",
    )


def read_visible_position(session: Session) -> Position:
    """Return a position whose transactions a query that begins now shows.

    MariaDB's own position has transactions that are in the log, but not yet in the tables. That of a snapshot
    has not. MySQL adds a transaction to its position when it is in the tables.
    """
    if not session.is_mariadb:
        return read_server(session).position
    position = begin_snapshot(session)
    session.execute("COMMIT")
    return position


def begin_snapshot(session: Session) -> Position:
    """Begin a transaction of MariaDB, and return the position whose transactions it shows, and no other."""
    session.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    status = {str(name).lower(): value for name, value in session.rows(_SNAPSHOT)}
    file, offset = status["binlog_snapshot_file"], status["binlog_snapshot_position"]
    ((text,),) = session.rows(f"SELECT BINLOG_GTID_POS({quote_text(str(file))}, {offset})")
    return parse_position(str(text or ""), is_mariadb=True)


_SNAPSHOT = "SHOW STATUS LIKE 'binlog_snapshot_%'"


def read_first_place(config: MySqlConfig, session: Session, server: Server) -> Place | None:
    """Return how the log's present file begins; None if the server has no log.

    Raises:
        EltError: the server does not show its log.
    """
    files = _list_files(session)
    if not files:
        return None
    file, size = list(files.items())[-1]
    place = Place(server.identity, file, _START, "", min(size, _START + _PROOF_BYTES), size)
    return replace(place, digest=compute_digest(_list_events(config, place)))


def _list_events(config: MySqlConfig, place: Place) -> Iterator[bytes]:
    """Yield the events at a place."""
    for event in _read_file(config, place.file, place.offset):
        begin = locate(event)
        # Events that describe the file are sent before those at a place, and change when it is closed.
        if begin >= place.offset and event[4] != FORMAT:
            yield event
            if begin + len(event) >= place.end:
                return


def is_replaced(
    config: MySqlConfig, session: Session, server: Server, position: Position, place: Place | None
) -> bool:
    """Return whether a server has something else where its log had an event.

    An event whose file was removed cannot be looked at. So it must be proven that the file was removed
    because of its age: it comes before all others, which begin after the position.

    Args:
        position: what was read of the log, up to this event or more.

    Raises:
        EltError: the server cannot be asked.
    """
    if place is None or place.server != server.identity:
        return False
    files = _list_files(session)
    if place.file not in files:
        oldest = next(iter(files), "")
        return not _is_before(place.file, oldest) or not position.is_within(
            server.purged or _read_start(session, oldest)
        )
    if files[place.file] < place.size:
        return True
    try:
        return compute_digest(_list_events(config, place)) != place.digest
    except MissingLog:  # no event begins there
        return True


def _list_files(session: Session) -> dict[str, int]:
    """Return the names of the files of the log, in their order, and their sizes in bytes."""
    return {str(row[0]): int(row[1] or 0) for row in session.rows("SHOW BINARY LOGS")}


def _is_before(file: str, other: str) -> bool:
    """Return whether a file of a log comes before another one of the same log, by their names."""
    base, _, number = file.rpartition(".")
    other_base, _, other_number = other.rpartition(".")
    is_numbered = number.isdigit() and other_number.isdigit()
    return base == other_base and is_numbered and int(number) < int(other_number)


def _read_start(session: Session, file: str) -> Position:
    """Return the transactions before a file of MariaDB's log."""
    ((text,),) = session.rows(f"SELECT BINLOG_GTID_POS({quote_text(file)}, {_START})")
    return parse_position(str(text or ""), is_mariadb=True)


def _read_file(config: MySqlConfig, file: str, offset: int) -> Iterator[bytes]:
    """Yield the events of the log from a place in a file."""
    request = struct.pack("<BIHI", _DUMP, offset, _NOT_BLOCKING, _choose_number()) + file.encode()
    with open_session(config, "the log cannot be read") as session:
        session.execute(_ABILITIES)
        yield from session.events(request)


def locate(event: bytes) -> int:
    """Return the place of an event in its file."""
    size, end = struct.unpack_from("<II", event, _SIZE_OFFSET)
    return int(end - size)


_SIZE_OFFSET = 9
"""The size of an event and the place of its end come after its time, kind and server."""


def read_events(config: MySqlConfig, start: Position, *, is_mariadb: bool) -> Iterator[bytes]:
    """Yield the events after a position, until the server has no more; it does not wait for new ones.

    Raises:
        EltError: the server refuses it, or the connection is cut.
    """
    with open_session(config, "the log cannot be read") as session:
        number = _choose_number()
        for command in _prepare(start, is_mariadb=is_mariadb):
            session.execute(command)
        yield from session.events(_make_request(start, number, is_mariadb=is_mariadb))


def _choose_number() -> int:
    """Return the number of a replica. The server ends the connection of an older one with the same number."""
    return random.randrange(1 << 30, 1 << 32)


def _prepare(start: Position, *, is_mariadb: bool) -> list[str]:
    if not is_mariadb:
        return [_ABILITIES]
    return [_ABILITIES, f"SET @slave_connect_state = '{start}', @slave_gtid_strict_mode = 0"]


def _make_request(start: Position, number: int, *, is_mariadb: bool) -> bytes:
    if is_mariadb:
        return struct.pack("<BIHI", _DUMP, _START, _NOT_BLOCKING, number)
    assert isinstance(start, MySqlPosition)
    flags = _NOT_BLOCKING | _THROUGH_GTID
    encoded = start.encode()
    head = struct.pack("<BHIIQI", _DUMP_GTID, flags, number, 0, _START, len(encoded))
    return head + encoded
