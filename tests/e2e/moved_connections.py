"""A project whose connections are renamed, removed and moved, with all that they have anywhere.

Used by `test_moved_connections`. `shop` reads PostgreSQL's log by a slot, into histories; `scripted` has a
history and a dead letter; `weather` has partitions; `other` is a bystander. Their tables are published in an
Iceberg catalog, and registered in a catalog of Delta tables; both also have tables of other programs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connectors.postgres import Postgres as Source
from elt_assets.cli import main
from elt_assets.failpoints import VARIABLE, Failpoint, armed
from elt_assets.lake.admin.moving import list_files
from elt_assets.lake.admin.relocation import list_contents
from elt_assets.lake.delta.table import Table
from elt_assets.storage.location import Location
from tests.lake.publishing import oracle
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import calls, windowed
from tests.support.postgres import Postgres
from tests.support.project import REPOSITORY, Project
from tests.support.runs import failure_of, fetch_materializations, materialize

KEYED: dict[str, Any] = {
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"]],
    "history": True,
}
DAYS = {"from": "2026-01-01", "to": "2026-01-03"}
STATIONS = ("north", "south")
_SAVED = (
    "defs",
    "home",
    "lake",
    "new",
    "catalog.db",
    "scripted-source",
    "other-source",
    "weather-calls",
)


@dataclass(frozen=True)
class Step:
    """A command of an operation, with the lake that the setting names when it runs."""

    words: Sequence[str]
    lake: str | None = None


@dataclass(frozen=True)
class Kill:
    """Where a command is killed: the `number`th time at a failpoint, or after some seconds."""

    point: Failpoint | None = None
    number: int = 1
    seconds: float = 300.0


@dataclass
class Scene:
    """The project, its server and its catalogs.

    Attributes:
        entries: returns the tables of the catalog of Delta tables: the place of each, by its name.
        save_entries: returns a function that lets that catalog be as it is now.
        iceberg: pyiceberg's properties of the Iceberg catalog.
        lakes: all roots at which the lake may be.
    """

    own: Project
    server: Postgres | None
    entries: Callable[[], dict[str, str]]
    save_entries: Callable[[], Callable[[], None]]
    iceberg: Mapping[str, str]
    patch: pytest.MonkeyPatch
    runner: subprocess.Popen[str]
    lakes: list[str] = field(default_factory=list)
    options: dict[str, str] | None = None

    def set_lake(self, uri: str) -> None:
        self.patch.setenv("ELT_LAKE", uri)

    @property
    def lake(self) -> str:
        return os.environ["ELT_LAKE"]

    @property
    def output(self) -> Path:
        return self.own.root / "output"

    @property
    def catalog(self) -> Catalog:
        return load_catalog("elt", **self.iceberg)

    def is_configured(self, key: str) -> bool:
        connection, _, stream = key.partition("/")
        path = self.own.root / "defs" / connection / "defs.yaml"
        return path.exists() and stream in path.read_text()

    # --- commands ---

    def run(self, step: Step) -> list[tuple[Failpoint, int]]:
        """Run a command to its end in this process; return the failpoints that it passes."""
        passed: list[tuple[Failpoint, int]] = []
        if step.lake:
            self.set_lake(step.lake)

        def note(point: Failpoint) -> None:
            passed.append((point, sum(other is point for other, _ in passed) + 1))

        with armed(note):
            assert main(step.words) == 0, step
        return passed

    def run_process(self, step: Step, kill: Kill | None = None) -> int:
        """Run a command in a process of its own; return its exit code. Its output is in a file."""
        if step.lake:
            self.set_lake(step.lake)
        environment = dict(os.environ)
        if kill is not None and kill.point is not None:
            environment[VARIABLE] = f"{kill.point.name}:{kill.number}"
        command = {
            "words": step.words,
            "environment": environment,
            "output": str(self.output),
            "seconds": Kill().seconds if kill is None else kill.seconds,
        }
        assert self.runner.stdin is not None and self.runner.stdout is not None
        self.runner.stdin.write(json.dumps(command) + "\n")
        self.runner.stdin.flush()
        return int(self.runner.stdout.readline())

    def run_killed(self, step: Step, kill: Kill) -> bool:
        """Run a command that is killed, and run it again; return whether it was killed."""
        code = self.run_process(step, kill)
        assert code == -signal.SIGKILL or (kill.point is None and code == 0), (
            self.output.read_text()
        )
        # After its last file, a removal is complete, and finds nothing that has the name.
        names = [word for word in step.words[1:] if not word.startswith("-")]
        is_complete = step.words[0] == "remove" and not self.is_configured("/".join(names))
        again = self.run_process(step)
        is_refused = again == 2 and (code == 0 or is_complete)
        assert again == 0 or is_refused, (kill, self.output.read_text())
        return code != 0

    # --- what there is ---

    def observe(self) -> dict[str, Any]:
        """Return all that there is, in a form that compares; versions and names of files are left out."""
        return {
            "tables": {
                f"{uri}/{name}": self._describe_table(uri, name)
                for uri in self.lakes
                for name in sorted(list_contents(Location.parse(uri)).tables)
            },
            "folders": sorted(self._list_folders()),
            "iceberg": self._describe_iceberg(),
            "entries": self.entries(),
            "server": self._describe_server(),
            "files": sorted(
                str(path.relative_to(self.own.root))
                for path in (self.own.root / "defs").rglob("*")
                if path.is_file()
            ),
            "events": self._list_events(),
        }

    def _describe_table(self, uri: str, name: str) -> Any:
        place = Location.parse(uri).child(*name.split("/"))
        table = Table(place, "")
        rows = self.delta(f"{uri}/{name}").to_pyarrow_table().to_pylist()
        commits = {writer: Table(place, writer).metadata for writer in table.writers}
        return {
            "is_open": table.move is None,
            "rows": sorted(json.dumps(row, default=str, sort_keys=True) for row in rows),
            "states": {
                writer: (commit.state, commit.sequence, commit.generation)
                for writer, commit in commits.items()
            },
        }

    def delta(self, uri: str) -> DeltaTable:
        return DeltaTable(uri, storage_options=self.options if "://" in uri else None)

    def _list_folders(self) -> Iterator[str]:
        """Yield the folders of lakes down to those of a table, and which of those have files."""
        for uri in self.lakes:
            if "://" not in uri:
                for folder in Path(uri).rglob("*"):
                    inner = folder.relative_to(uri).parts
                    is_inner = any(part.startswith("_") for part in inner[:-1])
                    # A kill leaves Iceberg's metadata in a former lake.
                    if folder.is_dir() and not is_inner and inner[-1] != "_iceberg":
                        yield str(folder)
            else:
                for name, _ in list_files(Location.parse(uri)):
                    parts = name.split("/")
                    end = next((n for n, part in enumerate(parts) if part.startswith("_")), 0)
                    yield f"{uri}/{'/'.join(parts[: end + 1])}"

    def _describe_iceberg(self) -> dict[str, Any]:
        catalog = self.catalog
        places = {}
        for namespace in list_namespaces(catalog):
            for identifier in catalog.list_tables(namespace):
                table = catalog.load_table(identifier)
                place = table.location().removeprefix("file://")
                places[".".join(identifier)] = place
                if "elt.delta-version" not in table.properties:
                    continue
                delta = self.delta(place)
                assert table.properties["elt.delta-version"] == str(delta.version()), identifier
                rows = delta.to_pyarrow_table()
                names = rows.column_names
                assert oracle.rows(table.scan().to_arrow(), names) == oracle.rows(rows, names)
                self._check_metadata(
                    place, str(table.metadata.table_uuid), oracle.list_named(table)
                )
        return places

    def _check_metadata(self, place: str, identity: str, named: set[str]) -> None:
        """Check that no metadata of another Iceberg table is left; maintenance removes what is its own."""
        folder = Location.parse(place).child("_iceberg")
        for name in {name for name, _ in list_files(folder)} - named:
            system, root = folder.file_system()
            with system.open_input_stream(f"{root}/{name}") as file:
                assert identity in name or identity.encode() in file.read(), name

    def _describe_server(self) -> Any:
        if self.server is None:
            return None
        return (
            self.server.execute("SELECT slot_name FROM pg_replication_slots ORDER BY 1"),
            self.server.execute("SELECT pubname FROM pg_publication ORDER BY 1"),
        )

    def _list_events(self) -> dict[str, Any]:
        """Return what Dagster's newest events say of assets, and the keys of dynamic partitions."""
        with dg.DagsterInstance.from_config(str(self.own.home)) as instance:
            keys = sorted(instance.get_asset_keys(), key=str)
            partitions = sorted(instance.get_dynamic_partitions("weather__readings"))
        events = {
            key.to_user_string(): {
                partition: (event.get("elt/state"), event.get("elt/sequence"))
                for partition, event in fetch_materializations(self.own, *key.path).items()
            }
            for key in keys
        }
        return {"materializations": events, "partitions": partitions}

    # --- as it was ---

    def save(self) -> Callable[[], None]:
        """Return a function that lets everything be as it is now."""
        folder = Path(tempfile.mkdtemp(prefix="saved", dir=self.own.root))
        lake = self.lake
        copy_all(self.own.root, folder, _SAVED)
        restore_entries = self.save_entries()

        def restore() -> None:
            for uri in self.lakes:
                remove_lake(uri)
            copy_all(folder, self.own.root, _SAVED)
            restore_entries()
            self.set_lake(lake)
            if self.server is not None:
                # A sync after the copy has moved the slot on, or a removal has dropped it.
                self.server.execute(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                    "WHERE slot_name = 's'; SELECT pg_copy_logical_replication_slot('base', 's')"
                )

        return restore


def remove_lake(uri: str) -> None:
    if "://" not in uri:
        shutil.rmtree(uri, ignore_errors=True)
        return
    place = Location.parse(uri)
    remover = place.remover()
    for name, _ in list(list_files(place)):
        remover.delete_file(name)


def copy_all(source: Path, target: Path, names: Iterable[str]) -> None:
    for name in names:
        old, new = source / name, target / name
        if new.is_dir():
            shutil.rmtree(new)
        if old.is_dir():
            shutil.copytree(old, new)
        elif old.exists():
            shutil.copy(old, new)


def list_namespaces(catalog: Catalog) -> list[tuple[str, ...]]:
    return sorted(tuple(namespace) for namespace in catalog.list_namespaces())


# --- the connections ---


def configure(scene: Scene) -> None:
    """Write the connections."""
    own = scene.own
    lines = [record(id=1, name="a"), record(id=None), state(1)]
    script(own, lines, **KEYED)
    script(own, lines, name="other", **KEYED)
    keys = {"type": "dynamic", "bind": "station"}
    windowed(own, config=DAYS, partitions=keys, sync_mode="incremental", cursor_field=["at"])
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        instance.add_dynamic_partitions("weather__readings", list(STATIONS))
    if scene.server is not None:
        configure_log(scene)


def configure_log(scene: Scene) -> None:
    server = scene.server
    assert server is not None
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2);"
        "CREATE TABLE u (id int PRIMARY KEY, v int); INSERT INTO u VALUES (1, 1);"
        "CREATE PUBLICATION p FOR TABLE t, u"
    )
    config = {"host": "127.0.0.1", "port": server.port, "database": "postgres", "user": "elt"}
    config |= {"incremental": "log", "slot": "s", "publication": "p"}
    streams = [
        {"name": name, "namespace": "public", "sync_mode": "incremental", **KEYED} for name in "tu"
    ]
    source = {"connector": "postgres", "config": config}
    folder = scene.own.connection("shop", source=source, streams=streams, read_together=True)
    described = [json.loads(table.describe().to_json()) for table in Source().open(config)]
    (folder / "catalog.json").write_text(json.dumps({"streams": described}))


def add_foreign_table(catalog: Catalog, place: str) -> None:
    """Let another program have a table in a namespace of ours."""
    catalog.create_namespace("scripted")
    columns = Schema(NestedField(1, "id", LongType(), required=False))
    catalog.create_table("scripted.foreign", columns, location=place)


def sync(scene: Scene) -> None:
    """Sync all streams that are there."""
    configured = {path.parent.name for path in (scene.own.root / "defs").rglob("defs.yaml")}
    logs = configured & {"shop", "store"}
    keys = [key for key in ("scripted/things", "scripted/dinge") if scene.is_configured(key)]
    keys += [f"{log}/public/{name}" for log in logs for name in "tu"]
    selection = " or ".join(f'key:"{key}"' for key in ["other/things", *keys])
    result = materialize(scene.own, selection)
    assert result.success, failure_of(result)
    for station in STATIONS if "weather" in configured else ():
        done = materialize(scene.own, 'key:"weather/readings"', partition=station)
        assert done.success, failure_of(done)


def check_continued(scene: Scene) -> None:
    """Sync once more, and check that only what is new was read, and all of it."""
    own, server, before = scene.own, scene.server, scene.observe()
    stream = "dinge" if scene.is_configured("scripted/dinge") else "things"
    lines = [record(id=2, name="b"), state(2)]
    text = "\n".join(map(json.dumps, lines)).replace("things", stream)
    (own.root / "scripted-source" / "read.jsonl").write_text(text)
    counts = {}
    if server is not None:
        for name in "tu":
            server.execute(f"INSERT INTO {name} SELECT max(id) + 1, 0 FROM {name}")
            counts[name] = int(server.execute(f"SELECT count(*) FROM {name}"))
    sync(scene)
    after = scene.observe()
    for part in ("iceberg", "entries", "server", "files"):
        assert after[part] == before[part], part
    rows = {name: len(table["rows"]) for name, table in after["tables"].items()}
    former = {name: len(table["rows"]) for name, table in before["tables"].items()}
    assert set(rows) == set(former)
    if scene.is_configured(f"scripted/{stream}"):
        assert read_state(own.root / "scripted-source") == {"cursor": 1}
        for suffix, more in {"": 1, "_history": 1, "_dead_letter": 0}.items():
            name = f"{scene.lake}/scripted/{stream}{suffix}"
            assert rows[name] == former[name] + more, name
    if (own.root / "defs" / "weather" / "defs.yaml").exists():
        starts = [call["state"] for call in calls(own.root / "weather-calls")][-len(STATIONS) :]
        assert starts == [{"at": "2026-01-02T23:00:00+00:00"}] * len(STATIONS)
    for log in {"shop", "store"} & {path.name for path in (own.root / "defs").iterdir()}:
        folder = next(name for name in rows if name.endswith("/public/t")).removesuffix("t")
        for name, count in counts.items():
            assert rows[folder + name] == rows[f"{folder}{name}_history"] == count
            read = own.metadata(log, "public", name)["elt/records_read"]
            assert read == count - former[folder + name], name


def read_state(folder: Path) -> Any:
    """Return the state from which the last read of a scripted source began."""
    [part] = json.loads((folder / "state.json").read_text())
    return part["stream"]["stream_state"]


def rename_in_files(scene: Scene) -> list[Step]:
    """Give the streams other names; return the commands that move their tables."""
    own = scene.own
    for path in (
        own.root / "scripted-source" / "read.jsonl",
        own.root / "scripted-source" / "catalog.json",
        own.root / "defs" / "scripted" / "catalog.json",
        own.root / "defs" / "scripted" / "defs.yaml",
    ):
        path.write_text(path.read_text().replace("things", "dinge"))
    own.amend("weather", prefix="w_")
    steps = [
        Step(("rename", "scripted", "scripted/things", "dinge")),
        Step(("rename", "weather", "weather/readings", "readings")),
    ]
    if scene.server is not None:
        own.amend("shop", namespace="raw")
        steps += [
            Step(("rename", "shop", f"shop/public/{name}", f"public.{name}")) for name in "tu"
        ]
    return steps


def rename_connection(scene: Scene) -> list[Step]:
    """Give the connection with the log another name; return the commands that move its tables."""
    defs = scene.own.root / "defs"
    shutil.move(defs / "shop", defs / "store")
    scene.own.amend("store", name="store")
    return [Step(("rename", "store", f"shop/public/{name}", f"public.{name}")) for name in "tu"]


def list_removals(scene: Scene) -> list[Step]:
    names = ["scripted", "weather", *(["shop"] if scene.server else [])]
    return [Step(("remove", name, "--data", "--yes")) for name in names]


def list_moves(former: str, lake: str) -> list[Step]:
    return [
        Step(("move", "--to", lake), former),
        Step(("move", "--remove-former", former), lake),
    ]


@contextmanager
def open_runner() -> Iterator[subprocess.Popen[str]]:
    """Start the process that runs commands."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.programs.forked_elt"],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
