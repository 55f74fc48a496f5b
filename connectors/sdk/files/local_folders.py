"""The files of a folder of this machine.

Links are followed, also those to folders. A folder that contains itself by links would have files without
end, so it is an error, as is a name that no record can have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from elt_assets.errors import ConfigError

MAX_LINKED = 100_000
"""Maximum number of folders below links to folders. Links beside each other multiply: twenty folders with two
links to the next one have a million paths."""

FolderId = tuple[int, int]


def list_paths(folder: str, *, is_deep: bool) -> Iterator[str]:
    """Yield the paths of what is in a folder, except of folders.

    Args:
        is_deep: whether the folders in it are listed too.

    Raises:
        ConfigError: a folder contains itself, too many folders are below links, or a name is not UTF-8.
        OSError: a folder cannot be read.
    """
    linked = 0
    waiting: list[tuple[str, frozenset[FolderId], bool]] = [(folder, frozenset(), False)]
    while waiting:
        path, outer, is_linked = waiting.pop()
        status = Path(path).stat()
        identity = (status.st_dev, status.st_ino)
        if identity in outer:
            raise ConfigError(
                f"the folder {path} contains itself by a link",
                guidance="remove the link, or write a glob of folders without it",
            )
        linked += is_linked
        if linked > MAX_LINKED:
            raise ConfigError(
                f"the folder {folder} has more than {MAX_LINKED:,} folders below links to folders",
                guidance="remove links, or write a glob of folders without them",
            )
        with os.scandir(path) as entries:
            for entry in entries:
                _check_name(entry)
                if not entry.is_dir():
                    yield entry.path
                elif is_deep:
                    below = is_linked or entry.is_symlink()
                    waiting.append((entry.path, outer | {identity}, below))


def _check_name(entry: os.DirEntry[str]) -> None:
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        folder = Path(entry.path).parent
        raise ConfigError(
            f"the folder {folder} has a file whose name is not UTF-8: {os.fsencode(entry.name)!r}",
            guidance="rename it, or write a glob of folders without it",
        ) from None
