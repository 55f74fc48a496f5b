"""A small disk for tests of full disks: a file system in memory, which only root can mount."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """Mount a disk of a size (as of `mount`, for example "2m") on a new folder; skip the test if refused."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a disk that is small")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, free: int) -> None:
    """Leave so many bytes."""
    filler = disk / "filler"
    filler.write_bytes(b"")
    there = os.statvfs(disk)
    filler.write_bytes(bytes(max(there.f_bavail * there.f_frsize - free, 0)))
