"""The base class for a source of your own, over any database with a driver for Python.

The sources of MySQL and PostgreSQL have classes of their own; they share the streams and the types of this
package.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from connectors.sdk.source import Source
from connectors.sdk.stream import Stream
from connectors.sql.dialect import SqlDialect
from connectors.sql.limits import ReadLimits, StatementLimit
from connectors.sql.stream import Access, SqlStream
from connectors.sql.tables import Column, Table
from elt_assets.errors import ConfigError, EltError, Problems, SystemFailure, TransientError

_TRANSIENT = ("OperationalError", "InterfaceError")
_PERMANENT = ("ProgrammingError", "NotSupportedError")
"""Classes of errors in the DB-API. ADBC has them as well."""
_FIRST_ROWS, _MAX_ROWS, _BATCH_BYTES = 16, 20_000, 8 << 20
"""Rows that are fetched at first, and at most; the size of a batch, by which their number is chosen."""


class SqlSource(Source):
    """A source of your own for a database, whose tables and views are streams.

    Attributes:
        dialect: what the database does in a way of its own.
        slice_rows: rows of a table in a slice.
    """

    dialect: SqlDialect = SqlDialect()
    slice_rows = 200_000

    @abstractmethod
    def connect(self, config: Any) -> Any:
        """Return a connection of the driver: of the DB-API 2.0, or of ADBC's module `dbapi`.

        It should only be able to read. Errors of the driver are translated.
        """

    def cursor(self, connection: Any) -> Any:
        """Return the cursor that reads the rows of a slice. A driver that keeps all rows of a query in memory
        needs one that does not."""
        return connection.cursor()

    def is_read(self, config: Any, table: Table[Column]) -> bool:
        """Return whether a table is a stream."""
        del config, table
        return True

    def lookback(self, config: Any) -> int:
        """Return how far below the last value of a cursor late rows are read: seconds, or a number."""
        del config
        return 0

    def limits(self, config: Any) -> ReadLimits:
        """Return what is asked of the server at most. A config may have it as a field of this type."""
        del config
        return ReadLimits()

    def translate(self, error: Exception, purpose: str) -> EltError:
        """Return an error of the driver by who must act.

        Args:
            purpose: what fails, such as `shop.orders cannot be read`.
        """
        names = {parent.__name__ for parent in type(error).__mro__}
        message = f"{purpose}: {' '.join(str(error).split())}"
        if isinstance(error, ModuleNotFoundError):
            return ConfigError(message, guidance=f"install the driver: pip install {error.name}")
        if not names.isdisjoint(_PERMANENT) or self.dialect.is_permanent(error):
            return ConfigError(
                message,
                guidance="check that the table and its columns are there and may be read; `elt discover` "
                "lists them",
            )
        if not names.isdisjoint(_TRANSIENT) or isinstance(error, OSError):
            return TransientError(
                message, guidance="check that the database can be reached, and run it again"
            )
        return SystemFailure(
            message, guidance="the database or its driver refuses a query of this source"
        )

    def check(self, config: Any) -> None:
        with self.open_connection(config, "the database cannot be checked") as connection:
            tables = self._list_tables(config, connection)
            if not tables:
                raise ConfigError(
                    "there are no tables to read",
                    guidance="grant the user the right to read some, or correct which are read",
                )
            problems = Problems()
            for table in tables:
                problems.of(partial(self._check_table, connection, table))
            problems.raise_all()

    def streams(self, config: Any) -> Sequence[Stream]:
        with self.open_connection(config, "the tables cannot be listed") as connection:
            tables = self._list_tables(config, connection)
        access = Access(
            partial(self.open_connection, config),
            self.dialect,
            self.slice_rows,
            self.lookback(config),
            self._find_limits(config),
        )
        return [SqlStream(access, table) for table in tables]

    def _find_limits(self, config: Any) -> ReadLimits:
        """Return the limits.

        Raises:
            ConfigError: the dialect does not say how the server keeps them.
        """
        limits = self.limits(config)
        for names, is_set, method in (
            (
                "`limits.connections` and `limits.rows_per_second`",
                limits.readers is not None,
                self.dialect.lock_reader,
            ),
            (
                "`limits.statement_seconds`",
                limits.statement_seconds is not None,
                self.dialect.limit_statements,
            ),
        ):
            if is_set and not method(1):
                raise ConfigError(
                    f"the source {self.name} cannot keep {names}: its dialect has no `{method.__name__}`",
                    guidance="remove the limit, or let the dialect define that method",
                )
        return limits

    @contextmanager
    def open_connection(
        self, config: Any, purpose: str, limit: StatementLimit | None = None
    ) -> Iterator[Connection]:
        """Open a connection.

        Args:
            purpose: what fails if an error comes.
            limit: how long each query may take.

        Raises:
            EltError: the database cannot be reached.
        """
        translate = partial(self.translate, purpose=purpose)
        try:
            connection = self.connect(config)
        except EltError:
            raise
        except Exception as error:  # noqa: BLE001 - drivers have classes of their own
            raise translate(error) from None
        try:
            opened = Connection(connection, self.dialect, self.cursor, translate)
            if limit is not None:
                opened.limit_statements(limit, purpose)
            yield opened
        finally:
            with suppress(Exception):
                connection.close()

    def _list_tables(self, config: Any, connection: Connection) -> list[Table[Column]]:
        tables = self.dialect.list_tables(connection.ask)
        return [
            table
            for table in tables
            if (self.selected is None or table.name in self.selected)
            and self.is_read(config, table)
        ]

    def _check_table(self, connection: Connection, table: Table[Column]) -> None:
        names = ", ".join(column.select for column in table.columns)
        query = f"SELECT {names} FROM {self.dialect.quote_table(table)} WHERE 1 = 0"
        try:
            connection.ask(query)
        except EltError as error:
            place = ".".join(filter(None, (table.schema_name, table.name)))
            message = error.message.rpartition("cannot be checked: ")[2]
            raise type(error)(
                f"{place} cannot be read: {message}", guidance=error.guidance
            ) from None


class Connection:
    """A connection of any driver of the DB-API 2.0 or of ADBC, whose errors say who must act.

    Args:
        connection: of the driver.
        make_cursor: returns a cursor of it.
        translate: returns the error of the product for one of the driver.
    """

    def __init__(
        self,
        connection: Any,
        dialect: SqlDialect,
        make_cursor: Callable[[Any], Any],
        translate: Callable[[Exception], EltError],
    ):
        self._connection, self._dialect = connection, dialect
        self._make_cursor, self._translate = make_cursor, translate
        self._limit: StatementLimit | None = None
        self._purpose = ""

    def limit_statements(self, limit: StatementLimit, purpose: str) -> None:
        """Let the server end each query after some time, if the dialect says how.

        Args:
            purpose: what fails then.

        Raises:
            EltError: the database refuses it.
        """
        statement = self._dialect.limit_statements(limit.milliseconds)
        if statement:
            with self._run(self._connection.cursor, statement, ()):
                self._limit, self._purpose = limit, purpose

    def ask(self, query: str, values: Sequence[Any] = ()) -> list[Sequence[Any]]:
        """Return the few rows of a query.

        Raises:
            EltError: the database refuses it.
        """
        with self._run(self._connection.cursor, query, values) as cursor:
            return [tuple(row) for row in cursor.fetchall()]

    def read(self, query: str, values: Sequence[Any], count: int) -> Iterator[Sequence[Any]]:
        """Yield the rows of a query in batches: for each column its values.

        Args:
            count: the number of columns.

        Raises:
            EltError: the database refuses it, or the connection is cut.
        """
        with self._run(lambda: self._make_cursor(self._connection), query, values) as cursor:
            if hasattr(cursor, "fetch_record_batch"):
                for batch in cursor.fetch_record_batch():
                    yield batch.columns
                return
            rows = _FIRST_ROWS
            while fetched := cursor.fetchmany(rows):
                columns = [list(column) for column in zip(*fetched, strict=True)]
                assert len(columns) == count
                yield columns
                size = sum(map(_estimate_size, columns)) // len(fetched) + 1
                rows = max(1, min(_MAX_ROWS, rows * 8, _BATCH_BYTES // size))

    @contextmanager
    def _run(
        self, make_cursor: Callable[[], Any], query: str, values: Sequence[Any]
    ) -> Iterator[Any]:
        begin, limit = time.monotonic(), self._limit
        try:
            cursor = make_cursor()
            try:
                cursor.execute(*self._dialect.bind(query, values))
                yield cursor
            finally:
                with suppress(Exception):
                    cursor.close()
        except EltError:
            raise
        except Exception as error:  # noqa: BLE001 - drivers have classes of their own
            if limit is not None and time.monotonic() - begin >= limit.seconds:
                raise limit.make_error(self._purpose) from None
            raise self._translate(error) from None


def _estimate_size(values: Sequence[Any]) -> int:
    """Return about how many bytes values have."""
    return sum(
        len(value) + 8 if isinstance(value, (str, bytes, bytearray, memoryview)) else 16
        for value in values
    )
