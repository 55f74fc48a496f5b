"""Removal of what killed processes of Spark left in a folder of temporary files.

A JVM removes its scratch directories when it ends; a killed one leaves them, with the files of its jobs.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

_NAMES = ("spark-*", "blockmgr-*", "elt-replay-*")


def sweep_temporary(folder: Path, seconds: float) -> int:
    """Remove the scratch directories of this user in which nothing has changed for `seconds`.

    Returns:
        The number of removed directories.
    """
    oldest, user = time.time() - seconds, os.getuid()
    removed = 0
    for directory in (path for name in _NAMES for path in folder.glob(name)):
        if not _is_own_directory(directory, user) or newest_change(directory) >= oldest:
            continue
        shutil.rmtree(directory, ignore_errors=True)
        removed += not directory.exists()
    return removed


def newest_change(directory: Path) -> float:
    """Return the time of the last change of anything in a directory, or of the directory itself.

    It is now if something in it cannot be read, or vanishes at the moment.
    """
    try:
        return max(path.lstat().st_mtime for path in (directory, *directory.rglob("*")))
    except OSError:
        return time.time()


def _is_own_directory(path: Path, user: int) -> bool:
    return path.is_dir() and not path.is_symlink() and path.lstat().st_uid == user
