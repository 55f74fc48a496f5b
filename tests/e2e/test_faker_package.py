"""A third-party Airbyte connector from PyPI, unmodified, twice."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.project import Project

pytestmark = pytest.mark.external

COUNT = 2000


@pytest.mark.long
def test_airbyte_source_faker_runs_twice(project: Project) -> None:
    stream = {"sync_mode": "incremental", "cursor_field": ["updated_at"]}
    dedup = {**stream, "destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
    project.connection(
        "faker_shop",
        source={"package": "airbyte-source-faker==7.2.1", "config": {"count": COUNT, "seed": 1}},
        streams=[
            {"name": "users", **dedup},
            {"name": "purchases", **dedup},
            {"name": "products", "sync_mode": "full_refresh", "destination_sync_mode": "overwrite"},
        ],
    )
    project.discover("faker_shop")

    project.sync("group:faker_shop")
    first = {name: project.rows("faker_shop", name) for name in ("users", "purchases", "products")}
    project.sync("group:faker_shop")

    for name, before in first.items():
        after = project.rows("faker_shop", name)
        assert len(after) == len(before) > 0
        assert max(Counter(row["id"] for row in after).values()) == 1
        metadata = project.metadata("faker_shop", name)
        assert metadata["elt/state"] == project.committed_state("faker_shop", name)
        assert metadata["dagster/row_count"] == len(after)
        assert metadata["elt/records_read"] == metadata["elt/records_committed"]
        assert metadata["elt/records_rejected"] == 0
    assert len(first["users"]) == COUNT
    # The connector makes purchases for users; every one of them refers to a user that is there.
    assert {row["user_id"] for row in first["purchases"]} <= {row["id"] for row in first["users"]}
    state = project.committed_state("faker_shop", "users")
    assert set(state["stream"]["stream_state"]) == {"seed", "updated_at", "loop_offset"}
