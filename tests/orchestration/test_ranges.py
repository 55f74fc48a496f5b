"""Streams of the SDK that say what is read, in the lake: nothing is lost or doubled by two syncs."""

from __future__ import annotations

import sys

import pytest

from tests.programs.ranged_source import ORDERS, STORES
from tests.support.project import Project
from tests.support.runs import materialize

pytestmark = pytest.mark.usefixtures("spark")
DEDUPLICATED = ("late", "of_stores", "all_of_stores")
APPENDED = ("sorted", "newest", "stepped", "days", "newest_steps", "by_store")


def test_two_syncs_store_each_row_once(own: Project) -> None:
    incremental = {"sync_mode": "incremental"}
    deduplicated = {**incremental, "destination_sync_mode": "append_dedup"}
    own.connection(
        "ranged",
        source={
            "command": [sys.executable, "-m", "tests.programs.ranged_source"],
            "config": {"lookback": True},
        },
        read_together=True,
        streams=[
            *(
                {"name": name, **incremental, "destination_sync_mode": "append"}
                for name in APPENDED
            ),
            *({"name": name, **deduplicated} for name in DEDUPLICATED),
        ],
    )
    own.discover("ranged")
    for _ in range(2):
        assert materialize(own, 'group:"ranged"').success
        for name in (*APPENDED, *DEDUPLICATED):
            stored = sorted(row["id"] for row in own.rows("ranged", name))
            assert stored == sorted(order["id"] for order in ORDERS), name
    cities = {(row["store"], row["store_city"]) for row in own.rows("ranged", "of_stores")}
    assert cities == {(store, f"city of {store}") for store in STORES}
