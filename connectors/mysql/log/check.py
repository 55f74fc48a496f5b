"""Whether the log can be read as the config says, and the SQL that mends what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from connectors.mysql.config import MySqlConfig
from connectors.mysql.dialect import quote_texts
from connectors.mysql.log.dump import read_events, read_server
from connectors.mysql.session import Session
from connectors.mysql.tables import Table
from elt_assets.errors import ConfigError

OLDEST = {True: (10, 5), False: (8, 0)}
"""The oldest version of MariaDB and of MySQL whose log describes its tables in full."""
_NEEDED = {
    "log_bin": ("ON", "set log_bin in the server's configuration, and restart it"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = 'ROW';"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = 'FULL';"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = 'FULL';"),
    "binlog_row_value_options": ("", "SET GLOBAL binlog_row_value_options = '';"),
    "gtid_mode": (
        "ON",
        "set gtid_mode and enforce_gtid_consistency to ON in the server's configuration",
    ),
}
"""Settings of the server, and how each is mended. A server that does not have one needs nothing, but for
`binlog_row_metadata`."""
_EXPIRIES = ("binlog_expire_logs_seconds", "expire_logs_days")
_DAY = 86_400
_CASCADES = """
SELECT CONSTRAINT_SCHEMA, TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA IN {databases}
  AND NOT (DELETE_RULE IN ('RESTRICT', 'NO ACTION') AND UPDATE_RULE IN ('RESTRICT', 'NO ACTION'))
"""


def check_log(session: Session, config: MySqlConfig) -> None:
    """Check that the log can be read, and that it has what is needed.

    Raises:
        ConfigError: with the SQL that mends it.
    """
    _check_settings(session)
    _check_rights(session, config)
    _check_filters(session, config)


def check_contents(session: Session, config: MySqlConfig) -> None:
    """Check that the log has what is needed. A sync does so as well: else changes are lost without an error.

    Raises:
        ConfigError: with the SQL that mends it.
    """
    _check_settings(session)
    _check_filters(session, config)


def _check_settings(session: Session) -> None:
    settings = _read_settings(session, tuple(_NEEDED))
    oldest = ".".join(map(str, OLDEST[session.is_mariadb]))
    if "binlog_row_metadata" not in settings:
        raise ConfigError(
            "the log of this server does not describe its tables",
            guidance=f"use version {oldest} or later, or another `incremental`",
        )
    wrong = [
        (name, settings[name], mend)
        for name, (value, mend) in _NEEDED.items()
        if name in settings and settings[name].upper() != value
    ]
    if wrong:
        texts = ", ".join(f"{name} is {value or 'empty'}" for name, value, _ in wrong)
        raise ConfigError(
            f"the log does not have all that is needed: {texts}",
            guidance="; ".join(mend.removesuffix(";") for _, _, mend in wrong)
            + "; and write the same into the server's configuration",
        )


def _check_filters(session: Session, config: MySqlConfig) -> None:
    """Check that the server writes changes of all databases of the config into its log."""
    name = "MASTER" if session.is_mariadb or session.version_number < _RENAMED else "BINARY LOG"
    for row in session.rows(f"SHOW {name} STATUS"):
        chosen, ignored = (set(str(text or "").split(",")) - {""} for text in row[2:4])
        left_out = [
            database
            for database in config.databases
            if database in ignored or (chosen and database not in chosen)
        ]
        if left_out:
            raise ConfigError(
                f"the server does not write changes of {', '.join(left_out)} into its log",
                guidance="correct binlog_do_db and binlog_ignore_db in the server's configuration",
            )


_RENAMED = (8, 2)
"""The version of MySQL from which the statement has another name."""


def _check_rights(session: Session, config: MySqlConfig) -> None:
    """Check that the user may read the log, by a read of what comes after its present end."""
    server = read_server(session)
    try:
        for _ in read_events(config, server.position, is_mariadb=server.is_mariadb):
            break
        session.rows("SHOW BINARY LOGS")
    except ConfigError as error:
        user = str(session.rows("SELECT CURRENT_USER()")[0][0])
        name, _, host = user.rpartition("@")
        raise ConfigError(
            f"the log cannot be read: {error.message.rpartition('cannot be read: ')[2]}",
            guidance=f"run: GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{name}'@'{host}';",
        ) from None


def _read_settings(session: Session, names: Sequence[str]) -> dict[str, str]:
    rows = session.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {quote_texts(names)}")
    return {str(name).lower(): str(value) for name, value in rows}


def list_log_warnings(
    session: Session, config: MySqlConfig, tables: Sequence[Table]
) -> Iterator[str]:
    """Yield what the user should know of the log."""
    settings = _read_settings(session, _EXPIRIES)
    seconds = float(settings.get(_EXPIRIES[0], 0)) or float(settings.get(_EXPIRIES[1], 0)) * _DAY
    if 0 < seconds < _DAY:
        yield (
            f"the server keeps its log for {seconds / 3600:.1f} hours: changes are lost if no sync ends in "
            f"that time. SET GLOBAL {_EXPIRIES[0]} = {7 * _DAY};"
        )
    query = _CASCADES.format(databases=quote_texts(config.databases))
    read = {(table.database, table.name) for table in tables}
    names = sorted({f"{row[0]}.{row[1]}" for row in session.rows(query) if row in read})
    if names:
        yield (
            "the log does not have the rows that foreign keys change or delete (ON DELETE CASCADE, SET NULL) "
            f"in {', '.join(names[:20])}: read these tables in full now and then"
        )
    others = [f"{table.database}.{table.name}" for table in tables if not table.is_logged]
    if others:
        yield f"views and system-versioned tables are only read in full: {', '.join(others[:20])}"
