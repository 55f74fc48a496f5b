"""A stream of blocks that are not read long before they are used.

pyarrow's reader of CSV reads up to 32 blocks ahead, and a block must be as large as the largest row: with
rows of 16 MB, that is 512 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Semaphore
from typing import Any

_AHEAD = 2
"""Number of blocks that are read before they are wanted. The first batch needs so many."""
_SECONDS = 2.0
"""Time after which another block is read if the reader waits. Each block gives a batch, so this is only for a
reader that needs more than is known."""


class BlockStream:
    """The bytes of a stream, for a thread of pyarrow that reads them while another one uses them.

    Each use of the reader within `allow_reads` lets the thread read one more block.

    Args:
        check: gets each block, the last one empty; what it raises ends the read.
    """

    closed = False

    def __init__(self, stream: Any, check: Callable[[bytes], None] | None = None):
        self._stream = stream
        self._check = check
        self._blocks = Semaphore(_AHEAD)
        self._is_wanted = True
        self._has_ended = False

    @contextmanager
    def allow_reads(self) -> Iterator[None]:
        """Let blocks be read for the next batch."""
        self._is_wanted = True
        try:
            yield
        finally:
            self._is_wanted = False
            self._blocks.release()

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most so many."""
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int) -> Any:
        """Return the next bytes, at most so many, without a copy."""
        while not (self._has_ended or self._blocks.acquire(timeout=_SECONDS)):
            if self._is_wanted:
                break
        block = self._stream.read_buffer(size)
        self._has_ended = block.size == 0
        if self._check is not None:
            self._check(bytes(block))
        return block

    def readable(self) -> bool:
        """Return true."""
        return True

    def writable(self) -> bool:
        """Return false."""
        return False

    def seekable(self) -> bool:
        """Return false."""
        return False

    def close(self) -> None:
        """End the use of the stream, which its owner closes."""
        self.closed = True
