"""Engines read a published table by its name in a REST catalog, as docs/open-lake.md says; and so in Glue."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

from elt_assets.lake.delta.storage import TableStorage
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.settings import IcebergSettings
from tests.lake.publishing import oracle
from tests.support.iceberg_catalogs import WAREHOUSE, RestCatalog, glue_catalog
from tests.support.iceberg_readers import DuckDb
from tests.support.object_store import KEY, SECRET, ObjectStore, new_bucket, s3_server
from tests.support.project import environment_with

pytestmark = pytest.mark.external

TIME = dt.datetime(2026, 1, 31, 12, tzinfo=dt.timezone.utc)
ROWS = pa.table(
    {
        "id": [1, 2],
        "name": ["a", None],
        "at": [TIME, None],
        "price": pa.array([Decimal("1.10"), None], pa.decimal128(10, 2)),
        "tags": [["x", "y"], []],
        "part": [{"of": 1}, {"of": None}],
    }
)
CLICKHOUSE = """
import sys, chdb
query = chdb.session.Session(sys.argv[1]).query
query("SET allow_experimental_database_iceberg = 1")
query(sys.argv[2])
print(query("SELECT id, name, price FROM lake.`shop.users` ORDER BY id", "CSV"))
"""


def publish(
    uri: str, properties: dict[str, str], store: ObjectStore
) -> tuple[Publisher, LakeTable]:
    """Commit rows twice, and publish each commit; the second one replaces the first."""
    publisher = Publisher(IcebergSettings(catalog=properties))
    table = LakeTable(TableStorage(uri).location, "shop", ("shop", "users"))
    for _ in range(2):
        write_deltalake(uri, ROWS, mode="overwrite", storage_options=store.options)
        publisher.publish(table)
    oracle.check_current(publisher, table)
    return publisher, table


@pytest.fixture
def in_rest(rest: RestCatalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestCatalog]:
    """A REST catalog that has the table `shop.users`."""
    for name, value in rest.store.environment.items():
        monkeypatch.setenv(name, value)
    publisher, table = publish(f"{rest.lake}/shop/users", rest.properties, rest.store)
    yield rest
    publisher.drop(table)


def test_duckdb_reads_a_table_by_its_name(in_rest: RestCatalog, duck: DuckDb) -> None:
    rows = duck.read_by_name(in_rest, "shop", "users")
    names = ROWS.column_names
    assert oracle.rows(rows, names) == oracle.rows(ROWS, names)


@pytest.mark.long
def test_clickhouse_reads_a_table_by_its_name(
    in_rest: RestCatalog, packages: Path, tmp_path: Path
) -> None:
    python = environment_with(packages, "chdb==4.4.0", "pyarrow")
    create = f"""
        CREATE DATABASE lake ENGINE = DataLakeCatalog('{in_rest.url}/v1', '{KEY}', '{SECRET}')
        SETTINGS catalog_type = 'rest', warehouse = 's3://{WAREHOUSE}/',
            catalog_credential = '{KEY}:{SECRET}', oauth_server_uri = '{in_rest.token_url}',
            storage_endpoint = '{in_rest.store.endpoint}/{WAREHOUSE}'"""
    done = subprocess.run(
        [python, "-c", CLICKHOUSE, str(tmp_path / "clickhouse"), create],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ['1,"a",1.1', r"2,\N,\N"]


def test_glue_has_a_table_with_its_columns(
    tmp_path: Path, duck: DuckDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(tmp_path / "log") as endpoint:
        store = new_bucket(endpoint)
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        properties = glue_catalog(store)
        publish(f"{store.uri}/shop/users", properties, store)
        table = load_catalog("other name", **properties).load_table("shop.users")
        rows = duck.read(table)
    names = ROWS.column_names
    assert oracle.rows(rows, names) == oracle.rows(ROWS, names)
