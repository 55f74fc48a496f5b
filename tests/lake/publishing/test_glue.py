"""Entries in Glue: what engines find in them, and what AWS refuses."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from pyspark.sql import types as t

from elt_assets.errors import ConfigError, TransientError
from elt_assets.lake.publish.registration import MARK, Registration, register
from tests.lake.publishing.catalogs import Server, open_catalog, start_answering_server
from tests.support.object_store import KEY, REGION, SECRET

pytestmark = pytest.mark.process

SCHEMA = t.StructType(
    [
        t.StructField("Id", t.LongType(), metadata={"comment": "who\nit is"}),
        t.StructField("day", t.DateType()),
        t.StructField("at", t.TimestampNTZType()),
    ]
)


@pytest.fixture
def client(glue: Server) -> Any:
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": REGION}
    return boto3.client("glue", endpoint_url=glue.place, **keys)


def test_an_entry_has_what_athena_spark_and_trino_look_for(glue: Server, client: Any) -> None:
    registration = glue.registration("users", SCHEMA, "All users")
    registration = Registration(**{**vars(registration), "partition_by": ("day",)})
    register(glue.direct, registration)
    table = client.get_table(DatabaseName=glue.database, Name="users")["Table"]
    storage, parameters = table["StorageDescriptor"], table["Parameters"]
    database = client.get_database(Name=glue.database)["Database"]
    assert database["LocationUri"] == f"{glue.root}/_elt_databases/{glue.database}"  # Spark
    assert table["TableType"] == "EXTERNAL_TABLE"
    assert table["Description"] == "All users"
    assert parameters["table_type"] == "DELTA"  # Athena
    assert parameters["spark.sql.sources.provider"] == "delta"  # Spark, Trino
    assert parameters["EXTERNAL"] == "TRUE"
    assert parameters[MARK] == f"{glue.database}/users"
    assert storage["Location"] == registration.location  # Athena, Spark
    assert storage["SerdeInfo"]["Parameters"]["path"] == registration.location  # Trino
    assert table["PartitionKeys"] == []
    assert [(c["Name"], c["Type"], c["Comment"]) for c in storage["Columns"]] == [
        ("id", "bigint", "who it is"),
        ("day", "date", ""),
        ("at", "timestamp", ""),
    ]
    assert schema_of(parameters) == SCHEMA
    assert parameters["spark.sql.sources.schema.partCol.0"] == "day"


def test_a_change_keeps_what_others_wrote_into_an_entry(glue: Server, client: Any) -> None:
    register(glue.direct, glue.registration("users", SCHEMA))
    table = client.get_table(DatabaseName=glue.database, Name="users")["Table"]
    allowed = ("Name", "StorageDescriptor", "Parameters", "TableType")
    theirs = {name: table[name] for name in allowed} | {"Owner": "analysts", "Retention": 3}
    theirs["Parameters"] |= {"classified": "yes"}
    client.update_table(DatabaseName=glue.database, TableInput=theirs)
    register(glue.direct, glue.registration("users", t.StructType(SCHEMA.fields[:1])))
    table = client.get_table(DatabaseName=glue.database, Name="users")["Table"]
    assert (table["Owner"], table["Retention"]) == ("analysts", 3)
    assert table["Parameters"]["classified"] == "yes"
    assert schema_of(table["Parameters"]) == t.StructType(SCHEMA.fields[:1])


def test_a_table_that_was_registered_by_hand_is_not_taken_over(glue: Server, client: Any) -> None:
    """A crawler, or Athena's CREATE EXTERNAL TABLE, may have made an entry of the same place."""
    registration = glue.registration("users", SCHEMA)
    place = "s3://elsewhere/of-the-database"
    client.create_database(DatabaseInput={"Name": glue.database, "LocationUri": place})
    client.create_table(
        DatabaseName=glue.database,
        TableInput={
            "Name": "users",
            "TableType": "EXTERNAL_TABLE",
            "StorageDescriptor": {"Location": registration.location, "Columns": []},
            "Parameters": {"table_type": "DELTA"},
        },
    )
    with pytest.raises(ConfigError, match="names this table, but was not made here"):
        register(glue.direct, registration)
    register(glue.direct, registration, replace=True)
    register(glue.direct, glue.registration("orders", SCHEMA))
    assert client.get_database(Name=glue.database)["Database"]["LocationUri"] == place
    assert len(client.get_tables(DatabaseName=glue.database)["TableList"]) == 2


def test_a_table_that_spark_made_is_known_by_its_path(glue: Server, client: Any) -> None:
    """Spark's location of an external table of Delta is a placeholder."""
    registration = glue.registration("users", SCHEMA)
    client.create_database(DatabaseInput={"Name": glue.database})
    storage = {
        "Location": "s3://warehouse/users-__PLACEHOLDER__",
        "Columns": [{"Name": "col", "Type": "array<string>"}],
        "SerdeInfo": {"Parameters": {"path": registration.location}},
    }
    table = {"Name": "users", "TableType": "EXTERNAL_TABLE", "StorageDescriptor": storage}
    client.create_table(DatabaseName=glue.database, TableInput=table)
    with pytest.raises(ConfigError, match="names this table, but was not made here"):
        register(glue.direct, registration)


def test_a_view_is_never_replaced(glue: Server, client: Any) -> None:
    client.create_database(DatabaseInput={"Name": glue.database})
    view = {"Name": "users", "TableType": "VIRTUAL_VIEW", "ViewOriginalText": "select 1"}
    client.create_table(DatabaseName=glue.database, TableInput=view)
    with pytest.raises(ConfigError, match="is a view") as caught:
        register(glue.direct, glue.registration("users", SCHEMA), replace=True)
    assert "--replace" not in str(caught.value.guidance)


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        ("ExpiredTokenException", ConfigError, "renew them"),
        ("UnrecognizedClientException", ConfigError, "renew them"),
        ("AccessDeniedException", ConfigError, "allow glue:GetTable"),
        ("ThrottlingException", TransientError, "the next sync tries again"),
        ("GlueEncryptionException", ConfigError, "correct what the message names"),
    ],
)
def test_refusals_of_aws_say_what_to_do(
    glue: Server, code: str, error: type[Exception], text: str
) -> None:
    refusal = json.dumps({"__type": code, "Message": "no"}).encode()
    with start_answering_server(400, refusal) as endpoint, pytest.raises(error) as caught:
        register(open_catalog("glue", endpoint), glue.registration("users", SCHEMA))
    assert code in str(caught.value)
    assert text in str(caught.value)
    assert SECRET not in str(caught.value)


def test_missing_credentials_and_profiles_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(ConfigError, match="boto3 cannot ask Glue: ProfileNotFound"):
        open_catalog("glue", "http://127.0.0.1:1", profile="nobody")


def schema_of(parameters: dict[str, str]) -> t.StructType:
    """Return the schema in the properties, as Spark reads it."""
    prefix = "spark.sql.sources.schema"
    parts = range(int(parameters[f"{prefix}.numParts"]))
    text = "".join(parameters[f"{prefix}.part.{number}"] for number in parts)
    return t.StructType.fromJson(json.loads(text))
