"""Directories that this project makes, for their owner alone, and whether they can be written to."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from elt_assets.errors import ConfigError
from elt_assets.storage.location import Location

_SIZE = 4096
"""Bytes that are written to try a directory: a full volume may still take an empty file."""


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
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def make_private_lake(uri: str) -> None:
    """Make the root of a lake in the same way, where it is a directory and not an object store.

    Raises:
        ConfigError: it cannot be made.
    """
    path = Location.of(uri).path
    if path is None:
        return
    try:
        make_private(path)
    except OSError as error:
        raise ConfigError(
            f"the lake's directory {uri} cannot be made: {error.strerror}",
            guidance="make it possible to write there, or set ELT_LAKE to another place",
        ) from error


def check_writable(uri: str, what: str, setting: str) -> None:
    """Write to a folder of this machine, which is made if it is missing; nothing is left in it. A remote
    store is not asked.

    Args:
        uri: a path or a URI.
        what: the folder's purpose, for the message.
        setting: what names the folder.

    Raises:
        ConfigError: the folder cannot be made or written to; names the setting and the path.
    """
    path = Location.of(uri).path
    if path is None:
        return
    try:
        make_private(path)
        with tempfile.TemporaryFile(dir=path, buffering=0) as file:
            file.write(bytes(_SIZE))
    except OSError as error:
        raise ConfigError(
            f"{what} cannot be written to: {path}: {error.strerror}",
            guidance=f"{setting} says where it is: name another place, or mend its permissions or volume",
        ) from error
