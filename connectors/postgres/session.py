"""Transactions of the server, read only.

All settings are of a transaction (`SET LOCAL`), so a pool of connections between us and the server may be one
of transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from connectors.postgres.config import PostgresConfig
from connectors.postgres.errors import (
    CONFLICT,
    connection_error,
    may_be_ended,
    query_error,
)
from connectors.sql.limits import StatementLimit
from connectors.sql.server import write_certificates
from elt_assets.errors import ConfigError, EltError, TransientError

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 8 << 20
"""About the bytes of a batch. Values of 10 MB then take little more memory than they have."""
_SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "extra_float_digits": "1",
    "jit": "off",
}
_LIMITS = """
SELECT set_config(name, '0', true) FROM pg_catalog.pg_settings
WHERE name IN ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
"""
"""Lifts what may end a long transaction; the last one is new in version 17."""
_READER_LOCK = """
SELECT number FROM generate_series(1, {count}) AS number
WHERE pg_try_advisory_xact_lock(hashtext('elt reader ' || current_user), number) LIMIT 1
"""
"""Takes one of the locks of connections that read rows; of a transaction, so that a pool keeps none."""
_FILES = {"ssl_root_certificate": "sslrootcert", "ssl_certificate": "sslcert", "ssl_key": "sslkey"}
"""The names that libpq gives to the files of certificates."""
_MAY_BE_PLAIN = ("disable", "allow", "prefer")
"""Values of `sslmode` with which a connection may have no TLS. A server, or somebody between, gets no
password in clear text then: libpq sends it by default to whoever asks for it."""


class Session:
    """A transaction of the server in which nothing is written; `purpose` says in errors what it is for.

    Attributes:
        replayed: up to where a standby had replayed the log before the snapshot was taken; 0 at a primary.
        is_at_replica: whether the server is the replica of the config.
    """

    def __init__(self, connection: Any, purpose: str):
        self._connection = connection
        self.purpose = purpose
        self._limit: StatementLimit | None = None
        self.replayed = 0
        self.is_at_replica = False

    def execute(self, command: str) -> None:
        """Run a command without a result.

        Raises:
            EltError: the server refuses it.
        """
        with self._cursor() as cursor:
            cursor.execute(command)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query.

        Raises:
            EltError: the server refuses it.
        """
        with self._cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
            cursor.execute(query)
            table = cursor.fetch_arrow_table()
            return list(table.to_pylist())

    def row(self, query: str) -> dict[str, Any]:
        """Return the only row of a query."""
        return self.rows(query)[0]

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query as they come.

        Raises:
            EltError: the server refuses it, or the connection is cut.
        """
        with self._cursor() as cursor:
            hint = {"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)}
            cursor.adbc_statement.set_options(**hint)
            cursor.execute(query)
            yield from cursor.fetch_record_batch()

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        begin, limit = time.monotonic(), self._limit
        try:
            with self._connection.cursor() as cursor:
                yield cursor
        except _driver_errors() as error:
            # The server has the same error for a query that somebody has ended.
            is_late = limit is not None and time.monotonic() - begin >= limit.seconds
            if limit is not None and is_late and may_be_ended(error):
                raise limit.make_error(self.purpose) from None
            raise query_error(error, self.purpose) from None

    def apply_settings(self) -> None:
        """Let the texts of values not depend on settings of the server, the database or the role.

        It takes the snapshot of the transaction.
        """
        settings = [f"set_config('{name}', '{value}', true)" for name, value in _SETTINGS.items()]
        self.execute(f"SELECT {', '.join(settings)}")
        self.execute(_LIMITS)

    def limit_statements(self, limit: StatementLimit | None) -> None:
        """Let the server end each statement after some time; with None, none is ended."""
        if limit is not None:
            self.execute(f"SET LOCAL statement_timeout = {limit.milliseconds}")
            self._limit = limit

    def take_reader_lock(self, count: int) -> bool:
        """Take one of so many locks of connections that read rows, until the end of the transaction; return
        whether one was free."""
        return bool(self.rows(_READER_LOCK.format(count=count)))


@contextmanager
def open_session(
    config: PostgresConfig,
    purpose: str,
    *,
    snapshot: str | None = None,
    lock: str | None = None,
    limit: StatementLimit | None = None,
    find_replayed: Callable[[Session], int] | None = None,
) -> Iterator[Session]:
    """Open a transaction that sees one snapshot of the database until its end.

    Args:
        snapshot: the name of a snapshot that another session exports.
        lock: quoted names of tables that nobody may change or truncate until the end. They are locked before
            the snapshot is taken: TRUNCATE shows an empty table to older snapshots.
        limit: how long each statement may take.
        find_replayed: returns up to where a standby has replayed the log, before the snapshot is taken.

    Raises:
        EltError: the server cannot be reached, or refuses what was asked for.
    """
    with _connect(config) as connection:
        session = Session(connection, purpose)
        if find_replayed is not None:
            session.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ ONLY")
            session.execute(_LIMITS)
            session.replayed = find_replayed(session)
            connection.commit()
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot is not None:
            _take_snapshot(session, snapshot)
        session.execute(f"SET LOCAL lock_timeout = '{config.wait_seconds}s'")
        if lock is not None:
            session.execute(f"LOCK TABLE {lock} IN ACCESS SHARE MODE")
        session.apply_settings()
        session.limit_statements(limit)
        yield session


class Answers:
    """The answers of the server to queries of which it may refuse some: then it gets a new transaction.

    The context that it is has one transaction, or none before the first query.
    """

    def __init__(self, config: PostgresConfig, purpose: str):
        self._config, self._purpose = config, purpose
        self._stack = ExitStack()
        self._session: Session | None = None

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query.

        Raises:
            EltError: the server refuses it.
        """
        if self._session is None:
            self._stack.close()
            self._session = self._stack.enter_context(open_session(self._config, self._purpose))
        try:
            return self._session.rows(query)
        except EltError:
            self._session = None
            raise


def _take_snapshot(session: Session, name: str) -> None:
    try:
        session.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
    except TransientError:
        raise
    except EltError as error:
        raise TransientError(
            f"{session.purpose}: the session that keeps the snapshot has ended",
            guidance="run it again; it ends when the server restarts, or its connection is cut, and "
            f"{CONFLICT}",
            detail=str(error),
        ) from None


@contextmanager
def open_watch(config: PostgresConfig, purpose: str) -> Iterator[Session]:
    """Open a transaction that may last long and hinders nobody: between two statements it keeps no snapshot,
    and each statement sees what is committed then.

    Raises:
        EltError: the server cannot be reached.
    """
    with _connect(config) as connection:
        session = _Watch(connection, purpose)
        session.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ ONLY")
        session.rows(_LIMITS)
        try:
            yield session
        finally:
            # A server that is told of the end of a connection gives up its locks a moment later.
            with suppress(*_driver_errors()):
                connection.rollback()


class _Watch(Session):
    """A transaction that keeps nothing of a query when it has its rows.

    The server keeps the snapshot of a query, and so all rows that are deleted after it, until the next
    statement takes its place. One that reads no rows has no snapshot.
    """

    def rows(self, query: str) -> list[dict[str, Any]]:
        rows = super().rows(query)
        self.execute("SET LOCAL statement_timeout = 0")
        return rows


class _Server:
    """A server as the driver knows it, with the types that it has.

    The driver asks for all types when it opens a database, by a connection of its own: ten times the work of
    a connection. Queries have types of `pg_catalog` alone, so these stay right; each connection of a database
    would close it, so `close` keeps it.
    """

    def __init__(self, database: Any):
        self.database = database

    def close(self) -> None:
        """Do nothing: the next connection needs it."""


@lru_cache(maxsize=4)
def _find_server(uri: str) -> _Server:
    from adbc_driver_postgresql import connect  # noqa: PLC0415 - as above

    return _Server(connect(uri))


@contextmanager
def _connect(config: PostgresConfig) -> Iterator[Any]:
    try:
        from adbc_driver_manager import AdbcConnection  # noqa: PLC0415 - `spec` does not need it
        from adbc_driver_postgresql import dbapi  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the source postgres needs the module {error.name}, which is not installed",
            guidance="pip install 'elt-assets[postgres-source]'",
        ) from None
    with write_certificates(config) as files:
        try:
            uri = _uri(config, files)
            if files:
                connection = dbapi.connect(uri)
            else:
                server = _find_server(uri)
                connection = dbapi.Connection(server, AdbcConnection(server.database))
        except _driver_errors() as error:
            raise connection_error(error, f"{config.place}/{config.database}") from None
    try:
        yield connection
    finally:
        # A connection that was cut cannot be rolled back, and ends anyway.
        with suppress(*_driver_errors()):
            connection.close()


def _uri(config: PostgresConfig, files: Mapping[str, str]) -> str:
    password = "" if config.password is None else config.password.get_secret_value()
    options = {
        "sslmode": config.ssl_mode,
        "connect_timeout": str(config.connect_timeout),
        "client_encoding": "UTF8",
        "application_name": "elt",
        "keepalives": "1",
        "keepalives_idle": "60",
        **{_FILES[name]: path for name, path in files.items()},
    }
    if config.ssl_mode in _MAY_BE_PLAIN:
        options["require_auth"] = "!password"
    user = quote(config.user, safe="") + (f":{quote(password, safe='')}" if password else "")
    host = f"[{config.host}]" if ":" in config.host else quote(config.host, safe="")
    database = quote(config.database, safe="")
    query = urlencode(options, quote_via=quote)
    return f"postgresql://{user}@{host}:{config.port}/{database}?{query}"


def _driver_errors() -> tuple[type[Exception], ...]:
    """Return the classes of the driver's errors. It raises OSError where a stream of batches fails."""
    import adbc_driver_manager  # noqa: PLC0415 - `spec` does not need it

    return (adbc_driver_manager.Error, OSError)
