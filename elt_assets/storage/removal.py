"""Removal of a folder in which a program that is not trusted has worked.

It may have made folders that are nested without limit, or that nobody may enter, and it may have put a link
in the place of any of them. What stays would be met again by each later clean-up, and an error of the removal
would fail a sync that is complete.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import stat
from pathlib import Path

_log = logging.getLogger(__name__)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def remove_tree(folder: Path) -> None:
    """Remove a folder with everything in it. No link is followed; a link in its place is removed.

    What cannot be removed is a warning.
    """
    with contextlib.suppress(RecursionError):  # nested deeper than Python's stack
        shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    try:
        if folder.is_symlink():
            folder.unlink()
            return
        folder.chmod(0o700)
        descriptor = os.open(folder, _FOLDER)
        try:
            _flatten(descriptor)
        finally:
            os.close(descriptor)
        folder.rmdir()
    except OSError as error:
        _log.warning(
            "%s cannot be removed: %s; it may contain private files of a connector, so remove it",
            folder,
            error.strerror,
        )


def _flatten(top: int) -> None:
    """Remove what is in a folder: each folder in it gives its own folders to the top, until none is left.

    So the depth needs neither memory, nor descriptors, nor names longer than the system allows.
    """
    while names := os.listdir(top):
        for name in names:
            if not _is_folder(name, top):
                os.unlink(name, dir_fd=top)
                continue
            os.chmod(name, 0o700, dir_fd=top)
            inner = os.open(name, _FOLDER, dir_fd=top)
            try:
                _raise_folders(inner, top)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)


def _raise_folders(inner: int, top: int) -> None:
    """Remove the files of a folder, and move its folders to the top."""
    for name in os.listdir(inner):
        if _is_folder(name, inner):
            os.chmod(name, 0o700, dir_fd=inner)  # a folder that is moved must be writable
            os.rename(name, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=top)
        else:
            os.unlink(name, dir_fd=inner)


def _is_folder(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
