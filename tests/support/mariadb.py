"""A MariaDB server for a test, on the loopback interface and in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.daemons import free_ports, wait
from tests.support.project import find_program

_SETTINGS = (
    "bind-address=127.0.0.1",
    "character-set-server=utf8mb4",
    "innodb-flush-log-at-trx-commit=0",
    "innodb-buffer-pool-size=64M",
    "max-allowed-packet=64M",
    "sql-mode=NO_ENGINE_SUBSTITUTION",
)
PASSWORD = "p'\"ä\\ß"


@dataclass
class MariaDb:
    """A running server; its log is in its folder. The user `elt` reads the database `shop`."""

    programs: Path
    folder: Path
    port: int
    settings: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = [f"datadir={self.folder / 'data'}", f"socket={self.socket}", f"port={self.port}"]
        options += [f"pid-file={self.folder / 'pid'}", f"tmpdir={self.folder}", *_SETTINGS]
        command = [str(self.programs / "mariadbd"), "--no-defaults"]
        command += [f"--{option}" for option in (*options, *self.settings)]
        options_of_process = _owner(self.folder)

        def is_up() -> bool:
            # A client of another process may have the port for a moment.
            if self.process is None or self.process.poll() is not None:
                with (self.folder / "log").open("ab") as log:
                    self.process = subprocess.Popen(
                        command, stdout=log, stderr=log, **options_of_process
                    )
            return self._run("SELECT 1", "mysql").returncode == 0

        wait(is_up, f"MariaDB, see {self.folder / 'log'}")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    @property
    def socket(self) -> Path:
        return self.folder / "sock"

    def config(self, **values: Any) -> dict[str, Any]:
        """The config of a source that reads the database `shop`."""
        address = {"host": "127.0.0.1", "port": self.port, "user": "elt", "password": PASSWORD}
        return {**address, "databases": ["shop"], **values}

    def execute(self, sql: str, database: str = "shop") -> None:
        done = self._run(sql, database)
        assert done.returncode == 0, done.stderr

    def texts(self, sql: str) -> list[list[str]]:
        """The rows of a query as the server writes them, in UTC; null is the text NULL."""
        done = self._run(
            f"SET time_zone = '+00:00';\n{sql}", "shop", "--batch", "--skip-column-names"
        )
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.split("\n")[:-1]]

    def _run(self, sql: str, database: str, *options: str) -> subprocess.CompletedProcess[str]:
        client = shutil.which("mariadb") or shutil.which("mysql") or "mariadb"
        command = [client, "--no-defaults", f"--socket={self.socket}", "--user=root", *options]
        command += ["--default-character-set=utf8mb4", "--binary-mode", database]
        return subprocess.run(command, input=sql, capture_output=True, text=True, check=False)


@contextmanager
def run_mariadb(*settings: str) -> Iterator[MariaDb]:
    """Run a server with an empty database `shop`, and a user who reads it."""
    programs = Path(find_program("mariadb"))
    # A test's own folder is closed to the user of the server, who is not root.
    folder = Path(tempfile.mkdtemp(prefix="elt-my-"))
    options = _owner(folder)
    installer = shutil.which("mariadb-install-db") or "mariadb-install-db"
    command = [installer, "--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={folder}"]
    command += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(command, check=True, capture_output=True, **options)
    (port,) = free_ports(1)
    server = MariaDb(programs, folder, port, settings)
    try:
        server.start()
        server.execute("CREATE DATABASE shop", "mysql")
        quoted = PASSWORD.replace("\\", "\\\\").replace("'", "\\'")
        server.execute(f"CREATE USER elt@'127.0.0.1' IDENTIFIED BY '{quoted}'")
        server.execute("GRANT SELECT, SHOW VIEW ON shop.* TO elt@'127.0.0.1'")
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _owner(folder: Path) -> dict[str, Any]:
    """How a process is started: in a folder, and as a user who is not root."""
    options: dict[str, Any] = {"cwd": folder}
    if os.getuid() == 0:
        user = pwd.getpwnam("mysql")
        os.chown(folder, user.pw_uid, user.pw_gid)
        options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return options
