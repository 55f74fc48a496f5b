"""Staging: where a sync keeps the records that no commit contains yet, and the files that a connector writes.

`paths` makes the `Staging` of a project, which `orchestration.resources` and `pipeline` pass on; `lake` reads
from it. `lake`, `runner`, `pipeline` and `destination.tables` open files with `StagedFiles`.

A sync writes records to files in a private directory on this machine. Tasks on Spark read these files in
place, or, if the executors share no directory with this machine, from an object store: each file is uploaded
just before its tasks start, and removed when they have ended (`Staging`).

A connector may write files too: documents, and batches of records. `StagedFiles` opens them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import stat
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote
from uuid import uuid4

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.machine_faults import first_line
from elt_assets.storage.folders import scratch, sweep
from elt_assets.storage.location import Location

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def clean_up(place: str) -> Iterator[None]:
    """Log an error of the block, which removes files, as a warning. A file that is gone already is no error.

    The work that needed the files is done or has failed: an error of the removal must hide neither the result
    nor the first error. Maintenance removes what has stayed.

    Args:
        place: the files that the block removes, for the message.
    """
    try:
        yield
    except FileNotFoundError:
        return
    except Exception as error:  # whatever the store says  # noqa: BLE001
        _log.warning(
            "%s could not be removed; maintenance removes it later: %s", place, first_line(error)
        )


_KIND = "sync"
_OTHERS = "slices"
"""The folder, in the shared place, of files that a connector has made in a directory of its own."""
_CHUNK = 8 << 20


@dataclass(frozen=True)
class Staging:
    """The places of staged files.

    Raises:
        ConfigError: `shared` is not in an object store.
    """

    folder: Path  # the directory on this machine
    # the place in an object store from which tasks read; None if they read `folder`
    shared: Location | None = None

    def __post_init__(self) -> None:
        if self.shared is not None and not self.shared.is_object_store:
            raise ConfigError(
                f"staging cannot be at {self.shared}, which is not in an object store",
                guidance="write a path, or a URI of one of: s3://, gs://, abfss://",
            )

    @contextlib.contextmanager
    def session(self) -> Iterator[Path]:
        """Create a directory for one sync, and remove it when the context ends.

        Directories that killed syncs of this machine left are removed first, with what they had uploaded.
        """
        with scratch(self.folder, _KIND, self._remove_uploads) as folder:
            yield folder

    @contextlib.contextmanager
    def share(self, file: Path) -> Iterator[Location]:
        """Yield the location from which tasks can read a file of `session`, until the context ends."""
        if self.shared is None:
            yield Location.parse(str(file))
            return
        with file.open("rb") as source:
            yield from self._upload(source, file.relative_to(self.folder).as_posix())

    @contextlib.contextmanager
    def share_copy(self, file: BinaryIO) -> Iterator[Location]:
        """Yield the location of a copy of any file in the place that tasks share, until the context ends."""
        yield from self._upload(file, f"{_OTHERS}/{uuid4().hex}")

    def _upload(self, source: BinaryIO, name: str) -> Iterator[Location]:
        assert self.shared is not None
        place = self.shared.child(name)
        try:
            system, path = place.file_system()
            with system.open_output_stream(path) as sink:
                shutil.copyfileobj(source, sink, _CHUNK)
            yield place
        finally:
            self._remove([name])

    def sweep(self, seconds: float) -> int:
        """Remove what killed syncs of any machine left and what is unchanged for `seconds`.

        Returns:
            The number of removed directories and uploaded files.
        """
        oldest = time.time() - seconds
        removed = sweep(self.folder, seconds)
        if self.shared is None:
            return removed
        old = [name for name, changed in _uploads(self.shared) if changed < oldest]
        self._remove(old)
        return removed + len(old)

    def remove_abandoned(self) -> AbandonedFiles:
        """Remove what killed syncs of this machine left, whatever its age.

        An upload is removed with the directory of its sync: whether a sync of another machine is running
        cannot be known.
        """
        sessions = list[str]()

        def remove_uploads(session: str) -> None:
            sessions.append(session)
            self._remove_uploads(session)

        removed = sweep(self.folder, 0, remove_uploads)
        if self.shared is None:
            return AbandonedFiles(removed, (), 0)
        names = {name.partition("/")[0]: name for name, _ in _uploads(self.shared)}
        left = [name for folder, name in names.items() if not (self.folder / folder).is_dir()]
        return AbandonedFiles(removed, [self.shared.child(name) for name in sessions], len(left))

    def _remove_uploads(self, session: str) -> None:
        """Remove what a session has uploaded. `session`: the name of its directory."""
        if self.shared is not None:
            uploads = _uploads(self.shared.child(session))
            self._remove([f"{session}/{name}" for name, _ in uploads])

    def _remove(self, names: list[str]) -> None:
        if self.shared is not None and names:
            for name in names:
                with clean_up(f"{self.shared}/{name}"):
                    self.shared.remover().delete_file(name)


@dataclass(frozen=True)
class AbandonedFiles:
    """What `Staging.remove_abandoned` has done."""

    removed: int  # directories
    places: Sequence[Location]  # of the uploads of these, which are removed too
    left: int  # folders of uploads without a directory on this machine


IN_PLACE = Staging(Path("/"))
"""Staging for files of any directory: tasks read them in place."""


def _uploads(place: Location) -> Iterator[tuple[str, float]]:
    """Yield the name below a place, and the time of the last change, of each object there."""
    from pyarrow import fs  # noqa: PLC0415 - only staging in an object store needs it

    system, root = place.file_system()
    infos: list[Any] = system.get_file_info(
        fs.FileSelector(root, allow_not_found=True, recursive=True)
    )
    for info in infos:
        if info.type == fs.FileType.File:
            yield info.path[len(root) + 1 :], info.mtime.timestamp()


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
    """The files in a folder into which another program puts files for this one. Nothing else is opened.

    The program may be one that is not trusted. What it names is opened part by part from the folder on, and
    no part may be a link, so no name leads to a file outside, whatever the program changes in between. The
    folder stays open as long as this object lives: its path may name another folder later. A file with a
    second name (a hard link) may be one that the program may not read itself, so it is refused too; so is all
    that is no plain file: a named pipe would be waited for, and a device has no end.

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
