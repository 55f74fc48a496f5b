"""The stream of a table or a view: `connectors.sql.stream` has how it is read, and why nothing is lost.

A snapshot cannot be shared between connections: START TRANSACTION WITH CONSISTENT SNAPSHOT makes another one
in each. So ranges see the table at times of their own.

A table that is altered or created again during a read has another time of creation: each slice compares it
before and after its rows, because a range of an empty table is read without an error. TRUNCATE changes that
time in MySQL; in MariaDB it does not, and is what DELETE of all rows is. A lock would keep it off, and with
it, behind the statement that waits, everybody else who reads the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from connectors.cdc import stream
from connectors.cdc.texts import UPDATED_AT
from connectors.mysql.config import MySqlConfig
from connectors.mysql.dialect import NUMBER, MySqlDialect, literal, quote_text
from connectors.mysql.replica import find_written, wait_for_transactions
from connectors.mysql.session import Session, open_session
from connectors.mysql.tables import PRIMARY, Column, Table
from connectors.sdk.columns.types import DATE32, TIMESTAMP, TIMESTAMP_UTC
from connectors.sdk.comparison import Answer, ComparisonRequest
from connectors.sdk.slices import Part
from connectors.sql.limits import StatementLimit
from connectors.sql.stream import Access, SqlStream, Where, keep_keys
from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.catalog import DELETED_AT, ConfiguredStream

if TYPE_CHECKING:
    import pyarrow as pa

CURSOR = "_ab_cdc_cursor"
"""The field with the number of a change of the log."""
_COMPARISON, _HASHES = "connectors.mysql.comparison", "connectors.mysql.hashes"
_NUMBERS = "connectors.mysql.log.numbers"
"""They are imported when they are used: pyarrow is slow to import."""
_MAX_AHEAD = {TIMESTAMP_UTC: 1, TIMESTAMP: 15, DATE32: 39}
"""Hours after which a value is past, in each time zone. A date is past when its day is."""


class TableStream(SqlStream):
    """The rows of a table.

    A table with a key (its primary key, or a unique index of columns that are not nullable) is read in ranges
    of it; any other one as one slice, which cannot be resumed.

    Attributes:
        log_cursor: the column with the number of a change in the log; None if it is not read from the log.
    """

    table: Table
    log_cursor: str | None = None

    def __init__(self, config: MySqlConfig, table: Table):
        self._config = config
        session = partial(open_session, config)
        super().__init__(
            Access(session, MySqlDialect(), config.slice_rows, config.lookback, config.limits),
            table,
        )
        self.ends_with_state = self.is_resumable

    @property
    def purpose(self) -> str:
        return f"{self.id} cannot be read from {self._config.place}"

    @contextmanager
    def open(
        self, limit: StatementLimit | None = None, gtids: str | None = None
    ) -> Iterator[Session]:
        """Open a connection for the rows of the table, at the replica if there is one.

        Args:
            gtids: the transactions that the replica must have; None for those that the server has now.
        """
        has_replica = self._config.replica is not None
        if has_replica and gtids is None:
            gtids = find_written(self._config)
        with open_session(self._config.find_replica(), self.purpose) as session:
            if has_replica:
                session.gtids = gtids or ""
                wait_for_transactions(self._config, session, session.gtids)
            session.limit_statements(limit or self.find_limit())
            yield session

    def open_slice(self, data: Mapping[str, Any]) -> AbstractContextManager[Session]:
        return self.open(gtids=data.get("gtids"))

    def open_at_server(self) -> AbstractContextManager[Session]:
        """Open the connection that reads the whole table at the server itself, within the limits."""
        opened = partial(open_session, self._config, self.purpose, self.find_limit())
        return self.limits.open_reader(opened, self.take_lock, self.require_hours)

    def find_stamp(self, session: Session, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return when the table was created or altered, and what a replica must have for its slices.

        Raises:
            ConfigError: that was after the read whose state is given.
        """
        created = read_creation(session, self.table)
        if state.get("created", created) != created:
            raise ConfigError(
                f"{session.purpose}: the table was altered or created again since the read "
                "that was interrupted",
                guidance="reset the stream, so that it is read from the beginning",
            )
        return {"created": created, "gtids": session.gtids}

    def read_slice(self, data: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        with self.open_reader(data) as session:
            self._require_creation(session, data["created"])
            for batch in self.read_rows(session, data["where"], self.choose_columns(data)):
                yield keep_keys(batch, data)
            self._require_creation(session, data["created"])

    def read_rows(
        self, session: Session, where: str = "", columns: Sequence[Column] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows for which a condition holds as a session sees them; all by default.

        Args:
            columns: those that are read; None for all.
        """
        from connectors.mysql.rows import convert_batch  # noqa: PLC0415 - `discover` needs no Arrow

        columns = self.table.columns if columns is None else columns
        rows = session.columns(self.make_select(where, columns))
        yield from self.limits.pace(convert_batch(columns, values) for values in rows)

    def _require_creation(self, session: Session, creation: str) -> None:
        """Check that the table is what it was when the read began.

        Raises:
            TransientError: it was altered or created again.
        """
        if read_creation(session, self.table) != creation:
            raise TransientError(
                f"{session.purpose}: the table was altered or created again during the read",
                guidance="run it again",
            )

    def make_progress(
        self, key: Sequence[Column], after: Sequence[Any], stamp: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {"by": [column.name for column in key], "after": after, "created": stamp["created"]}

    def choose_key(self, read: Mapping[str, Any]) -> Sequence[Column]:
        """Return the columns by which an incremental read is divided.

        The first read is divided by the key, which is how the rows are stored; a later one by an index of the
        cursor, if there is one, so that only new rows are read.
        """
        cursor = self.table.column(read["cursor"])
        if cursor is not None and read["low"] is not None and self.is_quick(cursor):
            return [cursor]
        return self.table.key_columns

    def is_quick(self, cursor: Column) -> bool:
        return any(index.columns[0] == cursor.name for index in self.table.indexes)

    def quote_compared(self, column: Column) -> str:
        return column.compared

    def select_bound(self, column: Column) -> str:
        return column.position

    def encode_value(self, value: Any) -> str:
        """Return the text of the server."""
        return str(value)

    def write_bound(self, where: Where, column: Column, bound: Any) -> str:
        """Return a literal: the query is prepared without parameters."""
        return literal(column.kind, str(bound))

    def list_bounds(self, low: Any) -> dict[str, Any]:
        """Return the bound; the server looks back from it."""
        return {"low": low}

    def write_start(self, where: Where, column: Column, read: Mapping[str, Any]) -> str:
        lookback, value = self._config.lookback, self.write_bound(where, column, read["low"])
        if lookback and column.type.is_time:
            return f"{column.compared} >= {value} - INTERVAL {lookback} SECOND"
        if lookback and column.kind.literal == NUMBER:
            # A number that is not signed cannot be below zero, and its expression is an error.
            return f"{column.compared} >= CAST({value} AS DECIMAL(65, 30)) - {lookback}"
        return f"{column.compared} {'>' if read['is_closed'] else '>='} {value}"

    def is_closed(self, session: Session, cursor: Column, state: Mapping[str, Any]) -> bool:
        """Return whether all rows with the value of a state are read: a key has each value once."""
        names = (cursor.name,)
        if any(index.is_key and index.columns == names for index in self.table.indexes):
            return True
        rows = state.get("rows")
        return rows is not None and self.count_rows(session, cursor, state["value"]) == rows

    def count_rows(self, session: Session, cursor: Column, bound: Any) -> int | None:
        if bound is None:
            return None
        value, is_past = literal(cursor.kind, bound), "TRUE"
        if cursor.type.is_time:  # by the clock of the server
            hours = f"TIMESTAMPDIFF(HOUR, {value}, UTC_TIMESTAMP())"
            is_past = f"COALESCE({hours} >= {_MAX_AHEAD[cursor.type]}, TRUE)"
        table = f"{self.table.quoted} WHERE {cursor.compared} = {value}"
        ((count, past),) = session.rows(f"SELECT COUNT(*), {is_past} FROM {table}")
        return int(count or 0) if past == "1" else None

    def match_value(self, where: Where, column: Column, value: Any) -> str:
        condition: str = import_module(_HASHES).match_value(column, value)
        return condition

    def compare(
        self, configured: ConfiguredStream, state: dict[str, Any] | None, request: ComparisonRequest
    ) -> Answer:
        answer: Answer = import_module(_COMPARISON).compare_table(self, configured, state, request)
        return answer

    def find_position(
        self, configured: ConfiguredStream, state: Mapping[str, Any] | None
    ) -> int | None:
        """Return what a row that is changed after a snapshot that is taken next has a greater value of, in
        the column `log_cursor`; None if that is unknown, or the stream has no such column."""
        del configured, state
        return None

    def find_hint(self, key: Sequence[Column]) -> str:
        """Return the hint to read by the primary key, if that is what the columns are."""
        is_primary = tuple(column.name for column in key) == self.table.primary_key
        return f" FORCE INDEX ({PRIMARY})" if is_primary else ""

    def ask(self, session: Session, query: str, where: Where) -> Sequence[Sequence[Any]]:
        return session.rows(query)


def read_creation(session: Session, table: Table) -> str:
    """Return when the table was created or altered; an empty text for a view.

    Raises:
        TransientError: there is no such table, though it was listed.
    """
    rows = session.rows(
        "SELECT COALESCE(CREATE_TIME, '') FROM information_schema.TABLES WHERE TABLE_SCHEMA = "
        f"{quote_text(table.database)} AND TABLE_NAME = {quote_text(table.name)}"
    )
    if not rows:
        raise TransientError(
            f"{session.purpose}: the table is gone",
            guidance="run it again if it is being created; else run `elt discover`, and remove the stream",
        )
    return str(rows[0][0])


class LogStream(stream.LogStream, TableStream):
    """The rows of a table that is read from the log, and its changes."""

    cursor = log_cursor = CURSOR

    def find_position(
        self, configured: ConfiguredStream, state: Mapping[str, Any] | None
    ) -> int | None:
        if state is None:
            return None
        find_number = import_module(_NUMBERS).find_number
        position: int = find_number(self._config, self, configured, state)
        return position

    def stamp_rows(
        self,
        configured: ConfiguredStream,
        state: Mapping[str, Any] | None,
        columns: Sequence[str] | None,
    ) -> dict[str, Any]:
        if columns is not None and self.cursor not in columns:
            return {}
        number = self.find_position(configured, state)
        if number is None:
            raise ConfigError(
                f"{self.id} cannot be read by keys or columns without its state, from which the changes of "
                "the log are numbered",
                guidance="give the state of the stream (`--state`)",
            )
        return {"number": number, "time": number}

    def list_own(self, columns: Sequence[str]) -> Sequence[str]:
        return [name for name in columns if name not in (self.cursor, UPDATED_AT, DELETED_AT)]

    @property
    def columns(self) -> Sequence[Column]:
        return self.table.columns

    @property
    def column_names(self) -> Sequence[str]:
        return [column.name for column in self.columns]

    def list_ranges(self, progress: Mapping[str, Any] | None) -> Iterator[Part]:
        """Yield the slices of the table's snapshot, and the states after them, for `log.read`.

        Args:
            progress: the last state; None to begin.
        """
        with self.open() as session:
            state = progress or {}
            yield from self.read_all(session, state, self.find_stamp(session, state))
