"""Partitions of one stream in several runs at the same time, each a process of its own."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.programs.windowed_source import windowed
from tests.support.project import Project

STATIONS = ["north", "south"]
KEYS = {"type": "static", "keys": STATIONS, "bind": "station"}
MERGED: dict[str, Any] = {
    "sync_mode": "incremental",
    "destination_sync_mode": "append_dedup",
    "partitions": KEYS,
}


@pytest.mark.long
@pytest.mark.process
def test_runs_of_several_partitions_commit_at_the_same_time(own: Project) -> None:
    """Both create the table, or one of them finds it: each commits its own rows and state."""
    rules = {"unique": {"columns": ["station", "at"]}, "row_count": {"max": 24, "over": "new"}}
    windowed(own, config={"to": "2026-01-02"}, **MERGED, checks=rules)
    with ThreadPoolExecutor(len(STATIONS)) as pool:
        sync = partial(own.elt, "sync", "weather", "readings", "--partition")
        done = list(pool.map(sync, STATIONS))
    assert [run.returncode for run in done] == [0, 0], [run.stderr for run in done]
    rows = own.rows("weather", "readings")
    assert Counter(row["_elt_partition"] for row in rows) == {"north": 24, "south": 24}
    assert all(row["station"] == row["_elt_partition"] for row in rows)
