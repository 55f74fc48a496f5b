"""A file that a process keeps locked while it lives, so that others can tell whether it has ended.

The kernel releases the lock when the process ends for any reason, also at a restart of the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Create a file and keep it locked while the context lasts.

    It gets its name after it is locked, so that no process sees it unlocked.
    """
    draft = path.with_name(f"{path.name}.new")
    with draft.open("w") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        draft.rename(path)
        yield


@contextlib.contextmanager
def abandoned(path: Path) -> Iterator[bool]:
    """Yield whether the process that held a file has ended; if so, hold the file while the context lasts.

    The answer is no if there is no such file, and on a file system without locks.
    """
    try:
        file = path.open("r+")
    except FileNotFoundError:
        yield False
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # it is held, or the file system has no locks
            yield False
        else:
            yield path.exists()  # another process may have removed it in the meantime
