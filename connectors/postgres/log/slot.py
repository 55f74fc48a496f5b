"""The replication slot: the server keeps its log for this source from the position of the slot on.

A slot is moved only after the rows before its new position are committed, so what it still gives is all that
no table has. `peek` leaves it where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from connectors.cdc.texts import RESET_ALL
from connectors.postgres.config import PostgresConfig
from connectors.postgres.dialect import quote_name, quote_text
from connectors.postgres.log.waits import LOCK_TIMEOUT, WRITERS_OF_SERVER, describe_wait
from connectors.postgres.session import Session, open_session, open_watch
from connectors.sdk.items import Measure
from elt_assets.errors import ConfigError, SystemFailure, TransientError

PLUGIN = "pgoutput"
_SERVER = """
SELECT pg_current_wal_flush_lsn()::text AS lsn,
  ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int AS timeline,
  has_function_privilege('pg_control_system()', 'EXECUTE') AS has_identity
"""
_IDENTITY = "SELECT system_identifier::text AS identity FROM pg_control_system()"
_SLOT = """
SELECT plugin::text AS plugin, slot_type::text AS kind, coalesce(database::text, '') AS database,
  active_pid::int8 AS pid, coalesce(confirmed_flush_lsn::text, '') AS confirmed,
  coalesce(wal_status, '') AS status, safe_wal_size::int8 AS room,
  coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::int8 AS retained,
  database IS NOT DISTINCT FROM current_database() AS is_here,
  coalesce((to_jsonb(s) ->> 'failover')::bool, false) AS fails_over,
  coalesce((to_jsonb(s) ->> 'synced')::bool, false) AS is_synced
FROM pg_catalog.pg_replication_slots s WHERE slot_name = {name}
"""
"""The last two are new in version 17."""
FAILOVER_VERSION = 170000


def parse_lsn(text: str) -> int:
    """Return an LSN, such as 16/B374D848, as a number."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def format_lsn(lsn: int) -> str:
    """Return an LSN as the server writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class Server:
    """How far the log goes now, and which log it is.

    `lsn`: the end of what is flushed. `identity`: the server's system identifier, empty if it is unknown.
    """

    lsn: int
    timeline: int
    identity: str


@dataclass(frozen=True)
class Slot:
    """A replication slot as the server describes it.

    Attributes:
        confirmed: the position before which it gives nothing any more.
        pid: the process that reads it; None if none does.
        status: `reserved`, `extended`, `unreserved` or `lost`.
        room: bytes that may be written before it is lost; None if it is never.
        retained: bytes of the log that are kept for it.
        fails_over: whether standbys synchronize it.
        is_synced: whether the server has synchronized it as a standby; it stays so when that is promoted.
    """

    confirmed: int
    pid: int | None
    status: str
    room: int | None
    retained: int
    fails_over: bool = False
    is_synced: bool = False

    def measures(self) -> Iterator[Measure]:
        """Yield how much of the log the server keeps for it, and may write until it is lost, in bytes."""
        yield Measure("slot_retained_bytes", self.retained)
        if self.room is not None:
            yield Measure("slot_bytes_until_lost", self.room)

    def describe_shortage(self, name: str) -> str | None:
        """Return a warning if the server may soon remove the log that the slot needs; None otherwise."""
        if self.status not in ("extended", "unreserved"):
            return None
        room = (
            "" if self.room is None else f", and {max(self.room, 0) >> 20} MB more until it is lost"
        )
        return (
            f"the slot {name!r} keeps {self.retained >> 20} MB of the server's log{room}: read more often, "
            "or: ALTER SYSTEM SET max_slot_wal_keep_size = '…'; SELECT pg_reload_conf();"
        )


def read_server(session: Session) -> Server:
    """Return the state of the server, which must be no standby."""
    row = session.row(_SERVER)
    identity = session.row(_IDENTITY)["identity"] if row["has_identity"] else ""
    return Server(parse_lsn(row["lsn"]), row["timeline"], identity)


def find_slot(session: Session, name: str) -> Slot | None:
    """Return the slot of a name; None if there is none.

    Raises:
        ConfigError: it cannot be read as this source does.
    """
    rows = session.rows(_SLOT.format(name=quote_text(name)))
    if not rows:
        return None
    row = rows[0]
    if row["plugin"] != PLUGIN or not row["is_here"]:
        raise ConfigError(
            f"the slot {name!r} is not of this source: it is of the database {row['database'] or '-'} and "
            f"the plugin {row['plugin'] or '-'}",
            guidance=f"choose another `slot`, or drop it: {drop_sql(name)}",
        )
    if row["status"] == "lost":
        raise ConfigError(
            f"the slot {name!r} is lost: the server has removed the log that it needs",
            guidance=f"drop it ({drop_sql(name)}), raise max_slot_wal_keep_size or read more often, and "
            f"{RESET_ALL}",
        )
    return Slot(
        parse_lsn(row["confirmed"]),
        *(row[name] for name in ("pid", "status", "room", "retained", "fails_over", "is_synced")),
    )


def drop_sql(name: str) -> str:
    """Return the SQL that drops a slot."""
    return f"SELECT pg_drop_replication_slot({quote_text(name)});"


def create_slot(config: PostgresConfig, name: str) -> None:
    """Create the slot. It gives all transactions that end after this; those that run now are waited for.

    Raises:
        TransientError: one runs too long.
    """
    # The parameter for failover is new in version 17; `check` refuses `failover_slot` before.
    more = ", failover => true" if config.failover_slot else ""
    create = f"pg_create_logical_replication_slot({quote_text(name)}, '{PLUGIN}'{more})"
    try:
        with open_session(config, f"the slot {name!r} is created") as session:
            session.row(f"SELECT lsn::text AS lsn FROM {create}")
    except TransientError as error:
        if error.detail != LOCK_TIMEOUT:
            raise
        raise describe_wait(
            config,
            f"the slot {name!r} cannot be created while transactions of the server are open, in any database",
            WRITERS_OF_SERVER,
        ) from None


def drop_slot(config: PostgresConfig, name: str) -> None:
    """Drop the slot, if it is one of this source: the server keeps its log for it no longer."""
    with open_session(config, f"the slot {name!r} is dropped") as session:
        session.rows(
            "SELECT pg_drop_replication_slot(slot_name)::text AS done FROM pg_catalog.pg_replication_slots "
            f"WHERE slot_name = {quote_text(name)} AND plugin = '{PLUGIN}' AND database = current_database()"
        )


def advance_slot(config: PostgresConfig, name: str, lsn: int) -> None:
    """Let the server forget what was committed in its log before a position."""
    with open_session(config, f"the slot {name!r} is moved") as session:
        session.row(
            f"SELECT end_lsn::text AS lsn FROM pg_replication_slot_advance({quote_text(name)}, "
            f"'{format_lsn(lsn)}'::pg_lsn)"
        )


_PAGE, _HEADERS = 8192, (24, 40)
"""The size of a page of the log, and those of the headers of pages."""


def find_place_before(commit: int) -> int:
    """Return the greatest place up to which `peek` does not yield the transaction whose commit is at a place.

    The server ends when the record before the place is read, which may be the last one of the page before.
    """
    place = commit % _PAGE
    return commit - place if place in _HEADERS else commit


def peek(config: PostgresConfig, slot: str, publication: str, end: int) -> Iterator[Any]:
    """Yield the messages of the transactions that were committed before a position, as Arrow batches.

    Raises:
        ConfigError: the server refuses it. Its catalog of the time of a change counts, so a publication that
            was made later than the position of the slot is not there for it.
    """
    options = f"'proto_version', '1', 'publication_names', {quote_text(quote_name(publication))}"
    query = (
        f"SELECT data FROM pg_logical_slot_peek_binary_changes({quote_text(slot)}, '{format_lsn(end)}', "
        f"NULL, {options})"
    )
    with open_session(config, f"the slot {slot!r} is read") as session:
        try:
            yield from session.batches(query)
        except SystemFailure as error:
            raise ConfigError(
                error.message,
                guidance="correct what the server says; if the publication was made again, reset all "
                "streams of the "
                "connection (`elt reset CONNECTION`), so that they are read in full",
                detail=error.detail,
            ) from None


@contextmanager
def hold_slot(config: PostgresConfig, name: str) -> Iterator[Callable[[], object]]:
    """Keep other reads of this source from the slot, until the context ends.

    The lock is that of a transaction: a pool of connections gives a session to others, but no transaction. It
    gives a function that raises a TransientError if the transaction was ended, and the lock with it.

    Raises:
        TransientError: another read is under way.
    """
    number = f"hashtextextended({quote_text(f'elt slot {name}')}, 0)"
    with open_watch(config, f"the slot {name!r} is reserved") as session:
        if not session.row(f"SELECT pg_try_advisory_xact_lock({number}) AS is_free")["is_free"]:
            raise TransientError(
                f"another sync reads the slot {name!r}",
                guidance="wait until it ends; each connection needs a `slot` of its own",
            )
        yield lambda: session.row("SELECT 1 AS number")
