"""A folder into which another program puts files for this one, and from which nothing else is read.

The program may be one that is not trusted, so each file that a connector may have written is opened here.
What it names is opened part by part from the folder on, and no part may be a link, so no name leads to a file
outside, whatever the program changes in between. The folder itself is opened once, before the program starts:
its path may name another folder later. A file with a second name (a hard link) may be one that the program
may not read itself, so it is refused too; so is all that is no plain file: a named pipe would be waited for,
and a device has no end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from elt_assets.errors import SystemFailure

_DEFECT = "this is a defect of the connector, or an attack by it; nothing was copied"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Without O_NONBLOCK, a named pipe would be waited for.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_SCHEME = "file://"
_CAUSED_BY_LINKS = (errno.ELOOP, errno.ENOTDIR)
"""Numbers of the error for a link, with O_NOFOLLOW."""
_CAUSED_BY_NAMES = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ENXIO)
"""Numbers of other errors that the program can cause. Any other one is a fault of this machine."""


class MissingFile(SystemFailure):
    """There is no such file."""


class StagedFiles:
    """The files in a folder, which stays open as long as this object lives.

    Args:
        folder: the folder. Create this object before the other program starts, or with `follows_link` False.
        referrer: what names the files, for messages.
        follows_link: whether the folder itself may be a link.

    Raises:
        OSError: there is no such folder, or it cannot be opened.
    """

    def __init__(self, folder: Path, referrer: str = "a record", *, follows_link: bool = True):
        self.folder = folder
        self._referrer = referrer
        flags = os.O_RDONLY | os.O_DIRECTORY | (0 if follows_link else os.O_NOFOLLOW)
        self._descriptor = os.open(folder, flags)
        weakref.finalize(self, os.close, self._descriptor)
        self._roots = [f"{str(root).rstrip('/')}/" for root in (folder, os.path.realpath(folder))]

    def has(self, url: str) -> bool:
        """Return whether a path, or a URL of one, is below the folder; there may be no such file."""
        return self._find_parts(url) is not None

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
            descriptor = self._open_part(parts[-1], _FILE, folder, url)
        try:
            self._check(os.fstat(descriptor), size, url)
        except SystemFailure:
            os.close(descriptor)
            raise
        return os.fdopen(descriptor, "rb")

    def read(self, url: str, limit: int) -> bytes:
        """Return the content of a file.

        Args:
            url: as for `open`.
            limit: the maximum number of bytes.

        Raises:
            SystemFailure: as for `open`; or the file has more bytes.
        """
        with self.open(url) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise self._unusable(url, f"it has more than {limit:,} bytes")
        return content

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
        parts = self._find_parts(url)
        if parts is None:
            raise self._unusable(url, "it is not in the staging folder")
        return parts

    def _find_parts(self, url: str) -> Sequence[str] | None:
        path = unquote(url.removeprefix(_SCHEME)) if url.startswith(_SCHEME) else url
        for root in self._roots:
            if path.startswith(root):
                parts = [part for part in path[len(root) :].split("/") if part not in ("", ".")]
                if parts and ".." not in parts and _is_name(path):
                    return parts
        return None

    @contextlib.contextmanager
    def _enter(self, names: Sequence[str], url: str) -> Iterator[int]:
        """Open a folder below the folder, and yield its descriptor."""
        descriptor = os.dup(self._descriptor)
        try:
            for name in names:
                below = self._open_part(name, _FOLDER, descriptor, url)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def _open_part(self, name: str, flags: int, folder: int, url: str) -> int:
        try:
            return os.open(name, flags, dir_fd=folder)
        except FileNotFoundError:
            raise self._unusable(url, "there is no such file", MissingFile) from None
        except OSError as error:
            if error.errno in _CAUSED_BY_LINKS:
                raise self._unusable(url, "a part of it is a link, or no folder") from None
            if error.errno in _CAUSED_BY_NAMES:
                raise self._unusable(url, str(error.strerror)) from None
            raise

    def _check(self, status: os.stat_result, size: float | None, url: str) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise self._unusable(url, "it is no file")
        if status.st_nlink != 1:
            raise self._unusable(url, "the file has other names (hard links), or was removed")
        if size is not None and size != status.st_size:
            raise self._unusable(
                url, f"it has {status.st_size:,} bytes, and not {size:,}, as the record says"
            )

    def _unusable(
        self, url: str, reason: str, kind: type[SystemFailure] = SystemFailure
    ) -> SystemFailure:
        return kind(
            f"{self._referrer} refers to the file {url[:500]!r}, which cannot be used: {reason} "
            f"(staging folder: {self.folder})",
            guidance=_DEFECT,
        )


def _is_name(path: str) -> bool:
    """Return whether a text can be a path: it has no NUL, and no half of a character."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
