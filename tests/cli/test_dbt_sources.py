"""`elt dbt-sources`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.elt import Elt
from tests.support.project import Project

SCHEMA = {
    "properties": {
        "id": {"type": "integer", "description": "made by {{ the source }}"},
        "full name": {"type": ["null", "string"]},
    }
}


@pytest.fixture
def crm(own: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A connection with a stream with history, and one in a namespace."""
    streams: list[dict[str, Any]] = [
        {"name": "users", "description": "50 {% of %} all", "history": True},
        {"name": "bills", "namespace": "eu-west", "table": "invoices"},
    ]
    dedup = {"destination_sync_mode": "overwrite_dedup", "primary_key": [["id"]]}
    folder = own.connection(
        "crm",
        source={"command": ["none"], "config": {"token": {"env": "NOT_SET"}}},
        streams=[{**stream, **dedup} for stream in streams],
    )
    listed = [
        {"name": "users", "json_schema": SCHEMA, "supported_sync_modes": ["full_refresh"]},
        {
            "name": "bills",
            "namespace": "eu-west",
            "json_schema": SCHEMA,
            "supported_sync_modes": ["full_refresh"],
        },
    ]
    (folder / "catalog.json").write_text(json.dumps({"streams": listed}))
    monkeypatch.chdir(own.root)
    return own


def test_sources_have_columns_and_asset_keys(crm: Project, elt: Elt) -> None:
    assert "wrote sources.yml: 2 sources" in elt("dbt-sources")
    text = Path("sources.yml").read_text()
    plain, named = yaml.safe_load(text)["sources"]
    assert (plain["name"], named["name"]) == ("crm", "crm__eu_west")
    users, history = plain["tables"]
    assert (users["name"], history["name"]) == ("users", "users_history")
    assert users["config"]["meta"] == {
        "dagster": {"asset_key": ["crm", "users"]},
        "plugin": "delta",
        "delta_table_path": str(crm.home / "lake" / "crm" / "users"),
    }
    assert history["config"]["meta"]["dagster"]["asset_key"] == ["crm", "users_history"]
    identifier, name, *_ = users["columns"]
    assert identifier["data_type"] == "bigint"
    assert identifier["description"] == 'made by {{ "{{" }} the source }}'
    assert name == {"name": "full_name", "data_type": "string"}
    assert users["description"].startswith('50 {{ "{%" }} of %} all')
    [bills] = named["tables"]
    assert bills["name"] == "invoices"
    assert bills["config"]["meta"]["dagster"]["asset_key"] == ["crm", "eu-west", "bills"]
    elt("dbt-sources", "crm", "crm")
    assert Path("sources.yml").read_text() == text
    assert elt("dbt-sources", "--output", "-") == text


def test_sources_are_where_the_catalog_has_the_tables(
    crm: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "type": "unity",
        "url": "https://host",
        "catalog": "main",
        "database": "l_{namespace}",
    }
    monkeypatch.setenv("ELT_CATALOG", json.dumps(settings))
    crm.amend("crm", prefix="Crm_")
    elt("dbt-sources")
    plain, named = yaml.safe_load(Path("sources.yml").read_text())["sources"]
    assert (plain["database"], plain["schema"]) == ("main", "l_crm")
    assert (named["database"], named["schema"]) == ("main", "l_crm_eu_west")
    assert [(t["name"], t.get("identifier")) for t in plain["tables"]] == [
        ("Crm_users", "crm_users"),
        ("Crm_users_history", "crm_users_history"),
    ]
    assert "identifier" not in named["tables"][0]
    settings = {"type": "hive", "uri": "thrift://host", "database": "a.b"}
    monkeypatch.setenv("ELT_CATALOG", json.dumps(settings))
    assert elt("dbt-sources") and elt.json("dbt-sources")["sources"][0]["schema"] == "crm"


def test_sources_are_where_tables_are_published_in_iceberg(
    crm: Project, elt: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = {
        "catalog": {"type": "rest", "uri": "https://host"},
        "namespace": "lake.{connection}",
    }
    monkeypatch.setenv("ELT_ICEBERG", json.dumps(published))
    plain, named = elt.json("dbt-sources")["sources"]
    assert (plain["schema"], named["schema"]) == ("lake.crm", "lake.crm_eu_west")
    glue = {**published, "catalog": {"type": "glue"}, "namespace": "lake"}
    monkeypatch.setenv("ELT_ICEBERG", json.dumps(glue))
    crm.amend("crm", prefix="Crm_")
    plain, named = elt.json("dbt-sources")["sources"]
    assert (plain["schema"], named["schema"]) == ("lake", "lake_eu_west")
    assert plain["tables"][0]["identifier"] == "crm_users"
    monkeypatch.setenv("ELT_ICEBERG", json.dumps({**glue, "tables": "none"}))
    assert elt.json("dbt-sources")["sources"][0]["schema"] == "crm"


def test_the_root_of_the_lake_can_be_a_template(crm: Project, elt: Elt) -> None:
    elt("dbt-sources", "--lake", "{{ env_var('LAKE') }}/")
    paths = [
        table["config"]["meta"]["delta_table_path"]
        for source in yaml.safe_load(Path("sources.yml").read_text())["sources"]
        for table in source["tables"]
    ]
    assert paths[0] == "{{ env_var('LAKE') }}/crm/users"
    assert all(path.startswith("{{ env_var('LAKE') }}/crm/") for path in paths)


def test_a_file_of_somebody_else_stays(crm: Project, elt: Elt) -> None:
    Path("sources.yml").write_text("version: 2\n")
    refused = elt.refuse("dbt-sources")
    assert "`elt dbt-sources` did not write it" in refused["message"]
    assert Path("sources.yml").read_text() == "version: 2\n"
    elt("dbt-sources", "--force")
    assert len(yaml.safe_load(Path("sources.yml").read_text())["sources"]) == 2
    assert "cannot be written" in elt.refuse("dbt-sources", "--output", "none/x.yml")["message"]


def test_tables_of_another_destination_are_left_out(crm: Project, elt: Elt) -> None:
    crm.connection(
        "out",
        source={"connector": "faker", "config": {}},
        destination={"command": ["none"]},
        streams=[{"name": "users"}],
    )
    elt("discover", "out")
    answer = elt.json("dbt-sources")
    assert [source["name"] for source in answer["sources"]] == ["crm", "crm__eu_west"]
    assert "out is left out" in answer["warnings"][0]
    Path("sources.yml").unlink()
    assert "there is no table to write" in elt.refuse("dbt-sources", "out")["message"]
    assert not Path("sources.yml").exists()
