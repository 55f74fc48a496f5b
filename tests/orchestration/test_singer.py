"""Connections whose source is a Singer tap: from discovery to tables, and from a failure on."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Elt
from tests.orchestration.running import failure_of, logged, materialize
from tests.programs.singer_tap import SCHEMA, USERS, record, state, written
from tests.project import Project

pytestmark = pytest.mark.usefixtures("spark_provider")

USERS_PROPERTIES: Any = {"id": {"type": "integer"}, "name": {"type": ["null", "string"]}}
INCREMENTAL = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}


@pytest.fixture
def elt(own: Project, capsys: pytest.CaptureFixture[str]) -> Elt:
    return Elt(capsys)


def says(project: Project, *lines: Any) -> list[str]:
    """Set the tap's answer from now on; return its command."""
    return written(project.root / "tap", lines)


def connect(project: Project, elt: Elt, *lines: Any, **stream: Any) -> None:
    """A connection whose tap says these lines, discovered."""
    source = {"tap": says(project, *lines), "config": {"host": "h"}}
    project.connection("crm", source=source, streams=[{"name": "db-users", **stream}])
    elt("check", "crm")
    elt("discover", "crm")


def given(project: Project) -> dict[str, Any]:
    return dict(json.loads((project.root / "tap" / "given.json").read_text())["files"])


def sync(project: Project) -> str:
    result = materialize(project)
    assert result.success, failure_of(result)
    return logged(project, result)


def names(project: Project) -> dict[int, str | None]:
    return {row["id"]: row["name"] for row in project.rows("crm", "db_users")}


def test_a_tap_resumes_from_its_bookmark(own: Project, elt: Elt) -> None:
    lines = [SCHEMA, record(id=1, name="a"), record(id=2, name="b"), state(2)]
    connect(own, elt, *lines, **INCREMENTAL, cursor_field=["id"])
    sync(own)
    assert names(own) == {1: "a", 2: "b"}
    assert "--state" not in given(own)

    says(own, state(2), SCHEMA, record(id=2, name="B"), record(id=3, name="c"), state(3))
    sync(own)
    assert names(own) == {1: "a", 2: "B", 3: "c"}
    assert given(own)["--state"] == {"bookmarks": {"db-users": {"replication_key_value": 2}}}
    [entry] = given(own)["--catalog"]["streams"]
    assert (entry["replication_method"], entry["replication_key"]) == ("INCREMENTAL", "id")
    metadata = own.metadata("crm", "db-users")
    assert (metadata["elt/records_read"], metadata["elt/records_committed"]) == (2, 2)
    assert metadata["elt/state"]["stream"]["stream_state"] == {"replication_key_value": 3}


def test_records_before_the_last_state_of_a_failed_tap_are_kept(own: Project, elt: Elt) -> None:
    lines = [SCHEMA, record(id=1, name="a"), state(1), record(id=2, name="b"), "!exit 1"]
    connect(own, elt, *lines, **INCREMENTAL, cursor_field=["id"])
    assert "exit code 1" in failure_of(materialize(own))
    assert names(own) == {1: "a"}
    says(own, SCHEMA, record(id=2, name="b"), state(2))
    sync(own)
    assert names(own) == {1: "a", 2: "b"}
    assert given(own)["--state"] == {"bookmarks": {"db-users": {"replication_key_value": 1}}}


def test_a_full_table_read_replaces_the_rows(own: Project, elt: Elt) -> None:
    connect(own, elt, SCHEMA, record(id=1, name="a"), destination_sync_mode="overwrite")
    sync(own)
    assert names(own) == {1: "a"}
    [entry] = given(own)["--catalog"]["streams"]
    assert entry["replication_method"] == "FULL_TABLE" and "replication_key" not in entry
    says(own, SCHEMA, record(id=2, name="b"), "!exit 1")
    assert "exit code 1" in failure_of(materialize(own))
    assert names(own) == {1: "a"}
    says(own, SCHEMA)  # the source is empty: its schema is all that there is to say
    sync(own)
    assert names(own) == {}


def test_excluded_fields_are_not_selected_in_the_tap(own: Project, elt: Elt) -> None:
    lines = [SCHEMA, record(id=1, name="S3CRET")]
    connect(own, elt, *lines, fields={"exclude": ["name"]})
    sync(own)
    [entry] = given(own)["--catalog"]["streams"]
    selected = {tuple(m["breadcrumb"]): m["metadata"].get("selected") for m in entry["metadata"]}
    assert selected == {(): True, ("properties", "id"): True, ("properties", "name"): False}
    files = [p.read_bytes() for p in (own.home / "lake").rglob("*") if p.is_file()]
    assert files and not any(b"S3CRET" in data for data in files)


def test_a_connection_can_be_created_from_a_tap(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = own.root / "tap-crm"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(says(own, SCHEMA, record(id=1)))} "$@"\n')
    program.chmod(0o755)
    config = json.dumps({"host": "h", "auth": {"apiKey": "S3CRET"}})
    answer = elt.json("new", "crm", "--source", str(program), "--config", config)
    assert answer["source"] == {"tap": [str(program)]}
    assert answer["environment"] == {"CRM_AUTH_APIKEY": "config.auth.apiKey"}
    [stream] = answer["streams"]
    assert stream["cursor_field"] == ["id"] and stream["destination_sync_mode"] == "append_dedup"
    assert not any(
        b"S3CRET" in p.read_bytes() for p in (own.root / "defs").rglob("*") if p.is_file()
    )
    monkeypatch.setenv("CRM_AUTH_APIKEY", "S3CRET")
    shown = elt.json("preview", "crm", "db-users")
    assert shown["records"] == [{"id": 1}]
    assert given(own)["--config"] == {"host": "h", "auth": {"apiKey": "S3CRET"}}
    changed = {**USERS, "schema": {"properties": {"id": {"type": "string"}}}}
    (Path(own.root) / "tap" / "catalog.txt").write_text(json.dumps({"streams": [changed]}))
    output = elt("discover", "crm", "--dry-run")
    assert "type" in output and "name" in output


def test_a_schema_change_during_an_overwrite_fails_and_keeps_the_table(
    own: Project, elt: Elt
) -> None:
    more = {
        **SCHEMA,
        "schema": {"properties": {**USERS_PROPERTIES, "age": {"type": "integer"}}},
    }
    lines = [SCHEMA, record(id=1, name="a"), more, record(id=2, name="b", age=3)]
    connect(own, elt, SCHEMA, record(id=0, name="z"), destination_sync_mode="overwrite")
    sync(own)
    says(own, *lines)
    assert "changed the schema" in failure_of(materialize(own))
    assert names(own) == {0: "z"}

    own.amend("crm", streams=[{"name": "db-users", "destination_sync_mode": "append"}])
    assert materialize(own).success
    assert names(own) == {0: "z", 1: "a", 2: "b"}
    assert [row["age"] for row in own.rows("crm", "db_users") if row["id"] == 2] == [3]


def test_the_last_row_of_a_key_is_kept_across_schema_changes(own: Project, elt: Elt) -> None:
    connect(own, elt, SCHEMA, record(id=0, name="z"), **INCREMENTAL, cursor_field=["id"])
    properties, lines = dict(USERS_PROPERTIES), [SCHEMA]
    for number in range(8):
        properties[f"added_{number}"] = {"type": "integer"}
        wider = {**SCHEMA, "schema": {"properties": dict(properties)}}
        lines += [wider, record(id=1, name=f"name {number}")]
    says(own, *lines, state(1))
    sync(own)
    assert names(own) == {1: "name 7"}
