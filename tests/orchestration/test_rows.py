"""`rename` and `filter` of a stream and its connection, through assets."""

from __future__ import annotations

import json
import sys
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from elt_assets import read_table
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import DELETED_AT
from tests.programs.scripted import record, script, state, status
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.runs import (
    evaluations,
    failure_of,
    fetch_materializations,
    materialize,
    read_log,
)

TEXT = {"type": "string"}
SCHEMA = {
    "id": {"type": "integer"},
    "mail": TEXT,
    "kind": TEXT,
    "at": {"type": "string", "format": "date-time"},
    DELETED_AT: TEXT,
}
STREAM: dict[str, Any] = {
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
    "history": True,
    "schema": SCHEMA,
    "fields": {"exclude": ["kind"], "hash": ["mail"]},
    "rename": {"id": "user_id", "mail": "id"},
    "filter": [{"field": "kind", "operator": "in", "value": ["person", "robot"]}],
}
CONNECTION: dict[str, Any] = {
    "rename": {"at": "changed_at"},
    "filter": [{"field": "at", "operator": ">=", "value": "2026-01-01"}],
}


def user(number: int | None, day: str, kind: str | None = "person", **more: Any) -> dict[str, Any]:
    return record(id=number, mail=f"{number}@x", kind=kind, at=f"{day}T00:00:00Z", **more)


def describe(project: Project, **stream: Any) -> None:
    """Change the description of the stream in the catalog."""
    path = project.root / "defs" / "scripted" / "catalog.json"
    catalog = json.loads(path.read_text())
    catalog["streams"][0].update(stream)
    path.write_text(json.dumps(catalog))


@pytest.mark.usefixtures("spark_provider")
def test_rules_name_fields_as_the_source_and_tables_have_the_new_names(
    own: Project, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        user(1, "2026-01-02"),
        user(2, "2026-01-02"),
        user(3, "2026-01-02", "group"),
        user(4, "2025-12-31"),
        user(5, "2026-01-02", None),
        user(None, "2026-01-02"),  # no key: to the dead letter
        state(1, records=6),
        user(1, "2026-01-01", "robot"),  # older: the row stays
        record(id=2, **{DELETED_AT: "2026-02-01T00:00:00Z", "at": "2026-02-01T00:00:00Z"}),
        state(2, records=2),
        status("COMPLETE"),
    ]
    script(own, lines, **STREAM)
    describe(own, default_cursor_field=["at"])
    own.amend("scripted", **CONNECTION)
    result = materialize(own)
    assert result.success, failure_of(result)
    [row] = read_table(spark, "scripted/things").collect()
    assert set(row.asDict()) >= {"user_id", "id", "changed_at"}
    assert {"kind", "mail", "at"}.isdisjoint(row.asDict())
    assert (row["user_id"], len(row["id"]), row["changed_at"].day) == (1, 64, 2)
    history = read_table(spark, "scripted/things_history")
    assert {row["user_id"] for row in history.collect()} == {1, 2}
    [rejected] = read_table(spark, "scripted/things_dead_letter").collect()
    assert "@x" not in str(rejected) and "changed_at" in str(rejected)
    metadata = fetch_materializations(own, "scripted", "things")[None]
    counts = [metadata[f"elt/records_{name}"] for name in ("read", "filtered", "rejected")]
    assert counts == [8, 3, 1]
    assert metadata["elt/state"]["stream"]["stream_state"] == {"cursor": 2}
    assert "3 filtered out" in read_log(own, result)
    checks = evaluations(result)
    assert {name for name, check in checks.items() if not check.passed} == {"rejected"}
    assert checks["counts"].metadata["filtered"].value == 3
    spec = build().resolve_asset_graph().get(dg.AssetKey(["scripted", "things"]))
    assert "key user_id; cursor changed_at" in str(spec.description)
    names = [column.name for column in spec.metadata["dagster/column_schema"].columns]
    assert names[:3] == ["user_id", "id", "changed_at"]

    capsys.readouterr()
    elt = Elt(capsys)
    records = elt.json("preview", "scripted", "things")["records"]
    assert [data.get("user_id") for data in records] == [1, 2, None, 1, 2]
    assert elt.json("replay", "scripted")["streams"][0]["rejected"] == 1
    own.amend("scripted", rename={"at": "since"})
    refused = elt("replay", "scripted", code=2)
    assert "were rejected under other `fields`" in refused and "move that table away" in refused
    (own.home / "lake" / "scripted" / "things_dead_letter").rename(own.root / "away")
    assert "elt reset CONNECTION STREAM" in refused
    elt("reset", "scripted", "things")
    elt("sync", "scripted")
    assert len(own.rows("scripted", "things")) == 1
    assert elt.json("replay", "scripted")["streams"][0]["rejected"] == 1


@pytest.mark.usefixtures("spark_provider")
def test_another_destination_gets_the_new_names_and_the_rows_that_are_stored(own: Project) -> None:
    file = own.root / "written.jsonl"
    command = [sys.executable, "-m", "tests.programs.file_destination"]
    lines = [user(1, "2026-01-02"), user(2, "2025-01-02"), state(1, records=2)]
    stream = {name: value for name, value in STREAM.items() if name != "history"}
    script(own, [*lines, status("COMPLETE")], **stream)
    describe(own, default_cursor_field=["at"])
    destination = {"command": command, "config": {"file": str(file), "hangs": False}}
    own.amend("scripted", destination=destination, prefix="crm_", **CONNECTION)
    result = materialize(own)
    assert result.success, failure_of(result)
    [row] = [json.loads(line) for line in file.read_text().splitlines()]
    assert row["stream"] == "crm_things"
    assert set(row["data"]) == {"user_id", "id", "changed_at"} and row["data"]["user_id"] == 1
    [catalog] = [
        json.loads(line) for line in (own.root / "written.jsonl.catalogs").read_text().splitlines()
    ]
    [configured] = catalog["streams"]
    assert configured["stream"]["name"] == "crm_things"
    properties = configured["stream"]["json_schema"]["properties"]
    assert set(properties) == {"user_id", "id", "changed_at", DELETED_AT}
    assert (configured["primary_key"], configured["cursor_field"]) == (
        [["user_id"]],
        ["changed_at"],
    )
    metadata = fetch_materializations(own, "scripted", "things")[None]
    names = ("read", "filtered", "committed")
    assert [metadata[f"elt/records_{name}"] for name in names] == [2, 1, 1]
    assert evaluations(result)["counts"].passed
    assert metadata["elt/state"]["stream"]["stream_descriptor"]["name"] == "things"


@pytest.mark.usefixtures("spark_provider")
def test_a_refresh_does_not_go_on_with_other_conditions(own: Project) -> None:
    settings: dict[str, Any] = {
        "destination_sync_mode": "overwrite_dedup",
        "sync_mode": "full_refresh",
        "primary_key": [["id"]],
    }

    def read(lines: list[Any], value: str) -> bool:
        condition = {"field": "name", "operator": "=", "value": value}
        script(own, lines, **settings, filter=[condition])
        describe(own, is_resumable=True)
        own.amend("scripted", checkpoint={"rows": 1})
        return materialize(own).success

    first = [record(id=1, name="a"), record(id=2, name="b"), state(2)]
    assert not read([*first, "!exit 1"], "a")
    assert read([*first, record(id=3, name="b"), state(3), status("COMPLETE")], "b")
    rows = own.rows("scripted", "things")
    assert [row["id"] for row in rows] == [2, 3]


@pytest.mark.parametrize(
    ("connection", "stream", "message"),
    [
        ({}, {"rename": {"nam": "x"}}, "rename: the stream has no field 'nam'; did you mean"),
        ({"rename": {"nam": "x"}}, {}, "rename: no stream in the catalog has a field 'nam'"),
        ({}, {"rename": {"id": "NAME"}}, "'id' would have the name of the field 'name', 'NAME'"),
        ({}, {"rename": {"id": "x", "name": "X"}}, "'id' would have the name of the field 'name'"),
        ({}, {"rename": {"id": "_airbyte_meta"}}, "no column can have the name '_airbyte_meta'"),
        ({}, {"rename": {"id": "user id"}}, "no column can have the name 'user id'"),
        ({}, {"rename": {"id": DELETED_AT}}, "delete markers keep their names"),
        ({}, {"rename": {"id": "_extra"}, "on_undeclared": "keep"}, "the column of undeclared"),
        ({}, {"rename": {"name": "x"}, "fields": {"exclude": ["name"]}}, "'name' is not stored"),
        ({}, {"rename": {}}, "rename: Dictionary should have at least 1 item"),
        ({}, {"filter": [{"field": "nam", "operator": "=", "value": 1}]}, "filter: the stream has"),
        ({"filter": [{"field": "x", "operator": "is null"}]}, {}, "filter: no stream in the catalog"),
        ({}, {"filter": [{"field": "id", "operator": "==", "value": 1}]}, 'operator: write one of "="'),
        ({}, {"filter": [{"field": "id", "operator": "="}]}, "`=` needs one value"),
        ({}, {"filter": [{"field": "id", "operator": "=", "value": None}]}, "write the operator"),
        ({}, {"filter": [{"field": "id", "operator": "in", "value": []}]}, "`in` needs a list"),
        ({}, {"filter": [{"field": "id", "operator": "in", "value": 1}]}, "`in` needs a list"),
        ({}, {"filter": [{"field": "id", "operator": "is null", "value": 1}]}, "has none"),
        ({}, {"filter": [{"field": "id", "operator": "=", "value": "x"}]}, "'x' is not a number"),
        ({}, {"filter": [{"field": "id", "op": "="}]}, "unknown key 'op'; known keys are field"),
        ({}, {"filter": []}, "filter: List should have at least 1 item"),
    ],
)  # fmt: skip
def test_settings_of_rows_that_cannot_be_used_are_refused(
    own: Project, connection: dict[str, Any], stream: dict[str, Any], message: str
) -> None:
    script(own, [], **stream)
    own.amend("scripted", **connection)
    with pytest.raises(ConfigError) as caught:
        build()
    assert message in str(caught.value)
    assert not (own.home / "lake").exists()


def test_an_operator_without_quotes_is_explained(own: Project) -> None:
    script(own, [], filter=[{"field": "id", "operator": "OPERATOR", "value": 1}])
    path = own.root / "defs" / "scripted" / "defs.yaml"
    text = path.read_text()
    for operator in ("=", "!=", ">=", "> 1"):
        path.write_text(text.replace("OPERATOR", operator))
        with pytest.raises(ConfigError, match="in quotes"):
            build()
