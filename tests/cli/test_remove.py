"""`elt remove`: what there is, goes or stays as it is said, and a killed removal can be finished."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    ScheduleInstigatorData,
)
from deltalake import DeltaTable

from connectors.postgres import Postgres as Source
from elt_assets.cli import main
from elt_assets.cli.assets import assets_of
from elt_assets.connection import find_place
from elt_assets.failpoints import Failpoint, armed
from elt_assets.lake.publish.registration import EntryName
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.pipeline.following import follow_now
from elt_assets.pipeline.publication import list_lake_tables
from tests.lake.publishing.catalogs import TOKEN, UNITY_CATALOG, open_catalog, unity_server
from tests.lake.test_moving import Killed, killer
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.elt import Elt
from tests.support.failpoints import assert_reached
from tests.support.postgres import Postgres, run_postgres
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

KEYED: dict[str, Any] = {
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
    "history": True,
}
LINES = [record(id=1, name="a"), record(id=None), state(1)]
EVERYTHING = {"defs", "home"}
TABLES = {"things", "things_history", "things_dead_letter"}


def sync(project: Project, **stream: Any) -> None:
    script(project, LINES, **{**KEYED, **stream})
    result = materialize(project)
    assert result.success, failure_of(result)


def list_tables(project: Project, *levels: str) -> set[str]:
    folder = project.home.joinpath("lake", *(levels or ("scripted",)))
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def parts(answer: dict[str, Any]) -> dict[str, bool]:
    return {part["part"]: part["goes"] for part in answer["parts"]}


@pytest.mark.usefixtures("spark_provider")
def test_a_removal_survives_a_kill_at_any_point(
    own: Project, elt: Elt, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sync(own)
    (own.root / "defs" / "scripted" / "defs.prod.yaml").write_text("attributes: {schedule: null}\n")
    points: set[Failpoint] = set()

    def has_ended() -> bool:
        return not list((own.root / "defs").rglob("*.*"))

    words = ["scripted", "--data", "--yes"]
    kill_and_finish(
        own, tmp_path / "copy", words, has_ended, points, among={Failpoint.PART_REMOVED}
    )
    assert list_tables(own) == set()
    assert_reached(request.node.nodeid, points)


def kill_and_finish(
    project: Project,
    copy: Path,
    words: list[str],
    has_ended: Callable[[], bool],
    points: set[Failpoint],
    prepare: Callable[[], object] = lambda: None,
    among: Collection[Failpoint] = tuple(Failpoint),
) -> None:
    """Kill a removal at each of its failpoints in turn, and finish it, each time of the same project."""
    for name in EVERYTHING:
        shutil.copytree(project.root / name, copy / name)
    for number in itertools.count(1):
        for name in EVERYTHING:
            shutil.rmtree(project.root / name)
            shutil.copytree(copy / name, project.root / name)
        prepare()
        with contextlib.suppress(Killed), armed(killer(number, points, among)):
            assert main(["remove", *words]) == 0
            break
        if not has_ended():
            assert main(["remove", *words]) == 0
        assert has_ended()
    assert has_ended()


@pytest.mark.usefixtures("spark_provider")
def test_the_tables_stay_unless_it_is_said_and_are_continued(own: Project, elt: Elt) -> None:
    sync(own)
    folder = own.root / "defs" / "scripted"
    definition = (folder / "defs.yaml").read_text()
    answer = elt.json("remove", "scripted")
    assert (parts(answer), answer["removed"]) == ({"data": False, "definition": True}, False)
    (data,) = (part for part in answer["parts"] if part["part"] == "data")
    files = [path for path in (own.home / "lake").rglob("*") if path.is_file()]
    assert data["bytes"] == sum(path.stat().st_size for path in files)
    assert "1 × table, 1 × history, 1 × dead_letter" in data["where"]
    assert (folder / "defs.yaml").read_text() == definition and len(list_tables(own)) == 3

    elt("remove", "scripted", "--yes")
    assert not folder.exists() and list_tables(own) == TABLES
    assert "there is no connection 'scripted'" in elt.refuse("remove", "scripted")["message"]
    script(own, [record(id=2, name="b"), state(2)], **KEYED)
    assert materialize(own).success
    assert len(own.rows("scripted", "things")) == 2  # from the state of the former connection

    answer = elt.json("remove", "scripted", "--data", "--yes")
    assert parts(answer) == {"data": True, "definition": True} and answer["removed"]
    assert list_tables(own) == set()


@pytest.mark.usefixtures("spark_provider")
def test_a_stream_is_removed_and_the_rest_of_its_file_stays(own: Project, elt: Elt) -> None:
    sync(own)
    elt.capture.readouterr()
    folder = own.root / "defs" / "scripted"
    assert "is the only stream" in elt.refuse("remove", "scripted", "things", "--yes")["message"]
    catalog = json.loads((folder / "catalog.json").read_text())
    catalog["streams"].append({**catalog["streams"][0], "name": "others"})
    (folder / "catalog.json").write_text(json.dumps(catalog))
    before = yaml.safe_load((folder / "defs.yaml").read_text())
    streams = before["attributes"].pop("streams")
    more = "    - name: others   # a note\n      sync_mode: full_refresh\n"
    first = f"    - {json.dumps(streams[0])}\n"
    text = f"# Ours\n{yaml.safe_dump(before)}  streams:\n{more}    # the first\n{first}  prefix: null # x\n"
    text = text.replace("type: elt_assets.ConnectionComponent\n", "")
    text = text.replace("# Ours\n", "# Ours\ntype: elt_assets.ConnectionComponent\n")
    (folder / "defs.yaml").write_text(text)
    answer = elt.json("remove", "scripted", "others", "--data", "--yes")
    assert answer["streams"] == ["scripted/others"] and "data" not in parts(answer)
    assert (folder / "defs.yaml").read_text() == text.replace(more, "")
    assert list_tables(own) == TABLES and materialize(own).success


@pytest.mark.usefixtures("spark_provider")
def test_what_others_need_is_not_removed_unasked(own: Project, elt: Elt) -> None:
    sync(own)
    reader = own.root / "defs" / "totals.py"
    reader.write_text(
        "import dagster as dg\n@dg.asset(deps=[['scripted', 'things']])\ndef totals() -> None: ...\n"
    )
    elt.capture.readouterr()
    error = elt.refuse("remove", "scripted", "--data", "--yes")
    assert "other assets read the tables: totals reads scripted/things" in error["message"]
    assert list_tables(own) == TABLES
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        run = instance.create_run_for_job(
            dg.JobDefinition(graph_def=dg.GraphDefinition("g"), name="g"),
            status=dg.DagsterRunStatus.STARTED,
        )
        error = elt.refuse("remove", "scripted", "--data", "--yes", "--force")
        assert "a run of the connection is in progress" in error["message"]
        instance.delete_run(run.run_id)
    answer = elt.json("remove", "scripted", "--data", "--yes", "--force")
    assert answer["warnings"] == ["totals reads scripted/things"] and list_tables(own) == set()


def add_partitions(project: Project, *keys: str, name: str) -> None:
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        instance.add_dynamic_partitions(name, list(keys))


def list_partitions(project: Project, name: str) -> list[str]:
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        return list(instance.get_dynamic_partitions(name))


@pytest.mark.usefixtures("spark_provider")
def test_partition_keys_go_unless_others_have_them(own: Project, elt: Elt) -> None:
    """Also those that a removal has left that was killed when the tables were gone."""
    named = {"type": "dynamic", "bind": "station", "name": "places"}
    windowed(own, partitions=named)
    windowed(own, name="other", partitions=named)
    windowed(own, name="last", partitions={"type": "dynamic", "bind": "station"})
    add_partitions(own, "north", name="places")
    add_partitions(own, "north", "south", name="last__readings")
    elt("remove", "weather", "--data", "--yes")
    assert list_partitions(own, "places") == ["north"]
    elt("remove", "other", "--data", "--yes")
    assert list_partitions(own, "places") == []
    answer = elt.json("remove", "last")
    assert "2 × partition key" in next(p["where"] for p in answer["parts"] if p["part"] == "data")
    elt("remove", "last", "--yes")
    assert len(list_partitions(own, "last__readings")) == 2
    windowed(own, name="last", partitions={"type": "dynamic", "bind": "station"})
    elt("remove", "last", "--data", "--yes")
    assert list_partitions(own, "last__readings") == []


def turn_on(instance: dg.DagsterInstance, name: str) -> None:
    origin = RemoteInstigatorOrigin(
        repository_origin=RemoteRepositoryOrigin(
            code_location_origin=RegisteredCodeLocationOrigin("here"), repository_name="r"
        ),
        instigator_name=name,
    )
    state = InstigatorState(
        origin, InstigatorType.SCHEDULE, InstigatorStatus.RUNNING, ScheduleInstigatorData("@daily")
    )
    instance.add_instigator_state(state)


def test_schedules_credentials_and_states_of_a_connection_go(own: Project, elt: Elt) -> None:
    script(own, [])
    own.amend("scripted", schedule="@daily")
    stored = own.home / "config" / "scripted.json"
    stored.parent.mkdir(exist_ok=True)
    stored.write_text('{"key": "00", "changes": []}')
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        for name in ("scripted_schedule", "elt_maintenance_schedule"):
            turn_on(instance, name)
        answer = elt.json("remove", "scripted")
        assert parts(answer) == {"schedules": True, "credentials": False, "definition": True}
        elt("remove", "scripted", "--credentials", "--yes")
        left = [state.name for state in instance.all_instigator_state()]
    assert left == ["elt_maintenance_schedule"] and not stored.exists()


def test_a_catalog_that_a_kill_has_left_is_removed(own: Project, elt: Elt) -> None:
    script(own, [])
    (own.root / "defs" / "scripted" / "defs.yaml").unlink()
    elt("remove", "scripted", "--yes")
    assert not (own.root / "defs" / "scripted").exists()


def make_log(server: Postgres) -> None:
    server.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")


def slots(server: Postgres) -> str:
    return server.execute("SELECT slot_name FROM pg_replication_slots")


@pytest.mark.external
@pytest.mark.long
@pytest.mark.usefixtures("spark_provider")
def test_a_connection_with_a_log_and_a_catalog_is_removed_with_all(
    own: Project, elt: Elt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot, histories, and entries of a catalog: each kill is finished, also without the server's slot."""
    with run_postgres("wal_level=logical") as server, unity_server() as place:
        catalog = {
            "type": "unity",
            "url": place,
            "catalog": UNITY_CATALOG,
            "token": {"env": "TOKEN"},
        }
        monkeypatch.setenv("TOKEN", TOKEN)
        monkeypatch.setenv("ELT_CATALOG", json.dumps(catalog))
        server.execute(
            "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2);"
            "CREATE PUBLICATION p FOR TABLE t"
        )
        config = {"host": "127.0.0.1", "port": server.port, "database": "postgres", "user": "elt"}
        config |= {"incremental": "log", "slot": "s", "publication": "p"}
        stream = {"name": "t", "namespace": "public", "sync_mode": "incremental", **KEYED}
        folder = own.connection(
            "shop",
            source={"connector": "postgres", "config": config},
            streams=[stream],
            read_together=True,
        )
        described = [json.loads(table.describe().to_json()) for table in Source().open(config)]
        (folder / "catalog.json").write_text(json.dumps({"streams": described}))
        result = materialize(own)
        assert result.success, failure_of(result)
        assert slots(server) == "s\n" and len(list_entries(place)) == 2

        rows = own.rows("shop", "public", "t")
        moved = own.root / "moved"
        elt("move", "--to", str(moved))
        assert all(uri.startswith(f"file://{moved}") for uri in list_entries(place).values())
        monkeypatch.setenv("ELT_LAKE", str(moved))
        server.execute("INSERT INTO t VALUES (3, 3)")
        assert materialize(own).success  # the log is continued at the new place
        assert DeltaTable(str(moved / "shop" / "public" / "t")).to_pyarrow_table().num_rows == 3
        elt("move", "--remove-former", str(own.home / "lake"))
        elt("move", "--to", str(own.home / "lake"))
        monkeypatch.delenv("ELT_LAKE")
        assert len(own.rows("shop", "public", "t")) == len(rows) + 1
        shutil.rmtree(moved)

        def has_ended() -> bool:
            return not list(folder.rglob("*.*")) and slots(server) == ""

        listed = elt.json("remove", "shop", "--keep-slot")
        assert parts(listed) == {"slot": False, "data": False, "definition": True}
        points: set[Failpoint] = set()
        words = ["shop", "--data", "--yes"]
        kill_and_finish(
            own, tmp_path / "copy", words, has_ended, points, prepare=lambda: prepare(own, server)
        )
        assert list_tables(own, "shop", "public") == set() and list_entries(place) == {}
        server.stop()
        elt.capture.readouterr()
        script(own, [])  # a connection whose server is away
        own.connection(
            "shop",
            source={"connector": "postgres", "config": config},
            streams=[stream],
            read_together=True,
        )
        (folder / "catalog.json").write_text(json.dumps({"streams": described}))
        error = elt.refuse("remove", "shop", "--yes", code=1)
        assert "cannot give up what it keeps on its server" in error["message"]
        assert "--keep-slot" in error["guidance"] and (folder / "defs.yaml").exists()
        elt("remove", "shop", "--yes", "--keep-slot")
        assert not folder.exists()


def prepare(project: Project, server: Postgres) -> None:
    """Make what is outside of the project again."""
    if not slots(server):
        make_log(server)
    lake = project_lake()
    for asset in assets_of(find_place("shop")):
        assert follow_now(list_lake_tables(asset, asset.tables(lake))).problems == []


def list_entries(place: str, table: str = "t") -> dict[str, str]:
    """Return the places of a stream's tables, by the names that the catalog has for them."""
    catalog = open_catalog("unity", place)
    names = [EntryName("shop_public", f"{table}{suffix}") for suffix in ("", "_history")]
    entries = ((name.table, catalog.find(name)) for name in names)
    return {name: str(entry.location) for name, entry in entries if entry is not None}
