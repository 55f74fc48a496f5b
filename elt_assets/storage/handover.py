"""Files that a process hands over to Spark's tasks, which may run on machines that do not see its disk."""

from __future__ import annotations

import contextlib
import datetime as dt
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elt_assets.storage.location import Location

_PREFIX = "elt-"
_BUFFER = 1 << 20


class Handover:
    """Makes finished local files readable for tasks.

    Without a folder, tasks read the file where it is. With a folder in an object store, the file is uploaded
    there.
    """

    def __init__(self, folder: Location | None = None):
        self._folder = folder

    def offer(self, file: Path) -> Location:
        """Return the location at which tasks can read a file, which must not change from now on.

        Raises:
            OSError: the file cannot be uploaded.
        """
        if self._folder is None:
            return Location.of(str(file))
        place = self._folder.child(f"{secrets.token_hex(8)}-{file.name}")
        system, path = place.file_system()
        with file.open("rb") as source, system.open_output_stream(path) as sink:
            shutil.copyfileobj(source, sink, _BUFFER)
        return place

    def withdraw(self, place: Location) -> None:
        """Remove what `offer` uploaded; a local file stays.

        A failure is ignored: `sweep` removes the rest.
        """
        if self._folder is not None:
            system, path = place.file_system()
            with contextlib.suppress(OSError):
                system.delete_file(path)


@contextlib.contextmanager
def handover(staging: Location) -> Iterator[Handover]:
    """Hand over files through a staging folder; what was uploaded is removed when the context ends.

    Args:
        staging: a directory, which tasks see at the same path, or a folder in an object store.
    """
    if not staging.is_object_store:
        yield Handover()
        return
    folder = staging.child(f"{_PREFIX}{secrets.token_hex(8)}")
    try:
        yield Handover(folder)
    finally:
        system, path = folder.file_system()
        with contextlib.suppress(OSError):
            system.delete_dir(path)


def sweep(staging: Location, seconds: float) -> int:
    """Remove files that killed processes left in an object store, if they are older than `seconds`.

    Only the age decides. A file is read minutes after it was uploaded, so give a day or more.

    Returns:
        The number of removed files.
    """
    system, root = staging.file_system()
    oldest = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=seconds)
    removed = 0
    for info in _files(system, root):
        is_ours = info.path[len(root) + 1 :].startswith(_PREFIX)
        if is_ours and info.mtime < oldest:
            with contextlib.suppress(FileNotFoundError):
                system.delete_file(info.path)
                removed += 1
    return removed


def _files(system: Any, root: str) -> list[Any]:
    from pyarrow.fs import FileSelector  # noqa: PLC0415 - only staging in an object store needs it

    found = system.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
    return [info for info in found if info.is_file]
