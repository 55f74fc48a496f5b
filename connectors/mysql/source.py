"""The source: its check, and its streams."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from connectors.cdc.stream import LogGroup, list_taken
from connectors.cdc.texts import describe_taken
from connectors.mysql.config import LOG, MySqlConfig
from connectors.mysql.dialect import quote_name, quote_texts
from connectors.mysql.log.check import check_log, list_log_warnings
from connectors.mysql.session import Session, open_session
from connectors.mysql.stream import CURSOR, LogStream, TableStream
from connectors.mysql.tables import Table, list_tables
from connectors.sdk import Source, Stream
from connectors.sdk.reports import report_warning
from elt_assets.errors import ConfigError, EltError, Problems

OLDEST = {True: (10, 3), False: (5, 7)}
"""The oldest version of MariaDB and of MySQL that is read."""
_BROKEN = "it reads tables or columns that are gone, or its definer has lost the right to read them"
_READER = "connectors.mysql.log.read:BinlogReader"
"""It is imported when a log is read: pyarrow is slow to import."""
_BROKEN_GUIDANCE = "correct the view, or leave it out with `exclude`"


class MySql(Source):
    """A MySQL or MariaDB server."""

    name = "mysql"
    config_type = MySqlConfig
    _broken: Collection[str] = ()
    """The names of views that are not valid."""

    def check(self, config: MySqlConfig) -> None:
        """Check that the server is reached, and that each table of the config can be read."""
        with open_session(config, f"the server {config.place} cannot be checked") as session:
            _check_version(session)
            problems = Problems()
            tables = list_tables(session, config)
            for database in config.databases:
                problems.of(partial(_check_database, session, database, tables))
            for table in tables:
                problems.of(partial(_check_table, session, table))
            if config.incremental == LOG:
                problems.of(partial(check_log, session, config))
            problems.raise_all()
            if config.incremental == LOG:
                for text in list_log_warnings(session, config, tables):
                    report_warning(text)

    def streams(self, config: MySqlConfig) -> Sequence[Stream]:
        with open_session(config, f"the tables of {config.place} cannot be listed") as session:
            tables = list_tables(session, config, self.selected)
            if not tables and self.selected is None:
                for database in config.databases:
                    _check_database(session, database, tables)
        broken = [f"{table.database}.{table.name}" for table in tables if not table.columns]
        self.warnings = [f"{name} is left out: {_BROKEN}" for name in broken]
        if config.incremental == LOG:
            self.warnings += [
                f"{table.database}.{table.name} is not read from the log: {describe_taken(names)}"
                for table in tables
                if (names := _list_taken(table))
            ]
        self._broken = {table.name for table in tables if not table.columns}
        return make_streams(config, [table for table in tables if table.columns])

    def refusal(self, name: str) -> EltError | None:
        if name not in self._broken:
            return None
        return ConfigError(f"the view {name} cannot be read: {_BROKEN}", guidance=_BROKEN_GUIDANCE)


def make_streams(config: MySqlConfig, tables: Sequence[Table]) -> list[Stream]:
    """Return the streams of tables; with `incremental: log`, those of a log are a group."""
    if config.incremental != LOG:
        return [TableStream(config, table) for table in tables]
    group = LogGroup[LogStream](_READER, config)
    return [
        group.add(LogStream(config, table))
        if table.is_logged and not _list_taken(table)
        else TableStream(config, table)
        for table in tables
    ]


def _list_taken(table: Table) -> list[str]:
    return list_taken((column.name for column in table.columns), CURSOR)


def _check_version(session: Session) -> None:
    oldest = OLDEST[session.is_mariadb]
    if session.version_number < oldest:
        name = "MariaDB" if session.is_mariadb else "MySQL"
        raise ConfigError(
            f"the server has the version {session.version.removeprefix('5.5.5-')}",
            guidance=f"this source reads {name} {oldest[0]}.{oldest[1]} and later",
        )


def _check_database(session: Session, database: str, tables: Sequence[Table]) -> None:
    """Check that a database has tables to read.

    Raises:
        ConfigError: it does not exist, the user may not see it, or it has no table that the config takes.
    """
    if any(table.database.lower() == database.lower() for table in tables):
        return
    names = quote_texts([database])
    schemata = "information_schema.SCHEMATA WHERE SCHEMA_NAME"
    listed = "information_schema.TABLES WHERE TABLE_SCHEMA"
    if not session.rows(f"SELECT 1 FROM {schemata} IN {names} LIMIT 1"):
        message = f"there is no database {database!r}, or the user may not see it"
    elif session.rows(f"SELECT 1 FROM {listed} IN {names} LIMIT 1"):
        raise ConfigError(
            f"no table of the database {database!r} is read",
            guidance="correct `include` and `exclude`",
        )
    else:
        message = f"the database {database!r} has no table that the user may read"
    raise ConfigError(
        message,
        guidance=f"correct `databases`, or run: {_grant(session, quote_name(database) + '.*')}",
    )


def _check_table(session: Session, table: Table) -> None:
    """Check that all columns of a table can be read.

    Raises:
        ConfigError: the server refuses that. Other errors are those of the connection, and not of the table.
    """
    columns = ", ".join(column.quoted for column in table.columns) or "1"
    place = f"{table.database}.{table.name}"
    try:
        session.rows(f"SELECT {columns} FROM {table.quoted} LIMIT 0")
    except ConfigError as error:
        guidance = error.guidance
        if guidance and guidance.startswith("GRANT SELECT ON `DATABASE`"):
            guidance = f"run: {_grant(session, table.quoted)}; or leave it out with `exclude`"
        message = error.message.rpartition("cannot be checked: ")[2]
        raise ConfigError(f"{place} cannot be read: {message}", guidance=guidance) from None


def _grant(session: Session, what: str) -> str:
    account = str(session.rows("SELECT CURRENT_USER()")[0][0])
    user, _, host = account.rpartition("@")
    quoted = "@".join("'{}'".format(part.replace("'", "''")) for part in (user, host))
    return f"GRANT SELECT ON {what} TO {quoted};"
