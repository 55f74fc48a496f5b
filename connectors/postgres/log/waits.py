"""Transactions of others that a read of the log has to wait for, and what the user is told of them.

The log of a slot begins where no transaction is open. And it has the changes of a table from where the table
is published: what a transaction has written before that is nowhere in it, so the snapshot of a table has to
show that transaction. It is known by the lock that it has on the table until its end.

A table whose read can go on in a later snapshot is read at once, and again when these transactions have
ended. Any other table waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from connectors.postgres.catalog import Relation
from connectors.postgres.config import PostgresConfig
from connectors.postgres.session import Session, open_watch
from elt_assets.errors import TransientError

if TYPE_CHECKING:  # numpy and pyarrow are slow to import
    from connectors.postgres.log.snapshots import TableSnapshot

LOCK_TIMEOUT = "55P03"
"""SQLSTATE of a wait that the server has ended after `wait_seconds`."""
WRITERS_OF_SERVER = "l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'"
"""Condition for the locks that transactions with changes have on themselves."""
_WRITERS_OF_TABLES = """
l.locktype = 'relation' AND l.relation IN ({oids}) AND l.mode ~ '^(Row|ShareRow)?Exclusive|^AccessExclusive'
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
"""
_TRANSACTIONS = """
SELECT coalesce(l.pid, 0)::int8 AS pid, o.number::int8 AS number,
  coalesce(a.datname, p.database, '')::text AS database, coalesce(a.usename, p.owner, '')::text AS role,
  coalesce(a.application_name, '')::text AS application, coalesce(p.gid, '')::text AS prepared,
  coalesce(a.state, '')::text AS state, coalesce(a.wait_event = 'SyncRep', false) AS is_committed,
  coalesce(extract(epoch FROM now() - coalesce(a.xact_start, p.prepared)), -1)::float8 AS age
FROM pg_catalog.pg_locks l
JOIN (
  SELECT virtualtransaction, transactionid::text::int8 AS number FROM pg_catalog.pg_locks
  WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted
) o ON o.virtualtransaction = l.virtualtransaction
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_catalog.pg_prepared_xacts p ON l.pid IS NULL AND p.transaction::text::int8 = o.number
WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() AND {condition}
ORDER BY age DESC
"""
"""Transactions that have changed something. One that has not yet has no number; what it will change is
new."""
_TREE = """
WITH RECURSIVE tree AS (
  SELECT {oid}::oid AS oid
  UNION
  SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid)
SELECT oid::int8 AS oid FROM tree
"""
"""A table and its partitions."""
_END = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8 AS lsn"
_PAUSE, _SHORT_PAUSE = 0.2, 0.02
_COMMIT_SECONDS = 3
"""A transaction is visible well within this time after its commit is written, but for a standby."""
_MAX_LISTED = 5


class Writers:
    """The transactions that have changed a table, or its partitions, and are open.

    Args:
        oids: the numbers of the table and its partitions.
    """

    def __init__(self, config: PostgresConfig, oids: Collection[int], table: str):
        self._config, self._table = config, table
        self._condition = _WRITERS_OF_TABLES.format(oids=", ".join(map(str, oids)))

    def describe(self, first: TableSnapshot | None = None) -> str:
        """Return a text for some of them, empty if there are none.

        Args:
            first: a snapshot of the table. What began later is left out: the log has all of it.
        """
        with open_watch(self._config, f"the writers of {self._table} are looked for") as session:
            rows = _list_transactions(session, self._condition)
            return _describe_all(
                row for row in rows if first is None or first.has_begun(row["number"])
            )

    def wait(self) -> None:
        """Wait until they have ended.

        Raises:
            TransientError: one has not ended after `wait_seconds`.
        """
        last = time.monotonic() + self._config.wait_seconds
        with open_watch(self._config, f"the writers of {self._table} are looked for") as session:
            numbers = self._list_numbers(session)
            while numbers:
                if time.monotonic() > last:
                    raise describe_wait(
                        self._config,
                        f"{self._table} cannot be read for the first time while transactions are open that "
                        "have written to it, perhaps before it was published",
                        self._condition,
                    )
                time.sleep(_PAUSE)
                numbers &= self._list_numbers(session)

    def _list_numbers(self, session: Session) -> set[int]:
        return {row["number"] for row in _list_transactions(session, self._condition)}


def find_position(config: PostgresConfig, relation: Relation) -> int:
    """Return a number that is less than those of all changes of a table in the log that a snapshot, taken
    after this, does not show.

    It is the end of the log, less one. A transaction whose commit is in the log before that, and which a
    snapshot does not show yet, has its lock on the table: so those that have one are waited for. Most end in
    milliseconds. One that is open after some seconds has not committed; but for one that waits for a standby,
    whose commit is written.

    Raises:
        TransientError: one waits for a standby for longer than `wait_seconds`.
    """
    problem = f"{relation.quoted} cannot be compared while transactions that are written wait for a standby"
    with open_watch(config, f"the end of the log of {relation.quoted} is looked for") as session:
        oids = [row["oid"] for row in session.rows(_TREE.format(oid=relation.oid))]
        condition = _WRITERS_OF_TABLES.format(oids=", ".join(map(str, oids)))
        position = int(session.row(_END)["lsn"])
        begin = time.monotonic()
        writers = {row["number"] for row in _list_transactions(session, condition)}
        while writers:
            time.sleep(_SHORT_PAUSE)
            rows = [r for r in _list_transactions(session, condition) if r["number"] in writers]
            waited = time.monotonic() - begin
            if waited > config.wait_seconds and any(row["is_committed"] for row in rows):
                raise describe_wait(config, problem, condition)
            is_short = waited < _COMMIT_SECONDS
            writers = {row["number"] for row in rows if is_short or row["is_committed"]}
    return position - 1


def describe_wait(config: PostgresConfig, problem: str, condition: str) -> TransientError:
    """Return the error of a wait that was too long, with the transactions that have some locks."""
    with open_watch(config, "open transactions are looked for") as session:
        listed = _describe_all(_list_transactions(session, condition))
    return TransientError(
        f"{problem}; after {config.wait_seconds} s there "
        + (f"are still: {listed}" if listed else "was one, which has ended since"),
        guidance="let them end (COMMIT, ROLLBACK, ROLLBACK PREPARED), or end a session that was forgotten "
        "(SELECT pg_terminate_backend(PID);), and run it again; `wait_seconds` is the time to wait",
    )


def _list_transactions(session: Session, condition: str) -> list[dict[str, Any]]:
    """Return the transactions with some locks that have changed something, the oldest first."""
    return session.rows(_TRANSACTIONS.format(condition=condition))


def _describe_all(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a text of transactions, the oldest first. What the user may not see of them is left out."""
    texts = []
    for row in rows:
        who = (
            f"the prepared transaction {row['prepared']!r}"
            if row["prepared"]
            else f"pid {row['pid']}"
        )
        facts = [f"of {row['role']}" if row["role"] else ""]
        facts += [f"in {row['database']}" if row["database"] else ""]
        facts += [f"by {row['application']}" if row["application"] else "", row["state"]]
        facts += [f"open for {row['age']:.0f} s" if row["age"] >= 0 else ""]
        texts.append(", ".join(filter(None, [who, *facts])))
    return "; ".join(list(dict.fromkeys(texts))[:_MAX_LISTED])
