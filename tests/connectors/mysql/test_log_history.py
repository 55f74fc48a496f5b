"""A stream that appends has what the server did with each row, in its order, after any interruption."""

from __future__ import annotations

import random
from typing import Any

import pytest

from connectors.sdk.groups import StreamPart
from connectors.sdk.items import Slice
from tests.connectors.logged import Killed, Lake
from tests.connectors.mysql.audit import AUDIT, list_audited, list_events
from tests.connectors.mysql.logs import make_lake
from tests.connectors.mysql.workload import TABLES, Workload
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.external


@pytest.fixture
def lake(logged: MariaDb) -> Lake:
    logged.execute(TABLES)
    logged.execute(AUDIT)
    logged.execute("INSERT INTO plain (id, name, amount) SELECT seq, 'a', 1 FROM seq_1_to_900")
    lake = make_lake(logged, "plain")
    lake.mode = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    return lake


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_changed_while_syncs_are_killed_come_once(
    lake: Lake, logged: MariaDb, seed: int
) -> None:
    """Also while the first snapshot is read: it has the rows of one position, from which the log goes on."""
    work = Workload(random.Random(seed), keys=900)
    first: list[dict[str, Any]] = []

    def disturb(item: Any) -> None:
        if work.random.random() < 0.5:
            work.run(logged, 5)
        if work.random.random() < 0.3:
            raise Killed
        if not first and isinstance(item, StreamPart) and isinstance(item.item, Slice):
            work.run(logged, 5)

    for _ in range(15):
        try:
            lake.sync(disturb)
        except Killed:
            continue
        work.run(logged, 20)
    lake.sync()
    rows = lake.tables["plain"].events
    begin = rows[0]["_ab_cdc_cursor"]
    snapshot = [row for row in rows if row["_ab_cdc_cursor"] == begin]
    changes = list_events([row for row in rows if row["_ab_cdc_cursor"] > begin])
    audited = list_audited(logged)
    assert changes == audited[len(audited) - len(changes) :]
    state: dict[int, Any] = {}
    for event in audited[: len(audited) - len(changes)]:
        if isinstance(event, int):
            state.pop(event, None)
        else:
            state[event[0]] = event
    assert sorted(list_events(snapshot), key=str) == sorted(state.values(), key=str)
