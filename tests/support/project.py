"""A project of a test's own: connections, home and lake in a temporary directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from deltalake import DeltaTable

from elt_assets.cli import main
from elt_assets.connection import COMPONENT

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
_FAKER_CATALOGS: dict[str, str] = {}
"""The catalogs of the faker that were discovered, by its source in `defs.yaml`."""


@dataclass(frozen=True)
class Project:
    """Runs the commands that a user would type, each in a process of its own."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def environment(self) -> dict[str, str]:
        self.home.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / "dagster_home" / "dagster.yaml", self.home)
        own = {"DAGSTER_HOME": str(self.home), "ELT_DEFS": str(self.root / "defs")}
        own["ELT_SPARK_ARCHIVE"] = "off"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ELT_")}
        return {**inherited, **own, "PYTHONWARNINGS": "ignore"}

    def connection(self, name: str, **attributes: Any) -> Path:
        """Write a connection's YAML; its catalog is left to `discover`."""
        folder = self.root / "defs" / name
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"name": name, "retry": {"attempts": 0}, **attributes}
        document = {"type": COMPONENT, "attributes": settings}
        (folder / "defs.yaml").write_text(yaml.safe_dump(document))
        return folder

    def amend(self, connection: str, **attributes: Any) -> None:
        """Change some attributes of a connection that is there."""
        path = self.root / "defs" / connection / "defs.yaml"
        document = yaml.safe_load(path.read_text())
        document["attributes"].update(attributes)
        path.write_text(yaml.safe_dump(document))

    def reconfigure(self, connection: str, **config: Any) -> None:
        """Change some of the config of a connection's source."""
        path = self.root / "defs" / connection / "defs.yaml"
        source = yaml.safe_load(path.read_text())["attributes"]["source"]
        self.amend(connection, source={**source, "config": {**source["config"], **config}})

    def elt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run([str(BIN / "elt"), *arguments], self.environment)

    def discover(self, name: str) -> None:
        """Write the catalog of a connection, as `elt discover` does, in this process; for the faker, whose
        catalog depends on its config alone, once for each config."""
        folder = self.root / "defs" / name
        source = yaml.safe_load((folder / "defs.yaml").read_text())["attributes"]["source"]
        key = json.dumps(source, sort_keys=True)
        if key in _FAKER_CATALOGS:
            (folder / "catalog.json").write_text(_FAKER_CATALOGS[key])
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DAGSTER_HOME", str(self.home))
            patch.setenv("ELT_DEFS", str(self.root / "defs"))
            assert main(["discover", name]) == 0
        if source.get("connector") == "faker":
            _FAKER_CATALOGS[key] = (folder / "catalog.json").read_text()

    def materialize_command(self, select: str) -> list[str]:
        command = [str(BIN / "dagster"), "asset", "materialize", "-m", "elt_assets.definitions"]
        return [*command, "--select", select]

    def materialize(
        self, select: str, *, without: tuple[str, ...] = (), **environment: str
    ) -> subprocess.CompletedProcess[str]:
        variables = {**self.environment, **environment}
        kept = {k: v for k, v in variables.items() if k not in without}
        return self._run(self.materialize_command(select), kept)

    def start(self, select: str) -> subprocess.Popen[bytes]:
        """Materialise in the background, in a process group of its own, for `kill` to end."""
        return subprocess.Popen(
            self.materialize_command(select),
            env=self.environment,
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @staticmethod
    def kill(run: subprocess.Popen[bytes]) -> None:
        """Kill the processes as kill −9 on the run's terminal would."""
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()

    def sync(self, select: str) -> str:
        """Materialise, which must succeed; returns what was logged."""
        done = self.materialize(select)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        return output

    def run_job(self, name: str) -> str:
        """Execute a job, which must succeed; returns what was logged."""
        command = [
            str(BIN / "dagster"),
            "job",
            "execute",
            "-m",
            "elt_assets.definitions",
            "-j",
            name,
        ]
        done = self._run(command, self.environment)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        return output

    def table(self, *path: str) -> DeltaTable:
        return DeltaTable(str(self.home.joinpath("lake", *path)))

    def rows(self, *path: str) -> list[dict[str, Any]]:
        """A table's rows by an independent reader, in a canonical order, without our own columns."""
        found = self.table(*path).to_pyarrow_table().to_pylist()
        plain = [{k: v for k, v in r.items() if not k.startswith("_airbyte")} for r in found]
        return sorted(plain, key=lambda row: json.dumps(row, default=str, sort_keys=True))

    def read_documents(self, *path: str) -> dict[str, bytes]:
        """The contents of the documents that a table's rows name, by their paths in the source."""
        table = self.home.joinpath("lake", *path)
        contents = {}
        for row in self.rows(*path):
            reference = row["file_reference"]
            content = (table / reference["path"]).read_bytes()
            assert len(content) == reference["file_size_bytes"] == row["bytes"]
            contents[reference["source_file_relative_path"]] = content
        return contents

    def comparable_rows(self, *path: str) -> list[dict[str, Any]]:
        """A table's rows in a canonical order, without what differs between two syncs of the same data."""
        times = ("_airbyte_extracted_at", "extracted_at", "rejected_at")
        own = ("_airbyte_raw_id", "run_id", "row_id", "place", *times)
        stored = self.table(*path).to_pyarrow_table().to_pylist()
        for row in stored:
            if "_airbyte_meta" in row:
                row["_airbyte_meta"] = row["_airbyte_meta"]["changes"]
            for column in own:
                row.pop(column, None)
        return sorted(stored, key=lambda row: json.dumps(row, default=str, sort_keys=True))

    def metadata(self, *key: str) -> dict[str, Any]:
        """Return the metadata of the asset's latest materialisation."""
        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            event = instance.get_latest_materialization_event(dg.AssetKey(list(key)))
        assert event is not None and event.asset_materialization is not None
        return {k: v.value for k, v in event.asset_materialization.metadata.items()}

    def committed_state(self, *path: str) -> Any:
        entry = self.table(*path).history(1)[0]
        return json.loads(entry["elt.state"])

    def _run(
        self, command: list[str], environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


def write_plugin(site: Path, module: str, source: str, group: str, entry: str) -> str:
    """Write a package into a folder; return the PYTHONPATH with which it is installed.

    Args:
        module: its name; `source`: its text.
        group: of its entry point; `entry`: the entry point, as "name = module:attribute".
    """
    information = site / f"{module}-1.0.dist-info"
    information.mkdir(parents=True)
    (site / f"{module}.py").write_text(source)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    return str(site)


def find_program(name: str) -> str:
    """Return the path of a program that a test needs, or of its folder; it is installed where that can be
    done unattended (`scripts/ensure-….sh`)."""
    script = REPOSITORY / "scripts" / f"ensure-{name}.sh"
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def environment_with(folder: Path, *requirements: str, alone: str | None = None) -> Path:
    """Install packages from PyPI into an environment of their own, once, and return its Python.

    `alone`: a package that is installed without what it requires.
    """
    environment = folder / "+".join(requirements)
    found = environment / "bin" / "python"
    if not (environment / ".installed").exists():
        venv.create(environment)
        pip = [sys.executable, "-m", "pip", "--python", str(found), "--disable-pip-version-check"]
        subprocess.run([*pip, "install", *requirements], check=True, capture_output=True)
        if alone is not None:
            command = [*pip, "install", "--no-deps", alone]
            subprocess.run(command, check=True, capture_output=True)
        (environment / ".installed").touch()
    return found
