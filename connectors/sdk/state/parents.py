"""The partitions of child streams, which are read from their parent once in a read of all streams.

A read opens a scope (`share_parents`). In it, the contexts that a parent has yielded are kept, for all of
its child streams; beyond `MEMORY` bytes they are in a temporary file. They are collected for the first child
stream, or while the parent is read for itself, if that read has all of its records: it begins at no bookmark
and no start date. Contexts of a parent that failed, or was not read to its end, are forgotten, and read again
for the next child stream.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from typing import Any

from connectors.sdk.items import Context, Record, Records
from connectors.sdk.reports import hold_value

MEMORY = 8 << 20
"""Size in bytes of the contexts of one parent that are kept in memory; more of them are in a file."""


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


class ContextCollector:
    """Collects the contexts of a parent's child streams while the parent is read for itself.

    Args:
        parent: the parent.
        context_of: returns the context for a record of the parent in a partition of it.
    """

    def __init__(
        self, parent: object, context_of: Callable[[Record, Context | None], Context | None]
    ):
        self._parent = parent
        self._context_of = context_of
        shared = _SHARED.get()
        self._shared = None if shared is None or parent in shared.spools else shared
        self._spool = None if self._shared is None else self._shared.spool()

    def records(self, records: Records) -> Records:
        """Return the function that reads a partition of the parent, with its records looked at."""

        def collected(context: Context | None, start: Any) -> Iterator[Record]:
            if start is not None:
                self._shared = None
            for record in records(context, start):
                if self._shared is not None:
                    self._add(record, context)
                yield record

        return collected if self._shared is not None else records

    def finish(self) -> None:
        """Keep the contexts: the parent was read to its end."""
        if self._shared is not None and self._spool is not None:
            self._shared.spools[self._parent] = self._spool

    def _add(self, record: Record, context: Context | None) -> None:
        try:
            child = self._context_of(record, context)
        except Exception:  # noqa: BLE001 - it is an error of the child streams, which will meet it
            self._shared = None
            return
        if child is not None and self._spool is not None:
            self._spool.add(child)


class _Shared:
    """The contexts of the parents that were read in a scope, by the parent."""

    def __init__(self) -> None:
        self.spools: dict[object, _Spool] = {}
        self.files = ExitStack()

    def spool(self) -> _Spool:
        """Return a new spool, which is closed with the scope."""
        return self.files.enter_context(closing(_Spool()))


_SHARED: ContextVar[_Shared | None] = ContextVar("parents", default=None)


@contextmanager
def share_parents() -> Iterator[None]:
    """Let each parent stream be read once for all of its child streams while the scope is open."""
    shared = _Shared()
    with shared.files, hold_value(_SHARED, shared):
        yield


def share_contexts(parent: object, read: Callable[[], Iterable[Context]]) -> Iterator[Context]:
    """Yield the contexts of the child streams of a parent, which `read` returns if they are not kept yet."""
    shared = _SHARED.get()
    if shared is None:
        yield from read()
        return
    if parent not in shared.spools:
        spool = shared.spool()
        for context in read():
            spool.add(context)
            yield context
        shared.spools[parent] = spool
        return
    yield from shared.spools[parent].contexts()
