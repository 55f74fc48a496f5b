"""A third-party Airbyte connector from PyPI, unmodified, twice."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from elt_assets.runner.packages import Installation, install
from tests.runner.test_python_versions import other_pythons
from tests.support.project import Project

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


@pytest.mark.long
def test_airbyte_source_faker_runs_with_another_python(tmp_path: Path) -> None:
    """Uv installs it from the real index, as the existing test does for this Python."""
    [(version, python), *_] = list(other_pythons().items()) or [("", "")]
    if not python:
        pytest.skip("this machine has no second Python")
    program = install("airbyte-source-faker==7.2.1", tmp_path, Installation(python=python))
    output = subprocess.check_output([program, "spec"], text=True)
    assert any(json.loads(line)["type"] == "SPEC" for line in output.splitlines())
    assert (program.parents[1] / "lib" / f"python{version}").is_dir()
