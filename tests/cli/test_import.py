"""`elt import airbyte` and `elt import meltano`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from elt_assets.cli.commands.importing.draft import convert_basic, convert_quartz
from tests.support.elt import Elt
from tests.support.project import Project

CONNECTION: dict[str, Any] = {
    "connectionId": "c-1",
    "name": "Shop → Lake",
    "sourceId": "s-1",
    "destinationId": "d-1",
    "status": "inactive",
    "prefix": "raw_",
    "namespaceDefinition": "custom_format",
    "namespaceFormat": "shop",
    "nonBreakingSchemaUpdatesBehavior": "ignore",
    "schedule": {"scheduleType": "cron", "cronExpression": "0 30 6 ? * 2-6 UTC"},
    "newKey": {"x": 1},
    "configurations": {
        "streams": [
            {
                "name": "users",
                "syncMode": "incremental_deduped_history",
                "cursorField": ["updated_at"],
                "primaryKey": [["id"]],
                "selectedFields": [{"fieldPath": ["id"]}, {"fieldPath": ["updated_at"]}],
                "mappers": [
                    {
                        "type": "hashing",
                        "mapperConfiguration": {"targetField": "id", "method": "SHA-256"},
                    },
                    {
                        "type": "row-filtering",
                        "mapperConfiguration": {
                            "conditions": {
                                "type": "NOT",
                                "conditions": [
                                    {"type": "EQUAL", "fieldName": "id", "comparisonValue": "7"}
                                ],
                            }
                        },
                    },
                    {"type": "encryption", "mapperConfiguration": {"targetField": "id"}},
                ],
            },
            {"name": "orders", "syncMode": "full_refresh_overwrite", "includeFiles": True},
            {"name": "leads", "syncMode": "incremental_update"},
        ]
    },
}
SOURCE = {
    "sourceId": "s-1",
    "name": "My shop",
    "sourceType": "shopify",
    "configuration": {
        "shop": "acme",
        "credentials": {"auth_method": "api", "api_password": "hunter2"},
        "masked": "**********",
        "stored": {"_secret": "airbyte_workspace_1_secret_2"},
        "url": "postgres://me:hunter3@db/x",
    },
}


def save(path: str, document: Any) -> str:
    Path(path).write_text(json.dumps(document))
    return path


@pytest.fixture
def own(own: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(own.root)
    return own


def read_attributes(own: Project, name: str) -> tuple[dict[str, Any], str]:
    text = (own.root / "defs" / name / "defs.yaml").read_text()
    attributes: dict[str, Any] = yaml.safe_load(text)["attributes"]
    return attributes, text


def test_a_connection_of_airbyte_is_translated(own: Project, elt: Elt) -> None:
    Path(".env.example").write_text("OTHER=1\nSHOP_LAKE_MASKED=")
    answer = elt.json("import", "airbyte", save("c.json", CONNECTION), save("s.json", SOURCE))
    attributes, text = read_attributes(own, "shop_lake")
    assert "hunter" not in text and "secret_2" not in text
    assert attributes["source"] == {
        "image": "airbyte/source-shopify",
        "config": {
            "shop": "acme",
            "credentials": {
                "auth_method": "api",
                "api_password": {"env": "SHOP_LAKE_CREDENTIALS_API_PASSWORD"},
            },
            "masked": {"env": "SHOP_LAKE_MASKED"},
            "stored": {"env": "SHOP_LAKE_STORED"},
            "url": {"env": "SHOP_LAKE_URL"},
        },
    }
    assert attributes["prefix"] == "raw_" and attributes["namespace"] == "shop"
    assert attributes["enabled"] is False
    assert (attributes["schedule"], attributes["timezone"]) == ("30 6 * * 1-5", "UTC")
    users, orders = attributes["streams"]
    assert users == {
        "name": "users",
        "sync_mode": "incremental",
        "destination_sync_mode": "append_dedup",
        "cursor_field": ["updated_at"],
        "primary_key": [["id"]],
        "fields": {"include": [["id"], ["updated_at"]], "hash": [["id"]]},
        "filter": [{"field": "id", "operator": "!=", "value": "7"}],
        "on_schema_change": "freeze",
    }
    assert orders["destination_sync_mode"] == "overwrite"
    variables = set(answer["environment"])
    assert set(Path(".env.example").read_text().split()) == {"OTHER=1"} | {
        f"{v}=" for v in variables
    }
    untranslated = "\n".join(answer["untranslated"])
    for part in (
        "connection.newKey",
        "the mapper encryption",
        "stream leads: the sync mode incremental_update",
        "includeFiles",
        "the version of the connector",
        "the hash of id is another one",
    ):
        assert part in untranslated
        assert part in text
    assert set(answer["untranslated"]) <= set(answer["warnings"][0].splitlines()) | {
        warning.removeprefix("not translated: ") for warning in answer["warnings"]
    }


def test_an_older_answer_of_airbyte_is_translated(own: Project, elt: Elt) -> None:
    """That of `web_backend/connections/get`, with its source within it."""
    stream = {"name": "users", "namespace": "public", "jsonSchema": {}}
    config = {"syncMode": "incremental", "destinationSyncMode": "append", "selected": True}
    document = {
        "name": "pg",
        "syncCatalog": {
            "streams": [
                {
                    "stream": stream,
                    "config": {**config, "cursorField": ["id"], "aliasName": "users"},
                },
                {"stream": {**stream, "name": "no"}, "config": {**config, "selected": False}},
            ]
        },
        "scheduleType": "basic",
        "scheduleData": {"basicSchedule": {"timeUnit": "hours", "units": 6}},
        "source": {
            "sourceName": "Postgres",
            "connectionConfiguration": {"host": "db", "port": 5432},
        },
    }
    answer = elt.json(
        "import", "airbyte", save("c.json", document), "--name", "erp", "--source", "faker"
    )
    attributes, _ = read_attributes(own, "erp")
    assert attributes["source"] == {"connector": "faker", "config": {"host": "db", "port": 5432}}
    assert attributes["schedule"] == "0 */6 * * *"
    [users] = attributes["streams"]
    assert users["namespace"] == "public" and users["cursor_field"] == ["id"]
    assert answer["untranslated"] == [] and not Path(".env.example").exists()


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([{"configurations": {"streams": []}}], "has no source"),
        ([SOURCE], "has no connection"),
        ([{**CONNECTION, "configurations": {"streams": []}}, SOURCE], "no selected stream"),
        (
            [CONNECTION, {**SOURCE, "configuration": "hunter2"}],
            "source.configuration is not an object",
        ),
    ],
)
def test_answers_that_cannot_be_translated_are_refused(
    own: Project, elt: Elt, documents: list[Any], message: str
) -> None:
    files = [save(f"{number}.json", document) for number, document in enumerate(documents)]
    refused = elt.refuse("import", "airbyte", *files)
    assert message in refused["message"] and "hunter2" not in json.dumps(refused)
    assert not list((own.root / "defs").iterdir()) and not Path(".env.example").exists()


def test_a_file_that_is_not_json_is_refused_without_a_quote(own: Project, elt: Elt) -> None:
    Path("x.json").write_text('{"password": "hunter2"')
    assert "hunter2" not in json.dumps(elt.refuse("import", "airbyte", "x.json"))
    assert "cannot be read" in elt.refuse("import", "meltano", "none.yml")["message"]
    Path("meltano.yml").write_text("plugins: [: hunter2")
    assert "hunter2" not in json.dumps(elt.refuse("import", "meltano", "meltano.yml"))
    Path("meltano.yml").write_text("version: 1\n")
    assert "has no extractors" in elt.refuse("import", "meltano", "meltano.yml")["message"]


MELTANO = """
version: 1
default_environment: dev
plugins:
  extractors:
  - name: tap-shop
    variant: acme
    pip_url: acme-tap-shop==1.2.0
    python: python3.12
    config:
      api.url: https://shop.example
      api.token: hunter2
      account: $SHOP_ACCOUNT
      start: from $SHOP_START on
    settings:
    - {name: pin, kind: password}
    select: [users.*, "!users.ssn", orders.id, orders.total, orders.tax_a, "!orders.tax_*", logs]
    metadata:
      users: {replication-method: INCREMENTAL, replication-key: updated_at, table-key-properties: [id]}
      orders: {replication-method: FULL_TABLE}
      logs: {replication-method: INCREMENTAL, replication-key: at}
    schema: {users: {id: {type: string}}}
  - name: tap-shop--log
    inherit_from: tap-shop
    select: [events.*]
    metadata:
      events: {replication-method: LOG_BASED}
  loaders:
  - name: target-x
environments:
- name: dev
schedules:
- {name: a, extractor: tap-shop, loader: target-x, interval: "@daily"}
- {name: b, job: all}
jobs:
- {name: all, tasks: [tap-shop target-x]}
"""


def test_extractors_of_meltano_are_translated(own: Project, elt: Elt) -> None:
    Path("meltano.yml").write_text(MELTANO)
    answer = elt.json("import", "meltano", "meltano.yml")
    shop, text = read_attributes(own, "shop")
    assert "hunter2" not in text
    assert shop["source"] == {
        "tap": "acme-tap-shop==1.2.0",
        "python": "3.12",
        "config": {
            "api": {"url": "https://shop.example", "token": {"env": "TAP_SHOP_API_TOKEN"}},
            "account": {"env": "SHOP_ACCOUNT"},
            "start": "from $SHOP_START on",
            "pin": {"env": "TAP_SHOP_PIN"},
        },
    }
    assert shop["schedule"] == "0 0 * * *"
    users, orders, logs = shop["streams"]
    assert users == {
        "name": "users",
        "sync_mode": "incremental",
        "destination_sync_mode": "append_dedup",
        "cursor_field": ["updated_at"],
        "primary_key": [["id"]],
        "fields": {"exclude": ["ssn"]},
    }
    assert orders["destination_sync_mode"] == "overwrite"
    # An exclusion takes precedence, as at Meltano: meltano#6401
    assert orders["fields"] == {"include": ["id", "total"]}
    # A pattern of a stream alone selects all of it: meltano#9434
    assert logs["destination_sync_mode"] == "append" and "fields" not in logs
    log, _ = read_attributes(own, "shop_log")
    [events] = log["streams"]
    assert events["replication_method"] == "LOG_BASED"
    assert log["source"]["tap"] == "acme-tap-shop==1.2.0"
    untranslated = "\n".join(answer["untranslated"])
    for part in (
        "tap-shop.config.start: a variable within a text",
        "tap-shop.schema",
        "plugins.loaders",
        "meltano.yml.environments",
        "jobs.all",
        "schedules.b",
    ):
        assert part in untranslated
    assert "TAP_SHOP_API_TOKEN=" in Path(".env.example").read_text()


def test_a_tap_is_asked_for_streams_that_the_file_does_not_name(own: Project, elt: Elt) -> None:
    catalog = {
        "streams": [
            {
                "tap_stream_id": name,
                "schema": {"properties": {"id": {"type": "integer"}, "a_x": {"type": "string"}}},
                "metadata": [{"breadcrumb": [], "metadata": {"table-key-properties": ["id"]}}],
            }
            for name in ("users", "logs")
        ]
    }
    program = own.root / "tap-small"
    program.write_text(f"#!{sys.executable}\nprint({json.dumps(catalog)!r})\n")
    program.chmod(0o755)
    extractor = {
        "name": "tap-small",
        "executable": str(program),
        "select": ["*.*", "!logs.*", "!users.a_*"],
    }
    Path("meltano.yml").write_text(yaml.safe_dump({"plugins": {"extractors": [extractor]}}))
    elt("import", "meltano", "meltano.yml")
    small, _ = read_attributes(own, "small")
    assert [stream["name"] for stream in small["streams"]] == ["users"]
    assert small["streams"][0]["fields"] == {"exclude": ["a_x"]}
    assert "valid" in elt("validate", "small")
    program.write_text(f"#!{sys.executable}\nraise SystemExit('no access')\n")
    Path("meltano.yml").write_text(
        yaml.safe_dump({"plugins": {"extractors": [{**extractor, "name": "tap-other"}]}})
    )
    refused = elt.refuse("import", "meltano", "meltano.yml", code=1)
    assert "the streams of other cannot be listed" in refused["message"]
    assert not (own.root / "defs" / "other").exists()


def test_schedules_become_cron_expressions() -> None:
    assert convert_quartz("0 0 12 * * ?") == "0 12 * * *"
    assert convert_quartz("0 0/15 * ? * MON-FRI *") == "0/15 * * * MON-FRI"
    assert convert_quartz("0 0 1 L * ?") is None
    assert convert_quartz("0 0 12 * * ? 2030") is None
    assert convert_basic("Every 24 HOURS") == "0 0 * * *"
    assert convert_basic("30 minutes") == "*/30 * * * *"
    assert convert_basic("Every 7 hours") is None
    assert convert_basic("0 minutes") is None
