"""Cursors that sources send: equal ones, late ones, in any zone, zero and null."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import failure_of, fetch_materializations, materialize

pytestmark = pytest.mark.usefixtures("spark")

KEY = 'key:"scripted/things"'
DEDUP: dict[str, Any] = {
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
    "checkpoint": {"rows": 1},
}


def says(project: Project, *lines: Any, cursor_type: Any = None) -> None:
    """Set the records of the source from now on; their cursor field is `at`, of the given type."""
    modes = {k: v for k, v in DEDUP.items() if k != "checkpoint"}
    schema = {"id": {"type": "integer"}, "at": cursor_type or {"type": "integer"}}
    script(project, list(lines), schema=schema, **modes)
    folder = project.root / "defs" / "scripted"
    catalog = json.loads((folder / "catalog.json").read_text())
    catalog["streams"][0]["default_cursor_field"] = ["at"]
    (folder / "catalog.json").write_text(json.dumps(catalog))
    project.amend("scripted", checkpoint=DEDUP["checkpoint"])


def rows(project: Project) -> list[tuple[int, Any]]:
    return sorted((row["id"], row["at"]) for row in project.rows("scripted", "things"))


def starts_from_state(project: Project) -> Any:
    """The arguments of the last read: whether it began at a state."""
    path = project.root / "scripted-source" / "arguments.json"
    return "--state" in json.loads(path.read_text())


def read_state(project: Project) -> Any:
    return project.committed_state("scripted", "things")["stream"]["stream_state"]


def test_a_checkpoint_between_equal_cursors_neither_loses_nor_repeats_records(own: Project) -> None:
    says(own, record(id=1, at=5), state(5), record(id=2, at=5), "!kill")
    assert "SIGKILL" in failure_of(materialize(own, KEY))
    assert (rows(own), read_state(own)) == ([(1, 5)], {"cursor": 5})
    # The source sends again all that is not less than the cursor.
    says(own, record(id=1, at=5), record(id=2, at=5), record(id=3, at=6), state(6))
    assert materialize(own, KEY).success
    assert starts_from_state(own)
    assert rows(own) == [(1, 5), (2, 5), (3, 6)]


def test_a_late_row_is_stored_if_the_source_reads_a_lookback_window(own: Project) -> None:
    says(own, record(id=1, at=10), record(id=3, at=30), state(30))
    assert materialize(own, KEY).success
    # A row below the greatest cursor has appeared; the source looks 15 back.
    says(own, record(id=2, at=20), record(id=3, at=30), state(30))
    assert materialize(own, KEY).success
    assert rows(own) == [(1, 10), (2, 20), (3, 30)]
    assert read_state(own) == {"cursor": 30}


@pytest.mark.parametrize("turned", [False, True])
def test_cursors_are_compared_as_instants_with_full_precision(own: Project, turned: bool) -> None:
    older, newer = "2026-01-01T10:00:00.000001Z", "2026-01-01T12:00:00.000002+02:00"
    times = [newer, older] if turned else [older, newer]
    cursor_type = {"type": "string", "format": "date-time"}
    says(own, *(record(id=1, at=time) for time in times), state(newer), cursor_type=cursor_type)
    assert materialize(own, KEY).success
    ((_, instant),) = rows(own)
    assert instant.isoformat() == "2026-01-01T10:00:00.000002+00:00"
    assert read_state(own) == {"cursor": newer}  # to the letter


@pytest.mark.parametrize("cursor", [0, None, "", False])
def test_zero_null_and_empty_cursors_are_kept(own: Project, cursor: Any) -> None:
    says(own, record(id=1, at=0), record(id=2, at=None), state(cursor))
    assert materialize(own, KEY).success
    assert rows(own) == [(1, 0), (2, None)]
    assert read_state(own) == {"cursor": cursor}
    says(own, record(id=2, at=0), state(cursor))
    assert materialize(own, KEY).success
    assert starts_from_state(own)
    assert rows(own) == [(1, 0), (2, 0)]  # null is less than any


def test_a_whole_page_of_null_cursors_is_kept(own: Project) -> None:
    says(own, *(record(id=number, at=None) for number in range(50)), state(None))
    assert materialize(own, KEY).success
    assert len(rows(own)) == 50
    assert fetch_materializations(own, "scripted", "things")[None]["elt/records_rejected"] == 0


def test_a_nul_character_in_a_cursor_is_kept(own: Project) -> None:
    says(own, record(id=1, at=1), state("a\x00b"))
    assert materialize(own, KEY).success
    assert read_state(own) == {"cursor": "a\x00b"}
