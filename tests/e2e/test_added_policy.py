"""A destination sync mode that a package adds, by one module and one entry point."""

from __future__ import annotations

from typing import Any

import pytest

from elt_assets.connection import load_connection
from elt_assets.errors import ConfigError
from tests.programs.scripted import record, script, state
from tests.support.project import Project, write_plugin

NEWEST = '''
"""`newest`: the rows of the last checkpoint that had any, and no others."""
from elt_assets.protocol.catalog import SyncMode

MODE = SyncMode("newest", is_standard=False)

def merge(spark, table, target, batch, by, schema):
    from elt_assets.lake.delta.storage import TableChange
    from elt_assets.lake.merge.key_order import MergeResult
    gone = target.files if batch.files else []
    return MergeResult(TableChange(batch.files, gone), target.tombstones)
'''


def test_a_package_adds_a_policy(project: Project) -> None:
    added = write_plugin(
        project.root / "site",
        "newest_mode",
        NEWEST,
        "elt_assets.sync_modes",
        "newest = newest_mode",
    )
    newest: dict[str, Any] = {"destination_sync_mode": "newest"}
    script(project, [record(id=1), record(id=2), state(2), record(id=3), state(3)], **newest)
    project.amend("scripted", checkpoint={"rows": 1})
    done = project.materialize("group:scripted", PYTHONPATH=added)
    assert done.returncode == 0, done.stderr
    assert [row["id"] for row in project.rows("scripted", "things")] == [3]
    assert project.metadata("scripted", "things")["elt/policy"] == "newest"
    with pytest.raises(ConfigError) as refused:  # in this process there is no such package
        load_connection(project.root / "defs" / "scripted")
    assert "destination_sync_mode: " in refused.value.message
    assert "write one of append, overwrite, append_dedup, overwrite_dedup" in str(refused.value)
