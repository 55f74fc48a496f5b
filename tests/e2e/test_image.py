"""The commands of the Dockerfile of a project, in an environment that has nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elt_assets.cli import main
from tests.cli.test_deployment_files import instructions
from tests.e2e.daemons import free_ports, wait
from tests.e2e.test_tutorial import environment, wheel

__all__ = ["wheel"]

pytestmark = [pytest.mark.external, pytest.mark.long]

OF_THE_SYSTEM = ("apt-get", "useradd")
"""Programs of commands that change the machine, and are not run here."""


def test_the_image_can_be_built_and_started(tmp_path: Path, wheel: Path) -> None:
    """Only the commands that install packages of the system and create its user are left out."""
    project, app = tmp_path / "shop", tmp_path / "app"
    assert main(["init", str(project), "--deployment"]) == 0
    shutil.copy(wheel, project / "deploy")
    image = instructions(project / "deploy")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    variables = environment(tmp_path, wheel)
    variables.pop("PIP_FIND_LINKS")
    home = tmp_path / "home"
    home.mkdir()
    variables |= {
        "PATH": f"{tmp_path / 'venv' / 'bin'}:{variables['PATH']}",
        "DAGSTER_HOME": str(home),
        "ELT_PROJECT": str(app),
        "ELT_STAGING": str(tmp_path / "staging"),
    }
    shutil.copytree(project, app)
    commands = [text for name, text in image if name == "RUN"]
    run_here = [text for text in commands if not text.startswith(OF_THE_SYSTEM)]
    assert len(run_here) == 3
    for text in run_here:
        command = text.replace("/build", str(project / "deploy"))
        done = subprocess.run(
            command, shell=True, cwd=app, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert list((tmp_path / "venv" / "share" / "elt-assets").glob("spark-*.jsa"))

    (port,) = free_ports(1)
    texts = {name: re.sub("4000", str(port), text) for name, text in image}
    server = json.loads(texts["CMD"].replace("0.0.0.0", "127.0.0.1"))
    health = json.loads(texts["HEALTHCHECK"].partition(" CMD ")[2])
    bin_ = tmp_path / "venv" / "bin"
    options: dict[str, Any] = {"cwd": app, "env": variables}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [bin_ / server[0], *server[1:]], stdout=log, stderr=log, **options
        )
    try:
        probe = [bin_ / health[0], *health[1:]]
        wait(
            lambda: (
                subprocess.run(probe, capture_output=True, check=False, **options).returncode == 0
            ),
            f"the health of the code server, see {tmp_path / 'log'}",
            seconds=120,
        )
        synced = subprocess.run(
            [bin_ / "elt", "sync", "example", "users"],
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
        assert synced.returncode == 0, synced.stdout + synced.stderr
    finally:
        process.terminate()
    assert process.wait(timeout=60) is not None
