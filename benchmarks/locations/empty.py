"""An asset that does nothing: the cost of Dagster."""

from __future__ import annotations

import dagster as dg


@dg.asset
def empty() -> None:
    """Do nothing."""
