"""Private directories that do not outlive their process, even a killed one, for long."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def scratch(parent: Path, kind: str) -> Iterator[Path]:
    """A new directory under `parent` that only this user can enter; gone when the context ends.

    Its name tells machine and process, so that whoever comes next removes what a killed process
    left behind.
    """
    parent.mkdir(parents=True, exist_ok=True)
    owner = f"{kind}-{_host()}-"
    _sweep(parent, owner)
    folder = Path(tempfile.mkdtemp(prefix=f"{owner}{os.getpid()}-", dir=parent))  # mode 0700
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _host() -> str:
    return socket.gethostname().replace("-", "_")


def _sweep(parent: Path, owner: str) -> None:
    """Remove the directories of this machine's dead processes."""
    for folder in parent.glob(f"{owner}*-*"):
        pid = folder.name.removeprefix(owner).split("-")[0]
        if pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
