"""File systems of fsspec, as `pyarrow.fs` has them.

fsspec is not imported: who opens such a file system has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from pyarrow import fs

from elt_assets.errors import SystemFailure

_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "created", "date_time")
"""The names that file systems give to the time of modification."""


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
    """Adds the times of modification, which file systems name in different ways."""

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
