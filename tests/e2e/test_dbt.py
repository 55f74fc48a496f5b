"""A model of dbt reads a stream and hangs under it in Dagster's graph: dbt-duckdb, dagster-dbt, unmodified.

dbt is in an environment of its own, because its libraries need other versions than this project.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.documents import code_blocks
from tests.support.project import REPOSITORY, Project, environment_with

pytestmark = [pytest.mark.external, pytest.mark.long]

PACKAGES = (
    "dagster-dbt==0.29.27",
    "dagster==1.13.27",
    "dbt-core==1.11.16",
    "dbt-duckdb==1.11.1",
    "deltalake[pyarrow]==1.6.6",
)
MODEL = """
{{ config(materialized="table") }}
select o.status, count(*) as orders, count(distinct u.id) as users
from {{ source("crm", "orders") }} o join {{ source("crm", "users") }} u on u.id = o.user_id group by 1
"""
GRAPH = """
import json, sys
from pathlib import Path
from dagster_dbt import dbt_assets
import dagster as dg

@dbt_assets(manifest=Path("target/manifest.json"))
def models(context): ...

streams = [dg.AssetSpec(["crm", "users"]), dg.AssetSpec(["crm", "orders"])]
graph = dg.Definitions(assets=[models, *streams]).resolve_asset_graph()
parents = graph.get(dg.AssetKey(["per_status"])).parent_keys
print(json.dumps(sorted(key.path for key in parents)))
"""
COUNT = """
import duckdb, json
rows = duckdb.connect("shop.duckdb", read_only=True).execute("select sum(orders) from per_status").fetchall()
print(json.dumps(int(rows[0][0])))
"""


def test_a_model_reads_a_stream_and_depends_on_it(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project.connection(
        "crm",
        source={"connector": "faker", "config": {"count": 100}},
        streams=[
            {"name": "users", "destination_sync_mode": "overwrite"},
            {
                "name": "orders",
                "sync_mode": "incremental",
                "destination_sync_mode": "append_dedup",
                "primary_key": [["id"]],
                "cursor_field": ["updated_at"],
            },
        ],
    )
    project.discover("crm")
    project.sync("group:crm")
    dbt = project.root / "dbt"
    (dbt / "models").mkdir(parents=True)
    (dbt / "dbt_project.yml").write_text("{name: shop, version: '1.0', profile: shop}\n")
    document = (REPOSITORY / "docs" / "dbt.md").read_text()
    [profile, *_] = code_blocks(document, "yaml")
    (dbt / "profiles.yml").write_text(profile)
    (dbt / "models" / "per_status.sql").write_text(MODEL)
    answer = project.elt("dbt-sources", "--output", str(dbt / "models" / "sources.yml"))
    assert answer.returncode == 0, answer.stderr

    python = environment_with(tmp_path_factory.getbasetemp(), *PACKAGES)
    _run(dbt, str(python.with_name("dbt")), "build", "--profiles-dir", ".")
    assert json.loads(_run(dbt, str(python), "-c", GRAPH)) == [["crm", "orders"], ["crm", "users"]]
    orders = len(project.rows("crm", "orders"))
    assert json.loads(_run(dbt, str(python), "-c", COUNT)) == orders > 0


def _run(folder: Path, *command: str) -> str:
    environment = {**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "0"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
