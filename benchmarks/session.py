"""The Spark session of the parts that measure the lake in a process of their own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import environment
from elt_assets.lake.session import SparkProvider
from elt_assets.orchestration.resources import SparkResource


@contextlib.contextmanager
def session(home: Path) -> Iterator[SparkProvider]:
    """The session that a sync would have, without the caller's own settings: with an empty home."""
    kept = environment()
    os.environ.clear()
    os.environ.update(kept | {"DAGSTER_HOME": str(home)})
    provider = SparkResource().provider
    try:
        yield provider
    finally:
        provider.get().stop()
