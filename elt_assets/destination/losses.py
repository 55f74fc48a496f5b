"""What the streams of a sync did not store as it came, for the log at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from elt_assets.pipeline.figure_texts import describe_losses
from elt_assets.pipeline.figures import SyncFigures
from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.sync.events import Acknowledged, SessionEvent


class Losses:
    """Counts changed values and rejected records by stream, over all commits of a sync."""

    def __init__(self) -> None:
        self._figures: dict[StreamId, SyncFigures] = {}

    def add(self, event: SessionEvent) -> None:
        """Count what a commit did not store as it came."""
        if isinstance(event, Acknowledged):
            figures = self._figures.setdefault(event.stream, SyncFigures())
            figures.add(event.commit)
            figures.read = figures.committed + figures.rejected

    @contextlib.contextmanager
    def log_at_end(self, log: Callable[[str, str], object]) -> Iterator[None]:
        """Log one warning for each loss when the block ends, also with an error: what is committed stays."""
        try:
            yield
        finally:
            for stream, figures in self._figures.items():
                for loss in describe_losses(figures):
                    log("WARN", f"stream {str(stream)!r}: {loss}")
