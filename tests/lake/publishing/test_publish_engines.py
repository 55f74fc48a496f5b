"""Engines read a published table by its name in a REST catalog, as docs/open-lake.md says; and so in Glue."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.rules import PARTITIONED, format_partitioning
from elt_assets.lake.delta.storage import TableStorage
from elt_assets.lake.publish.followers import LakeTable
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.settings import IcebergSettings
from tests.lake.publishing import oracle
from tests.support.iceberg_catalogs import WAREHOUSE, RestCatalog, glue_catalog
from tests.support.iceberg_readers import DuckDb, read_by_polars
from tests.support.object_store import KEY, REGION, SECRET, ObjectStore, new_bucket, s3_server
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


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A bucket of a server that is a Glue catalog too."""
    with s3_server(tmp_path / "log") as endpoint:
        store = new_bucket(endpoint)
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        yield store


def test_glue_has_a_table_with_its_columns(bucket: ObjectStore, duck: DuckDb) -> None:
    properties = glue_catalog(bucket)
    publish(f"{bucket.uri}/shop/users", properties, bucket)
    table = load_catalog("other name", **properties).load_table("shop.users")
    names = ROWS.column_names
    assert oracle.rows(duck.read(table), names) == oracle.rows(ROWS, names)


OTHERS: dict[str, dict[str, Any]] = {
    "a view": {"TableType": "VIRTUAL_VIEW", "ViewOriginalText": "select 1"},
    "a view of Athena": {"TableType": "VIRTUAL_VIEW", "Parameters": {"presto_view": "true"}},
    "a table of Delta": {"TableType": "EXTERNAL_TABLE", "Parameters": {"table_type": "DELTA"}},
    "a table of Hive": {"TableType": "EXTERNAL_TABLE", "Parameters": {"EXTERNAL": "TRUE"}},
}


def test_what_is_no_iceberg_table_is_named_and_stays(bucket: ObjectStore) -> None:
    publisher = Publisher(IcebergSettings(catalog=glue_catalog(bucket)))
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": REGION}
    client = boto3.client("glue", endpoint_url=bucket.endpoint, **keys)
    client.create_database(DatabaseInput={"Name": "shop", "LocationUri": "s3://theirs/shop"})
    for number, entry in enumerate(OTHERS.values()):
        name = f"Users_{number}"  # Glue folds its case
        uri = f"{bucket.uri}/shop/{name}"
        table = LakeTable(TableStorage(uri).location, "shop", ("shop", name))
        write_deltalake(uri, ROWS, storage_options=bucket.options)
        client.create_table(DatabaseName="shop", TableInput={"Name": name.lower(), **entry})
        before = client.get_table(DatabaseName="shop", Name=name.lower())["Table"]
        for replace in (False, True):
            with pytest.raises(ConfigError, match="which is no Iceberg table") as caught:
                publisher.publish(table, replace=replace)
            assert "another name (`namespace`" in (caught.value.guidance or "")
        with pytest.raises(ConfigError, match="which is no Iceberg table"):
            publisher.look(table)
        publisher.drop(table)  # nothing of it is published
        assert client.get_table(DatabaseName="shop", Name=name.lower())["Table"] == before
        assert not TableStorage(uri).list_folder("_iceberg")
    renamed = LakeTable(table.location, "shop", ("shop", "others"))
    publisher.publish(renamed)  # the remedy
    oracle.check_current(publisher, renamed)
    assert client.get_database(Name="shop")["Database"]["LocationUri"] == "s3://theirs/shop"


def test_readers_find_the_partitions_of_columns_with_letters_of_any_script(
    tmp_path: Path, duck: DuckDb
) -> None:
    publisher = Publisher(oracle.sqlite_settings(tmp_path / "catalog"))
    table = oracle.lake_table(tmp_path / "lake" / "shop" / "sizes")
    columns = ["größe", "한글", "1st"]
    data = pa.table({"id": [1, 2, 3], **{name: ["a", "b", None] for name in columns}})
    write_deltalake(table.location.uri, data, partition_by=columns)
    mark = {PARTITIONED: format_partitioning(columns)}
    delta = DeltaTable(table.location.uri)
    delta.alter.set_table_properties(mark, raise_if_not_exists=False)
    publisher.publish(table)
    for read in (None, read_by_polars, duck.read):
        oracle.check(publisher, table, read)


def test_readers_find_what_is_in_maps(tmp_path: Path, duck: DuckDb) -> None:
    publisher = Publisher(oracle.sqlite_settings(tmp_path / "catalog"))
    table = oracle.lake_table(tmp_path / "lake" / "shop" / "sizes")
    part = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    kind = pa.map_(pa.string(), pa.map_(pa.int64(), part))
    for number in (1, 2):
        value = [("k", [(number, {"a": number, "b": ["x", None]})]), ("empty", [])]
        data = pa.table({"id": [number, 0], "map": pa.array([value, None], kind)})
        write_deltalake(table.location.uri, data, mode="append")
        publisher.publish(table)
        for read in (None, read_by_polars, duck.read):
            oracle.check(publisher, table, read)
