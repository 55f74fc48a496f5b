"""Private directories that do not outlive their process, even a killed one, for long.

Each holds a lock file, which its process keeps locked: the kernel frees it when the process ends, however it
ends. Only a directory that has a lock file, and whose lock is free, is removed by anybody else.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from elt_assets.storage.directories import make_private

LOCK = ".elt-scratch"
_NAME = re.compile(r"[a-z]+-.+-[0-9a-f]{16}")


@contextlib.contextmanager
def scratch(parent: Path, kind: str) -> Iterator[Path]:
    """Make a directory under `parent` that only this user can enter; it is removed when the context ends.

    Directories that killed processes of this machine left there are removed first.
    """
    make_private(parent)
    prefix = f"{kind}-{_host()}-"
    for folder in parent.glob(f"{prefix}*"):
        _remove_if_abandoned(folder)
    folder = parent / f"{prefix}{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        folder.mkdir(mode=0o700)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(_locked(folder))
        yield folder


def sweep(parent: Path, seconds: float) -> int:
    """Remove directories that killed processes of any machine left, and that have not changed for so long.

    On a file system without locks age alone decides.

    Returns:
        How many were removed.
    """
    oldest = time.time() - seconds
    found = [path for path in parent.glob("*-*-*") if _last_change(path) < oldest]
    return sum(_remove_if_abandoned(folder, is_old=True) for folder in found)


def _host() -> str:
    return socket.gethostname()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Put a locked file into a directory. It gets its name once it is locked, so that nobody sees it free."""
    draft = folder / f"{LOCK}.new"
    with draft.open("w") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        draft.rename(folder / LOCK)
        yield


def _remove_if_abandoned(folder: Path, *, is_old: bool = False) -> bool:
    """Remove a directory of `scratch` whose process has ended."""
    if not _NAME.fullmatch(folder.name) or not (folder / LOCK).is_file():
        return False
    with contextlib.suppress(FileNotFoundError), (folder / LOCK).open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            if not is_old:
                return False
        shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _last_change(folder: Path) -> float:
    """When something in a directory last changed, as far as its own level tells; now if it is gone."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return time.time()
