"""Records of streams that are not configured: they are counted, and go nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.sync.events import Logged

MAX_STREAMS = 100
"""Streams that are counted one by one; the records of all others are counted together."""
MAX_NAME = 1_000
"""Characters of the name of such a stream."""


class IgnoredRecords:
    """Counts them, in memory that does not grow with the names that a source invents."""

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[StreamId, int] = {}

    def add(self, stream: StreamId) -> Iterator[Logged]:
        """Count one record; a warning when it is the first of its stream."""
        self.total += 1
        if stream in self._counts:
            self._counts[stream] += 1
        elif len(self._counts) < MAX_STREAMS and len(str(stream)) <= MAX_NAME:
            self._counts[stream] = 1
            yield Logged("WARN", f"ignoring the records of stream {str(stream)!r}: not configured")

    def summary(self) -> Iterator[Logged]:
        for stream, count in self._counts.items():
            yield Logged("WARN", f"ignored {count} records of stream {str(stream)!r}")
        others = self.total - sum(self._counts.values())
        if others:
            yield Logged(
                "WARN", f"ignored {others} records of other streams that are not configured"
            )
