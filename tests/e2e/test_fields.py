"""Values that must not be stored are searched for in everything that a sync leaves behind."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from pyarrow import parquet

from elt_assets import paths
from elt_assets.sync.record_filter import hash_value
from tests.programs.scripted import record, script, state, status
from tests.support.project import Project
from tests.support.runs import failure_of, materialize, read_log

SECRET = "S3CRET-4711"
TEXT = {"type": "string"}
SCHEMA = {
    "id": {"type": "integer"},
    "ssn": TEXT,
    "email": TEXT,
    "contacts": {"type": "array", "items": {"properties": {"phone": TEXT, "kind": TEXT}}},
    "address": {"type": "object", "properties": {"street": TEXT, "city": TEXT}},
}
STREAM: dict[str, Any] = {
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
    "schema": SCHEMA,
    "fields": {
        "exclude": ["ssn", "contacts.phone", ["address", "street"], "id"],
        "hash": ["email"],
    },
}


def _record(number: int | None, **more: Any) -> dict[str, Any]:
    contacts = [{"phone": SECRET, "kind": "home"}, SECRET]
    address = {"street": SECRET, "city": "Oslo"}
    fields = {"ssn": SECRET, "email": f"{SECRET}@x", "contacts": contacts, "address": address}
    return record(id=number, **fields, **more)


def _raw(data: str) -> str:
    return '{"type":"RECORD","record":{"stream":"things","emitted_at":1,"data":' + data + "}}"


LINES: list[Any] = [
    status("STARTED"),
    _record(1),
    _raw('{"id":2,"ssn":"x","s\\u0073n":"' + SECRET + '","ssn":"' + SECRET + '"}'),
    _raw('{"id":3,"address":"' + SECRET + '"}'),
    _record(None),  # no key: to the dead letter
    _raw(f'["{SECRET}"]'),
    f'"ssn":"{SECRET}"}}}}',  # the rest of a torn line
    state(3),
]


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    """A project after a sync, and what the sync logged."""
    project = Project(tmp_path_factory.mktemp("synced"))
    script(project, [*LINES, status("COMPLETE")], **STREAM)
    done = project.elt("sync", "scripted", "--verbose")
    assert done.returncode == 0, done.stderr
    return project, done.stdout + done.stderr


def _texts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Everything in a folder as text, files that are not plain decoded."""
    for path in folder.rglob("*"):
        if not path.is_file() or path.is_symlink():
            continue
        yield path, path.read_bytes().decode("latin-1")
        if path.suffix == ".parquet":
            yield path, repr(parquet.read_table(path).to_pylist())
        elif path.suffix == ".db":
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
                yield path, "\n".join(database.iterdump())


def _find_secret(project: Project) -> list[Path]:
    return [path for path, text in _texts(project.home) if SECRET in text]


def test_excluded_values_are_stored_nowhere(synced: tuple[Project, str]) -> None:
    project, _ = synced
    looked_at = {path.suffix for path, _ in _texts(project.home)}
    assert {".parquet", ".db", ".json"} <= looked_at
    assert _find_secret(project) == []
    rows = {row["id"]: row for row in project.rows("scripted", "things")}
    assert rows.keys() == {1, 2, 3}
    assert rows[1].keys() == {"id", "email", "contacts", "address"}
    assert rows[1]["contacts"] == [{"kind": "home"}, None]
    assert (rows[1]["address"], rows[3]["address"]) == ({"city": "Oslo"}, None)
    assert len(project.rows("scripted", "things_dead_letter")) == 2


def test_the_log_reports_kept_fields_and_withheld_lines(synced: tuple[Project, str]) -> None:
    _, log = synced
    assert "fields.exclude: 'id' is still stored: it is the stream's primary key" in log
    assert "a line of output cannot be read as a message" in log
    assert SECRET not in log


@pytest.mark.usefixtures("spark")
def test_a_failed_sync_shows_no_excluded_values(
    own: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    torn = json.dumps(_record(4))[:-3]
    script(own, [*LINES, torn, "bye"], **STREAM)
    result = materialize(own, "group:scripted")
    output = failure_of(result) + read_log(own, result) + "".join(capfd.readouterr())
    assert "malformed RECORD" in output
    assert SECRET not in output
    assert _find_secret(own) == []
    assert len(own.rows("scripted", "things")) == 3


@pytest.mark.long
def test_hashes_are_stable_across_syncs_and_use_the_salt_of_the_project(
    synced: tuple[Project, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project, _ = synced
    script(project, [_record(9), state(9)], **STREAM)
    project.sync("group:scripted")
    rows = {row["id"]: row for row in project.rows("scripted", "things")}
    monkeypatch.setenv("DAGSTER_HOME", str(project.home))
    monkeypatch.delenv("ELT_HASH_SALT", raising=False)
    expected = hash_value(Raw(json.dumps(f"{SECRET}@x").encode()), paths.hash_salt())
    assert rows[1]["email"] == rows[9]["email"] == json.loads(bytes(expected))
    assert rows[2]["email"] is None


@pytest.mark.long
def test_a_key_may_be_stored_as_its_hash(project: Project) -> None:
    keyed = STREAM | {
        "primary_key": [["email"]],
        "fields": {"hash": ["email"], "include": ["email"]},
    }
    for _ in range(2):
        script(project, [_record(1), _record(2), state(2)], **keyed)
        project.sync("group:scripted")
    [row] = project.rows("scripted", "things")
    assert row.keys() == {"id", "email"}  # id is the cursor
    assert (row["id"], len(row["email"])) == (2, 64)
    assert _find_secret(project) == []
