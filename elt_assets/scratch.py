"""Private directories that do not outlive their process, even a killed one, for long."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

_mine: set[str] = set()


@contextlib.contextmanager
def scratch(parent: Path, kind: str) -> Iterator[Path]:
    """A new directory under `parent` that only this user can enter; gone when the context ends.

    Its name tells machine and process, so that whoever comes next removes what a killed process
    left behind.
    """
    parent.mkdir(parents=True, exist_ok=True)
    owner = f"{kind}-{_host()}-"
    _sweep(parent, owner)
    folder = parent / f"{owner}{os.getpid()}-{secrets.token_hex(8)}"
    _mine.add(folder.name)
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _mine.discard(folder.name)


def _host() -> str:
    return socket.gethostname().replace("-", "_")


def _sweep(parent: Path, owner: str) -> None:
    """Remove the directories of this machine's dead processes."""
    for folder in parent.glob(f"{owner}*-*"):
        pid = folder.name.removeprefix(owner).split("-")[0]
        if pid.isdecimal() and folder.name not in _mine and not _alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    if pid == os.getpid():  # a container's first process often has the pid of the one before
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
