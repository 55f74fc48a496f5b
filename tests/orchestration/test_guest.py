"""With our component in a team's project, everything that is not ours is as without it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

import elt_assets
from elt_assets.errors import ConfigError
from tests.orchestration import guest
from tests.support.project import Project


def test_what_is_not_ours_is_as_without_us(tmp_path: Path, own: Project) -> None:
    own.connection("crm", source={"connector": "faker"}, streams=[{"name": "users"}])
    own.discover("crm")
    catalog = (own.root / "defs" / "crm" / "catalog.json").read_text()
    guest.write_project(tmp_path / "alone")
    guest.write_project(tmp_path / "together", catalog)
    catalogs = {
        "ELT_ICEBERG": json.dumps({"catalog": {"type": "glue"}}),
        "ELT_CATALOG": json.dumps({"type": "glue"}),
    }
    alone = guest.observe(tmp_path / "alone", **catalogs)
    together = guest.observe(tmp_path / "together", **catalogs)
    assert alone["success"] and alone["specs"]["greeting"]["metadata"].count("ROOT") > 1
    assert together == alone


def test_what_others_have_in_a_shared_catalog_and_warehouse_stays(
    tmp_path: Path, own: Project
) -> None:
    """Their tables are in the same catalog, and in the same folders, as ours."""
    root = tmp_path / "together"
    own.connection("crm", source={"connector": "faker"}, streams=[{"name": "users"}])
    own.discover("crm")
    guest.write_project(root, (own.root / "defs" / "crm" / "catalog.json").read_text())
    lake, database = root / "lake", root / "catalog.db"
    theirs = load_catalog("elt", type="sql", uri=f"sqlite:///{database}", warehouse=lake.as_uri())
    theirs.create_namespace("crm", {"owner": "them", "location": (tmp_path / "away").as_uri()})
    rows = pa.table({"id": [1, 2]})
    for name in ("crm.Users", "crm.users_2"):
        theirs.create_table(name, rows.schema, location=(lake / name).as_uri()).append(rows)
    write_deltalake(str(lake / "crm" / "orders"), rows)
    # The catalog of this name is another one for their own programs.
    (root / ".pyiceberg.yaml").write_text("catalog:\n  elt:\n    type: glue\n    uri: nowhere\n")
    before, files = list_catalog(database), read_files(lake)
    seen = guest.observe(
        root,
        **{guest.SYNCED: "1"},
        ELT_LAKE=str(lake),
        ELT_ICEBERG=json.dumps({"catalog": theirs.properties}),
        PYICEBERG_CATALOG__ELT__WAREHOUSE="s3://theirs",
    )
    process, later = seen["process"], seen["process after a sync"]
    own_of_spark = {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}  # PySpark sets them
    for name in own_of_spark - set(process["environment"]):
        later["environment"].pop(name, None)
    changed = {name for name in process if process[name] != later[name]}
    assert changed <= {
        "warnings",
        "dumpable",
    }  # no other program may read the memory with the secrets
    filters = set(later["warnings"]) - set(process["warnings"])
    libraries = ("numpy", "requests", "strictyaml", "urllib3")  # whose imports have filters
    assert [text for text in filters if not any(name in text for name in libraries)] == []
    after = list_catalog(database)
    assert before <= after
    assert {row[:3] for row in after - before} == {("elt", "crm", "users")}
    assert {name: text for name, text in read_files(lake).items() if name in files} == files
    assert theirs.load_table("crm.users").scan().to_arrow().num_rows == 3


def list_catalog(database: Path) -> set[tuple[Any, ...]]:
    """Return all rows of the catalog's database."""
    with closing(sqlite3.connect(database)) as connection:
        tables = ("iceberg_tables", "iceberg_namespace_properties")
        return {row for name in tables for row in connection.execute(f"select * from {name}")}


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


OTHERS = {
    "not_yaml": ("type: PACKAGE.Other\nattributes: [", "expected the node content"),
    "unknown_key": ("type: PACKAGE.Other\nnothing: 1", "nothing"),
    "undefined": ("type: PACKAGE.Other\nattributes: {word: '{{ nobody }}'}", "Error while loading"),
}
OTHER = """
import dagster as dg

class Other(dg.Component, dg.Model, dg.Resolvable):
    word: str

    def build_defs(self, context):
        return dg.Definitions()
"""


@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize(("name", "text", "message"), [(k, *v) for k, v in OTHERS.items()])
def test_a_broken_file_of_another_component_is_left_to_dagster(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    name: str,
    text: str,
    message: str,
) -> None:
    package = f"acme_{name}_{policy}"  # Python imports a module once
    folder = tmp_path / package / "defs"
    (folder / "other").mkdir(parents=True)
    (folder / "other" / "defs.yaml").write_text(text.replace("PACKAGE", package))
    (folder / "__init__.py").write_text("")
    (tmp_path / package / "__init__.py").write_text(OTHER)
    (tmp_path / "pyproject.toml").write_text(guest.PYPROJECT.replace("acme", package))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ELT_ON_BROKEN_CONNECTION", policy)
    errors = []
    for load in (
        lambda: dg.load_from_defs_folder(path_within_project=folder),
        lambda: elt_assets.definitions_for(folder),
    ):
        with pytest.raises(Exception, match=message) as caught:
            load()  # type: ignore[no-untyped-call]
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


def test_a_resource_with_a_key_of_ours_is_refused_with_what_to_do(own: Project) -> None:
    own.connection("crm", source={"connector": "faker"}, streams=[{"name": "users"}])
    own.discover("crm")
    file = own.root / "defs" / "resources.py"
    text = "import dagster as dg\nimport elt_assets\ndefs = dg.Definitions(resources={})\n"
    file.write_text(text.format("{'elt_lake': elt_assets.LakeResource(root='/x')}"))
    with pytest.raises(ConfigError, match=r"elt_lake is defined beside .*\n.*setting `resources`"):
        elt_assets.definitions_for(own.root / "defs")
    file.unlink()
    file = file.with_name("same_resources.py")  # Python imports a module once
    file.write_text(text.format("elt_assets.resources()"))
    shared = dg.Definitions(resources=elt_assets.resources())
    merged = dg.Definitions.merge(elt_assets.definitions_for(own.root / "defs"), shared)
    assert "io_manager" not in (merged.resources or {})
