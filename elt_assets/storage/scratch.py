"""Private scratch directories that are removed when their process ends, or later if it was killed.

Each contains a lock file that its process keeps locked. The kernel releases the lock when the process ends
for any reason. Another process removes a directory only if it has a lock file and the lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from elt_assets.storage.directories import make_private
from elt_assets.storage.held_file import hold
from elt_assets.storage.removal import remove_tree

LOCK = ".elt-scratch"
_NAME = re.compile(r"[a-z]+-.+-[0-9a-f]{16}")


def _do_nothing(_name: str) -> None:
    return None


@contextlib.contextmanager
def scratch(
    parent: Path, kind: str, clean_up: Callable[[str], None] = _do_nothing
) -> Iterator[Path]:
    """Create a directory in `parent` that only this user can enter, and remove it when the context ends.

    Directories of the same `kind` that killed processes of this machine left are removed first.

    Args:
        clean_up: is called with the name of each such directory before it is removed. If it raises an error,
            the directory stays.
    """
    make_private(parent)
    prefix = f"{kind}-{socket.gethostname()}-"
    for folder in parent.glob(f"{prefix}*"):
        _remove_if_abandoned(folder, clean_up)
    folder = parent / f"{prefix}{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        folder.mkdir(mode=0o700)
        stack.callback(remove_tree, folder)
        stack.enter_context(hold(folder / LOCK))
        yield folder


def sweep(parent: Path, seconds: float) -> int:
    """Remove directories that killed processes of any machine left and that are unchanged for `seconds`.

    On a file system without locks, only the age decides.

    Returns:
        The number of removed directories.
    """
    oldest = time.time() - seconds
    abandoned = [path for path in parent.glob("*-*-*") if _last_change(path) < oldest]
    return sum(_remove_if_abandoned(folder, is_old=True) for folder in abandoned)


def _remove_if_abandoned(
    folder: Path, clean_up: Callable[[str], None] = _do_nothing, *, is_old: bool = False
) -> bool:
    """Remove a directory of `scratch` if its process has ended; return whether the directory is gone."""
    if not _NAME.fullmatch(folder.name) or not _has_lock(folder):
        return False
    with contextlib.suppress(FileNotFoundError), (folder / LOCK).open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            if not is_old:
                return False
        clean_up(folder.name)
        remove_tree(folder)
    return not folder.exists()


def _has_lock(folder: Path) -> bool:
    """Return whether this user can open the lock file of a directory; its program may have replaced it."""
    lock = folder / LOCK
    try:
        return stat.S_ISREG(lock.lstat().st_mode) and os.access(lock, os.R_OK | os.W_OK)
    except OSError:
        return False


def _last_change(folder: Path) -> float:
    """Return the time of the last change of a directory or its direct entries; now if it does not exist."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return time.time()
