"""Transactions of others that a read of the log has to wait for, and what the user is told of them.

The log of a slot begins where no transaction is open. And it has the changes of a table from where the table
is
published: what a transaction has written before that is nowhere in it, so the snapshot of a table has to show
that transaction. It is known by the lock that it has on the table until its end.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from connectors.postgres.config import PostgresConfig
from connectors.postgres.session import Session, open_watch
from elt_assets.errors import TransientError

LOCK_TIMEOUT = "55P03"
"""SQLSTATE of a wait that the server has ended after `wait_seconds`."""
WRITERS_OF_SERVER = "l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'"
"""Condition for the locks that transactions with changes have on themselves."""
_WRITERS_OF_TABLES = """
l.locktype = 'relation' AND l.relation IN ({oids}) AND l.mode ~ '^(Row|ShareRow)?Exclusive|^AccessExclusive'
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
"""
_TRANSACTIONS = """
SELECT l.virtualtransaction AS transaction, coalesce(l.pid, 0)::int8 AS pid,
  coalesce(a.datname, p.database, '')::text AS database, coalesce(a.usename, p.owner, '')::text AS role,
  coalesce(a.application_name, '')::text AS application, coalesce(p.gid, '')::text AS prepared,
  coalesce(a.state, '')::text AS state,
  coalesce(extract(epoch FROM now() - coalesce(a.xact_start, p.prepared)), -1)::float8 AS age
FROM pg_catalog.pg_locks l
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_catalog.pg_prepared_xacts p ON l.pid IS NULL AND p.transaction = l.transactionid
WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() AND {condition}
ORDER BY age DESC
"""
_PAUSE = 0.2
_MAX_LISTED = 5


def await_writers(config: PostgresConfig, oids: Collection[int], table: str) -> None:
    """Wait until the transactions have ended that have written to a table, or to its partitions, until now.

    Raises:
        TransientError: one has not ended after `wait_seconds`.
    """
    condition = _WRITERS_OF_TABLES.format(oids=", ".join(map(str, oids)))
    query = _TRANSACTIONS.format(condition=condition)
    last = time.monotonic() + config.wait_seconds
    with open_watch(config, f"the writers of {table} are looked for") as session:
        open_ones = {row["transaction"] for row in session.rows(query)}
        while open_ones:
            if time.monotonic() > last:
                raise describe_wait(
                    config,
                    f"{table} cannot be read for the first time while transactions are open that have "
                    "written to it, perhaps before it was published",
                    condition,
                )
            time.sleep(_PAUSE)
            open_ones &= {row["transaction"] for row in session.rows(query)}


def describe_wait(config: PostgresConfig, problem: str, condition: str) -> TransientError:
    """Return the error of a wait that was too long, with the transactions that have some locks."""
    with open_watch(config, "open transactions are looked for") as session:
        listed = _list_transactions(session, condition)
    return TransientError(
        f"{problem}; after {config.wait_seconds} s there are still: {'; '.join(listed) or 'none any more'}",
        guidance="let them end (COMMIT, ROLLBACK, ROLLBACK PREPARED), or end a session that was forgotten "
        "(SELECT pg_terminate_backend(PID);), and run it again; `wait_seconds` is the time to wait",
    )


def _list_transactions(session: Session, condition: str) -> list[str]:
    """Return a text for each transaction, the oldest first. What the user may not see is left out."""
    texts = []
    for row in session.rows(_TRANSACTIONS.format(condition=condition)):
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
    return list(dict.fromkeys(texts))[:_MAX_LISTED]
