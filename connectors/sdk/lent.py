"""Python objects that are lent to threads which Python did not start.

pyarrow reads files on threads of its own, and the last of them drops what it was given: a file, or a
function to call. For that, the thread needs the interpreter. A thread that asks for it while the process
ends is unwound through C++ code, which aborts the process: a read that has sent every message ends with
SIGABRT.

So each such object is given as `lend(value)`, and the process ends once all were dropped: `await_returns`.
What is lent is a proxy, and its value is kept here, so that no code of the value runs on the other thread at
the end (`test_a_process_ends_after_the_threads_that_read_its_files`).
"""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

_SECONDS = 10.0
"""The longest wait. A thread that needs longer waits for a server or a disk, and may abort the process."""

_lent: list[tuple[weakref.ref[_Lent], Any]] = []
"""The proxies that threads may hold, each with its value."""


class _Lent:
    """Does what its value does."""

    def __init__(self, value: Any):
        self._value = value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._value, name)

    def __call__(self, *values: Any) -> Any:
        return self._value(*values)


def lend(value: Any) -> Any:
    """Return a proxy of a file or a function, to give to code that uses it on other threads."""
    _forget_returned()
    lent = _Lent(value)
    _lent.append((weakref.ref(lent), value))
    return lent


def await_returns() -> None:
    """Wait until no thread holds what was lent."""
    end = time.monotonic() + _SECONDS
    _forget_returned()
    if _lent:
        gc.collect()
    while _lent and time.monotonic() < end:
        time.sleep(0.001)
        _forget_returned()


def _forget_returned() -> None:
    _lent[:] = [(reference, value) for reference, value in _lent if reference() is not None]
