"""Three daily partitions: as `defs.yaml` has them, as Dagster has them, and their keys."""

from __future__ import annotations

from typing import Any

import dagster as dg

DAILY: Any = {
    "type": "daily",
    "start": "2026-01-01",
    "end": "2026-01-04",
    "bind": {"start": "from", "end": "to"},
}
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
FIRST, SECOND, THIRD = "2026-01-01", "2026-01-02", "2026-01-03"
