"""Staging: where a sync keeps the records that no commit contains yet.

A sync writes them to files in a private directory on this machine. Tasks on Spark read these files in place,
or, if the executors share no directory with this machine, from an object store: each file is uploaded just
before its tasks start, and removed when they have ended.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from elt_assets.errors import ConfigError
from elt_assets.storage.clean_up import clean_up
from elt_assets.storage.location import Location
from elt_assets.storage.scratch import scratch, sweep

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
