"""What the streams of a read did not store as it came, for the log at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from elt_assets.pipeline.figure_texts import describe_losses
from elt_assets.pipeline.read import Read


@contextlib.contextmanager
def log_losses(read: Read, log: Callable[[str, str], object]) -> Iterator[None]:
    """Log one warning for each loss when the block ends, also with an error: what is committed stays."""
    try:
        yield
    finally:
        for stream, figures in read.committed.items():
            stored = replace(figures, read=figures.committed + figures.rejected)
            for loss in describe_losses(stored):
                log("WARN", f"stream {str(stream)!r}: {loss}")
