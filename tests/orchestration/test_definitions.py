"""The definitions that a connection's YAML becomes; loading it has no side effects."""

from __future__ import annotations

import subprocess
import sys

import dagster as dg
import pytest

from elt_assets.connection import load_connection
from elt_assets.definitions import build
from elt_assets.errors import ConfigError
from elt_assets.lake.write.companions import check_claims
from tests.programs.scripted import script
from tests.support.project import REPOSITORY, Project

SHOP = {"source": {"connector": "faker", "config": {"count": 10}}}
FORBIDDEN = """
import sys
def watch(event, arguments):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "socket.connect"):
        raise RuntimeError(f"loading did {event} {arguments}")
sys.addaudithook(watch)
from elt_assets.definitions import defs
assert len(defs.resolve_asset_graph().executable_asset_keys) == int(sys.argv[1])
"""


def _shop(project: Project, **attributes: object) -> None:
    streams = [
        {"name": "users", "sync_mode": "incremental", "destination_sync_mode": "append_dedup"},
        {"name": "products", "destination_sync_mode": "overwrite"},
    ]
    project.connection("shop", **{**SHOP, "streams": streams, **attributes})
    project.discover("shop")


@pytest.mark.spec("protocol.112")
def test_each_stream_has_an_asset(own: Project) -> None:
    _shop(own)
    graph = build().resolve_asset_graph()
    users = graph.get(dg.AssetKey(["shop", "users"]))
    streams = [["shop", "users"], ["shop", "products"]]
    assert graph.executable_asset_keys == {dg.AssetKey(key) for key in streams}
    assert users.group_name == "shop"
    assert users.kinds == {"spark", "delta"}
    assert users.metadata["dagster/table_name"] == "shop.users"
    columns = users.metadata["dagster/column_schema"].columns
    assert {c.name: c.type for c in columns}["updated_at"] == "timestamp"
    assert columns[-1].name == "_airbyte_meta"


def test_a_connection_may_have_a_schedule(own: Project) -> None:
    _shop(own, schedule="0 6 * * *")
    schedules = build().get_repository_def().schedule_defs
    assert {schedule.name: schedule.cron_schedule for schedule in schedules} == {
        "shop_schedule": "0 6 * * *",
        "elt_maintenance_schedule": "0 3 * * 0",
    }


@pytest.mark.spec("protocol.56")
def test_the_namespace_is_part_of_the_table_name(own: Project) -> None:
    _shop(own, namespace="raw_shop")
    users = build().resolve_asset_graph().get(dg.AssetKey(["shop", "users"]))
    assert users.metadata["dagster/table_name"] == "raw_shop.users"


def test_loading_starts_no_process_and_needs_no_secret(own: Project) -> None:
    _shop(own, schedule="0 6 * * *", automation="eager", drift={}, new_data={})
    config = {"count": 10, "api_key": {"env": "NOT_SET_ANYWHERE"}}
    own.amend("shop", source={"connector": "faker", "config": config})
    command = [sys.executable, "-c", FORBIDDEN, "2"]
    done = subprocess.run(
        command, env=own.environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_any_stream_name_makes_an_asset(own: Project) -> None:
    script(own, [])
    own.amend("scripted", dead_letter="asset")
    folder = own.root / "defs" / "scripted"
    for file in ("defs.yaml", "catalog.json"):
        text = (folder / file).read_text()
        (folder / file).write_text(text.replace("things", "Größe 1.2-b"))
    asset_keys = {tuple(key.path) for key in build().resolve_asset_graph().executable_asset_keys}
    assert asset_keys == {("scripted", f"Größe 1.2-b{suffix}") for suffix in ("", "_dead_letter")}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"chedule": "x"}, ["'chedule'", "did you mean 'schedule'"]),
        (
            {"streams": [{"name": "users", "sync_mod": "x"}]},
            ["'users'", "did you mean 'sync_mode'"],
        ),
        ({"streams": [{"name": "user"}]}, ["'user'", "did you mean 'users'"]),
        (
            {"streams": [{"name": "users"}, {"name": "users"}]},
            ["'users' is configured twice"],
        ),
        (
            {
                "streams": [
                    {
                        "name": "users",
                        "sync_mode": "incremental",
                        "destination_sync_mode": "append_dedup",
                        "primary_key": [["no"]],
                    }
                ]
            },
            ["'users'", "primary_key", "write [[id]]"],
        ),
        ({"schedule": "every day"}, ["'every day'", "0 6 * * *"]),
        ({"source": {"connector": "fakr"}}, ["no built-in connector 'fakr'", "faker"]),
        ({"source": {"connector": "faker", "command": ["x"]}}, ["exactly one of"]),
        ({"source": {"package": "airbyte-source-faker"}}, ["name==version"]),
        ({"name": "my shop"}, ["name: 'my shop' may hold only letters", "write 'my_shop'"]),
        ({"name": "shop", "namespace": "e-u"}, ["namespace: 'e-u'", "write 'e_u'"]),
        (
            {
                "read_together": True,
                "streams": [{"name": "users", "window": {"bind": {"start": "a", "end": "b"}}}],
            },
            ["users", "window", "read together"],
        ),
        (
            {
                "streams": [
                    {
                        "name": "users",
                        "sync_mode": "incremental",
                        "destination_sync_mode": "overwrite",
                    }
                ]
            },
            ["'users'", "sync_mode", "full_refresh"],
        ),
    ],
)
def test_invalid_yaml_is_one_error_with_a_suggestion(
    own: Project, changes: dict[str, object], named: list[str]
) -> None:
    _shop(own)
    own.amend("shop", **changes)
    with pytest.raises(ConfigError) as caught:
        build()
    text = str(caught.value)
    assert "defs.yaml" in text
    for part in named:
        assert part in text


def test_a_key_that_is_not_a_column_is_refused(own: Project) -> None:
    script(own, [], schema={}, destination_sync_mode="append_dedup", primary_key=[["id"]])
    with pytest.raises(ConfigError) as caught:
        build()
    assert "primary_key: 'id' is not a column" in str(caught.value)


def test_an_error_in_the_yaml_shows_no_secret(own: Project) -> None:
    _shop(own)
    own.amend("shop", source={"conector": "faker", "config": {"password": "hunter2secret"}})
    with pytest.raises(ConfigError) as caught:
        build()
    assert "did you mean 'connector'" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_not_valid_yaml_has_the_same_error_as_in_the_command_line(
    own: Project,
) -> None:
    _shop(own)
    file = own.root / "defs" / "shop" / "defs.yaml"
    for text in (
        "a: !!python/object/apply:os.system ['hunter2']",
        f"a: {'9' * 10_000}",
        "a: [hunter2",
        "a: !!bool 5",
        "{[1]: 2}",
    ):
        file.write_text(text)
        errors = []
        for load in (build, lambda: load_connection(file.parent)):
            with pytest.raises(ConfigError) as caught:
                load()
            errors.append(str(caught.value))
        assert errors[0] == errors[1] and f"{file} is not valid YAML" in errors[0]
        assert "hunter2" not in errors[0]


def test_a_field_with_a_malformed_schema_is_json_text(own: Project) -> None:
    script(own, [], schema={"id": {"type": 5}, "b": {"oneOf": 5}, "c": {"type": [["x"]]}})
    key = dg.AssetKey(["scripted", "things"])
    columns = build().resolve_asset_graph().get(key).metadata["dagster/column_schema"].columns
    assert {c.type for c in columns[:3]} == {"string"}


def test_two_connections_with_one_table_are_refused(own: Project) -> None:
    script(own, [], name="one")
    script(own, [], name="two")
    for name in ("one", "two"):
        own.amend(name, namespace="same")
    with pytest.raises(Exception, match="write to the table same/things"):
        build()


def test_the_error_of_a_malformed_catalog_names_the_command_that_writes_it(own: Project) -> None:
    script(own, [])
    (own.root / "defs" / "scripted" / "catalog.json").write_text('{"streams": [{}]}')
    with pytest.raises(ConfigError) as caught:
        build()
    text = str(caught.value)
    assert "catalog.json is not a valid catalog" in text
    assert "elt discover scripted" in text


@pytest.mark.parametrize(
    "other",
    [
        ["shop", "Users"],
        ["shop", "users_dead_letter"],
        ["shop", "users_history"],
        ["shop", "users", "data"],
    ],
)
def test_tables_with_overlapping_paths_are_refused(other: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"one and two|two and one"):
        check_claims([("one", ["shop", "users"], True), ("two", other, False)])
