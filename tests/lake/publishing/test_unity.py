"""Entries in Unity Catalog, on a server that follows its published API."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import types as t

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.lake.publish.registration import register
from elt_assets.lake.publish.unity import UnityCatalog
from tests.lake.publishing.catalogs import (
    TOKEN,
    UNITY_CATALOG,
    Server,
    open_catalog,
    start_answering_server,
    unity_server,
)
from tests.lake.publishing.test_registration import assert_entry
from tests.programs.unity_server import API

pytestmark = pytest.mark.process

SCHEMA = t.StructType(
    [
        t.StructField("Id", t.LongType(), metadata={"comment": "who it is"}),
        t.StructField("price", t.DecimalType(38, 9)),
        t.StructField("rows", t.ArrayType(t.StructType([t.StructField("X", t.DateType())]))),
        t.StructField("day", t.DateType()),
    ]
)


def test_an_entry_has_what_the_api_wants(unity: Server) -> None:
    registration = replace(unity.registration("users", SCHEMA, "All users"), partition_by=("day",))
    register(unity.direct, registration)
    table = get_table(unity)
    assert (table["table_type"], table["data_source_format"]) == ("EXTERNAL", "DELTA")
    assert table["storage_location"] == registration.location
    assert table["comment"] == "All users"
    first, price, rows, day = table["columns"]
    assert (first["type_name"], first["type_text"], first["position"]) == ("LONG", "bigint", 0)
    assert json.loads(first["type_json"]) == {
        "name": "Id",
        "type": "long",
        "nullable": True,
        "metadata": {"comment": "who it is"},
    }
    assert first["comment"] == "who it is"
    assert (price["type_precision"], price["type_scale"]) == (38, 9)
    assert (rows["type_name"], rows["type_text"]) == ("ARRAY", "array<struct<x:date>>")
    assert day["partition_index"] == 0


def test_the_api_cannot_change_an_entry_and_the_message_says_what_can(unity: Server) -> None:
    careful = open_catalog("unity", unity.place, replace_entries=False)
    register(careful, unity.registration("users", SCHEMA))
    before = get_table(unity)
    changed = unity.registration("users", t.StructType(SCHEMA.fields[:1]))
    with pytest.raises(ConfigError, match="shows former columns") as caught:
        register(careful, changed)
    assert "SYNC METADATA" in str(caught.value.guidance)
    assert "`replace_entries = true`" in str(caught.value.guidance)
    assert get_table(unity) == before
    register(unity.direct, changed)  # with `replace_entries`
    assert_entry(unity.direct, changed)


def test_a_managed_table_is_never_removed(unity: Server) -> None:
    """Its removal would remove its files."""
    post(unity, "schemas", {"name": unity.database, "catalog_name": UNITY_CATALOG})
    managed = {
        "name": "users",
        "catalog_name": UNITY_CATALOG,
        "schema_name": unity.database,
        "table_type": "MANAGED",
        "data_source_format": "DELTA",
        "columns": [],
        "storage_location": unity.registration("users").location,
    }
    post(unity, "tables", managed)
    with pytest.raises(ConfigError, match="the catalog owns"):
        register(unity.direct, unity.registration("users"), replace=True)
    assert get_table(unity)["table_type"] == "MANAGED"


@pytest.mark.parametrize("token", ["former-token", None])
def test_a_token_that_is_not_accepted_is_named_and_not_shown(
    unity: Server, token: str | None
) -> None:
    tokens = iter([token, TOKEN, TOKEN, TOKEN, TOKEN])
    catalog = UnityCatalog(unity.place, UNITY_CATALOG, lambda: next(tokens))
    with pytest.raises(ConfigError, match="does not accept the token") as caught:
        register(catalog, unity.registration("users"))
    assert "former-token" not in str(caught.value)
    register(catalog, unity.registration("users"))  # with the renewed token


def test_a_token_with_odd_characters_is_not_shown(unity: Server) -> None:
    catalog = UnityCatalog(unity.place, UNITY_CATALOG, lambda: "sec\nret")
    with pytest.raises(ConfigError, match="token") as caught:
        register(catalog, unity.registration("users"))
    assert "ret" not in str(caught.value).replace("characters", "").replace("correct", "")


def test_a_catalog_that_is_not_there_is_named(unity: Server) -> None:
    catalog = UnityCatalog(unity.place, "prod", lambda: TOKEN)
    with pytest.raises(ConfigError, match="has no catalog 'prod'") as caught:
        register(catalog, unity.registration("users"))
    assert "create it" in str(caught.value.guidance)


def test_a_server_without_tokens_needs_none() -> None:
    with unity_server(token=None) as url:
        catalog = UnityCatalog(url, UNITY_CATALOG, lambda: None)
        server = Server("unity", catalog, catalog, None, "s3://lake", url)  # type: ignore[arg-type]
        register(catalog, server.registration("users"))
        assert_entry(catalog, server.registration("users"))


@pytest.mark.parametrize(
    ("status", "headers", "content", "error", "text"),
    [
        (302, {"Location": "http://127.0.0.1:1/login"}, b"", ConfigError, "correct `url`"),
        (200, {}, b"<html>log in</html>", ConfigError, "correct `url`"),
        (404, {}, b"<html>no such page</html>", ConfigError, "correct `url`"),
        (403, {}, b'{"error_code": "PERMISSION_DENIED"}', ConfigError, "grant the owner"),
        (429, {}, b'{"error_code": "RESOURCE_EXHAUSTED"}', TransientError, "the next sync"),
        (503, {}, b"", TransientError, "the next sync"),
        (
            400,
            {},
            b'{"error_code": "X", "message": "bad ' + TOKEN.encode() + b'"}',
            ConfigError,
            "X",
        ),
    ],
)
def test_other_answers_are_errors_that_say_what_to_do(
    unity: Server,
    status: int,
    headers: dict[str, str],
    content: bytes,
    error: type[EltError],
    text: str,
) -> None:
    """A redirect is not followed: the token would go with it."""
    with start_answering_server(status, content, headers) as url:
        catalog = UnityCatalog(url, UNITY_CATALOG, lambda: TOKEN)
        with pytest.raises(error) as caught:
            register(catalog, unity.registration("users"))
    assert text in str(caught.value)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://unity.example.com", "ftp://host", "unity", "https://user:password@host"]
)
def test_a_url_that_would_lose_the_token_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="url") as caught:
        UnityCatalog(url, UNITY_CATALOG, lambda: TOKEN)
    assert "https://" in str(caught.value.guidance)
    assert "password@" not in str(caught.value)


def get_table(server: Server) -> dict[str, Any]:
    name = f"{UNITY_CATALOG}.{server.database}.users"
    return ask(f"{server.place}{API}/tables/{name}", None)


def post(server: Server, kind: str, body: dict[str, Any]) -> None:
    ask(f"{server.place}{API}/{kind}", json.dumps(body).encode())


def ask(url: str, body: bytes | None) -> dict[str, Any]:
    request = urllib.request.Request(url, body, {"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        reply: dict[str, Any] = json.load(response)
    return reply
