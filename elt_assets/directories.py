"""Directories that this project makes: for their owner alone."""

from __future__ import annotations

from pathlib import Path


def make_private(folder: Path) -> None:
    """Make a directory, and those above it that are missing, each with mode 0700.

    A directory that exists keeps its mode: whoever wants to share one makes it, or changes it once.

    Raises:
        OSError: one of them cannot be made, or is no directory.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))


def make_private_lake(uri: str) -> None:
    """The same for a lake's root, where that is a directory and not an object store."""
    path = uri.removeprefix("file://")
    if "://" not in path:
        make_private(Path(path).expanduser())
