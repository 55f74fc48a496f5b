"""The three processes of a deployment, as `deploy/compose.yaml` of a project starts them, on loopback.

What a container has of its own is a folder here. Commands, variables and `dagster.yaml` are those of
the files, with other places, hosts and ports.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import yaml

from tests.e2e.daemons import free_ports, wait
from tests.e2e.graphql import ask
from tests.support.postgres import Postgres
from tests.support.project import BIN, REPOSITORY

SERVICES = ("code", "webserver", "daemon")


@dataclass
class Deployment:
    """A project whose code server, webserver and daemon each have a home of their own, as pods have."""

    root: Path
    database: Postgres
    lake: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.compose = yaml.safe_load((self.root / "deploy" / "compose.yaml").read_text())
        self.name = str(self.compose["name"])
        self.code_port, self.web_port = free_ports(2)

    def home(self, service: str) -> Path:
        return self.root / "pods" / service / "home"

    def environment(self, service: str) -> dict[str, str]:
        """Return the variables of a service, with the places of this machine for those of the container."""
        variables: Mapping[str, str] = self.compose["services"][service]["environment"]
        pod = self.root / "pods" / service
        places = {
            "DAGSTER_HOME": pod / "home",
            "ELT_STAGING": pod / "staging",
            "ELT_LAKE": self.lake,
        }
        login = {"POSTGRES_USER": "elt", "POSTGRES_DB": "postgres", "POSTGRES_PASSWORD": "any"}
        login["POSTGRES_HOST"] = "127.0.0.1"
        values = {**variables, **{k: str(v) for k, v in places.items()}, **login}
        assert set(values) == set(variables), "the compose file has other variables"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ELT_", "DAGSTER_"))}
        own = {
            "ELT_PROJECT": str(self.root),
            "ELT_SPARK_ARCHIVE": "off",
            "PYTHONWARNINGS": "ignore",
        }
        return {**inherited, **values, **own, "PYTHONPATH": str(REPOSITORY)}

    def start(self) -> None:
        """Start all services at once, with new homes, and wait until the code is loaded."""
        for service in SERVICES:
            self._create_home(service)
            with (self.root / f"{service}.log").open("a") as log:
                self.processes[service] = subprocess.Popen(
                    self._command(service),
                    env=self.environment(service),
                    cwd=self.root,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        wait(self._is_loaded, f"the code location, see {self.root}/*.log", seconds=180)

    def lose(self) -> None:
        """Kill everything at once, and remove the homes and the staging, as with the disks of pods."""
        processes = [psutil.Process(process.pid) for process in self.processes.values()]
        for process in [
            child for p in processes for child in p.children(recursive=True)
        ] + processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for started in self.processes.values():
            started.wait()
        self.processes.clear()
        shutil.rmtree(self.root / "pods")

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def ask(self, query: str, **variables: Any) -> Any:
        """Return the value of the only field of a query or a mutation to the webserver."""
        return ask(f"http://127.0.0.1:{self.web_port}", query, **variables)

    @contextlib.contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        """Open the instance as another process would, which has only the database in common."""
        home = self.root / "pods" / "test" / "home"
        home.mkdir(parents=True, exist_ok=True)
        storage = {"postgres": {"postgres_url": self.database.url}}
        (home / "dagster.yaml").write_text(yaml.safe_dump({"storage": storage}))
        with dg.DagsterInstance.from_config(str(home)) as instance:
            yield instance

    def _create_home(self, service: str) -> None:
        home = self.home(service)
        home.mkdir(parents=True)
        document = yaml.safe_load((self.root / "deploy" / "dagster.yaml").read_text())
        document["storage"]["postgres"]["postgres_db"]["port"] = self.database.port
        document["run_coordinator"]["config"]["dequeue_interval_seconds"] = 1
        document["run_monitoring"]["poll_interval_seconds"] = 1
        (home / "dagster.yaml").write_text(yaml.safe_dump(document))
        workspace = yaml.safe_load((self.root / "deploy" / "workspace.yaml").read_text())
        server = workspace["load_from"][0]["grpc_server"]
        server.update(host="127.0.0.1", port=self.code_port)
        (home / "workspace.yaml").write_text(yaml.safe_dump(workspace))

    def _command(self, service: str) -> list[str]:
        words = self.compose["services"][service]["command"]
        places = {
            "4000": str(self.code_port),
            "3000": str(self.web_port),
            "0.0.0.0": "127.0.0.1",
            "/app/deploy/workspace.yaml": str(self.home(service) / "workspace.yaml"),
        }
        return [str(BIN / words[0]), *(places.get(word, word) for word in words[1:])]

    def _is_loaded(self) -> bool:
        (entry,) = self.ask(
            "{ workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError "
            "{ __typename ... on PythonError { message } } } } } }"
        )["locationEntries"]
        return bool(entry["locationOrLoadError"]["__typename"] == "RepositoryLocation")
