"""Reads by a cursor column: from which value to which, and the state after them.

The upper bound is the greatest value when the read begins: rows that come later are read the next time. A row
below it that is committed later is lost without a look-back: the value of a column does not say when its row
was committed.

Others may get the value of the bound itself after the read: rows of the same second, say. The state has
their number, and the next read has all rows of that value again if there are more or fewer of them. It has
them also if the value was not older than the present time, in any time zone, since a row may change and get
it again. So a row may be read twice, and none is lost; a column that is a key needs nothing of this.

Two forms of state: `{"cursor", "value", "rows"}` after a read, and in the midst of one also "low",
"is_closed", "by", "after" and "created": the index by which it is divided, and the end of the last range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from connectors.mysql.kinds import DATE, MOMENT, NUMBER, UTC_MOMENT
from connectors.mysql.reads import Division, Key
from connectors.mysql.session import Session
from connectors.mysql.sql import literal
from connectors.mysql.tables import Column, Table
from elt_assets.errors import ConfigError

_MAX_AHEAD = {UTC_MOMENT: 1, MOMENT: 15, DATE: 39}
"""Hours after which a value is past, in each time zone. A date is past when its day is."""


@dataclass(frozen=True)
class CursorRead:
    """A read by a cursor.

    `low`: the value up to which earlier reads have read; None for none. `high`: that up to which this one
    reads; None if no value is greater than `low`. `rows`: how many rows have the value of the bound; None if
    more are expected. `is_closed`: whether the rows with the value of `low` are those that were read.
    `after`: the end of the last range; None for none.
    """

    table: Table
    cursor: Column
    low: str | None
    high: str | None
    rows: int | None = None
    is_closed: bool = False
    lookback: int = 0
    after: Key | None = None

    @property
    def division(self) -> Division | None:
        """How the read is divided; None if it is one slice.

        The first read is divided by the key, which is how the rows are stored; a later one by an index of the
        cursor, if there is one, so that only new rows are read.
        """
        if self.low is not None and is_indexed(self.table, self.cursor):
            end = "" if self.high is None else self._is_until_high
            return Division(self.table, [self.cursor], start=self._is_new, end=end)
        key = self.table.key
        if key is None:
            return None
        columns = [column for name in key.columns if (column := self.table.column(name))]
        return Division(self.table, columns, condition=self.condition)

    @property
    def condition(self) -> str:
        """The condition of the rows that are read. The first read takes those without a value as well."""
        if self.low is None:
            if self.high is None:
                return ""
            return f"{self._is_until_high} OR {self.cursor.quoted} IS NULL"
        parts = [self._is_new] + ([] if self.high is None else [self._is_until_high])
        return " AND ".join(parts)

    @property
    def _is_until_high(self) -> str:
        return f"{self.cursor.compared} <= {literal(self.cursor.kind, str(self.high))}"

    @property
    def _is_new(self) -> str:
        value = literal(self.cursor.kind, str(self.low))
        if self.lookback and self.cursor.kind.is_timed:
            return f"{self.cursor.compared} >= {value} - INTERVAL {self.lookback} SECOND"
        if self.lookback and self.cursor.kind.literal == NUMBER:
            # A number that is not signed cannot be below zero, and its expression is an error.
            return f"{self.cursor.compared} >= CAST({value} AS DECIMAL(65, 30)) - {self.lookback}"
        return f"{self.cursor.compared} {'>' if self.is_closed else '>='} {value}"

    def state_within(self, after: Key, created: str) -> dict[str, Any]:
        """Return the state after a range."""
        division = self.division
        by = [column.name for column in division.columns] if division else []
        bounds = {
            "low": self.low,
            "high": self.high,
            "rows": self.rows,
            "is_closed": self.is_closed,
        }
        return {"cursor": self.cursor.name, **bounds, "by": by, "after": after, "created": created}

    def final_state(self) -> dict[str, Any]:
        """Return the state after all ranges."""
        value = self.low if self.high is None else self.high
        return {"cursor": self.cursor.name, "value": value, "rows": self.rows}


def is_indexed(table: Table, cursor: Column) -> bool:
    """Return whether an index begins with the cursor."""
    return any(index.columns[0] == cursor.name for index in table.indexes)


def begin(
    session: Session,
    table: Table,
    cursor: Column,
    state: Mapping[str, Any] | None,
    lookback: int,
) -> CursorRead:
    """Return the read that follows a state, which is in the midst of one or after one."""
    if state is not None and state["cursor"] != cursor.name:
        raise ConfigError(
            f"{session.purpose}: the state is that of the cursor {state['cursor']!r}, "
            f"and not of {cursor.name!r}",
            guidance="write the earlier `cursor_field`, or reset the stream",
        )
    if state is not None and "after" in state:
        bounds = (state["low"], state["high"], state["rows"], state["is_closed"])
        return CursorRead(table, cursor, *bounds, lookback=lookback, after=state["after"])
    low = None if state is None else state["value"]
    high = _find_high(session, table, cursor, low)
    rows = _count_rows(session, table, cursor, low if high is None else high)
    is_closed = _is_closed(session, table, cursor, state)
    return CursorRead(table, cursor, low, high, rows, is_closed, lookback)


def _is_closed(
    session: Session, table: Table, cursor: Column, state: Mapping[str, Any] | None
) -> bool:
    """Return whether all rows with the value of a state are read."""
    if any(index.is_key and index.columns == (cursor.name,) for index in table.indexes):
        return True
    if state is None or state.get("rows") is None:
        return False
    return bool(_count_rows(session, table, cursor, state["value"]) == state["rows"])


def _count_rows(session: Session, table: Table, cursor: Column, value: str | None) -> int | None:
    """Return how many rows have a value; None if a row may get it yet, because it is the present time."""
    if value is None:
        return None
    bound = literal(cursor.kind, value)
    is_past = "TRUE"
    if cursor.kind.is_timed:
        hours = _MAX_AHEAD[cursor.kind.form]
        is_past = f"COALESCE(TIMESTAMPDIFF(HOUR, {bound}, UTC_TIMESTAMP()) >= {hours}, TRUE)"
    query = f"SELECT COUNT(*), {is_past} FROM {table.quoted} WHERE {cursor.compared} = {bound}"
    ((count, past),) = session.rows(query)
    return int(count or 0) if past == "1" else None


def _find_high(session: Session, table: Table, cursor: Column, low: str | None) -> str | None:
    where = f"{cursor.quoted} IS NOT NULL"
    if low is not None:
        where = f"{cursor.compared} > {literal(cursor.kind, low)}"
    rows = session.rows(
        f"SELECT {cursor.position} FROM {table.quoted} WHERE {where} "
        f"ORDER BY {cursor.quoted} DESC LIMIT 1"
    )
    return rows[0][0] if rows else None
