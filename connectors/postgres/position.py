"""States of a stream: what was read, and the conditions for what is new.

After a complete read, a state has the snapshot's oldest running transaction (`xmin`), the greatest value of
the cursor, and the tables that were read, with the files in which they were.

**What is new since a snapshot S1, in a later one S2.** A row version has the transaction that wrote it in
`xmin`. If that is before S1's oldest running transaction, it had ended at S1, so S1 showed the version. So
`xmin` in [S1.least, S2.end) has all versions that S1 did not show; subtransactions too, whose numbers are
after their parent's. It also has some that S1 did show: those of transactions that ended while an older one
was running. They are read again. `xmin` has 32 bits, and keeps its value when it is frozen; compared modulo
2^32, a version of 4 billion transactions ago may be read again, and none is lost.

**By a cursor column** a read takes the rows above the last value. A row that is committed late, or has the
same value as the last one, lies at or below it: rows between `lookback` below and the value are read if
their `xmin` is new, so each once. Rows whose cursor is null or infinite are read by `xmin` too. What has no
`xmin`, such as a view, is read from `lookback` below the value on, this value included, so some rows come
again.

**A read that was interrupted** goes on if the stream has a key and its destination deduplicates by it. It
takes the rest of the pages in a new snapshot S2, and of the pages already read what is new since S1. A
version that S2 shows is in the rest, or in the pages already read; there it was shown by S1, and so was
read, or is new. So nothing is lost, also if rows moved. A row that has changed since comes twice; the later
one, which is read later, stays. A row that was deleted since stays in the table until the next refresh.
Without a key, rows would be doubled: such a read starts again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from connectors.cdc.texts import RESET
from connectors.postgres.dialect import Kind, quote_name, quote_text
from connectors.postgres.snapshot import Snapshot, TablePart
from elt_assets.errors import ConfigError

_FORM = 1
_TURN = 1 << 32


@dataclass
class Position:
    """A state.

    Attributes:
        least: the oldest running transaction of the snapshot; before this one, all is read.
        identity: of the server; empty if it is unknown.
        timeline: of the server's log; 0 if it is unknown.
        is_complete: whether all was read.
        files: the file of each table or part that was read, by its oid.
        pages: of a read that is not complete: the pages that were read of each part; None for all.
        cursor_field, cursor: the cursor, and its greatest value as a text; None if there was none.
    """

    least: int
    identity: str = ""
    is_complete: bool = True
    timeline: int = 0
    files: dict[int, int] = field(default_factory=dict)
    pages: dict[int, int | None] = field(default_factory=dict)
    cursor_field: str | None = None
    cursor: str | None = None

    def to_state(self) -> dict[str, Any]:
        """Return the state as JSON."""
        state: dict[str, Any] = {"form": _FORM, "xmin": self.least, "complete": self.is_complete}
        state["files"] = {str(oid): number for oid, number in self.files.items()}
        if self.identity:
            state["system"] = self.identity
        if self.timeline:
            state["timeline"] = self.timeline
        if not self.is_complete:
            state["pages"] = {str(oid): number for oid, number in self.pages.items()}
        if self.cursor_field is not None:
            state["cursor"] = {"field": self.cursor_field, "value": self.cursor}
        return state


def load_position(state: dict[str, Any], snapshot: Snapshot) -> Position:
    """Return the position of a state.

    Raises:
        ConfigError: the state is of another source, of another server, or of a later time of this one.
    """
    try:
        position = _parse(state)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError("the state is not of this source", guidance=RESET) from None
    if position.identity and snapshot.identity and position.identity != snapshot.identity:
        raise ConfigError(
            f"the state is of the server {position.identity}, and this one is {snapshot.identity}",
            guidance=f"if the database has moved, {RESET}",
        )
    if position.timeline and snapshot.timeline and position.timeline != snapshot.timeline:
        raise ConfigError(
            f"the log of the server has the timeline {snapshot.timeline}, and the state is of "
            f"{position.timeline}: it was restored from a backup, or failed over, and may give the numbers "
            "of transactions again",
            guidance=f"rows may be missing: {RESET}",
        )
    if position.least > snapshot.end:
        raise ConfigError(
            f"the server is older than the state: it is at transaction {snapshot.end}, and the state at "
            f"{position.least}; it was restored from a backup, or failed over with a loss",
            guidance=RESET,
        )
    return position


def _parse(state: dict[str, Any]) -> Position:
    """Return the position of a state, each of whose parts becomes a part of SQL: none has another type than
    the one that this source writes.

    Raises:
        KeyError, ValueError, AttributeError: a part is missing, or is something else.
    """
    if state["form"] != _FORM:
        raise ValueError(state["form"])
    cursor = state.get("cursor") or {"field": None, "value": None}
    pages = state.get("pages", {}).items()
    return Position(
        _number(state["xmin"], 1 << 64),
        _text(state.get("system", "")),
        bool(state["complete"]),
        _number(state.get("timeline", 0), _TURN),
        {int(oid): _number(number, _TURN) for oid, number in state["files"].items()},
        {int(oid): None if end is None else _number(end, _TURN) for oid, end in pages},
        None if cursor["field"] is None else _text(cursor["field"]),
        None if cursor["value"] is None else _text(cursor["value"]),
    )


def _number(value: object, bound: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < bound:
        raise ValueError(value)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(value)
    return value


def build_new_rows_condition(least: int, snapshot: Snapshot) -> str:
    """Return the condition for the rows that are new in a snapshot since an older one."""
    count = snapshot.end - least
    if count >= _TURN:
        return "true"
    return f"(xmin::text::int8 - {least % _TURN} + {_TURN}) % {_TURN} < {count}"


def build_cursor_condition(
    column: str,
    kind: Kind,
    position: Position,
    *,
    lookback: str | None,
    part: TablePart,
    snapshot: Snapshot,
) -> str:
    """Return the condition for the rows of a part that are new by its cursor."""
    is_new = build_new_rows_condition(position.least, snapshot) if part.has_transactions else None
    if position.cursor_field != column or position.cursor is None:
        return is_new or "true"
    name, kind_name = quote_name(column), kind.orders
    last = least = f"{quote_text(position.cursor)}::{kind_name}"
    if lookback is not None:
        least = f"({last} - {quote_text(lookback)}::{lookback_type(kind)})"
    if is_new is None:
        return f"{name} >= {least}"
    finite = "" if kind.greatest is None else f" AND {name} < '{kind.greatest}'::{kind_name}"
    late = f"({name} >= {least} OR {name} IS NULL) AND {is_new}"
    if part.filenode != position.files.get(part.oid):
        # It was truncated and filled again, perhaps by rows of any age, or only rewritten.
        late = is_new
    return f"({name} > {last}{finite}) OR ({late})"


def lookback_type(kind: Kind) -> str:
    """Return the type of a lookback for a cursor.

    Raises:
        ConfigError: a cursor of this type has none.
    """
    if kind.orders in ("date", "timestamp", "timestamptz"):
        return "interval"
    if kind.orders in ("text", "bpchar", None):
        raise ConfigError(
            "`lookback` needs a cursor that is a number, a date or a time",
            guidance="choose another cursor, or remove `lookback`",
        )
    return "int8" if kind.orders.startswith("int") else kind.orders
