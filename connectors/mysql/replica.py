"""The reads of tables at a replica of the server whose log is read.

**What a read must see.** The position of a table in the log is taken at the server before its rows are read,
and must have no transaction that the rows do not show (`connectors.mysql.log.state`). So each connection to
the replica waits until that has all transactions which the server had when the read began, by their numbers
(GTID). What the rows show beyond that comes again from the log, in its order, as it does from the ranges of
one server.

A stream that appends is read in one transaction of MariaDB, whose position is that of the server: this is at
the server itself.

A replica that stays behind for `replica.wait_seconds`, or that replicates from another server, is an error.

Test: `tests/connectors/mysql/test_replica.py`
"""

from __future__ import annotations

from connectors.mysql.config import MySqlConfig
from connectors.mysql.dialect import quote_text
from connectors.mysql.session import Session, open_session
from elt_assets.errors import ConfigError, TransientError

_POSITION = {
    True: "SELECT @@gtid_binlog_pos, @@log_bin",
    False: "SELECT @@gtid_executed, @@log_bin AND @@gtid_mode = 'ON'",
}
_WAIT = {
    True: "SELECT MASTER_GTID_WAIT({}, {})",
    False: "SELECT WAIT_FOR_EXECUTED_GTID_SET({}, {})",
}
"""By whether the server is MariaDB. Both return 0 when the transactions are there."""


def find_written(config: MySqlConfig) -> str:
    """Return the transactions that the server has now.

    Raises:
        ConfigError: it does not number them.
    """
    with open_session(config, "the position of the server cannot be read") as session:
        ((position, is_numbered),) = session.rows(_POSITION[session.is_mariadb])
    if is_numbered != "1":
        raise ConfigError(
            f"the server {config.place} does not number its transactions, so it cannot be told when the "
            "replica has them",
            guidance="set log_bin (of MySQL: and gtid_mode) to ON in the server's configuration, or remove "
            "`replica`",
        )
    return str(position or "")


def wait_for_transactions(config: MySqlConfig, session: Session, gtids: str) -> None:
    """Wait until a replica has some transactions.

    Args:
        config: that of the server.

    Raises:
        TransientError: it has not got them in time.
    """
    replica = config.replica
    assert replica is not None
    if not gtids:
        return
    wait = _WAIT[session.is_mariadb].format(quote_text(gtids), replica.wait_seconds)
    if session.rows(wait)[0][0] != "0":
        raise TransientError(
            f"{session.purpose}: the replica does not have all transactions of {config.place} ({gtids}), "
            f"after {replica.wait_seconds} s",
            guidance="check that it replicates from that server (SHOW REPLICA STATUS), let it catch up, and "
            "run it again; or raise `replica.wait_seconds`, or remove `replica`",
        )
