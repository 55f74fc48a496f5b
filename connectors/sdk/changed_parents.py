"""The records of a parent that are new or have changed, for child streams that are read for these only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

from connectors.sdk.declared_stream import DeclaredStream
from connectors.sdk.items import Context, Item, Record, Warn
from connectors.sdk.reports import report_warning
from connectors.sdk.state.parents import (
    Observer,
    ParentRow,
    key_of_changed,
    share_rows,
    take_row,
)


class ParentRead(Protocol):
    """A read of the parent from a state. `state`: the one at its end."""

    state: Any

    def items_with_states(self, *, collectors: Sequence[Observer]) -> Iterator[Item]:
        """Yield the items of the read; the collectors see each record first."""


class ChangedParents:
    """The records of a parent that are new or have changed since a state of it.

    The state of the parent moves only when the partitions of all these were read. It never passes the time
    at which they were listed, so that a parent that changes after that is listed again.

    Args:
        parent: the parent.
        saved: the state of the parent; empty for all of its records.
        fields: the fields of the parent that child streams need.
        begin: begins a read of the parent from that state.
    """

    def __init__(
        self,
        parent: DeclaredStream,
        saved: dict[str, Any],
        fields: Collection[str],
        begin: Callable[[], ParentRead],
    ):
        self._parent = parent
        self._begin = begin
        self._saved = saved
        self._fields = fields
        self.state: Any = saved

    def rows(self) -> Iterator[ParentRow]:
        """Yield the rows. The state is the one after them when all were yielded."""
        key = key_of_changed(self._parent, self._saved)
        yield from share_rows(key, self._read, lambda: self.state, self._keep)

    def _read(self) -> Iterator[ParentRow]:
        children = _Rows(self._fields)
        read = self._begin()
        for item in read.items_with_states(collectors=[children]):
            if isinstance(item, Warn):
                report_warning(f"parent stream {str(self._parent.id)!r}: {item.text}")
            yield from children.take()
        self.state = read.state

    def _keep(self, state: Any) -> None:
        self.state = state


class _Rows:
    """The rows of the records that were seen last."""

    def __init__(self, fields: Collection[str]):
        self._fields = fields
        self._rows: list[ParentRow] = []

    def see(self, record: Record, context: Context | None, is_left_out: bool = False) -> None:
        if not is_left_out:
            self._rows.append(take_row(record, context, self._fields))

    def stop(self) -> None:
        """Go on: the rows are not those of all records."""

    def take(self) -> list[ParentRow]:
        """Return the rows, and forget them."""
        rows, self._rows = self._rows, []
        return rows
