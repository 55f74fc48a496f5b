"""A third-party Singer tap from PyPI, unmodified, over a real PostgreSQL."""

from __future__ import annotations

import datetime as dt
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.project import REPOSITORY, Project

pytestmark = pytest.mark.external

TAP = "meltanolabs-tap-postgres==0.10.0"
TABLES = """
CREATE TABLE people (
    id bigint PRIMARY KEY, name text, height double precision, price numeric(12, 4), size smallint,
    active boolean, born date, seen timestamptz, noted timestamp, wakes time, doc jsonb, tags text[],
    secret text, updated_at timestamptz NOT NULL);
INSERT INTO people VALUES
    (1, 'Ada \u2028 ü', 1.5, 12.3456, 3, true, '1815-12-10', '2026-01-01 03:04:05.123456+02',
     '2026-01-01 03:04:05', '10:11:12', '{"a": [1, {"b": null}]}', '{x,y}', 'S3CRET', '2026-01-01Z'),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-02Z');
CREATE TABLE colours (code text PRIMARY KEY, title text);
INSERT INTO colours VALUES ('r', 'red'), ('g', 'green');
"""
CHANGES = """
UPDATE people SET name = 'Grace', updated_at = '2026-01-03Z' WHERE id = 2;
INSERT INTO people (id, name, updated_at) VALUES (3, 'Edsger', '2026-01-04Z');
DELETE FROM colours WHERE code = 'r';
INSERT INTO colours VALUES ('b', 'blue');
"""


@dataclass(frozen=True)
class Postgres:
    """A server of the test's own; its log is in its folder."""

    programs: Path
    folder: Path
    port: int

    def execute(self, sql: str) -> None:
        command = [*self._client("psql"), "-q", "-v", "ON_ERROR_STOP=1", "postgres"]
        done = subprocess.run(command, input=sql, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def is_up(self) -> bool:
        done = subprocess.run(self._client("pg_isready"), capture_output=True, check=False)
        return done.returncode == 0

    def _client(self, program: str) -> list[str]:
        return [str(self.programs / program), "-h", "127.0.0.1", "-p", str(self.port), "-U", "elt"]


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    programs = _programs()
    # It refuses to run as root, and a test's own folder is closed to anybody else.
    folder = Path(tempfile.mkdtemp(prefix="elt-pg-"))
    how: dict[str, Any] = {"cwd": folder}
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        how |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    data = str(folder / "data")
    initialization = [
        str(programs / "initdb"),
        "-D",
        data,
        "-U",
        "elt",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    subprocess.run(initialization, check=True, capture_output=True, **how)
    port = _free_port()
    settings = [
        "listen_addresses=127.0.0.1",
        f"port={port}",
        "unix_socket_directories=",
        "fsync=off",
    ]
    command = [str(programs / "postgres"), "-D", data, *(f"--{setting}" for setting in settings)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, **how)
    database = Postgres(programs, folder, port)
    try:
        deadline = time.monotonic() + 60
        while not database.is_up():
            assert server.poll() is None and time.monotonic() < deadline, (
                folder / "log"
            ).read_text()
            time.sleep(0.1)
        yield database
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _programs() -> Path:
    script = REPOSITORY / "scripts" / "ensure-postgres.sh"
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip().splitlines()[-1])


@pytest.mark.spec("singer.10")
def test_tables_and_their_changes_are_synced(postgres: Postgres, project: Project) -> None:
    postgres.execute(TABLES)
    server = {"host": "127.0.0.1", "port": postgres.port, "database": "postgres", "user": "elt"}
    people = {
        "name": "public-people",
        "sync_mode": "incremental",
        "cursor_field": ["updated_at"],
        "destination_sync_mode": "append_dedup",
        "fields": {"exclude": ["secret"]},
    }
    project.connection(
        "crm",
        source={
            "tap": TAP,
            "config": {**server, "password": "hunter22", "filter_schemas": ["public"]},
        },
        streams=[people, {"name": "public-colours", "destination_sync_mode": "overwrite"}],
    )
    project.discover("crm")
    project.sync("group:crm")

    first, second = sorted(project.rows("crm", "public_people"), key=lambda row: int(row["id"]))
    assert "secret" not in first
    assert first == {
        "id": 1,
        "name": "Ada \u2028 ü",
        "height": 1.5,
        "price": 12.3456,
        "size": 3,
        "active": True,
        "born": dt.date(1815, 12, 10),
        "seen": dt.datetime(2026, 1, 1, 1, 4, 5, 123456, dt.timezone.utc),
        "noted": dt.datetime(2026, 1, 1, 3, 4, 5, tzinfo=dt.timezone.utc),
        "wakes": "10:11:12",
        "doc": '{"a":[1,{"b":null}]}',
        "tags": ["x", "y"],
        "updated_at": dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
    }
    assert set(second.values()) == {2, None, dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)}
    assert [row["code"] for row in project.rows("crm", "public_colours")] == ["g", "r"]

    postgres.execute(CHANGES)
    project.sync("group:crm")

    names = {row["id"]: row["name"] for row in project.rows("crm", "public_people")}
    assert names == {1: "Ada \u2028 ü", 2: "Grace", 3: "Edsger"}
    assert [row["code"] for row in project.rows("crm", "public_colours")] == ["b", "g"]
    metadata = project.metadata("crm", "public-people")
    # The bookmark is inclusive: the row that it came from is sent again, unless it changed.
    assert metadata["elt/records_read"] == metadata["elt/records_committed"] == 2
    assert metadata["elt/records_rejected"] == metadata["elt/records_changed"] == 0
    assert metadata["elt/state"] == project.committed_state("crm", "public_people")
    bookmark = metadata["elt/state"]["stream"]["stream_state"]
    assert bookmark["replication_key"] == "updated_at"
    assert bookmark["replication_key_value"].startswith("2026-01-04T00:00:00")
    assert not any(b"S3CRET" in p.read_bytes() for p in project.home.rglob("*.parquet"))
