"""Names of tables that a user writes: `prefix` of a connection, `table` of a stream."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from elt_assets import read_table
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from tests.programs.scripted import record, script, state
from tests.support.elt import Elt
from tests.support.project import Project
from tests.support.runs import failure_of, fetch_materializations, materialize

KEYED: dict[str, Any] = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}


def run_sync(project: Project, *lines: Any, connection: dict[str, Any], **stream: Any) -> None:
    script(project, [*lines], **stream)
    project.amend("scripted", **connection)
    result = materialize(project)
    assert result.success, failure_of(result)


@dg.asset(ins={"rows": dg.AssetIn(["scripted", "things"])}, io_manager_key="io_manager")
def read_things(rows: Any) -> Any:
    return rows.select("id")


@pytest.mark.usefixtures("spark_provider")
@pytest.mark.parametrize(
    ("connection", "stream", "table"),
    [
        ({"namespace": "raw", "prefix": "crm_"}, {}, "crm_things"),
        ({"namespace": "raw", "prefix": "crm_"}, {"table": "dinge"}, "dinge"),
    ],
)
def test_everything_finds_a_table_by_its_asset_key_whatever_its_name(
    own: Project,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    connection: dict[str, Any],
    stream: dict[str, Any],
    table: str,
) -> None:
    lines = [record(id=1, name="a"), record(id=None, name="x"), state(1)]
    settings = {**KEYED, "history": True, **stream}
    run_sync(own, *lines, connection=connection, **settings)
    assert own.rows("raw", table) == [{"id": 1, "name": "a"}]
    folders = {path.name for path in (own.home / "lake" / "raw").iterdir()}
    assert folders == {table, f"{table}_history", f"{table}_dead_letter"}
    metadata = fetch_materializations(own, "scripted", "things")[None]
    assert metadata["dagster/table_name"] == f"raw.{table}"
    assert read_table(spark, "scripted/things").count() == 1
    assert read_table(spark, "scripted/things_history").count() == 1
    assert read_table(spark, "scripted/things_dead_letter").count() == 1
    result = materialize(own, 'key:"read_things"', [read_things])
    assert result.success and own.rows("read_things") == [{"id": 1}]
    elt = Elt(capsys)
    capsys.readouterr()
    [status] = elt.json("status", "scripted")["streams"]
    assert status["path"].endswith(f"/raw/{table}") and status["rows"] == 1
    assert elt.json("state", "show", "scripted/things")["state"] == {"cursor": 1}
    [replayed] = elt.json("replay", "scripted")["streams"]
    assert replayed["rejected"] == 1
    assert elt.json("state", "reset", "scripted/things")["table"].endswith(f"/raw/{table}")


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        ({"streams": [{"name": "a", "table": "x y"}]}, "stream 'a': table: 'x y' cannot be"),
        ({"streams": [{"name": "a", "table": "_elt_x"}]}, "stream 'a': table: '_elt_x' cannot be"),
        ({"streams": [{"name": "a", "table": ""}]}, "stream 'a': table: String should have at"),
        ({"prefix": "crm."}, "prefix: 'crm.' cannot begin"),
        ({"prefix": "_airbyte_"}, "prefix: '_airbyte_' cannot begin"),
        (
            {"streams": [{"name": "a", "table": "b"}, {"name": "b"}]},
            "stream 'a': table: 'b' is the table of stream 'b'",
        ),
        (
            {"streams": [{"name": "a", "table": "t"}, {"name": "b", "table": "T_dead_letter"}]},
            "stream 'a': table: 't' is the table of stream 'b'",
        ),
        (
            {"prefix": "p_", "streams": [{"name": "a"}, {"name": "b", "table": "p_a"}]},
            "stream 'b': table: 'p_a' is the table of stream 'a'",
        ),
    ],
)
def test_a_name_that_a_table_cannot_have_is_refused(
    own: Project, connection: dict[str, Any], message: str
) -> None:
    script(own, [])
    folder = own.root / "defs" / "scripted"
    catalog = (folder / "catalog.json").read_text()
    (folder / "catalog.json").write_text(
        catalog.replace('"things"', '"a"')
        .replace("}]}", "}, OTHER]}")
        .replace(
            "OTHER", '{"name": "b", "json_schema": {"properties": {"id": {"type": "integer"}}}}'
        )
    )
    own.amend("scripted", **{"streams": [{"name": "a"}, {"name": "b"}], **connection})
    with pytest.raises(ConfigError) as caught:
        build()
    assert message in str(caught.value)
    assert not (own.home / "lake").exists()


def test_two_connections_whose_names_lead_to_one_table_are_refused(own: Project) -> None:
    script(own, [], name="one", table="all")
    script(own, [], name="two")
    for name in ("one", "two"):
        own.amend(name, namespace="same")
    assert build().resolve_asset_graph().has(dg.AssetKey(["two", "things"]))
    script(own, [], name="two", table="ALL")
    own.amend("two", namespace="same")
    with pytest.raises(Exception, match="write to the table same/all"):
        build()
