"""Settings of a stream, through assets: history, schema changes, replay, maintenance, reading."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from elt_assets import read_table
from elt_assets.cli import main
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import DELETED_AT
from tests.programs.scripted import record, script, state
from tests.support.project import Project
from tests.support.runs import failure_of, materialize, observations, read_log

pytestmark = pytest.mark.usefixtures("spark_provider")

KEYED: dict[str, Any] = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
TYPES = {"id": {"type": "integer"}, "name": {"type": "string"}}


def sync(project: Project, *lines: Any, **stream: Any) -> dg.ExecuteInProcessResult:
    script(project, [*lines], **stream)
    result = materialize(project)
    assert result.success, failure_of(result)
    return result


def test_a_delete_is_applied_if_its_marker_is_not_an_included_field(
    own: Project, spark: SparkSession
) -> None:
    fields = {**KEYED, "schema": {**TYPES, DELETED_AT: {"type": "string"}}}
    fields["fields"] = {"include": ["name"]}
    sync(own, record(id=1, name="a"), record(id=2, name="b"), state(2), **fields)
    delete = record(id=2, name=None, **{DELETED_AT: "2026-01-01"})
    sync(own, delete, record(id=3, name="c"), state(3), **fields)
    assert [row["id"] for row in things(spark)] == [1, 3]


def things(spark: SparkSession, key: str = "scripted/things", **options: Any) -> list[Any]:
    rows = read_table(spark, key, **options).collect()
    return sorted(
        ({k: v for k, v in row.asDict().items() if k[0] != "_"} for row in rows), key=repr
    )


def test_the_history_has_every_version_of_the_rows(own: Project, spark: SparkSession) -> None:
    stream = {**KEYED, "history": True}
    sync(own, record(id=1, name="a"), record(id=2, name="b"), state(1), **stream)
    sync(own, record(id=1, name="c"), record(id=2, name="b"), state(2), **stream)
    assert things(spark) == [{"id": 1, "name": "c"}, {"id": 2, "name": "b"}]
    past = read_table(spark, "scripted/things_history").orderBy("id", "_valid_from").collect()
    versions = [(row.id, row.name, row._is_current) for row in past]
    assert versions == [
        (1, "c", True),
        (2, "b", True),
    ]  # one version for each value of the cursor: id


@pytest.mark.usefixtures("any_umask")
@pytest.mark.parametrize("any_umask", [0], indirect=True)
def test_folders_of_a_sync_are_accessible_only_to_their_owner(own: Project) -> None:
    sync(own, record(id=1), state(1))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in own.home.iterdir()}
    assert (modes["lake"], modes["staging"]) == (0o700, 0o700)


def test_a_history_without_a_key_is_refused(own: Project) -> None:
    script(own, [], history=True)
    with pytest.raises(ConfigError, match="history: versions need a key"):
        build()


def test_a_new_column_is_added_and_reported(own: Project, spark: SparkSession) -> None:
    sync(own, record(id=1, name="a"), state(1))
    wider = {**TYPES, "age": {"type": "integer"}}
    result = sync(own, record(id=2, name="b", age=3), state(2), schema=wider)
    assert things(spark) == [
        {"id": 1, "name": "a", "age": None},
        {"id": 2, "name": "b", "age": 3},
    ]
    assert "age" in read_log(own, result)
    assert "age" in str(own.metadata("scripted", "things")["elt/schema_changes"])


def test_fields_that_the_catalog_does_not_declare_are_counted_and_named(
    own: Project, spark: SparkSession
) -> None:
    lines = [record(id=1, colour="red"), state(1), record(id=2, colour="blue", size=3), state(2)]
    result = sync(own, *lines, record(id=3), state(3))
    assert own.metadata("scripted", "things")["elt/undeclared_fields"] == {"colour": 2, "size": 1}
    text = read_log(own, result)
    assert "colour (2 records), size (1 records)" in text
    assert "on_undeclared: keep" in text
    assert [row["id"] for row in things(spark)] == [1, 2, 3]
    sync(own, record(id=4), state(4))
    assert "elt/undeclared_fields" not in own.metadata("scripted", "things")


def test_undeclared_fields_are_kept_if_the_stream_is_configured_so(
    own: Project, spark: SparkSession
) -> None:
    """The counts include fields of a declared object, and those of a record that is replayed."""
    types = {**TYPES, "address": {"type": "object", "properties": {"city": {"type": "string"}}}}
    keeping: dict[str, Any] = {**KEYED, "on_undeclared": "keep", "schema": types}
    sync(own, record(id=1, name="a"), state(1), **KEYED, schema=types)
    address = {"city": "x", "planet": [1.50, None]}
    lines = [record(id=2, address=address, colour="red"), record(id=None, size=3), state(2)]
    result = sync(own, *lines, **keeping)
    assert "stored in the column _extra" in read_log(own, result)
    rows = read_table(spark, "scripted/things").orderBy("id").collect()
    assert [row["_extra"] for row in rows] == [
        None,
        '{"address":{"planet":[1.5,null]},"colour":"red"}',
    ]
    assert [row.address and row.address.city for row in rows] == [None, "x"]
    [rejected] = read_table(spark, "scripted/things_dead_letter").collect()
    assert '"size":3' in rejected.record.replace(" ", "")
    script(own, [], **{**keeping, "destination_sync_mode": "append", "primary_key": None})
    assert main(["replay", "scripted"]) == 0
    rows = read_table(spark, "scripted/things").where("id IS NULL").collect()
    assert [row["_extra"] for row in rows] == ['{"size":3}']
    sync(own, record(id=4, colour="red"), state(4), **KEYED, schema=types)
    rows = read_table(spark, "scripted/things").where("id = 4").collect()
    assert [row["_extra"] for row in rows] == [None]


def test_a_field_with_the_name_of_the_column_of_undeclared_fields_is_refused(own: Project) -> None:
    script(own, [], schema={**TYPES, "_extra": {"type": "string"}}, on_undeclared="keep")
    with pytest.raises(ConfigError, match=r"on_undeclared: .* has a field of that name"):
        build()


@pytest.mark.spec("protocol.99")
def test_an_incompatible_type_fails_before_the_source_is_read(own: Project) -> None:
    sync(own, record(id=1, name="a"), state(1))
    changed = {"id": {"type": "integer"}, "name": {"type": "object", "properties": TYPES}}
    script(own, [record(id=2, name={}), state(2)], schema=changed)
    text = failure_of(materialize(own))
    assert "name" in text
    assert [row["id"] for row in own.rows("scripted", "things")] == [1]


def test_values_rejected_by_frozen_columns_can_be_replayed(
    own: Project, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    sync(own, record(id=1), state(1))
    text = {"id": {"type": "string"}, "name": {"type": "string"}}
    lines = [record(id="x", name="odd"), record(id="2", name="even"), state(2)]
    sync(own, *lines, schema=text, on_schema_change="freeze")
    metadata = own.metadata("scripted", "things")
    assert metadata["elt/records_rejected"] + metadata["elt/records_committed"] == 2
    assert metadata["elt/records_rejected"] >= 1
    rejected = read_table(spark, "scripted/things_dead_letter").collect()
    assert any('"x"' in row.record and "id" in row.reason for row in rejected)

    script(own, [], schema=text, on_schema_change="evolve")
    assert main(["replay", "scripted"]) == 0

    assert (
        f"{metadata['elt/records_rejected']} records replayed, 0 rejected"
        in capsys.readouterr().out
    )
    assert [row["id"] for row in things(spark)] == ["1", "2", "x"]
    assert read_table(spark, "scripted/things_dead_letter").count() == 0
    assert observations(own, "scripted", "things")[-1]["elt/state"] == state(2)["state"]
    sync(own, state(2), schema=text)
    assert main(["replay", "scripted", "things"]) == 0
    assert "no dead letters" in capsys.readouterr().out


def test_records_rejected_with_another_field_selection_are_not_replayed(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dead letter may hold values that must not be stored now."""
    sync(own, record(id=None, name="a secret"), record(id=1), state(1), **KEYED)
    script(own, [], **KEYED, fields={"exclude": ["name"]})
    assert main(["replay", "scripted"]) == 2
    assert "under other `fields`" in capsys.readouterr().err


def test_replay_of_an_unknown_stream_is_refused(own: Project) -> None:
    script(own, [])
    assert main(["replay", "scripted", "thongs"]) == 2


def test_maintenance_compacts_tables_and_removes_orphaned_files(own: Project) -> None:
    for number in range(9):
        sync(own, record(id=number), state(number))
    table = own.home / "lake" / "scripted" / "things"
    orphan = table / "data" / "orphan.parquet"
    orphan.write_bytes(b"left by a killed run")
    old = time.time() - 30 * 86400
    os.utime(orphan, (old, old))

    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        job = build().resolve_job_def("elt_maintenance")
        assert job.execute_in_process(instance=instance).success

    assert not orphan.exists()
    assert len(own.table("scripted", "things").file_uris()) == 1
    assert len(own.rows("scripted", "things")) == 9
    sync(own, record(id=9), state(9))
    assert own.metadata("scripted", "things")["elt/sequence"] == 10


def test_the_maintenance_schedule_is_stopped_by_default(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, [])
    schedule = build().resolve_schedule_def("elt_maintenance_schedule")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    setting = {"cron": "30 2 * * *", "default_status": "running"}
    monkeypatch.setenv("ELT_MAINTENANCE_SCHEDULE", json.dumps(setting))
    schedule = build().resolve_schedule_def("elt_maintenance_schedule")
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    assert schedule.cron_schedule == "30 2 * * *"
    for wrong, message in (
        ({"cron": "daily"}, "maintenance_schedule.cron: 'daily' is not a valid cron"),
        ({"cron": "0 3 * * 0", "on": True}, "ELT_MAINTENANCE_SCHEDULE.on: Extra inputs"),
    ):
        monkeypatch.setenv("ELT_MAINTENANCE_SCHEDULE", json.dumps(wrong))
        with pytest.raises(ConfigError, match=message):
            build()


def test_tables_can_be_read_by_their_asset_keys(own: Project, spark: SparkSession) -> None:
    sync(own, record(id=1), state(1))
    sync(own, record(id=2), state(2))
    assert [row["id"] for row in things(spark)] == [1, 2]
    assert [row["id"] for row in things(spark, version=1)] == [1]
    own.amend("scripted", namespace="elsewhere")
    assert "would be read from the beginning" in failure_of(materialize(own))
    (own.home / "lake" / "scripted").rename(own.home / "moved_away")
    assert materialize(own).success
    assert Path(own.home / "lake" / "elsewhere" / "things").is_dir()
    assert [row["id"] for row in things(spark)] == [2]
    for key, partition in (("scripted/nothing", None), ("scripted/things", "a")):
        with pytest.raises(ConfigError):
            read_table(spark, key, partition=partition)


def test_streams_whose_names_collide_have_a_table_each(own: Project, spark: SparkSession) -> None:
    """The stream that had its table before the others were configured keeps it, for all readers."""
    names = ["things", "Things", "things_dead_letter"]

    def sync_all(*streams: str) -> None:
        lines = [
            {"type": "RECORD", "record": {"stream": name, "data": {"name": name}, "emitted_at": 1}}
            for name in names
        ]
        script(own, lines, sync_mode="full_refresh", destination_sync_mode="overwrite")
        file = own.root / "defs" / "scripted" / "catalog.json"
        (described,) = json.loads(file.read_text())["streams"]
        file.write_text(json.dumps({"streams": [{**described, "name": name} for name in names]}))
        modes = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
        own.amend("scripted", streams=[{"name": name, **modes} for name in streams])
        result = materialize(own, extra=[copy_of("Things")] if "things" in streams else [])
        assert result.success, failure_of(result)

    sync_all("Things")
    sync_all(*names)
    for name in names:
        assert [row["name"] for row in read_table(spark, ["scripted", name]).collect()] == [name]
        assert own.metadata("scripted", name)["dagster/row_count"] == 1
    assert own.metadata("scripted", "Things")["dagster/table_name"] == "scripted.Things"
    assert own.metadata("scripted", "things")["dagster/table_name"].startswith("scripted.things_")
    assert [row["name"] for row in own.rows("copies", "Things")] == ["Things"]


def copy_of(name: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=["copies", name],
        ins={"rows": dg.AssetIn(["scripted", name])},
        io_manager_key="io_manager",
    )
    def copied(rows: Any) -> Any:
        return rows

    return copied
