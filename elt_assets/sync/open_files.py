"""The limit of the files that a session keeps open, however many streams take turns."""

from __future__ import annotations

from typing import Protocol

MAX_OPEN = 128
"""Files of segments that are open at the same time. Some systems allow a process 256 files of all kinds."""


class Closable(Protocol):
    """A file that can be closed for a while: its next use opens it again."""

    def pause(self) -> None:
        """Write what is buffered, and close the file."""


class OpenFiles:
    """The open files of one session. If there are too many, the one that was opened first is paused.

    A use of an open file costs nothing here, so a busy file may be paused as well. Then it is opened again.
    """

    def __init__(self, limit: int = MAX_OPEN):
        self._limit = limit
        self._files: dict[Closable, None] = {}

    def add(self, file: Closable) -> None:
        """Make room for a file that is about to be opened.

        Raises:
            OSError: the contents of another file cannot be written.
        """
        while len(self._files) >= self._limit:
            oldest = next(iter(self._files))
            del self._files[oldest]
            oldest.pause()
        self._files[file] = None

    def remove(self, file: Closable) -> None:
        """Forget a file that was closed."""
        self._files.pop(file, None)
