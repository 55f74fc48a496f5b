"""Limits the memory of this process while it decodes a file: `Storage.guard_read` does so for each read.

A small file may stand for any amount of data: a list of 100 million zeros takes 347 bytes in Parquet, and a
page says itself how large it becomes. What a file claims about itself is no limit, so the system is asked for
one: beyond it the process gets no memory, and the file is an error by its name. On other systems than Linux
there is none.
"""

from __future__ import annotations

import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

FILE_MEMORY_MEGABYTES = 400
"""Memory in MiB that a process takes for a file, beside what it has taken before."""

_lock = threading.Lock()
_uses = 0
_before: tuple[int, int] = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@contextmanager
def limit_memory_growth(megabytes: int) -> Iterator[None]:
    """Limit the memory that this process takes while the context is open: more is a MemoryError.

    Of several contexts at a time the first one sets the limit.
    """
    _enter(megabytes)
    pool = pa.default_memory_pool()
    pa.set_memory_pool(_exact_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(pool)
        _leave()


def _enter(megabytes: int) -> None:
    global _uses, _before  # noqa: PLW0603 - a limit of the process
    with _lock:
        _uses += 1
        taken = _count_taken()
        if _uses > 1 or taken is None:
            return
        _before = resource.getrlimit(resource.RLIMIT_DATA)
        limit = taken + (megabytes << 20)
        if all(bound == resource.RLIM_INFINITY or limit < bound for bound in _before):
            resource.setrlimit(resource.RLIMIT_DATA, (limit, _before[1]))


def _leave() -> None:
    global _uses  # noqa: PLW0603
    with _lock:
        _uses -= 1
        if not _uses and sys.platform == "linux":
            resource.setrlimit(resource.RLIMIT_DATA, _before)


def _count_taken() -> int | None:
    """Return the bytes that count towards the limit; None if the system has no such limit."""
    if sys.platform != "linux":
        return None
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:")), None)


def _exact_pool() -> pa.MemoryPool:
    """Return a pool that asks the system for what it needs: the default one may reserve a gigabyte."""
    try:
        return pa.jemalloc_memory_pool()
    except NotImplementedError:
        return pa.system_memory_pool()
