"""The partitions of child streams, which are read from their parent once in a read of all streams.

A read opens a scope (`share_parents`). In it, what child streams need of the records of their parent is kept,
for all of them; beyond `MEMORY` bytes it is in a temporary file. It is collected for the first child stream,
or while the parent is read for itself, if that read has all of its records: it begins at no bookmark and no
start date. Rows of a parent that failed, or was not read to its end, are forgotten, and read again for the
next child stream.

Child streams that are read for changed parents only share the rows if they continue from the same state
of the parent, with each other and with the read of the parent for itself.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import msgspec

from connectors.sdk.items import Context, Item, Record, Warn
from connectors.sdk.reports import hold_value, report_warning

_encode_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode
MEMORY = 8 << 20
"""Size in bytes of the rows of one parent that are kept in memory; more of them are in a file."""
Fields = Mapping[object, frozenset[str]]
"""The fields of parents that their child streams need."""


class ParentRow(NamedTuple):
    """What child streams need of a record of their parent: the partition of the parent that it is from, and
    the values of fields."""

    partition: Context | None
    values: Record


class ParentContext(Context):
    """A context with values of the parent's record, which do not all tell partitions apart.

    Attributes:
        parent: the values by the names of the parent's fields.
    """

    def __init__(self, context: Context, parent: Record):
        super().__init__(context)
        self.parent = parent

    def copy(self) -> ParentContext:
        return ParentContext(self, self.parent)


def take_row(record: Record, partition: Context | None, fields: Iterable[str]) -> ParentRow:
    """Return what child streams need of a record of their parent. A name with dots may be the path of a
    value."""
    return ParentRow(partition, {field: _value(record, field) for field in fields})


def _value(record: Record, field: str) -> Any:
    value: Any = record
    for name in [field] if field in record else field.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


class _Spool:
    """Rows in the order in which they were added. Several readers may be under way at a time."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY)  # noqa: SIM115 - closed by its scope
        self._size = 0

    def add(self, row: ParentRow) -> None:
        self._file.seek(self._size)
        pickle.dump((row.partition, row.values), self._file, pickle.HIGHEST_PROTOCOL)
        self._size = self._file.tell()

    def rows(self) -> Iterator[ParentRow]:
        place = 0
        while place < self._size:
            self._file.seek(place)
            row = ParentRow(*pickle.load(self._file))  # noqa: S301 - written by this process alone
            place = self._file.tell()
            yield row

    def close(self) -> None:
        self._file.close()


class Observer(Protocol):
    """Sees the records of a parent while it is read."""

    def see(self, record: Record, context: Context | None, is_left_out: bool = False) -> None:
        """Take notice of a record; `is_left_out`: it was sent before, and has not changed."""

    def stop(self) -> None:
        """Take notice that the parent is not read as a whole."""


class RowCollector:
    """Collects the rows of a parent for its child streams while the parent is read for itself.

    Args:
        key: the parent, and what the rows depend on: see `share_rows`.
        fields: the fields of the parent that child streams need.
        only_new: whether records that were sent before are left out.
    """

    def __init__(self, key: Hashable, fields: Collection[str], *, only_new: bool = False):
        self._key = key
        self._fields = fields
        self._only_new = only_new
        shared = _SHARED.get()
        self._shared = None if shared is None or key in shared.lists else shared
        self._spool = None if self._shared is None else self._shared.spool()

    def stop(self) -> None:
        """Take notice that the parent is not read as a whole."""
        if not self._only_new:
            self._shared = None

    def see(self, record: Record, context: Context | None, is_left_out: bool = False) -> None:
        """Collect the row of a record."""
        if self._shared is None or self._spool is None or (is_left_out and self._only_new):
            return
        self._spool.add(take_row(record, context, self._fields))

    def finish(self, result: Any = None) -> None:
        """Keep the rows, and the result of the read: the parent was read to its end."""
        if self._shared is not None and self._spool is not None:
            self._shared.lists[self._key] = (self._spool, result)


class _Shared:
    """The rows of the parents that were read in a scope, by the parent and where its read began."""

    def __init__(self, fields: Fields, tracked: Collection[object]) -> None:
        self.fields = fields
        self.tracked = tracked
        self.lists: dict[Hashable, tuple[_Spool, Any]] = {}
        self.files = ExitStack()

    def spool(self) -> _Spool:
        """Return a new spool, which is closed with the scope."""
        return self.files.enter_context(closing(_Spool()))


_SHARED: ContextVar[_Shared | None] = ContextVar("parents", default=None)


@contextmanager
def share_parents(fields: Fields | None = None, tracked: Collection[object] = ()) -> Iterator[None]:
    """Let each parent stream be read once for all of its child streams while the scope is open.

    Args:
        fields: the fields of parents that child streams need.
        tracked: the parents with child streams that are read for changed parents only.
    """
    shared = _Shared(fields or {}, tracked)
    with shared.files, hold_value(_SHARED, shared):
        yield


def fields_for_children(parent: object) -> frozenset[str]:
    """Return the fields of a parent that the child streams of the open scope need."""
    shared = _SHARED.get()
    return frozenset() if shared is None else shared.fields.get(parent, frozenset())


def is_tracked(parent: object) -> bool:
    """Return whether the open scope has child streams that are read for changed records of a parent only."""
    shared = _SHARED.get()
    return shared is not None and parent in shared.tracked


def key_of_changed(parent: object, saved: Mapping[str, Any]) -> Hashable:
    """Return the key of the rows of records that have changed since a state of the parent."""
    return parent, _encode_sorted(saved)


def share_rows(
    key: Hashable,
    read: Callable[[], Iterable[ParentRow]],
    result: Callable[[], Any] = lambda: None,
    keep: Callable[[Any], object] = lambda _: None,
) -> Iterator[ParentRow]:
    """Yield the rows of a parent, which `read` returns if they are not kept yet.

    Args:
        key: the parent, and what its read depends on.
        read: reads the rows.
        result: returns what else the read has given, when all rows were read.
        keep: takes that result in place of a read.
    """
    shared = _SHARED.get()
    if shared is None:
        yield from read()
        return
    if key not in shared.lists:
        spool = shared.spool()
        for row in read():
            spool.add(row)
            yield row
        shared.lists[key] = (spool, result())
        return
    spool, kept_result = shared.lists[key]
    yield from spool.rows()
    keep(kept_result)


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
        parent: Any,
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
