"""The partitions of child streams, which are read from their parent once in a read of all streams.

A read opens a scope (`share_parents`). In it, the contexts that a parent has yielded are kept, for all of
its child streams; beyond `MEMORY` bytes they are in a temporary file. They are collected for the first child
stream, or while the parent is read for itself, if that read has all of its records: it begins at no bookmark
and no start date. Contexts of a parent that failed, or was not read to its end, are forgotten, and read again
for the next child stream.

Child streams that are read for changed parents only share the contexts if they continue from the same state
of the parent, with each other and with the read of the parent for itself.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec

from connectors.sdk.items import Context, Record
from connectors.sdk.reports import hold_value

_encode_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode
MEMORY = 8 << 20
"""Size in bytes of the contexts of one parent that are kept in memory; more of them are in a file."""
Fields = Mapping[object, frozenset[str]]
"""The fields of parents that their child streams have in their records."""


class ParentContext(Context):
    """A context with values of the parent's record that do not tell partitions apart.

    Attributes:
        values: the values by the names of the parent's fields.
    """

    def __init__(self, context: Context, values: Record):
        super().__init__(context)
        self.values_of_parent = values

    def copy(self) -> ParentContext:
        return ParentContext(self, self.values_of_parent)

    def __reduce__(self) -> tuple[Any, ...]:
        return ParentContext, (dict(self), self.values_of_parent)


def parent_values(context: Context, names: Mapping[str, str]) -> Record:
    """Return the values of the parent's record that records of a partition get; null for one that it lacks.

    Args:
        context: the context of the partition.
        names: the names in the records by those of the parent's fields.
    """
    values = context.values_of_parent if isinstance(context, ParentContext) else {}
    return {name: values.get(field) for field, name in names.items()}


class _Spool:
    """Contexts in the order in which they were added. Several readers may be under way at a time."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY)  # noqa: SIM115 - closed by its scope
        self._size = 0

    def add(self, context: Context) -> None:
        self._file.seek(self._size)
        pickle.dump(context, self._file, pickle.HIGHEST_PROTOCOL)
        self._size = self._file.tell()

    def contexts(self) -> Iterator[Context]:
        place = 0
        while place < self._size:
            self._file.seek(place)
            context: Context = pickle.load(self._file)  # noqa: S301 - written by this process alone
            place = self._file.tell()
            yield context

    def close(self) -> None:
        self._file.close()


class Observer(Protocol):
    """Sees the records of a parent while it is read."""

    def see(self, record: Record, context: Context | None, is_left_out: bool = False) -> None:
        """Take notice of a record; `is_left_out`: it was sent before, and has not changed."""

    def stop(self) -> None:
        """Take notice that the parent is not read as a whole."""


class ContextCollector:
    """Collects the contexts of a parent's child streams while the parent is read for itself.

    Args:
        key: the parent, and what the contexts depend on: see `share_contexts`.
        context_of: returns the context for a record of the parent in a partition of it.
        only_new: whether records that were sent before are left out.
    """

    def __init__(
        self,
        key: Hashable,
        context_of: Callable[[Record, Context | None], Context | None],
        *,
        only_new: bool = False,
    ):
        self._key = key
        self._context_of = context_of
        self._only_new = only_new
        shared = _SHARED.get()
        self._shared = None if shared is None or key in shared.lists else shared
        self._spool = None if self._shared is None else self._shared.spool()

    def stop(self) -> None:
        """Take notice that the parent is not read as a whole."""
        if not self._only_new:
            self._shared = None

    def see(self, record: Record, context: Context | None, is_left_out: bool = False) -> None:
        """Collect the context for a record."""
        if self._shared is None or (is_left_out and self._only_new):
            return
        try:
            child = self._context_of(record, context)
        except Exception:  # noqa: BLE001 - it is an error of the child streams, which will meet it
            self._shared = None
            return
        if child is not None and self._spool is not None:
            self._spool.add(child)

    def finish(self, result: Any = None) -> None:
        """Keep the contexts, and the result of the read: the parent was read to its end."""
        if self._shared is not None and self._spool is not None:
            self._shared.lists[self._key] = (self._spool, result)


class _Shared:
    """The contexts of the parents that were read in a scope, by the parent and where its read began."""

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
    """Return the key of the contexts of records that have changed since a state of the parent."""
    return parent, _encode_sorted(saved)


def share_contexts(
    key: Hashable,
    read: Callable[[], Iterable[Context]],
    result: Callable[[], Any] = lambda: None,
    keep: Callable[[Any], object] = lambda _: None,
) -> Iterator[Context]:
    """Yield the contexts of the child streams of a parent, which `read` returns if they are not kept yet.

    Args:
        key: the parent, and what its read depends on.
        read: reads the contexts.
        result: returns what else the read has given, when all contexts were read.
        keep: takes that result in place of a read.
    """
    shared = _SHARED.get()
    if shared is None:
        yield from read()
        return
    if key not in shared.lists:
        spool = shared.spool()
        for context in read():
            spool.add(context)
            yield context
        shared.lists[key] = (spool, result())
        return
    spool, kept_result = shared.lists[key]
    yield from spool.contexts()
    keep(kept_result)
