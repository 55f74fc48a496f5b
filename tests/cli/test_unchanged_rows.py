"""Rows that come again unchanged, as a connection sets it: they rewrite nothing, or replace others."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable

from tests.programs.scripted import record, script, state
from tests.support.elt import Elt
from tests.support.project import Project

LINES = [record(id=1, name="a"), record(id=2, name="b"), state(1)]
LIVE: Any = {
    "sync_mode": "incremental",
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("settings", "count"), [({}, 2), ({"unchanged": "skip"}, 2), ({"unchanged": "rewrite"}, None)]
)
def test_rows_that_come_again_are_counted_and_rewrite_nothing_unless_it_is_asked_for(
    own: Project, elt: Elt, settings: dict[str, Any], count: int | None
) -> None:
    script(own, LINES, **LIVE, **settings)
    elt("sync", "scripted")
    before = row_ids(own)
    elt("sync", "scripted")
    metadata = own.metadata("scripted", "things")
    assert metadata.get("elt/records_unchanged") == count
    assert metadata["elt/records_committed"] == 2
    assert (row_ids(own) == before) is (count is not None)


def row_ids(project: Project) -> list[str]:
    table = DeltaTable(str(project.home / "lake" / "scripted" / "things")).to_pyarrow_table()
    return sorted(table.column("_airbyte_raw_id").to_pylist())


def test_a_stream_that_keeps_all_rows_of_a_key_is_told_what_to_write(
    own: Project, elt: Elt
) -> None:
    script(own, LINES, **{**LIVE, "destination_sync_mode": "append"}, unchanged="rewrite")
    text = elt.json("validate", code=1)["connections"][0]["error"]["message"]
    assert "destination_sync_mode: append_dedup" in text and "unchanged" in text
    script(own, LINES, **LIVE, unchanged="rewrite")
    elt("validate")
