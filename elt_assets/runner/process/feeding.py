"""Lines into a process, from a thread of its own, as fast as they are read at the other end."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO

_IDLE_MS = 200
"""How often to look, while the pipe is full, whether anybody still wants more."""
_LETTING_GO = 10.0
"""Seconds that the lines have to end when they are told to."""


class Feeder:
    """Writes lines, each with its newline, to a pipe, and closes it at their end.

    The pipe holds what the kernel lets it hold and no more, so a slow reader slows down whoever makes the
    lines. They are pulled, and closed where they can be, in the feeder's thread alone.

    Args:
        stop: makes lines end that wait for the next one; called from another thread, more than once.
    """

    def __init__(
        self, pipe: IO[bytes], lines: Iterable[bytes], stop: Callable[[], None] | None = None
    ):
        self.error: BaseException | None = None
        """What the lines raised, unless nobody wanted them any more."""
        self.complete = False
        """Whether all of them were written."""
        self._pipe = pipe
        self._lines = lines
        self._stop = stop
        self._unwanted = threading.Event()
        self._waits = True
        self._moved = 0.0
        os.set_blocking(pipe.fileno(), False)
        self._room = select.poll()
        self._room.register(pipe.fileno(), select.POLLOUT)
        self._thread = threading.Thread(target=self._feed, name="stdin", daemon=True)
        self._thread.start()

    @property
    def moved(self) -> float:
        """When the reader last took something, or had nothing to take, by `time.monotonic`."""
        return time.monotonic() if self._waits else self._moved

    def end(self) -> None:
        """Pull no more lines, and wait for those that can be stopped to have ended."""
        self._unwanted.set()
        deadline = time.monotonic() + (_LETTING_GO if self._stop else 0.5)
        while self._thread.is_alive() and time.monotonic() < deadline:
            if self._stop is not None:
                self._stop()
            self._thread.join(0.2)

    def _feed(self) -> None:
        try:
            self.complete = all(map(self._written, self._pulled()))
        except BaseException as error:  # noqa: BLE001 - told by who reads what comes back
            if not self._unwanted.is_set():  # of being stopped, nobody need hear
                self.error = error
        self._moved, self._waits = time.monotonic(), False
        self._pipe.close()
        with contextlib.suppress(Exception):
            getattr(self._lines, "close", lambda: None)()

    def _pulled(self) -> Iterator[bytes]:
        lines = iter(self._lines)
        while True:
            self._waits = True
            line = next(lines, None)
            self._moved, self._waits = time.monotonic(), False
            if line is None:
                return
            yield line

    def _written(self, line: bytes) -> bool:
        """Whether all of a line was taken; if not, nobody wants more."""
        left = memoryview(line)
        try:
            while left and not self._unwanted.is_set():
                left = left[self._taken(left) :]
        except BrokenPipeError:
            return False
        return not left

    def _taken(self, some: memoryview) -> int:
        """How many bytes went into the pipe, after a while of waiting if it is full."""
        try:
            taken = os.write(self._pipe.fileno(), some)
        except BlockingIOError:
            self._room.poll(_IDLE_MS)
            return 0
        self._moved = time.monotonic()
        return taken
