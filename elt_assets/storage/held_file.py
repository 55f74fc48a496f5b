"""A file that a process keeps locked while it lives, so that others can tell whether it has ended.

The kernel releases the lock when the process ends for any reason, also at a restart of the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Create a file and keep it locked while the context lasts.

    It gets its name after it is locked, so that no process sees it unlocked. Its text is the process id.
    """
    draft = path.with_name(f"{path.name}.new")
    with draft.open("w") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        file.write(str(os.getpid()))
        file.flush()
        draft.rename(path)
        yield


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Wait until no other process has a file locked, and keep it locked while the context lasts.

    The file is created, and stays. On a file system without locks, nothing is locked.
    """
    with path.open("a") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def hold_if_abandoned(path: Path) -> Iterator[bool]:
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


def holder(path: Path) -> int | None:
    """Return the id of the process that holds a file; None if this machine shows no such process.

    The id in the file can be that of another machine or container, or belong to a later process. So it
    counts only if this process has the file open.
    """
    try:
        file, pid = path.stat(), int(path.read_text())
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except (OSError, ValueError):
        return None
    return pid if any(_is_same(descriptor, file) for descriptor in descriptors) else None


def _is_same(descriptor: Path, file: os.stat_result) -> bool:
    with contextlib.suppress(OSError):  # it was closed in the meantime
        return os.path.samestat(descriptor.stat(), file)
    return False
