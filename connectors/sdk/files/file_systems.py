"""File systems: the files of a folder of this machine, and file systems of fsspec as `pyarrow.fs` has them.

fsspec is not imported: who opens such a file system has it. In folders, links are followed, also those to
folders. A folder that contains itself by links would have files without end, so it is an error, as is a name
that no record can have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from connectors.sdk.lent import lend
from elt_assets.errors import ConfigError, SystemFailure

MAX_LINKED = 100_000
"""Maximum number of folders below links to folders. Links beside each other multiply: twenty folders with two
links to the next one have a million paths."""

FolderId = tuple[int, int]
_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "created", "date_time")
"""The names that file systems give to the time of modification."""


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


def wrap_file_system(system: Any) -> fs.FileSystem:
    """Return a file system of pyarrow.

    Raises:
        SystemFailure: it is neither one, nor one of fsspec.
    """
    if isinstance(system, fs.FileSystem):
        return system
    if not hasattr(system, "protocol"):
        raise SystemFailure(
            f"`file_system` of the source returns {type(system).__name__}, which is no file system",
            guidance="return one of pyarrow.fs, or of fsspec",
        )
    return fs.PyFileSystem(_Handler(system))


class _Handler(fs.FSSpecHandler):  # type: ignore[misc] # pyarrow has no types
    """Adds the times of modification, which file systems name in different ways, and lends its files."""

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.PythonFile:
        if not self.fs.isfile(path):
            raise FileNotFoundError(path)
        return pa.PythonFile(lend(self.fs.open(path, mode="rb")), mode="r")

    @staticmethod
    def _create_file_info(path: str, info: Mapping[str, Any]) -> fs.FileInfo:
        kinds = {"file": fs.FileType.File, "directory": fs.FileType.Directory}
        kind = kinds.get(info["type"], fs.FileType.Unknown)
        size = info.get("size") if kind == fs.FileType.File else None
        return fs.FileInfo(path, kind, size=size, mtime=_find_time(info))


def _find_time(info: Mapping[str, Any]) -> float | datetime | None:
    """Return the time of modification of a file, if its file system tells it. One without a zone is UTC."""
    time = next((info[name] for name in _TIMES if info.get(name) is not None), None)
    if isinstance(time, tuple | list):  # of an archive: year, month, day, hour, minute, second
        time = datetime(*time[:6])  # noqa: DTZ001 - the zone is set below
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            return None
    if isinstance(time, datetime) and time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    return time if isinstance(time, int | float | datetime) else None
