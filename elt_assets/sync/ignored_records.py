"""Records of streams that are not configured: they are counted and not stored."""

from __future__ import annotations

from collections.abc import Iterator

from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.sync.events import Logged

MAX_STREAMS = 100
"""Maximum number of streams with a separate count; the records of all others are counted together."""
MAX_NAME = 1_000
"""Maximum length, in characters, of the name of a stream with a separate count."""


class IgnoredRecords:
    """A counter of ignored records. Its memory does not grow with the stream names that a source sends."""

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[StreamId, int] = {}

    def add(self, stream: StreamId, count: int = 1) -> Iterator[Logged]:
        """Count records; yield a warning if they are the first of their stream."""
        self.total += count
        if stream in self._counts:
            self._counts[stream] += count
        elif len(self._counts) < MAX_STREAMS and len(str(stream)) <= MAX_NAME:
            self._counts[stream] = count
            yield Logged("WARN", f"ignoring the records of stream {str(stream)!r}: not configured")

    def summary(self) -> Iterator[Logged]:
        """Yield one warning with the count of each stream, and one with the count of all others."""
        for stream, count in self._counts.items():
            yield Logged("WARN", f"ignored {count} records of stream {str(stream)!r}")
        others = self.total - sum(self._counts.values())
        if others:
            yield Logged(
                "WARN", f"ignored {others} records of other streams that are not configured"
            )
