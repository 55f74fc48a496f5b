"""Connectors in images, run by a stand-in for docker: it takes that command line, and runs them here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream
from elt_assets.runner.connector import Connector
from elt_assets.runner.container import ContainerOptions, Image
from elt_assets.runner.kinds import open_connector
from tests.support.connector_specs import spec_of

CLIENT = """
import json, os, subprocess, sys, time
log = {log!r}
with open(log, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "rm":
    sys.exit({left!r})
at = sys.argv.index("test/source:1")
options, command = sys.argv[2:at], sys.argv[at + 1:]
if command[0] == "discover" and {hangs}:
    time.sleep(600)
sys.exit(subprocess.call([sys.executable, "-m", "connectors.faker", *command]))
"""


def opened(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    hangs: bool = False,
    left: str | None = None,
    **how: Any,
) -> Connector:
    client = folder / "client.py"
    client.write_text(CLIENT.format(log=str(folder / "log"), hangs=hangs, left=left))
    monkeypatch.setenv("ELT_DOCKER", f"{sys.executable} {client}")
    return open_connector(spec_of("image", "test/source:1", folder, config={"count": 3}, **how))


def calls(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


@pytest.mark.spec("airbyte.1", "airbyte.3", "airbyte.4", "airbyte.7")
def test_an_image_is_run_with_only_its_private_files(
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
        assert call.count("--volume") == 1
        volume = call[call.index("--volume") + 1]
        host, inside, mode = volume.split(":")
        assert (host, mode) == (inside, "ro")
        assert call[call.index("--config") + 1].startswith(f"{host}/")
        assert call[call.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
        assert not Path(host).exists()
    assert len({call[call.index("--name") + 1] for call in calls(tmp_path)}) == 3


def test_a_stopped_container_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connector = opened(tmp_path, monkeypatch, hangs=True, heartbeat=1)
    with pytest.raises(TransientError, match="sent no output for 1 seconds"):
        connector.discover()
    *_, started, removed = calls(tmp_path)
    assert removed == ["rm", "--force", started[started.index("--name") + 1]]


@pytest.mark.parametrize(
    ("left", "reported"),
    [("the daemon is busy", "failed: the daemon is busy"), ("Error: No such container: x", None)],
)
def test_a_container_that_cannot_be_removed_is_reported(
    left: str, reported: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    connector = opened(
        tmp_path,
        monkeypatch,
        hangs=True,
        left=left,
        heartbeat=1,
        on_log=lambda _, text: logged.append(text),
    )
    with pytest.raises(TransientError, match="sent no output for 1 seconds"):
        connector.discover()
    lines = [line for line in logged if "may still run" in line]
    name = calls(tmp_path)[-1][-1]
    assert len(lines) == (reported is not None)
    assert all(f"rm --force {name}` {reported}; run it again" in line for line in lines)


def test_the_container_of_a_killed_run_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path, monkeypatch, hangs=True)
    code = (
        "import pathlib; from elt_assets.runner.kinds import open_connector; "
        "from tests.support.connector_specs import spec_of; "
        f"folder = pathlib.Path({str(tmp_path)!r}); "
        "open_connector(spec_of('image', 'test/source:1', folder)).discover()"
    )
    run = psutil.Popen([sys.executable, "-c", code])
    log = tmp_path / "log"
    _wait(lambda: log.exists() and any("discover" in call for call in calls(tmp_path)))
    run.kill()
    run.wait()
    _wait(lambda: calls(tmp_path)[-1][0] == "rm")


DIGEST = f"sha256:{'0a' * 32}"
DEFAULTS = [
    "--cap-drop=ALL",
    "--memory=4g",
    "--pids-limit=1024",
    "--security-opt=no-new-privileges",
]


def test_a_container_has_no_capabilities_and_has_limits_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path, monkeypatch).check()
    for call in calls(tmp_path):
        assert [word for word in call if "=" in word and word != "HOME=/tmp"] == DEFAULTS


def test_every_option_of_a_container_can_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ContainerOptions(
        network="none",
        volumes=["/data:/data:ro"],
        memory=None,
        cpus=1.5,
        pids=None,
        pull="always",
        platform="linux/amd64",
        capabilities=["NET_RAW"],
        new_privileges=True,
    )
    opened(tmp_path, monkeypatch, container=options).check()
    for call in calls(tmp_path):
        assert [word for word in call if "=" in word and word != "HOME=/tmp"] == [
            "--cap-drop=ALL",
            "--cap-add=NET_RAW",
            "--network=none",
            "--cpus=1.5",
            "--pull=always",
            "--platform=linux/amd64",
        ]
        assert "/data:/data:ro" in call[call.index("--volume") :]
        assert call.index("/data:/data:ro") < call.index("test/source:1")


@pytest.mark.skipif(shutil.which("docker") is None, reason="no client of docker is installed")
def test_the_client_of_docker_has_all_used_options(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ContainerOptions("none", ["/a:/a"], "1g", 1, 9, "never", "linux/amd64", ["CHOWN"])
    run = Image("x:1", options).container(Path("/tmp"), ["A"]).command
    used = {word.partition("=")[0] for word in run if word.startswith("--")}
    shown = subprocess.check_output(["docker", "run", "--help"], text=True)
    assert used <= set(re.findall(r"--[a-z-]+", shown))


@pytest.mark.parametrize(
    "reference",
    [
        "--volume=/:/host",
        "-it",
        "",
        "x y",
        "x:1\n",
        "x/Upper:1",
        "x:",
        "x:-1",
        "x//y",
        "x@sha256:abc",
        f"@{DIGEST}",
        "docker://x",
    ],
)
def test_an_invalid_image_reference_is_refused(reference: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not an image reference\n.*name:tag"):
        open_connector(spec_of("image", reference, tmp_path))


@pytest.mark.parametrize(
    ("reference", "moves"),
    [
        ("airbyte/source-faker:6.2.0", False),
        ("localhost:5000/x:1", False),
        ("[::1]:5000/x:1", False),
        (f"ghcr.io/a/b_c/d__e--f@{DIGEST}", False),
        (f"x:latest@{DIGEST}", False),
        ("x", True),
        ("registry.example.com:5000/a/x", True),
        ("a/x:latest", True),
    ],
)
def test_a_mutable_tag_causes_a_warning(reference: str, moves: bool, tmp_path: Path) -> None:
    notices = open_connector(spec_of("image", reference, tmp_path)).notices()
    warnings = [text for level, text in notices if level == "WARN"]
    assert len(warnings) == moves
    assert all(reference in text and "digest" in text for text in warnings)


def test_a_missing_docker_client_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELT_DOCKER", "/no/such/docker")
    connector = open_connector(spec_of("image", "x/y:1", tmp_path))
    with pytest.raises(ConfigError, match=r"'/no/such/docker' was not found"):
        connector.discover()


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
