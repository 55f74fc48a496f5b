"""A PostgreSQL server for a test, on the loopback interface and in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemons import free_ports, wait
from tests.support.project import find_program


@dataclass
class Postgres:
    """A server; its log is in its folder. The user `elt` needs no password."""

    programs: Path
    folder: Path
    port: int
    settings: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = ["listen_addresses=127.0.0.1", f"port={self.port}", "unix_socket_directories="]
        settings += ["fsync=off", *self.settings]
        command = [str(self.programs / "postgres"), "-D", str(self.data)]
        command += [f"--{setting}" for setting in settings]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, **find_owner(self.folder)
            )
        wait(self.is_up, f"PostgreSQL, see {self.folder / 'log'}")

    def stop(self, how: int = signal.SIGINT) -> None:
        """Stop the server: at once (SIGINT), or as by a crash (SIGQUIT)."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

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
def run_postgres(*settings: str) -> Iterator[Postgres]:
    """Run a server while the context is open. `settings`: as `name=value`."""
    with _make_server(settings) as server:
        command = [str(server.programs / "initdb"), "-D", str(server.data), "-U", "elt"]
        command += ["-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, **find_owner(server.folder))
        server.start()
        yield server


@contextmanager
def run_standby(primary: Postgres) -> Iterator[Postgres]:
    """Run a server that replays the log of another one."""
    with _make_server(primary.settings) as server:
        command = [str(server.programs / "pg_basebackup"), "-h", "127.0.0.1", "-U", "elt", "-R"]
        command += ["-p", str(primary.port), "-D", str(server.data), "-c", "fast", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, **find_owner(server.folder))
        server.start()
        yield server


@contextmanager
def copy_standby(primary: Postgres, *settings: str) -> Iterator[Postgres]:
    """Run a standby from a copy of the files of a primary, which stops for a moment: the program for a backup
    is that of this machine, and knows no later server.

    Args:
        settings: those of the standby beside those of the primary, as `name=value`.
    """
    address = f"host=127.0.0.1 port={primary.port} user=elt dbname=postgres"
    own = (*primary.settings, *settings, f"primary_conninfo={address}")
    with _make_server(own) as server:
        owner = find_owner(server.folder)
        primary.stop()
        for command in (
            ["cp", "-a", str(primary.data), str(server.data)],
            ["touch", str(server.data / "standby.signal")],
        ):
            subprocess.run(command, check=True, **owner)
        primary.start()
        server.start()
        yield server


@contextmanager
def _make_server(settings: tuple[str, ...]) -> Iterator[Postgres]:
    # It refuses to run as root, and a test's own folder is closed to anybody else.
    folder = Path(tempfile.mkdtemp(prefix="elt-pg-"))
    (port,) = free_ports(1)
    server = Postgres(Path(find_program("postgres")), folder, port, settings)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def find_owner(folder: Path) -> dict[str, Any]:
    """Return how a process is started in a folder, as a user who is not root and owns it."""
    options: dict[str, Any] = {"cwd": folder}
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return options
