"""What a read covers: the rows of a full refresh, or those between two values of a cursor, in ranges.

What holds. Each slice is one SELECT outside of a transaction, so each sees the table at a time of its own. A
snapshot cannot be shared between connections: START TRANSACTION WITH CONSISTENT SNAPSHOT makes another one in
each. The ranges meet without a gap, and the last one has no end, so

- a row that is there during the whole read, with the same key, is read exactly once;
- a row that is inserted, changed or deleted meanwhile is read as it was before or after that;
- a row whose key is changed meanwhile may be read twice, or not at all;
- rows of different tables, and of different slices, may be of different times.

A read by a cursor mends the second for rows that are there later: what changes after the upper bound was
fixed is read the next time.

What is resumable. Ranges are read in the order of an index, and the state has the end of the last range
that is complete, so a read goes on after it. A table that is altered or created again meanwhile has another
time of creation: each slice compares it before and after its rows, because a range of an empty table is
read without an error. TRUNCATE changes that time in MySQL; in MariaDB it does not, and is what DELETE of
all rows is. A lock would keep it off, and with it, behind the statement that waits, everybody else who
reads the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connectors.mysql.session import Session
from connectors.mysql.sql import is_after, is_until, literal, quote_text
from connectors.mysql.tables import PRIMARY, Column, Table
from elt_assets.errors import TransientError

Key = list[str]
"""The texts of a row's values in the columns of an index."""


@dataclass(frozen=True)
class Range:
    """Rows of a table in the order of columns. `until`: the key of the last one; None for no end."""

    where: str
    until: Key | None


@dataclass(frozen=True)
class Division:
    """How a table is divided: the columns of an index, and the condition of the rows that are read.

    `start` and `end` are conditions of the first and the last range alone, where the columns are those of the
    cursor; `condition` is one of each range.
    """

    table: Table
    columns: Sequence[Column]
    condition: str = ""
    start: str = ""
    end: str = ""

    def ranges(self, session: Session, rows: int, after: Key | None) -> Iterator[Range]:
        """Yield ranges of about so many rows.

        The server looks for the end of each range in the index alone, while the ranges before it are read.

        Args:
            after: the end of the last range that is complete; None to begin with the first one.
        """
        while True:
            begin = self.start if after is None else is_after(self._compared, self._literals(after))
            until = self._find_end(session, _join(begin, self.end), rows)
            if until is None:
                yield Range(_join(begin, self.end, self.condition), None)
                return
            end = is_until(self._compared, self._literals(until))
            yield Range(_join(begin, end, self.condition), until)
            after = until

    def _find_end(self, session: Session, where: str, rows: int) -> Key | None:
        order = ", ".join(column.quoted for column in self.columns)
        positions = ", ".join(column.position for column in self.columns)
        rows_at_end = session.rows(
            f"SELECT {positions} FROM {self.table.quoted}{_hint(self.table, self.columns)}"
            f"{_where(where)} ORDER BY {order} LIMIT 1 OFFSET {rows - 1}"
        )
        return [str(text) for text in rows_at_end[0]] if rows_at_end else None

    @property
    def _compared(self) -> list[str]:
        return [column.compared for column in self.columns]

    def _literals(self, key: Key) -> list[str]:
        return [literal(c.kind, text) for c, text in zip(self.columns, key, strict=True)]


def _hint(table: Table, columns: Sequence[Column]) -> str:
    """Return the hint to read by the primary key, if that is what the columns are."""
    names = tuple(column.name for column in columns)
    is_primary = bool(names) and names == table.primary_key
    return f" FORCE INDEX ({PRIMARY})" if is_primary else ""


def select(table: Table, where: str) -> str:
    """Return the query of a range."""
    expressions = ", ".join(column.select for column in table.columns)
    return f"SELECT {expressions} FROM {table.quoted}{_where(where)}"


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


def require_creation(session: Session, table: Table, creation: str) -> None:
    """Check that a table is what it was when the read began.

    Raises:
        TransientError: it was altered or created again.
    """
    if read_creation(session, table) != creation:
        raise TransientError(
            f"{session.purpose}: the table was altered or created again during the read",
            guidance="run it again",
        )


def _join(*conditions: str) -> str:
    return " AND ".join(f"({condition})" for condition in conditions if condition)


def _where(condition: str) -> str:
    return f" WHERE {condition}" if condition else ""
