"""Creation of private directories, and checks that a directory can be written to."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from elt_assets.errors import ConfigError
from elt_assets.storage.location import Location

_CHECK_BYTES = 4096
"""Number of bytes written to check a directory: a full volume may still accept an empty file."""


def make_private(directory: Path) -> None:
    """Create a directory and its missing parents, each with mode 0700.

    A directory that exists already is not changed and keeps its mode. To share a directory with other users,
    create it before its first use, or change its mode afterwards; it is not set back.

    Raises:
        OSError: a directory cannot be created, or the path is not a directory.
    """
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))


def make_private_lake(uri: str) -> None:
    """Create the root of a lake with `make_private`. An object store is left unchanged.

    Raises:
        ConfigError: the directory cannot be created, or no table in it could be read.
    """
    path = Location.parse(uri).path
    if path is None:
        return
    if "%" in str(path):
        raise ConfigError(
            f"the lake cannot be in the directory {path}: the Delta library decodes the % in its path",
            guidance="set ELT_LAKE to a directory without % in its path",
        )
    try:
        make_private(path)
    except OSError as error:
        raise ConfigError(
            f"cannot create the directory of the lake, {uri}: {error.strerror}",
            guidance="allow this user to write there, or set ELT_LAKE to a different location",
        ) from error


def check_writable(uri: str, what: str, setting: str) -> None:
    """Check that a local directory can be written to. A remote store is not checked.

    The directory is created if it is missing. The check writes a temporary file to it and removes the file.

    Args:
        uri: a path or a URI.
        what: the directory's purpose, for the message.
        setting: the setting that contains the directory, for the message.

    Raises:
        ConfigError: the directory cannot be created or written to. The error names the setting and the path.
    """
    path = Location.parse(uri).path
    if path is None:
        return
    try:
        make_private(path)
        with tempfile.TemporaryFile(dir=path, buffering=0) as file:
            file.write(bytes(_CHECK_BYTES))
    except OSError as error:
        raise ConfigError(
            f"{what} cannot be written to: {path}: {error.strerror}",
            guidance=f"correct the permissions or the volume of the directory, or change {setting}",
        ) from error
