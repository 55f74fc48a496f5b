"""The source of docs/writing-a-connector.md through Dagster: incrementally, and by partition."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.orchestration.ticking import execute, tick
from tests.programs.json_api import JsonApi
from tests.programs.written_source import SECRETS, order, program, store_api
from tests.support.project import Project
from tests.support.runs import fetch_materializations, materialize

KEY = 'key:"shop/orders"'

pytestmark = pytest.mark.usefixtures("spark")


def connect(project: Project, api: JsonApi, **orders: Any) -> None:
    """Write the connection `shop`, and the catalog that its source reports."""
    (project.root / "my_source.py").write_text(program())
    how = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    project.connection(
        "shop",
        source={
            "command": [sys.executable, str(project.root / "my_source.py")],
            "config": {"url": api.url, **SECRETS},
        },
        streams=[
            {"name": "stores", "destination_sync_mode": "overwrite"},
            {"name": "orders", **how, **orders},
        ],
    )
    project.discover("shop")


def read(project: Project) -> list[tuple[str, int]]:
    return sorted((row["store"], row["id"]) for row in project.rows("shop", "orders"))


def pop_starts(api: JsonApi) -> list[str]:
    """The starts of the requests for orders since the last call, by store."""
    queries = [
        f"{request.path.split('/')[3]} from {request.parameters().get('updated_since')}"
        for request in api.requests
        if request.path.endswith("/orders") and "cursor" not in request.parameters()
    ]
    api.requests.clear()
    return queries


def test_the_example_stores_parents_and_children_and_resumes(own: Project) -> None:
    with store_api() as api:
        connect(own, api)
        assert materialize(own, 'group:"shop"').success
        assert {row["id"] for row in own.rows("shop", "stores")} == {"a", "b", "c"}
        assert len(read(own)) == 12
        api.requests.clear()

        api.resources["stores/b/orders"].append(order(9))
        assert materialize(own, KEY).success
        days = {"a": 3, "b": 4, "c": 5}
        assert pop_starts(api) == [f"{name} from 2026-01-0{days[name]}T00:00:00Z" for name in days]
        assert ("b", 9) in read(own) and len(read(own)) == 13


def test_each_store_can_be_a_partition_with_its_own_bookmark(own: Project) -> None:
    with store_api() as api:
        connect(own, api, partitions={"type": "source"})
        (request,) = tick(own, "shop__orders_partitions").run_requests or []
        assert execute(own, request).success
        assert len(read(own)) == 12
        events = fetch_materializations(own, "shop", "orders")
        assert set(events) == {"a", "b", "c"}
        [mark] = events["b"]["elt/state"]["stream"]["stream_state"]["partitions"]
        assert mark["context"] == {"store": "b"}
        api.requests.clear()

        for name in ("a", "b"):
            api.resources[f"stores/{name}/orders"].append(order(9))
        assert materialize(own, KEY, partition="b").success
        assert pop_starts(api) == ["b from 2026-01-04T00:00:00Z"]
        assert ("b", 9) in read(own) and ("a", 9) not in read(own)
