"""The other threads of the process go on while a request of the lake waits for a slow object store.

The heartbeat of a run, its cancellation and the connector's pipe are such threads.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import types as t

from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.storage import DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.storage.location import Location
from tests.support.object_store import new_bucket, s3_process

IDS = t.StructType([t.StructField("id", t.LongType())])
PAUSE = 1.0
"""Seconds for which the server does not answer."""
TICKS = 5
"""The number of times, of a hundred, that another thread must have been awake meanwhile."""


class Pausable:
    """A table in an object store whose server can be stopped for a moment."""

    def __init__(self, place: Location, pid: int):
        self.place, self._pid = place, pid
        self.table = Table(place, "elt:users")
        self.table.prepare(IDS)
        self.commit()
        self.commit()

    def commit(self) -> None:
        number = self.table.metadata.sequence + 1
        file = DataFile(f"data/{number}.parquet", 1, 1, '{"numRecords": 1}')
        after = CommitMetadata(number, 1, f'{{"c":{number}}}')
        self.table.commit(TableChange([file]), replace(after, sync_id=number), 1)

    def ticks_during(self, call: Callable[[], object]) -> tuple[int, float]:
        """Run a call while the server does not answer; return how often this thread woke up, and how long the
        call took."""
        # Another process ends the pause: this one could not if it stood still.
        pause = f"kill -STOP {self._pid}; echo; sleep {PAUSE}; kill -CONT {self._pid}"
        with subprocess.Popen(["sh", "-c", pause], stdout=subprocess.PIPE) as pausing:
            assert pausing.stdout is not None
            pausing.stdout.readline()
            started, thread, ticks = time.monotonic(), threading.Thread(target=call), 0
            thread.start()
            while thread.is_alive():
                time.sleep(PAUSE / 100)
                ticks += 1
            return ticks, time.monotonic() - started


@pytest.fixture(scope="module")
def pausable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pausable]:
    with s3_process(Path(tmp_path_factory.mktemp("s3"), "log")) as (endpoint, process):
        store = new_bucket(endpoint)
        yield Pausable(Location.parse(f"{store.uri}/users", store.options), process.pid)


def past_states(lake: Pausable) -> Callable[[], object]:
    older = Table(lake.place, "elt:users", version=2)
    return lambda: list(older.past_commits())


CALLS: dict[str, Callable[[Pausable], Callable[[], object]]] = {
    "open": lambda lake: lambda: Table(lake.place, "elt:users"),
    "commit": lambda lake: lake.commit,
    "advance": lambda lake: lake.table.advance,
    "past states": past_states,
    "files": lambda lake: lambda: Table(lake.place, "elt:users").files,
}
"""Calls that wait for the server, each prepared before it is stopped."""


@pytest.mark.parametrize("name", CALLS)
def test_other_threads_run_while_a_store_does_not_answer(pausable: Pausable, name: str) -> None:
    ticks, seconds = pausable.ticks_during(CALLS[name](pausable))
    assert seconds >= PAUSE / 2, "the call did not wait for the server"
    assert ticks >= TICKS
