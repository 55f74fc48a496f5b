"""The files of a location, in a file system of `pyarrow.fs` or of fsspec."""

from __future__ import annotations

import os
import posixpath
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
from pyarrow import fs

from connectors.sdk.files.file_systems import list_paths, wrap_file_system
from connectors.sdk.files.globs import Glob
from connectors.sdk.files.memory import FILE_MEMORY_MEGABYTES, limit_memory_growth
from connectors.sdk.files.read_files import FileVersion
from connectors.sdk.lent import lend
from elt_assets.errors import ConfigError, EltError, TransientError

_DENIED = (
    "ACCESS_DENIED",
    "AccessDenied",
    "Permission denied",
    "INVALID_ACCESS_KEY",
    "SignatureDoes",
)
_ABSENT = ("NO_SUCH_BUCKET", "NoSuchBucket", "Bucket does not exist", "ContainerNotFound")
_BROKEN = (
    "Truncated compressed stream",
    "zlib inflate failed",
    "bz2 decompress failed",
    "ZSTD decompression failed",
    "ZSTD",
    "LZ4 decompress failed",
    "Couldn't deserialize thrift",
    "Unexpected end of stream",
    "Corrupt",
)
_ODD_NAMES = frozenset({"", ".", ".."})
"""Names between slashes that a store may have, and a file system does not."""
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar", ".xz", ".tar.gz", ".tar.bz2", ".tar.zst")


class ObjectReader(Protocol):
    """Reads the objects of a store whose paths its file system cannot name."""

    def describe(self, path: str) -> fs.FileInfo:
        """Return what an object is; of the type `NotFound` if there is none."""

    def open(self, path: str) -> BinaryIO:
        """Return the bytes of an object, which can be read at any place."""


@dataclass
class Storage:
    """The files of a location.

    Args:
        location: what messages and states call it.
        root: its path in the file system.
        open_system: opens the file system: one of `pyarrow.fs`, or of fsspec.
        translate: returns an error for the user of one of the file system; None if it knows none.
        megabytes: the memory that decoding a file may take.
        follows_links: whether files of this machine may be links that leave the location.
        open_objects: opens the reader of paths with a name that is empty, `.` or `..`; None if the file
            system reads them, or has none.
    """

    location: str
    root: str
    open_system: Callable[[], Any]
    translate: Callable[[Exception, str], EltError | None]
    megabytes: int = FILE_MEMORY_MEGABYTES
    follows_links: bool = False
    open_objects: Callable[[], ObjectReader] | None = None
    _system: Any = field(init=False, default=None, repr=False)
    _objects: Any = field(init=False, default=None, repr=False)

    @property
    def system(self) -> fs.FileSystem:
        """The file system, which is opened once.

        Raises:
            ConfigError: its options are not those of a file system.
        """
        if self._system is None:
            with self._translate_errors(f"the store of {self.location}"):
                self._system = wrap_file_system(self.open_system())
        return self._system

    @contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        """Raise errors of the file system as those of this product. `what`: what is looked at."""
        try:
            yield
        except EltError:
            raise
        except Exception as error:
            translated = self.translate(error, what)
            if translated is None:
                raise
            raise translated from error

    def list_files(self, globs: Iterable[Glob]) -> list[FileVersion]:
        """Return the files whose paths match a glob.

        Raises:
            EltError: the location cannot be listed.
        """
        files: dict[str, FileVersion] = {}
        for glob in globs:
            for info in self._list_folder(glob):
                path = self._relative_path(info)
                # A path with a slash at its end marks a folder of a store.
                if path.endswith("/") or not glob.matches(path):
                    continue
                followed = self._follow(info)
                if followed.type == fs.FileType.File:
                    if not self.follows_links and self.is_local:
                        self._require_within(path, posixpath.realpath(info.path))
                    files[path] = _version(path, followed)
        return list(files.values())

    def _relative_path(self, info: fs.FileInfo) -> str:
        """Return a path below the location. File systems differ in the slash before the first name; an empty
        name after the location stays: it is part of the key."""
        root = self.root.strip("/")
        path = str(info.path).removeprefix("/")
        return path[len(root) :].removeprefix("/") if root else path

    def _follow(self, info: fs.FileInfo) -> fs.FileInfo:
        """Return what a link leads to: listings do not say it."""
        if info.type != fs.FileType.Unknown:
            return info
        with self._translate_errors(f"the file {info.path}"):
            return self.system.get_file_info(info.path)

    def _list_folder(self, glob: Glob) -> list[fs.FileInfo]:
        folder = self._join(glob.folder).rstrip("/") or "/"
        with self._translate_errors(f"the folder {folder}"):
            if not glob.folder:
                self._require_root(folder)
            infos: list[fs.FileInfo]
            if self.is_local:
                if not Path(folder).is_dir():
                    return []
                infos = self.system.get_file_info(list(list_paths(folder, is_deep=glob.is_deep)))
                return infos
            selector = fs.FileSelector(folder, allow_not_found=True, recursive=glob.is_deep)
            infos = self.system.get_file_info(selector)
            return infos

    def _require_root(self, folder: str) -> None:
        """Raise an error if a local location is no folder: an empty prefix of a store is not known to be."""
        if self.is_local and self.system.get_file_info(folder).type != fs.FileType.Directory:
            raise ConfigError(
                f"the location {self.location} is no folder on this machine",
                guidance="correct `location`; in a cluster, each machine needs the folder",
            )

    @property
    def is_local(self) -> bool:
        return isinstance(self.system, fs.LocalFileSystem)

    def path(self, file: FileVersion) -> str:
        """Return the path of a file in the file system."""
        return self._join(file.path)

    def _join(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}" if self.root else path

    def _find_reader(self, file: FileVersion) -> ObjectReader | None:
        """Return who reads a file in place of the file system; None if this does."""
        if self.open_objects is None or not _ODD_NAMES.intersection(file.path.split("/")):
            return None
        if self._objects is None:
            self._objects = self.open_objects()
        reader: ObjectReader = self._objects
        return reader

    def require(self, file: FileVersion) -> None:
        """Raise an error unless a file is as it was listed.

        Raises:
            TransientError: it is gone, or was replaced.
        """
        with self._translate_errors(f"the file {file.path}"):
            reader = self._find_reader(file)
            path = self.path(file)
            info = self.system.get_file_info(path) if reader is None else reader.describe(path)
        if info.type == fs.FileType.Directory and file.size:
            raise ConfigError(
                f"the object {file.path}/ cannot be read: it has {file.size:,} bytes, and the name of a "
                "folder",
                guidance="give it a key without a slash at its end, or write a glob that does not match it, "
                "such as `**/*.csv`",
            )
        if info.type != fs.FileType.File:
            raise TransientError(
                f"the file {file.path} is gone since it was listed",
                guidance="run the sync again: it lists the files again",
            )
        if not self._is_same(file, _version(file.path, info)):
            raise TransientError(
                f"the file {file.path} was replaced or extended since it was listed; nothing of it is kept",
                guidance="run the sync again: it reads the new version; let programs write to another name, "
                "and rename the file when it is complete",
            )

    def _is_same(self, listed: FileVersion, current: FileVersion) -> bool:
        """Return whether a file is as it was listed.

        Some stores list times with fractions of a second, and tell the time of one object without them.
        """
        unit = 1 if self.is_local else 1_000_000_000
        is_same_time = listed.modified // unit == current.modified // unit
        return is_same_time and listed.size == current.size

    @contextmanager
    def guard_read(self, file: FileVersion) -> Iterator[None]:
        """Raise an error if a file is not the same before and after its read, or takes too much memory; tell
        which file has errors."""
        self.require(file)
        with self._translate_errors(f"the file {file.path}"):
            try:
                with limit_memory_growth(self.megabytes):
                    yield
            except MemoryError as error:
                raise ConfigError(
                    f"the file {file.path} cannot be read: it has {file.size:,} bytes, and to decode it "
                    f"takes more than {self.megabytes:,} MiB of memory",
                    guidance="it may be meant to exhaust the memory of its reader: replace it, or exclude it "
                    "from the glob. If it is right, set `max_memory_megabytes` in the config",
                ) from error
            except UnicodeDecodeError as error:
                self.require(file)
                raise ConfigError(
                    f"the file {file.path} cannot be read: its encoding is not {error.encoding}: "
                    f"{error.reason}",
                    guidance="set `encoding` in the options of its format",
                ) from error
            except Exception:
                self.require(file)
                raise
        self.require(file)

    def open_stream(self, file: FileVersion, compression: str) -> Any:
        """Return the bytes of a file, decompressed.

        Args:
            compression: that of the config.
        """
        chosen = find_compression(file.path, compression)
        reader = self._find_reader(file)
        if reader is not None:
            content = pa.PythonFile(lend(reader.open(self.path(file))), mode="r")
            return content if chosen is None else pa.CompressedInputStream(content, chosen)
        with self._find_to_open(file) as path:
            return self.system.open_input_stream(path, compression=chosen)

    def open_file(self, file: FileVersion) -> Any:
        """Return a file that can be read at any place."""
        reader = self._find_reader(file)
        if reader is not None:
            return pa.PythonFile(lend(reader.open(self.path(file))), mode="r")
        with self._find_to_open(file) as path:
            return self.system.open_input_file(path)

    @contextmanager
    def _find_to_open(self, file: FileVersion) -> Iterator[str]:
        """Return the path to open. Of a local file it is that of the file that was checked: whoever may write
        to the folder may put a link there at any time.

        Raises:
            ConfigError: it is a link that leaves the location.
        """
        path = self.path(file)
        if self.follows_links or not self.is_local or sys.platform != "linux":
            yield path
            return
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            opened = f"/proc/self/fd/{number}"
            self._require_within(file.path, str(Path(opened).readlink()))
            yield opened
        finally:
            os.close(number)

    def _require_within(self, path: str, real_path: str) -> None:
        """Raise an error if a file of this machine lies outside of the location."""
        root = posixpath.realpath(self.root)
        if posixpath.commonpath([root, real_path]) != root:
            raise ConfigError(
                f"the file {path} is a link that leaves the location {self.location}",
                guidance="whoever writes to the folder could have any file of this machine read in this way: "
                "replace the link, or exclude it from the glob. If only you write there, set `follow_links: "
                "true` in the config",
            )


def find_compression(path: str, compression: str) -> str | None:
    """Return the compression of a file as pyarrow names it.

    Raises:
        ConfigError: the file is an archive.
    """
    if compression != "auto":
        return None if compression == "none" else compression
    if path.lower().endswith(_ARCHIVES):
        raise ConfigError(
            f"the file {path} is an archive, which this source does not unpack",
            guidance="unpack it; or exclude it from the glob",
        )
    return _COMPRESSIONS.get(posixpath.splitext(path.lower())[1])


def describe_failure(error: Exception, what: str) -> EltError | None:
    """Return an error of pyarrow or of the system for a user; None for any other."""
    if not isinstance(error, pa.ArrowException | OSError):
        return None
    text = " ".join(str(error).split())
    if isinstance(error, PermissionError) or any(mark in text for mark in _DENIED):
        return ConfigError(
            f"{what} cannot be read: access is denied",
            guidance="grant the right to read and list it",
        )
    if any(mark in text for mark in _ABSENT):
        return ConfigError(f"{what} cannot be read: {text}", guidance="correct `location`")
    if isinstance(error, pa.ArrowInvalid) or any(mark in text for mark in _BROKEN):
        return ConfigError(
            f"{what} cannot be read: {text}",
            guidance="replace it by one that is whole, exclude it from the glob, or correct its options",
        )
    return TransientError(f"{what} cannot be read: {text}", guidance="try again")


def _version(path: str, info: fs.FileInfo) -> FileVersion:
    return FileVersion(info.mtime_ns or 0, path, info.size or 0)
