"""The summary of an event: rows, health, and what has changed since the event before."""

from __future__ import annotations

import re
from typing import Any

import pytest

from elt_assets.orchestration.report import summarize
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

COUNTS = {"elt/records_committed": 2, "elt/records_rejected": 0, "elt/policy": "append"}


def summary_of_sync(project: Project, *lines: Any, **stream: Any) -> list[str]:
    """Sync; return the lines of the summary, with a fixed time."""
    script(project, list(lines), **stream)
    result = materialize(project, 'key:"scripted/things"')
    assert result.success, failure_of(result)
    text = project.metadata("scripted", "things")["elt/summary"]
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TIME", text).splitlines()


@pytest.mark.usefixtures("spark_provider")
def test_each_event_says_what_has_changed(own: Project) -> None:
    health = "- every record was stored as it came"
    first = summary_of_sync(own, record(id=1), state(1))
    assert first == ["- **1 row**", health, "- the first materialisation"]
    unchanged = summary_of_sync(own, state(1))
    assert unchanged == ["- **1 row**", health, "- changed since TIME: nothing"]
    noted = {"id": {"type": "integer"}, "note": {"type": "string"}}
    grown = summary_of_sync(own, record(id=2, note="x"), record(id="odd"), state(2), schema=noted)
    assert grown[0] == "- **3 rows** (+2)"
    assert grown[1] == "- 1 record with values that did not fit (id)"
    assert grown[2].startswith("- changed since TIME: 2 records committed; ")
    assert "note" in grown[2]
    other = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
    replaced = summary_of_sync(own, record(id=5), **other)
    assert replaced[0] == "- **1 row** (-2)"
    assert "policy append → overwrite" in replaced[2]


def test_rejected_records_are_named_with_their_place() -> None:
    lines = summarize({**COUNTS, "elt/records_rejected": 1234, "dagster/row_count": 5000}, None)
    assert lines[:2] == ["**5,000 rows**", "1,234 records rejected: see the dead letter"]


def test_a_table_of_another_destination_has_no_number_of_rows() -> None:
    assert summarize(COUNTS, COUNTS)[0] == "**2 records** committed"
