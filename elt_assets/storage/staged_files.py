"""A folder into which another program puts files for this one, and from which nothing else is read.

The program may be one that is not trusted. What it names is opened part by part from the folder on, and no
part may be a link, so no name leads to a file outside, whatever the program changes in between. A file with a
second name (a hard link) may be one that the program may not read itself, so it is refused too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from elt_assets.errors import SystemFailure

_DEFECT = "this is a defect of the connector, or an attack by it; nothing was copied"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Without O_NONBLOCK, a named pipe would be waited for.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_SCHEME = "file://"


@dataclass(frozen=True)
class StagedFiles:
    """The files in a folder."""

    folder: Path

    def open(self, url: str, size: float | None = None) -> BinaryIO:
        """Open a file for reading.

        Args:
            url: its absolute path, or a URL of one.
            size: its size in bytes, if that is known.

        Raises:
            SystemFailure: the path leads out of the folder, or to something else than a file with one name;
                there is no such file; or it has another size.
        """
        parts = self._parts(url)
        with self._enter(parts[:-1], url) as folder:
            try:
                descriptor = os.open(parts[-1], _FILE, dir_fd=folder)
            except OSError as error:
                raise _unusable(url, self.folder, _explain(error)) from None
        try:
            _check(os.fstat(descriptor), size, url, self.folder)
        except SystemFailure:
            os.close(descriptor)
            raise
        return os.fdopen(descriptor, "rb")

    def remove(self, url: str) -> None:
        """Remove a file, if there is one in the folder. What cannot be removed goes with the folder."""
        with contextlib.suppress(OSError, SystemFailure):
            parts = self._parts(url)
            with self._enter(parts[:-1], url) as folder:
                os.unlink(parts[-1], dir_fd=folder)

    def _parts(self, url: str) -> Sequence[str]:
        """Return the names below the folder.

        Raises:
            SystemFailure: the path is not below the folder.
        """
        path = unquote(url.removeprefix(_SCHEME)) if url.startswith(_SCHEME) else url
        for root in (str(self.folder), os.path.realpath(self.folder)):
            if path.startswith(f"{root}/"):
                parts = [part for part in path[len(root) :].split("/") if part not in ("", ".")]
                if parts and ".." not in parts and _is_name(path):
                    return parts
        raise _unusable(url, self.folder, "it is not in the staging folder")

    @contextlib.contextmanager
    def _enter(self, names: Sequence[str], url: str) -> Iterator[int]:
        """Open a folder below the folder, and yield its descriptor."""
        try:
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise _unusable(url, self.folder, _explain(error)) from None
        try:
            for name in names:
                try:
                    below = os.open(name, _FOLDER, dir_fd=descriptor)
                except OSError as error:
                    raise _unusable(url, self.folder, _explain(error)) from None
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)


def _is_name(path: str) -> bool:
    """Return whether a text can be a path: it has no NUL, and no half of a character."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def _check(status: os.stat_result, size: float | None, url: str, folder: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _unusable(url, folder, "it is no file")
    if status.st_nlink != 1:
        raise _unusable(url, folder, "the file has other names (hard links), or was removed")
    if size is not None and size != status.st_size:
        raise _unusable(
            url, folder, f"it has {status.st_size:,} bytes, and not {size:,}, as the record says"
        )


def _explain(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if error.errno in (errno.ELOOP, errno.ENOTDIR):  # with O_NOFOLLOW, a link is one of these
        return "a part of it is a link, or no folder"
    return error.strerror or "it cannot be opened"


def _unusable(url: str, folder: Path, reason: str) -> SystemFailure:
    return SystemFailure(
        f"a record refers to the file {url[:500]!r}, which cannot be used: {reason} "
        f"(staging folder: {folder})",
        guidance=_DEFECT,
    )
