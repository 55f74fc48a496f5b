"""What it means that the source and the table have a key differently: a difference, or a change under way.

`comparison` asks for it. The rule, by what the source says of its rows (`Comparison`):

- *By a log*: a row that changed after the source was asked has a greater value in the log's column than the
  position of the comparison, also a deleted one. The table is looked at when it has all changes up to that
  position: so a row of it that is newer is excused, and any other difference is one. No row can be newer than
  a position that was asked for after the table was opened (`ceiling`): then its value is damaged.
- *By a cursor*: rows beyond the last cursor value that the table has come with the next sync, so a key whose
  row in the source is one of them is excused.
- *By neither*: whatever differs has changed since the last sync, or is damaged.

A row of the table with a recorded change of a value (it did not fit its column) is excused as well.
Test: `tests/lake/test_judgement.py::test_no_alarm_while_a_source_changes`
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from elt_assets.lake.read.row_hashes import StoredRow


class Verdict(Enum):
    """What a comparison says of a key."""

    EQUAL = "equal"
    MISSING = "missing"
    """The source has a row, and the table has none."""
    SURPLUS = "surplus"
    """The table has a row, and the source has none."""
    DIFFERENT = "different"
    """The rows have different values, or the table has several, or one that is newer than any can be."""
    CHANGED = "changed"
    """Excused: the row has changed since."""
    NULLED = "nulled"
    """Excused: a value did not fit its column."""


_MARGIN = 2
"""Rows of a snapshot may have a number that is a little greater than that of the end of the log then, and
changes that a snapshot does not show one that is greater by one."""
DIFFERENCES = (Verdict.MISSING, Verdict.SURPLUS, Verdict.DIFFERENT)


@dataclass(frozen=True)
class SourceRow:
    """A row of the source: its hash, and the value of its cursor, if there is one."""

    hash: int
    cursor: Any = None


@dataclass(frozen=True)
class Moment:
    """The time of a comparison, by the cursor of its rows. Values are as `parse_value` returns them."""

    position: Any = None  # of a log: rows that change later have a greater value
    ceiling: Any = (
        None  # the greatest value that a row of the table can have; None if that is not known
    )
    until: Any = None  # of a cursor: rows with a greater value are of the next sync
    # Rows with the value `until` are of it too; without such a value, all rows that have one.
    is_open: bool = False

    @property
    def greatest(self) -> Any:
        """The greatest value that a row can have that was there before the source was asked; None if that is
        not known."""
        return self.position + _MARGIN if isinstance(self.position, int) else None

    def is_newer(self, row: StoredRow) -> bool:
        """Return whether a row of the table changed after the source was asked."""
        if self.position is None or row.cursor is None or self.is_impossible(row):
            return False
        return is_greater(row.cursor, self.position)

    def is_impossible(self, row: StoredRow) -> bool:
        """Return whether a row of the table is newer than any can be."""
        if self.ceiling is None or row.cursor is None:
            return False
        return is_greater(row.cursor, self.ceiling)

    def is_beyond(self, row: SourceRow) -> bool:
        """Return whether a row of the source comes with the next sync."""
        if self.until is None or row.cursor is None:
            return self.is_open and row.cursor is not None
        return is_greater(row.cursor, self.until) or (self.is_open and row.cursor == self.until)


def judge(source: SourceRow | None, stored: Sequence[StoredRow], moment: Moment) -> Verdict:
    """Return what the rows of a key say: that of the source, and all that the table has, deleted ones too."""
    present = [row for row in stored if not row.is_deleted]
    is_whole = not any(map(moment.is_impossible, present))
    if source is None and not present:
        return Verdict.EQUAL
    is_newer = any(map(moment.is_newer, stored))
    # Of a newer row, equal values say nothing before it is known whether it can be that new.
    is_certain = is_whole and (not is_newer or moment.ceiling is not None)
    if source is not None and len(present) == 1 and is_certain and source.hash in present[0].hashes:
        return Verdict.EQUAL
    if source is not None and len(present) < 2 and moment.is_beyond(source):
        return Verdict.CHANGED
    if is_newer:
        return Verdict.CHANGED
    if source is None:
        return Verdict.SURPLUS
    if not present:
        return Verdict.MISSING
    if len(present) == 1 and is_whole and present[0].is_changed:
        return Verdict.NULLED
    return Verdict.DIFFERENT


def wins_by_cursor(source: SourceRow | None, stored: Sequence[StoredRow], moment: Moment) -> bool:
    """Return whether a row of the table, or a deleted one, would stay in a merge with the source's row.

    That of a log gets at least the position of the comparison.
    """
    cursor = moment.position
    if cursor is None and source is not None:
        cursor = source.cursor
    cursors = [row.cursor for row in stored if row.cursor is not None]
    return any(cursor is None or is_greater(other, cursor) for other in cursors)


def is_greater(value: Any, other: Any) -> bool:
    """Return whether a value is greater; one of another type, which cannot be compared, is."""
    if isinstance(value, str) and isinstance(other, str):
        return value.encode("utf-8", "surrogatepass") > other.encode("utf-8", "surrogatepass")
    try:
        return bool(normalize(value) > normalize(other))
    except TypeError:
        return True


def normalize(value: Any) -> Any:
    """Return a value in the form in which it equals the same value of the other side: times have a zone."""
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return value.replace(tzinfo=dt.timezone.utc)
    return value


def order_key(key: Sequence[Any]) -> tuple[Any, ...]:
    """Return a key in the form in which it has the order of keys: texts have that of their bytes."""
    return tuple(v.encode("utf-8", "surrogatepass") if isinstance(v, str) else v for v in key)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "decimal": Decimal,
    "date": dt.date.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
    "hex": bytes.fromhex,
}


def parse_value(value: Any) -> Any:
    """Return the value of a key or a cursor in a message (see `protocol.messages.Key`)."""
    if not isinstance(value, dict):
        return value
    ((name, text),) = value.items()
    return normalize(_PARSERS[name](text))


def write_value(value: Any) -> Any:
    """Return a value of a key as `parse_value` reads it."""
    if isinstance(value, dt.datetime):
        return {"datetime": str(value)}
    names = {Decimal: "decimal", dt.date: "date", bytes: "hex"}
    name = names.get(type(value))
    if name is None:
        return value
    return {name: value.hex() if name == "hex" else str(value)}
