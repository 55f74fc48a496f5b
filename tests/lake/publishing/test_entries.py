"""The follower that registers tables of the lake by name, by the settings of the project."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from elt_assets.errors import ConfigError, TransientError
from elt_assets.lake.publish.entries import ENTRY, entry_name, open_entries
from elt_assets.lake.publish.followers import LakeTable, TableTexts
from elt_assets.lake.publish.registration import EntryName, Outcome
from elt_assets.lake.write.companions import DEAD_LETTER, HISTORY
from elt_assets.pipeline.following import drop_published, follow_now
from elt_assets.settings import HiveSettings, settings
from elt_assets.storage.location import Location
from tests.lake.publishing.catalogs import TOKEN, UNITY_CATALOG, Server
from tests.support.object_store import new_bucket

pytestmark = pytest.mark.process

Configure = Callable[..., None]


@pytest.fixture
def configure(unity: Server, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Sets the catalog of the project: the Unity server, with other options over its own."""
    monkeypatch.setenv("UNITY_TOKEN", TOKEN)

    def configure(**options: Any) -> None:
        own = {
            "type": "unity",
            "url": f"http://127.0.0.1:{unity.proxy.port}",
            "catalog": UNITY_CATALOG,
            "token": {"env": "UNITY_TOKEN"},
            "database": unity.database,
            "replace_entries": True,
        }
        monkeypatch.setenv("ELT_CATALOG", json.dumps({**own, **options}))

    configure()
    return configure


def make_table(folder: Path, name: str = "users", columns: Any = None) -> LakeTable:
    place = folder / "lake" / "shop" / name
    data = pa.table(columns or {"id": pa.array([1], pa.int64()), "day": ["monday"]})
    write_deltalake(place, data, mode="overwrite", schema_mode="overwrite")
    comments = {"id": "who it is", "gone": "of no column"}
    return LakeTable(
        Location.parse(f"file://{place}"),
        "shop",
        ("shop", name),
        texts=TableTexts("All users", comments),
    )


def test_a_table_is_registered_with_what_the_lake_and_the_stream_say(
    configure: Configure, unity: Server, tmp_path: Path
) -> None:
    entries = open_entries()
    table = make_table(tmp_path)
    entries.follow(table)
    entry = unity.direct.find(unity.name("users"))
    assert entry is not None
    assert entry.location == table.location.uri
    assert entry.facts == {
        "columns": (("id", "bigint", "who it is", True), ("day", "string", "", True)),
        "comment": "All users",
    }
    assert entries.metadata(table) == {ENTRY: f"{unity.database}.users"}
    requests = unity.proxy.requests
    entries.follow(table)
    assert unity.proxy.requests == requests  # the columns are the same
    make_table(tmp_path, columns={"id": ["a"], "day": ["monday"]})
    assert entries.register(table) is Outcome.UPDATED
    make_table(tmp_path, columns={"id": ["a"], "day": ["monday"], "more": [1.5]})
    unknown = replace(table, texts=None)  # as maintenance and commands know it
    assert "shows another state of the table" in str(entries.look(unknown))
    assert entries.register(unknown) is Outcome.UPDATED
    assert open_entries().look(table) is None
    configure(comments=False)
    assert open_entries().register(table) is Outcome.UPDATED
    entry = unity.direct.find(unity.name("users"))
    assert entry is not None
    assert entry.facts["comment"] == "" and entry.facts["columns"][0][2] == ""
    entries.drop(table)
    entries.drop(table)
    assert unity.direct.find(unity.name("users")) is None


def test_the_token_is_only_read_for_a_request(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Definitions load, and a follower opens, where the token is not known."""
    monkeypatch.delenv("UNITY_TOKEN")
    assert settings().catalog is not None
    entries = open_entries()
    with pytest.raises(ConfigError, match="UNITY_TOKEN, which is not set"):
        entries.follow(make_table(tmp_path))
    monkeypatch.setenv("UNITY_TOKEN", TOKEN)
    entries.follow(make_table(tmp_path))


def test_names_of_entries() -> None:
    table = LakeTable(Location("/lake/raw/eu/Users"), "shop", ("raw", "eu", "Users"))
    dead, history = replace(table, companion=DEAD_LETTER), replace(table, companion=HISTORY)
    for database, name in (
        ("{connection}", EntryName("shop_eu", "users")),
        ("lake_{namespace}", EntryName("lake_raw_eu", "users")),
    ):
        hive = HiveSettings(type="hive", uri="thrift://hive:9083", database=database)
        assert entry_name(hive, table) == entry_name(hive, history) == name
        assert entry_name(hive, dead) is None
        assert entry_name(hive.model_copy(update={"dead_letters": True}), dead) == name
    for levels, text in (
        (("raw", "Käufer"), "refuses the name 'Käufer'"),
        (("raw", "x" * 129), "at most 128 characters"),
    ):
        with pytest.raises(ConfigError, match=text) as caught:
            entry_name(hive, replace(table, levels=levels))
        assert "`table` of the stream" in str(caught.value.guidance)


def test_a_catalog_that_does_not_answer_is_asked_once_for_many_tables(
    configure: Configure, unity: Server, tmp_path: Path
) -> None:
    entries = open_entries()
    tables = [make_table(tmp_path, name) for name in ("a", "b", "c")]
    unity.proxy.plan(["lose request"] * 100)
    requests = unity.proxy.requests
    for table in tables:
        with pytest.raises(TransientError, match="cannot be reached"):
            entries.follow(table)
    assert unity.proxy.requests == requests + 2


def test_a_dead_letter_that_is_no_longer_registered_is_dropped_too(
    configure: Configure, unity: Server, tmp_path: Path
) -> None:
    table = replace(make_table(tmp_path), companion=DEAD_LETTER)
    configure(dead_letters=True)
    open_entries().follow(table)
    assert unity.direct.find(unity.name("users")) is not None
    configure(dead_letters=False)
    open_entries().drop(table)
    assert unity.direct.find(unity.name("users")) is None


def test_warnings_name_the_table_and_the_remedy(
    configure: Configure, unity: Server, tmp_path: Path
) -> None:
    table = make_table(tmp_path)
    configure(token={"env": "FORMER_TOKEN"})
    [warning] = follow_now([table]).problems
    assert "the table shop.users is committed, and not published" in warning
    assert "set FORMER_TOKEN" in warning
    configure()
    assert follow_now([table]).problems == []
    assert unity.direct.find(unity.name("users")) is not None
    drop_published([table])
    assert unity.direct.find(unity.name("users")) is None
    configure(type="none")
    assert follow_now([table]).problems == []


def test_the_catalog_of_production_is_refused_in_a_branch(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unity: Server
) -> None:
    table = make_table(tmp_path)
    monkeypatch.setenv("ELT_BRANCH", "new-columns")
    [warning] = follow_now([table]).problems
    assert "the deployment of the branch 'new-columns'" in warning
    assert "[tool.elt.env.branch.catalog]" in warning
    common = json.loads(os.environ["ELT_CATALOG"])
    monkeypatch.delenv("ELT_CATALOG")
    text = "\n".join(
        f"{key} = {json.dumps(value)}" for key, value in common.items() if key != "token"
    )
    token = '{env = "UNITY_TOKEN"}'
    (tmp_path / "pyproject.toml").write_text(
        f"[tool.elt.catalog]\n{text}\ntoken = {token}\n"
        f'[tool.elt.env.branch.catalog]\ndatabase = "{unity.database}_branch"\n'
    )
    monkeypatch.setenv("ELT_PROJECT", str(tmp_path))
    assert follow_now([table]).problems == []
    assert unity.direct.find(EntryName(f"{unity.database}_branch", "users")) is not None
    assert unity.direct.find(unity.name("users")) is None


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"type": "glu"}, "ELT_CATALOG"),
        ({"token": "dapi-secret"}, "ELT_CATALOG.unity.token"),
        ({"token": {"env": "A", "file": "B"}}, "ELT_CATALOG.unity.token"),
        ({"tokn": {"env": "A"}}, "ELT_CATALOG.unity.tokn"),
        ({"catalog": None}, "ELT_CATALOG.unity.catalog"),
    ],
)
def test_settings_that_are_not_valid_are_named_without_their_values(
    configure: Configure, options: dict[str, Any], place: str
) -> None:
    configure(**options)
    with pytest.raises(ConfigError, match="the settings of the project are not valid") as caught:
        settings()
    assert f"- {place}: " in caught.value.message
    assert "dapi-secret" not in str(caught.value)


def test_glue_refuses_a_lake_that_it_cannot_read(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ELT_CATALOG", '{"type": "glue", "region": "eu-central-1"}')
    with pytest.raises(ConfigError, match="Glue is a catalog of tables in S3"):
        open_entries().follow(make_table(tmp_path))


def test_a_lake_in_s3_is_registered_in_glue_with_the_credentials_of_the_environment(
    glue: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_bucket(glue.place)
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    options = {
        "type": "glue",
        "endpoint": glue.place,
        "database": f"{glue.database}_{{connection}}",
    }
    monkeypatch.setenv("ELT_CATALOG", json.dumps(options))
    place = f"{store.uri}/shop/users"
    write_deltalake(place, pa.table({"id": [1]}), storage_options=store.options)
    table = LakeTable(Location.parse(place), "shop", ("shop", "users"))
    assert follow_now([table]).problems == []
    entry = glue.direct.find(EntryName(f"{glue.database}_shop", "users"))
    assert entry is not None
    assert entry.location == place
    assert [column[:2] for column in entry.facts["columns"]] == [("id", "bigint")]
