"""The partitions of a child stream that is read for the changed records of its parent only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

from connectors.sdk.declared_stream import DeclaredStream
from connectors.sdk.items import Context, Item, Record, Warn
from connectors.sdk.reports import report_warning
from connectors.sdk.state.parents import (
    Observer,
    ParentContext,
    fields_for_children,
    key_of_changed,
    share_contexts,
)


class ParentRead(Protocol):
    """A read of the parent from a state. `state`: the one at its end."""

    state: Any

    def items_with_states(self, *, collectors: Sequence[Observer]) -> Iterator[Item]:
        """Yield the items of the read; the collectors see each record first."""


class ChangedParents:
    """The contexts of the partitions whose parent's record is new or has changed since a state of the parent.

    The state of the parent moves only when all these partitions were read. It never passes the time at which
    they were listed, so that a parent that changes after that is listed again.

    Args:
        parent: the parent.
        saved: the state of the parent; empty for all of its records.
        fields: the fields of the parent that the records of the partitions get.
        begin: begins a read of the parent from that state.
    """

    def __init__(
        self,
        parent: DeclaredStream,
        saved: dict[str, Any],
        fields: Iterable[str],
        begin: Callable[[], ParentRead],
    ):
        self._parent = parent
        self._begin = begin
        self._saved = saved
        self._fields = {*fields, *fields_for_children(parent)}
        self.state: Any = saved

    def contexts(self) -> Iterator[Context]:
        """Yield the contexts. The state is the one after them when all were yielded."""
        key = key_of_changed(self._parent, self._saved)
        yield from share_contexts(key, self._read, lambda: self.state, self._keep)

    def _read(self) -> Iterator[Context]:
        children = _Children(self._parent, self._fields)
        read = self._begin()
        for item in read.items_with_states(collectors=[children]):
            if isinstance(item, Warn):
                report_warning(f"parent stream {str(self._parent.id)!r}: {item.text}")
            yield from children.take()
        self.state = read.state

    def _keep(self, state: Any) -> None:
        self.state = state


class _Children:
    """The contexts of child streams for the records that were seen last."""

    def __init__(self, parent: DeclaredStream, fields: Collection[str]):
        self._parent = parent
        self._fields = fields
        self._contexts: list[Context] = []

    def see(self, record: Record, context: Context | None, is_left_out: bool = False) -> None:
        child = make_child_context(self._parent, record, context, self._fields)
        if child is not None and not is_left_out:
            self._contexts.append(child)

    def stop(self) -> None:
        """Go on: the contexts are not those of all records."""

    def take(self) -> list[Context]:
        """Return the contexts, and forget them."""
        contexts, self._contexts = self._contexts, []
        return contexts


def make_child_context(
    parent: DeclaredStream, record: Record, context: Context | None, fields: Iterable[str]
) -> Context | None:
    """Return the context of child streams for a record, with the values that their records get."""
    child = parent.get_child_context(record, context)
    if child is None or not fields:
        return child
    return ParentContext(child, {field: record.get(field) for field in fields})
