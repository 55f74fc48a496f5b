"""A stream of a manifest goes into the lake through Dagster: by cursor, by day, and killed in between."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from deltalake.exceptions import TableNotFoundError

from tests.orchestration.ticking import execute, tick
from tests.programs.orders_api import Orders, serving
from tests.support.project import Project
from tests.support.runs import fetch_materializations, materialize

KEY = 'key:"shop/orders"'
DAYS = [f"2024-01-0{day}T00:00:00Z" for day in (1, 2, 3)]
HOURS = 3 * 24

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def orders() -> Iterator[Orders]:
    """An API with an order an hour, of which the manifest reads three days, each with a request."""
    with serving(Orders(count=HOURS)) as served:
        yield served


def connect(project: Project, orders: Orders, **stream: Any) -> None:
    folder = project.connection(
        "shop",
        source={"manifest": "manifest.yaml", "config": {"url": orders.url}},
        streams=[{"name": "orders", "sync_mode": "incremental", **stream}],
        checkpoint={"rows": 20},
    )
    manifest = orders.manifest()
    manifest["streams"][0]["incremental_sync"]["end_datetime"]["datetime"] = "2024-01-03T23:59:59Z"
    (folder / "manifest.yaml").write_text(json.dumps(manifest))
    project.discover("shop")


def pop_starts(orders: Orders) -> list[str]:
    """Return the start of each request since the last call."""
    bounds = [query["since"] for query in orders.queries]
    orders.queries.clear()
    return bounds


def read_ids(project: Project) -> list[int]:
    return sorted(row["id"] for row in project.rows("shop", "orders"))


def versions(project: Project) -> int:
    """Return the number of commits of the table."""
    try:
        return project.table("shop", "orders").version() + 1
    except TableNotFoundError:
        return 0


def wait_until(is_true: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "it has not become true"
        time.sleep(0.05)


@pytest.mark.spec("builder.24")
def test_a_run_that_is_killed_continues_from_its_last_interval(
    own: Project, orders: Orders
) -> None:
    connect(own, orders, destination_sync_mode="append")
    orders.answered = 2
    run = own.start(KEY)
    try:
        wait_until(lambda: versions(own) >= 2)
    finally:
        own.kill(run)
    partial = read_ids(own)
    assert partial in (list(range(24)), list(range(48)))
    reached = own.committed_state("shop", "orders")["stream"]["stream_state"]["updated_at"]
    orders.answered = None
    pop_starts(orders)

    assert materialize(own, KEY).success

    assert read_ids(own) == list(range(HOURS))  # with `append`, so nothing was read twice
    (state,) = fetch_materializations(own, "shop", "orders").values()
    assert state["elt/records_read"] == HOURS - len(partial)
    assert state["elt/state"] == own.committed_state("shop", "orders")
    assert pop_starts(orders)[0] == reached

    assert materialize(own, KEY).success
    assert read_ids(own) == list(range(HOURS))


def kill_reader() -> None:
    """Kill the process of this process's that reads a manifest."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = child.cmdline()
            if "connectors.declarative" in words and "read" in words:
                child.kill()
                return
    raise AssertionError("no manifest is read")


def kill_at_second_request(orders: Orders) -> None:
    try:
        wait_until(lambda: len(orders.queries) == 2)
        kill_reader()
    finally:
        orders.answered = None


def test_daily_partitions_are_complete_after_the_connector_was_killed(
    own: Project, orders: Orders
) -> None:
    connect(own, orders, destination_sync_mode="append_dedup", partitions={"type": "source"})
    (request,) = tick(own, "shop__orders_partitions").run_requests or []
    orders.answered = 1
    killer = threading.Thread(target=kill_at_second_request, args=(orders,))
    killer.start()
    failed = execute(own, request)
    killer.join()
    assert not failed.success
    assert len(read_ids(own)) == 2 * 24
    before = fetch_materializations(own, "shop", "orders")
    (missing,) = set(DAYS) - set(map(str, before))
    pop_starts(orders)

    assert materialize(own, KEY, partition=missing).success

    assert pop_starts(orders) == [missing]
    assert read_ids(own) == list(range(HOURS))
    days = {row["id"]: row["_elt_partition"] for row in own.rows("shop", "orders")}
    assert days == {number: DAYS[number // 24] for number in range(HOURS)}

    assert materialize(own, KEY, partition=DAYS[0]).success  # one that is complete
    assert read_ids(own) == list(range(HOURS))
    assert set(fetch_materializations(own, "shop", "orders")) == set(DAYS)
