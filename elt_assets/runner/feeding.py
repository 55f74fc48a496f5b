"""Write the input of a connector's process from a separate thread, as fast as the process reads it.

For `process`; `connector` lets a source that waits go on with `Releases`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO

_IDLE_MS = 200
"""Interval in milliseconds at which a feeder with a full pipe checks whether it was ended."""
_STOP_SECONDS = 10.0
"""Time limit for the lines to end after `stop`."""


class Releases:
    """The lines of a process that waits for one at some points: an empty line for each `add`, until `end`.

    Nobody reads the output of the process while it waits for a line, so no line is missing when it is read.
    """

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._lines.get, None)

    def add(self) -> None:
        self._lines.put(b"\n")

    def end(self) -> None:
        self._lines.put(None)


class Feeder:
    """Writes lines, each with its newline, to a pipe, and closes the pipe after the last line.

    Nothing is buffered but the kernel's pipe, so a slow reader slows down the producer of the lines. Only the
    feeder's thread consumes the lines, and closes them if they have a `close`.

    Args:
        stop: makes `lines` end while they wait for the next line. Called repeatedly, from another thread.
    """

    def __init__(
        self, pipe: IO[bytes], lines: Iterable[bytes], stop: Callable[[], None] | None = None
    ):
        self.error: BaseException | None = None
        """The error that the lines raised before `end` was called."""
        self.complete = False
        """True if all lines were written."""
        self._pipe = pipe
        self._lines = lines
        self._stop = stop
        self._ended = threading.Event()
        self._is_waiting = True
        self._last_progress = 0.0
        os.set_blocking(pipe.fileno(), False)
        self._room = select.poll()
        self._room.register(pipe.fileno(), select.POLLOUT)
        self._thread = threading.Thread(target=self._feed, name="stdin", daemon=True)
        self._thread.start()

    @property
    def last_progress(self) -> float:
        """The time of the reader's last progress, by `time.monotonic`; now while it waits for lines."""
        if isinstance(self._lines, Releases):
            return 0.0
        return time.monotonic() if self._is_waiting else self._last_progress

    def end(self) -> None:
        """Consume no more lines, and wait for the thread to end: at most 10 seconds with `stop`, else 0.5."""
        self._ended.set()
        deadline = time.monotonic() + (_STOP_SECONDS if self._stop else 0.5)
        while self._thread.is_alive() and time.monotonic() < deadline:
            if self._stop is not None:
                self._stop()
            self._thread.join(0.2)

    def _feed(self) -> None:
        try:
            self.complete = all(map(self._write, self._drop_written()))
        except BaseException as error:  # noqa: BLE001 - `raise_for_exit` raises it
            if not self._ended.is_set():  # an error after `end` is expected
                self.error = error
        self._last_progress, self._is_waiting = time.monotonic(), False
        self._pipe.close()
        with contextlib.suppress(Exception):
            getattr(self._lines, "close", lambda: None)()

    def _drop_written(self) -> Iterator[bytes]:
        lines = iter(self._lines)
        while True:
            self._is_waiting = True
            line = next(lines, None)
            self._last_progress, self._is_waiting = time.monotonic(), False
            if line is None:
                return
            yield line

    def _write(self, line: bytes) -> bool:
        """Write a line, and return whether all of it was written; False after `end` or the reader's end."""
        rest = memoryview(line)
        try:
            while rest and not self._ended.is_set():
                rest = rest[self._write_some(rest) :]
        except BrokenPipeError:
            return False
        return not rest

    def _write_some(self, data: memoryview) -> int:
        """Write to the pipe, and return the number of bytes. If the pipe is full, wait and return 0."""
        try:
            count = os.write(self._pipe.fileno(), data)
        except BlockingIOError:
            self._room.poll(_IDLE_MS)
            return 0
        self._last_progress = time.monotonic()
        return count
