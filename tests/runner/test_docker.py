"""Connectors in images, run by a stand-in for docker: it takes that command line, and runs them here."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream
from elt_assets.runner.connector import Connector
from elt_assets.runner.sources import open_connector

CLIENT = """
import json, os, subprocess, sys, time
log = {log!r}
with open(log, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "rm":
    sys.exit()
at = sys.argv.index("test/source:1")
options, command = sys.argv[2:at], sys.argv[at + 1:]
if command[0] == "discover" and {hangs}:
    time.sleep(600)
sys.exit(subprocess.call([sys.executable, "-m", "connectors.faker", *command]))
"""


def opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, hangs: bool = False, **how: Any
) -> Connector:
    client = folder / "client.py"
    client.write_text(CLIENT.format(log=str(folder / "log"), hangs=hangs))
    monkeypatch.setenv("ELT_DOCKER", f"{sys.executable} {client}")
    return open_connector(
        "image", "test/source:1", {"count": 3}, folder / "work", folder / "packages", **how
    )


def calls(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def test_an_image_is_run_with_its_private_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = opened(tmp_path, monkeypatch)
    catalog = connector.discover()
    users = ConfiguredStream(stream=catalog.streams[0])
    messages = list(connector.read(ConfiguredCatalog(streams=[users])))
    assert len([one for one in messages if type(one).__name__ == "RawRecord"]) == 3
    specified, discovered, read = calls(tmp_path)
    assert "--volume" not in specified
    for call in (discovered, read):
        assert call[:4] == ["run", "--rm", "--interactive", "--init"]
        volume = call[call.index("--volume") + 1]
        host, inside, mode = volume.split(":")
        assert (host, mode) == (inside, "ro")
        assert call[call.index("--config") + 1].startswith(f"{host}/")
        assert call[call.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
        assert not Path(host).exists()
    assert len({call[call.index("--name") + 1] for call in calls(tmp_path)}) == 3


def test_a_container_that_is_ended_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = opened(tmp_path, monkeypatch, hangs=True, heartbeat=1)
    with pytest.raises(TransientError, match="said nothing for 1 seconds"):
        connector.discover()
    *_, started, removed = calls(tmp_path)
    assert removed == ["rm", "--force", started[started.index("--name") + 1]]


def test_a_container_does_not_outlive_a_run_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path, monkeypatch, hangs=True)
    code = (
        "import pathlib; from elt_assets.runner.sources import open_connector; p = pathlib.Path;"
        f"open_connector('image', 'test/source:1', {{}}, p({str(tmp_path)!r}), p('.')).discover()"
    )
    run = psutil.Popen([sys.executable, "-c", code])
    log = tmp_path / "log"
    _wait(lambda: log.exists() and any("discover" in call for call in calls(tmp_path)))
    run.kill()
    run.wait()
    _wait(lambda: calls(tmp_path)[-1][0] == "rm")


def test_no_client_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELT_DOCKER", "/no/such/docker")
    connector = open_connector("image", "x/y:1", {}, tmp_path, tmp_path)
    with pytest.raises(ConfigError, match=r"'/no/such/docker' was not found"):
        connector.discover()


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
