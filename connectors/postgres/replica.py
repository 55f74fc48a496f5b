"""The reads of tables at a standby of the server whose log is read.

**What a read must see.** States, slots and positions are of the primary, and a snapshot is not shared by two
servers. So a read of a table at the standby begins when the standby has replayed all that the primary had
written when the read began (`find_written`). Its snapshot then shows each transaction that one of the primary
would have shown at that time: those before the position of a slot, and those that a comparison has waited
for.

**What it does not tell.** A standby does not know which transactions are open. But a transaction is visible
there when its commit is replayed, so in the order of the log. The place up to which the log was replayed,
read in the same connection before the snapshot is taken (`wait_for_replay`), parts them. A commit before it
is shown. A later one may be shown or not, so it counts as not shown: its changes come from the log, with
numbers greater than those of the rows. A table that deduplicates has each row as the log leaves it. A stream
that appends would have some changes twice, so its first read is made at the primary.

**Slices** import the snapshot: each is read at the standby that has it, or fails.

A standby that stays behind for `replica.wait_seconds`, one of another server, or a server that is none, is an
error. So is a read that the standby ends because it has to replay changes: nothing of it is committed but
what a state covers, and the next run goes on.

Test: `tests/connectors/postgres/test_replica.py`
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from connectors.postgres.config import PostgresConfig
from connectors.postgres.session import Session, open_watch
from connectors.sdk.stopping import pause
from elt_assets.errors import ConfigError, TransientError

_POSITION = """
SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8 AS inserted,
  (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8 AS flushed,
  current_setting('wal_block_size')::int8 AS block
"""
_REPLAYED = """
SELECT pg_is_in_recovery() AS is_standby,
  coalesce(pg_last_wal_replay_lsn() - '0/0'::pg_lsn, 0)::int8 AS lsn
"""
_MAY_IDENTIFY = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE') AS may"
_IDENTITY = "SELECT system_identifier::text AS identity FROM pg_control_system()"
_PAGE_HEADERS = (24, 40)
"""Bytes with which a page of the log begins. An idle server's next record comes after them."""
_PAUSE = 0.1


@dataclass(frozen=True)
class LogEnd:
    """How far a primary has written its log, and its system identifier; empty if the user may not read it."""

    lsn: int
    identity: str


def find_written(config: PostgresConfig) -> LogEnd:
    """Return how far the primary has written its log, when that is flushed: a standby gets no more.

    Raises:
        EltError: the primary cannot be reached.
    """
    with open_watch(config, "the end of the log is looked for") as session:
        inserted = session.row(_POSITION)["inserted"]
        while not _is_flushed(row := session.row(_POSITION), inserted):
            pause(_PAUSE)
        return LogEnd(min(inserted, row["flushed"]), _read_identity(session))


def _is_flushed(row: dict[str, int], inserted: int) -> bool:
    flushed = row["flushed"]
    is_header = not flushed % row["block"] and inserted - flushed in _PAGE_HEADERS
    return flushed >= inserted or is_header


def wait_for_replay(config: PostgresConfig, log_end: LogEnd, session: Session) -> int:
    """Return up to where a standby has replayed the log, when it has all that the primary had written.

    Args:
        config: that of the primary.

    Raises:
        ConfigError: the server is no standby of the primary.
        TransientError: it is behind for too long.
    """
    replica = config.replica
    assert replica is not None
    place = f"the replica {config.find_replica().place}"
    identity = _read_identity(session)
    if identity and log_end.identity and identity != log_end.identity:
        raise ConfigError(
            f"{place} is no standby of {config.place}: it is the server {identity}, and not "
            f"{log_end.identity}",
            guidance="correct `replica`",
        )
    last = time.monotonic() + replica.wait_seconds
    while True:
        row = session.row(_REPLAYED)
        if not row["is_standby"]:
            raise ConfigError(
                f"{place} is no standby of {config.place}: it replays no log",
                guidance="correct `replica`, or remove it; after a failover, set `host` to the new primary",
            )
        if row["lsn"] >= log_end.lsn:
            return int(row["lsn"])
        if time.monotonic() > last:
            behind = (log_end.lsn - row["lsn"] + 1023) >> 10
            raise TransientError(
                f"{session.purpose}: {place} is {behind} kB of the log behind {config.place}, after "
                f"{replica.wait_seconds} s",
                guidance="let it catch up (SELECT * FROM pg_stat_replication; at the primary), and run it "
                "again; or raise `replica.wait_seconds`, or remove `replica`",
            )
        pause(_PAUSE)


def _read_identity(session: Session) -> str:
    may = session.row(_MAY_IDENTIFY)["may"]
    return str(session.row(_IDENTITY)["identity"]) if may else ""
