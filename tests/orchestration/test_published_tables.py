"""Syncs of a project with an Iceberg catalog: what events, checks and commands say, and what stays true."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import Catalog, load_catalog

from elt_assets.cli.assets import assets_of
from elt_assets.connection import find_place
from elt_assets.errors import ConfigError
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.orchestration.translator import companion_specs
from elt_assets.settings import settings
from elt_assets.storage.location import Location
from tests.lake.publishing import oracle
from tests.programs.scripted import KEYED, PEOPLE, record, script, state
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

pytestmark = pytest.mark.usefixtures("spark_provider")


def read_names() -> dict[str, str]:
    """The names of a stream's tables in the definitions, by the last level of their keys."""
    [asset] = assets_of(find_place("scripted"))
    specs = [asset.spec, *companion_specs(asset)]
    return {spec.key.path[-1]: str(spec.metadata["dagster/table_name"]) for spec in specs}


def test_the_name_of_a_table_is_that_of_the_catalog(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = {**KEYED, "table": "Orders", "dead_letter": "asset"}
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE, **stream)
    assert read_names()["things"] == "scripted.Orders"
    glue = {"catalog": {"type": "glue"}, "namespace": "lake_{connection}"}
    monkeypatch.setenv("ELT_ICEBERG", json.dumps(glue))
    assert read_names() == {
        "things": "lake_scripted.orders",
        "things_history": "lake_scripted.orders_history",
        "things_dead_letter": "scripted.Orders_dead_letter",
    }
    monkeypatch.setenv("ELT_ICEBERG", json.dumps({**glue, "tables": "none"}))
    assert read_names()["things"] == "scripted.Orders"


@pytest.fixture
def catalog(own: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The catalog of the project, in a database."""
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "/none"}
    monkeypatch.setenv("ELT_ICEBERG", json.dumps({"catalog": properties}))
    return load_catalog("elt", **properties)


def sync(project: Project) -> dg.ExecuteInProcessResult:
    result = materialize(project)
    assert result.success, failure_of(result)
    return result


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    events = [
        event.step_materialization_data.materialization
        for event in result.get_asset_materialization_events()
    ]
    [things] = [event for event in events if event.asset_key.path[-1] == "things"]
    return {name: value.value for name, value in things.metadata.items()}


def find_check(result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    evaluations = result.get_asset_check_evaluations()
    [evaluation] = [e for e in evaluations if e.check_name == "published"]
    return evaluation


def check_current(project: Project, name: str = "things", namespace: str = "scripted") -> None:
    place = Location(f"{project.home}/lake/{namespace}/{name}")
    table = oracle.lake_table(place)
    table = type(table)(place, namespace, (namespace, name))
    oracle.check_current(Publisher(), table)


def test_a_sync_publishes_its_tables_and_says_so(own: Project, elt: Elt, catalog: Catalog) -> None:
    script(own, [record(id=1, name="a"), record(id=None), state(1)], schema=PEOPLE, **KEYED)
    result = sync(own)
    check_current(own)
    check_current(own, "things_history")
    assert {name for _, name in catalog.list_tables("scripted")} == {"things", "things_history"}
    iceberg = catalog.load_table("scripted.things")
    assert iceberg.schema().find_field("id").doc == "who it is"
    assert json.loads(iceberg.properties["elt.primary-key"]) == ["id"]
    assert iceberg.properties["elt.sequence"] == str(metadata_of(result)["elt/sequence"])
    assert json.loads(iceberg.properties["elt.state"])["type"] == "STREAM"
    metadata = metadata_of(result)
    assert metadata["elt/iceberg_lag"] == 0
    assert metadata["dagster/table_name"] == "scripted.things"
    assert metadata["elt/iceberg_snapshot"] == str(iceberg.metadata.current_snapshot_id)
    assert find_check(result).passed
    script(own, [record(id=1, name="b"), record(id=2), state(2)], schema=PEOPLE, **KEYED)
    sync(own)
    check_current(own)
    [status] = elt.json("status", "scripted")["streams"]
    assert status["iceberg"] == {"lag": 0, "problem": None}


def test_a_catalog_that_is_down_is_a_warning_and_a_later_publication_catches_up(
    own: Project, elt: Elt, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE, **KEYED)
    first = metadata_of(sync(own))
    working = json.dumps({"catalog": dict(settings().iceberg.catalog)})  # type: ignore[union-attr]
    down = {"type": "rest", "uri": "http://127.0.0.1:9"}
    monkeypatch.setenv("ELT_ICEBERG", json.dumps({"catalog": down}))
    script(own, [record(id=2, name="b"), state(2)], schema=PEOPLE, **KEYED)
    result = sync(own)
    evaluation = find_check(result)
    assert not evaluation.passed and evaluation.severity is dg.AssetCheckSeverity.WARN
    assert "did not answer" in str(evaluation.description)
    metadata = metadata_of(result)
    lag = metadata["elt/table_version"] - first["elt/table_version"]
    assert metadata["elt/iceberg_lag"] == lag > 0
    assert "did not answer" in metadata["elt/not_published"][0]
    text = elt.capture.readouterr().err
    assert "the table scripted.things is committed, and not published" in text
    [status] = elt.json("status", "scripted")["streams"]
    assert status["iceberg"]["lag"] is None and "did not answer" in status["iceberg"]["problem"]
    failed = elt.json("publish", "scripted", code=1)["tables"]
    assert "did not answer" in failed[0]["error"]
    monkeypatch.setenv("ELT_ICEBERG", working)
    [status] = elt.json("status", "scripted")["streams"]
    assert status["iceberg"]["lag"] == metadata["elt/iceberg_lag"]
    assert "versions behind" in elt("status", "scripted")
    tables = {table["table"]: table for table in elt.json("publish", "scripted")["tables"]}
    assert tables["scripted.things"]["version"] == metadata["elt/table_version"]
    assert tables["scripted.things_dead_letter"]["reason"] == "no table yet"
    check_current(own)
    assert "is published" in elt("publish")


def test_a_table_of_another_program_is_refused_until_it_is_replaced(
    own: Project, elt: Elt, catalog: Catalog
) -> None:
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE)
    sync(own)
    iceberg = catalog.load_table("scripted.things")
    iceberg.append(iceberg.scan().to_arrow())
    script(own, [record(id=2, name="b"), state(2)], schema=PEOPLE)
    result = sync(own)
    assert "changed by another program" in str(find_check(result).description)
    refused = elt.json("publish", "scripted", "things", code=2)["tables"][0]
    assert "changed by another program" in refused["error"]
    assert "--replace starts new" in elt.refuse("publish", "--replace")["message"]
    elt.json("publish", "scripted", "things", "--replace")
    check_current(own)


def test_a_renamed_table_is_published_under_its_new_name_only(
    own: Project, elt: Elt, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE, **KEYED)
    sync(own)
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE, **KEYED, table="orders")
    working = json.dumps({"catalog": dict(settings().iceberg.catalog)})  # type: ignore[union-attr]
    down = {"type": "rest", "uri": "http://127.0.0.1:9"}
    monkeypatch.setenv("ELT_ICEBERG", json.dumps({"catalog": down}))
    elt.capture.readouterr()
    assert (
        "did not answer" in elt.refuse("rename", "scripted", "things", "orders", code=1)["message"]
    )
    assert (own.home / "lake" / "scripted" / "things").is_dir(), "nothing was moved"
    monkeypatch.setenv("ELT_ICEBERG", working)
    elt.json("rename", "scripted", "things", "orders")
    assert {name for _, name in catalog.list_tables("scripted")} == {"orders", "orders_history"}
    check_current(own, "orders")
    check_current(own, "orders_history")


def test_a_stream_says_whether_it_is_published(own: Project, elt: Elt, catalog: Catalog) -> None:
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE, iceberg=False)
    result = sync(own)
    assert not catalog.namespace_exists("scripted")
    assert "published" not in {e.check_name for e in result.get_asset_check_evaluations()}
    assert "elt/iceberg_lag" not in metadata_of(result)
    [status] = elt.json("status", "scripted")["streams"]
    assert status["iceberg"] is None
    assert "no table is to be published" in elt("publish", "scripted")


def test_partition_columns_are_identity_partitions(
    own: Project, elt: Elt, catalog: Catalog
) -> None:
    kinds = [None, "y/z", "a b#%?é", "", "x=1"]
    rows = [record(id=number, kind=kind) for number, kind in enumerate(kinds)]
    schema = {"id": {"type": "integer"}, "kind": {"type": "string"}}
    script(own, [*rows, state(1)], schema=schema, partition_by=[["kind"]])
    sync(own)
    check_current(own)
    iceberg = catalog.load_table("scripted.things")
    assert [field.name for field in iceberg.spec().fields] == ["kind"]
    assert len(iceberg.inspect.partitions()) >= 4
    script(own, [record(id=9, kind="y/z"), state(2)], schema=schema, partition_by=[["kind"]])
    sync(own)
    check_current(own)


@dg.asset(
    key=["report", "doubled"],
    ins={"things": dg.AssetIn(["scripted", "things"])},
    io_manager_key="io_manager",
)
def double(things: Any) -> Any:
    return things.selectExpr("id * 2 AS id")


def test_tables_of_assets_downstream_are_published_by_the_command_too(
    own: Project, elt: Elt, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = json.dumps({"catalog": dict(settings().iceberg.catalog)})  # type: ignore[union-attr]
    monkeypatch.delenv("ELT_ICEBERG")
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE)
    assert materialize(own, extra=[double]).success
    write_deltalake(str(own.home / "lake" / "report" / "theirs"), pa.table({"id": [1]}))
    write_deltalake(str(own.home / "lake" / "x" / "day=1" / "theirs"), pa.table({"id": [1]}))
    monkeypatch.setenv("ELT_ICEBERG", present)
    published = elt.json("publish")["tables"]
    assert {table["table"] for table in published if table["reason"] is None} == {
        *("scripted.things", "report.doubled"),
    }
    check_current(own, "doubled", "report")
    assert catalog.list_tables("report") == [("report", "doubled")]
    iceberg = catalog.load_table("report.doubled")
    iceberg.append(iceberg.scan().to_arrow())
    refused = elt.json("publish", "report", code=2)["tables"][0]
    assert "changed by another program" in refused["error"]
    for words in (["report", "doubled"], ["report"]):
        elt.json("publish", *words, "--replace")
        check_current(own, "doubled", "report")
    assert "no connection 'report2'" in elt.refuse("publish", "report2")["message"]


def test_without_a_catalog_publish_says_what_to_write(own: Project, elt: Elt) -> None:
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE)
    refused = elt.refuse("publish", "scripted")
    assert "[tool.elt.iceberg.catalog]" in refused["guidance"]


def test_the_deployment_of_a_branch_does_not_publish_in_the_catalog_of_production(
    own: Project, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELT_BRANCH", "feature")
    place = own.home / "lake" / "shop" / "users"
    write_deltalake(str(place), pa.table({"id": [1]}))
    with pytest.raises(ConfigError, match="deployment of the branch"):
        Publisher().publish(oracle.lake_table(place))
    assert not catalog.namespace_exists("shop")


def test_a_rename_that_cannot_be_changes_nothing(
    own: Project, elt: Elt, catalog: Catalog, tmp_path: Path
) -> None:
    """The new name is taken: the catalog still has the former one. Tables of others stay in any case."""
    script(own, [record(id=1, name="a"), state(1)], schema=PEOPLE, **KEYED)
    sync(own)
    script(own, [record(id=2, name="b"), state(2)], schema=PEOPLE, **KEYED, table="orders")
    taken = own.home / "lake" / "scripted" / "orders_dead_letter"
    write_deltalake(taken, pa.table({"id": [1]}))
    catalog.create_table("scripted.orders", pa.schema({"id": pa.int64()}), location=str(tmp_path))
    elt.capture.readouterr()
    refused = elt.refuse("rename", "scripted", "things", "orders")
    assert "orders_dead_letter already" in refused["message"]
    check_current(own)
    shutil.rmtree(taken)  # as the guidance says: move it away
    warnings = elt.json("rename", "scripted", "things", "orders")["warnings"]
    assert "was made by another program" in warnings[0]
    names = {name for _, name in catalog.list_tables("scripted")}
    assert names == {"orders", "orders_history"}
    elt("remove", "scripted", "--data", "--yes")
    assert catalog.list_tables("scripted") == [("scripted", "orders")]
    assert not (own.home / "lake" / "scripted").exists()
