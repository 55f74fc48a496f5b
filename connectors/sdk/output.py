"""The buffered output of a source: it is written when it is large, and after a time."""

from __future__ import annotations

import time
from typing import BinaryIO

from elt_assets.protocol.output import Output

FLUSH_BYTES = 1 << 16
FLUSH_MS = 1_000


class TimedOutput(Output):
    """An output that also writes its messages after a time, so that a slow source does not look like one that
    has stopped."""

    def __init__(self, stream: BinaryIO):
        super().__init__(stream)
        self._flush_due = 0

    def flush(self) -> None:
        super().flush()
        self._flush_due = time.time_ns() // 1_000_000 + FLUSH_MS

    def flush_if_due(self, now: int) -> None:
        """Write the messages if they are many, or old; `now` in milliseconds since 1970."""
        if len(self._buffer) >= FLUSH_BYTES or now >= self._flush_due:
            self.flush()
