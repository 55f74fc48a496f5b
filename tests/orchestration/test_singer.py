"""Connections whose source is a Singer tap: from discovery to tables, and from a failure on."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from elt_assets.cli.commands.new.source import choose_source
from elt_assets.cli.output import Output
from tests.programs import singer_program
from tests.programs.singer_tap import SCHEMA, USERS, record, state, written
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.runs import failure_of, materialize, read_log

pytestmark = pytest.mark.usefixtures("spark_provider")

USERS_PROPERTIES: Any = {"id": {"type": "integer"}, "name": {"type": ["null", "string"]}}
INCREMENTAL = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}


def says(project: Project, *lines: Any) -> list[str]:
    """Set the tap's answer from now on; return its command."""
    return written(project.root / "tap", lines)


def connect(project: Project, elt: Elt, *lines: Any, **stream: Any) -> None:
    """A connection whose tap says these lines, discovered."""
    source = {"tap": says(project, *lines), "config": {"host": "h"}}
    project.connection("crm", source=source, streams=[{"name": "db-users", **stream}])
    elt("discover", "crm")


def read_files(project: Project) -> dict[str, Any]:
    return dict(json.loads((project.root / "tap" / "given.json").read_text())["files"])


def executable(project: Project, name: str) -> Path:
    """A program of this name that is the tap."""
    command = [sys.executable, "-IS", singer_program.__file__, str(project.root / "tap")]
    program = project.root / name
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    return program


def sync(project: Project) -> str:
    result = materialize(project)
    assert result.success, failure_of(result)
    return read_log(project, result)


def names(project: Project) -> dict[int, str | None]:
    return {row["id"]: row["name"] for row in project.rows("crm", "db_users")}


@pytest.mark.spec("sdk.2")
def test_a_tap_resumes_from_its_bookmark(own: Project, elt: Elt) -> None:
    lines = [SCHEMA, record(id=1, name="a"), record(id=2, name="b"), state(2)]
    connect(own, elt, *lines, **INCREMENTAL, cursor_field=["id"])
    elt("check", "crm")
    sync(own)
    assert names(own) == {1: "a", 2: "b"}
    assert "--state" not in read_files(own)

    says(own, state(2), SCHEMA, record(id=2, name="B"), record(id=3, name="c"), state(3))
    sync(own)
    assert names(own) == {1: "a", 2: "B", 3: "c"}
    assert read_files(own)["--state"] == {"bookmarks": {"db-users": {"replication_key_value": 2}}}
    [entry] = read_files(own)["--catalog"]["streams"]
    assert (entry["replication_method"], entry["replication_key"]) == ("INCREMENTAL", "id")
    metadata = own.metadata("crm", "db-users")
    assert (metadata["elt/records_read"], metadata["elt/records_committed"]) == (2, 2)
    assert metadata["elt/state"]["stream"]["stream_state"] == {"replication_key_value": 3}


@pytest.mark.spec("sdk.9", "singer.11")
def test_records_before_the_last_state_of_a_failed_tap_are_kept(own: Project, elt: Elt) -> None:
    lines = [SCHEMA, record(id=1, name="a"), state(1), record(id=2, name="b"), "!exit 1"]
    connect(own, elt, *lines, **INCREMENTAL, cursor_field=["id"])
    assert "exit code 1" in failure_of(materialize(own))
    assert names(own) == {1: "a"}
    says(own, SCHEMA, record(id=2, name="b"), state(2))
    sync(own)
    assert names(own) == {1: "a", 2: "b"}
    assert read_files(own)["--state"] == {"bookmarks": {"db-users": {"replication_key_value": 1}}}


@pytest.mark.spec("singer.12")
def test_a_full_table_read_replaces_the_rows(own: Project, elt: Elt) -> None:
    connect(own, elt, SCHEMA, record(id=1, name="a"), destination_sync_mode="overwrite")
    sync(own)
    assert names(own) == {1: "a"}
    [entry] = read_files(own)["--catalog"]["streams"]
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
    [entry] = read_files(own)["--catalog"]["streams"]
    selected = {tuple(m["breadcrumb"]): m["metadata"].get("selected") for m in entry["metadata"]}
    assert selected == {(): True, ("properties", "id"): True, ("properties", "name"): False}
    files = [p.read_bytes() for p in (own.home / "lake").rglob("*") if p.is_file()]
    assert files and not any(b"S3CRET" in data for data in files)


def test_a_tap_gets_the_entries_of_all_its_streams(own: Project, elt: Elt) -> None:
    """A tap reads a child stream by way of its parent."""
    connect(own, elt, SCHEMA, record(id=1))
    parent = {**USERS, "tap_stream_id": "db-teams", "stream": "teams"}
    catalog = own.root / "tap" / "catalog.txt"
    catalog.write_text(json.dumps({"streams": [parent, USERS]}))
    elt("discover", "crm")

    assert elt.json("preview", "crm", "db-users")["records"] == [{"id": 1}]

    entries = {
        entry["tap_stream_id"]: (entry["selected"], entry["schema"]["selected"])
        for entry in read_files(own)["--catalog"]["streams"]
    }
    assert entries == {"db-teams": (False, False), "db-users": (True, True)}


@pytest.mark.spec("singer.22")
def test_streams_of_one_name_are_refused(own: Project, elt: Elt) -> None:
    connect(own, elt, SCHEMA, record(id=1))
    twice = json.dumps({"streams": [USERS, USERS, {**USERS, "tap_stream_id": "other"}]})
    (own.root / "tap" / "catalog.txt").write_text(twice)
    elt("discover", "crm")
    error = elt.refuse("preview", "crm", "db-users")
    assert "'db-users': the source has several streams of this name" in error["message"]

    program = executable(own, "tap-crm")
    answer = elt.json("new", "twice", "--source", str(program), "--config", "{}")
    assert [stream["name"] for stream in answer["streams"]] == ["other"]
    assert answer["left_out"] == ["db-users"]


@pytest.mark.parametrize(
    ("form", "help_", "kind"),
    [
        ("{}", "usage: extract --config C [--discover] [--catalog C]", "tap"),
        ("tap:{}", "no help", "tap"),
        ("command:{}", "usage: extract [--discover]", "command"),
        ("{}", "usage: extract {spec,check,discover,read}; --discover", "command"),
    ],
)
def test_a_tap_may_have_any_name(form: str, help_: str, kind: str, own: Project) -> None:
    says(own, SCHEMA)
    program = executable(own, "extract")
    (own.root / "tap" / "help.txt").write_text(help_)
    chosen = choose_source(form.format(program), Output(machine=True))
    assert (chosen.kind, chosen.value) == (kind, [str(program)])


def test_a_connection_can_be_created_from_a_tap(
    own: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(own, SCHEMA, record(id=1))
    program = executable(own, "tap-crm")
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
    preview = elt.json("preview", "crm", "db-users")
    assert preview["records"] == [{"id": 1}]
    assert read_files(own)["--config"] == {"host": "h", "auth": {"apiKey": "S3CRET"}}
    changed = {**USERS, "schema": {"properties": {"id": {"type": "string"}}}}
    (Path(own.root) / "tap" / "catalog.txt").write_text(json.dumps({"streams": [changed]}))
    output = elt("discover", "crm", "--dry-run")
    assert "type" in output and "name" in output


def test_rows_stay_until_an_activated_version_is_whole(own: Project, elt: Elt) -> None:
    connect(own, elt, SCHEMA, record(id=0, name="z"), destination_sync_mode="overwrite")
    sync(own)
    activation = {"type": "ACTIVATE_VERSION", "stream": "users", "version": 1_800_000_000_000}
    row = {**record(id=1, name="a"), "version": activation["version"]}

    says(own, SCHEMA, activation, row, state(1), "!exit 1")
    assert "exit code 1" in failure_of(materialize(own))
    assert names(own) == {0: "z"}
    says(own, SCHEMA, activation, row, activation)
    sync(own)
    assert names(own) == {1: "a"}


def schema(*key: str, **properties: str | list[str]) -> dict[str, Any]:
    described = {name: {"type": kind} for name, kind in properties.items()}
    return {**SCHEMA, "schema": {"properties": described}, "key_properties": list(key)}


@pytest.mark.spec("singer.27")
@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_a_table_has_the_columns_of_all_schemas_of_a_read(
    mode: str, own: Project, elt: Elt
) -> None:
    """A tap that finds fields while it reads sends its SCHEMA again; some leave out fields again, too."""
    connect(own, elt, SCHEMA, record(id=0, name="z"), destination_sync_mode=mode)
    sync(own)
    first = schema("id", id="integer", name="string")
    says(
        own,
        *(first, record(id=1, name="a")),
        *(schema("id", id="integer", name="string", age="integer"), record(id=2, age=3)),
        *(schema("id", id="integer", size="integer"), record(id=3, size=5)),
        schema("id", id="integer", last="string"),
    )
    sync(own)

    rows = {row["id"]: {**row} for row in own.rows("crm", "db_users")}
    before = {} if mode.startswith("overwrite") else {0: ("z", None, None, None)}
    values = {n: (r["name"], r["age"], r["size"], r["last"]) for n, r in rows.items()}
    assert values == {
        **before,
        1: ("a", None, None, None),
        2: (None, 3, None, None),
        3: (None, None, 5, None),
    }
    assert own.metadata("crm", "db-users")["elt/records_committed"] == 3


def test_a_schema_that_changes_before_a_failure_changes_nothing(own: Project, elt: Elt) -> None:
    connect(own, elt, SCHEMA, record(id=0, name="z"), destination_sync_mode="overwrite")
    sync(own)
    says(own, SCHEMA, record(id=1), schema("id", id="string"), record(id="x"), "!exit 1")
    assert "exit code 1" in failure_of(materialize(own))
    assert names(own) == {0: "z"}


CHANGES: list[tuple[str, str, tuple[Any, Any], list[Any]]] = [
    ("integer", "number", (1, 2.5), [1.0, 2.5]),
    ("number", "integer", (1.5, 2), [1.5, 2.0]),
    ("integer", "string", (1, "x"), ["1", "x"]),
    ("string", "boolean", ("x", True), ["x", "true"]),
    ("boolean", "integer", (True, 2), ["true", "2"]),
    ("object", "string", ({"a": 1}, "x"), ['{"a":1}', '"x"']),
]
"""The type of a field in two schemas of one read, a value of each, and these values as they are stored."""


def test_a_column_has_a_type_for_the_values_of_all_schemas_of_a_read(
    own: Project, elt: Elt
) -> None:
    connect(own, elt, SCHEMA, destination_sync_mode="overwrite")
    lines = []
    for number in range(2):
        fields = {f"f{field}": change[:2][number] for field, change in enumerate(CHANGES)}
        values = {f"f{field}": change[2][number] for field, change in enumerate(CHANGES)}
        lines += [schema("id", id="integer", **fields), record(id=number, **values)]
    says(own, *lines)
    sync(own)
    rows = sorted(own.rows("crm", "db_users"), key=lambda row: int(row["id"]))
    for field, change in enumerate(CHANGES):
        assert [row[f"f{field}"] for row in rows] == change[3], change
    assert own.metadata("crm", "db-users")["elt/records_changed"] == 0


def test_the_last_key_of_a_read_that_replaces_the_rows_applies(own: Project, elt: Elt) -> None:
    connect(own, elt, SCHEMA, destination_sync_mode="overwrite_dedup")
    fields = {"id": "integer", "name": "string"}
    says(
        own,
        *(schema("id", **fields), record(id=1, name="a"), record(id=1, name="b")),
        *(schema("id", "name", **fields), record(id=1, name="b"), record(id=2, name="c")),
    )
    sync(own)
    rows = sorted((row["id"], row["name"]) for row in own.rows("crm", "db_users"))
    assert rows == [(1, "a"), (1, "b"), (2, "c")]


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
