"""File locks between processes and threads, for stored config changes and for installations of packages."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

from elt_assets.errors import TransientError

_PAUSE_SECONDS = 0.1


@contextlib.contextmanager
def exclusive(path: Path, seconds: float = 60) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel releases it if its process dies.

    Args:
        seconds: time limit for getting the lock.

    Raises:
        TransientError: another process has held the lock for longer.
    """
    deadline = time.monotonic() + seconds
    with path.open("w") as file:
        while not _is_locked(file.fileno()):
            if time.monotonic() >= deadline:
                raise TransientError(
                    f"another process has held the lock {path} for {seconds:g} seconds",
                    guidance="find the process with `fuser` or `lsof`; end it if it hangs, and try again",
                )
            time.sleep(_PAUSE_SECONDS)
        yield


def _is_locked(descriptor: int) -> bool:
    """Try to lock a file; return whether this process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
