"""A PostgreSQL server for a test, on the loopback interface and in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemons import free_ports, wait
from tests.project import REPOSITORY


@dataclass(frozen=True)
class Postgres:
    """A running server; its log is in its folder. The user `elt` needs no password."""

    programs: Path
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://elt@127.0.0.1:{self.port}/postgres"

    def execute(self, sql: str, database: str = "postgres") -> str:
        """Run SQL; return what it prints, without headings."""
        command = [*self._client("psql"), "-qAt", "-v", "ON_ERROR_STOP=1", database]
        done = subprocess.run(command, input=sql, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_up(self) -> bool:
        done = subprocess.run(self._client("pg_isready"), capture_output=True, check=False)
        return done.returncode == 0

    def _client(self, program: str) -> list[str]:
        return [str(self.programs / program), "-h", "127.0.0.1", "-p", str(self.port), "-U", "elt"]


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with run_postgres() as server:
        yield server


@contextmanager
def run_postgres(*more_settings: str) -> Iterator[Postgres]:
    """Run a server while the context is open. `more_settings`: as `name=value`."""
    programs = _find_programs()
    # It refuses to run as root, and a test's own folder is closed to anybody else.
    folder = Path(tempfile.mkdtemp(prefix="elt-pg-"))
    options: dict[str, Any] = {"cwd": folder}
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    data = str(folder / "data")
    initialization = [str(programs / "initdb"), "-D", data, "-U", "elt", "-A", "trust"]
    initialization += ["-E", "UTF8", "--no-sync"]
    subprocess.run(initialization, check=True, capture_output=True, **options)
    (port,) = free_ports(1)
    settings = ["listen_addresses=127.0.0.1", f"port={port}", "unix_socket_directories="]
    command = [str(programs / "postgres"), "-D", data]
    command += [f"--{setting}" for setting in [*settings, "fsync=off", *more_settings]]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, **options)
    database = Postgres(programs, folder, port)
    try:
        wait(database.is_up, f"PostgreSQL, see {folder / 'log'}")
        yield database
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(folder)


def _find_programs() -> Path:
    script = REPOSITORY / "scripts" / "ensure-postgres.sh"
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip().splitlines()[-1])
