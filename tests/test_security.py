"""The examples in docs/security.md work as they stand there."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from dagster_webserver.cli import dagster_webserver

from examples import carrier_api as api
from tests.connection.test_connection import declare, load
from tests.support.documents import code_blocks
from tests.support.project import REPOSITORY

DOCUMENT = (REPOSITORY / "docs" / "security.md").read_text()


@pytest.mark.parametrize("example", code_blocks(DOCUMENT, "yaml"))
def test_each_documented_source_can_be_loaded(example: str, tmp_path: Path) -> None:
    load(tmp_path, declare(**yaml.safe_load(example)))


def test_the_documented_commands_share_a_lake(tmp_path: Path) -> None:
    (commands,) = code_blocks(DOCUMENT, "sh")
    lake = tmp_path / "made" / "lake"
    subprocess.run(["sh", "-ec", commands], env={**os.environ, "ELT_LAKE": str(lake)}, check=True)
    assert stat.S_IMODE(lake.stat().st_mode) == 0o750


def test_each_documented_variable_is_used() -> None:
    section = DOCUMENT.split("## Variables")[1]
    named = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    sources = [path.read_text() for path in (REPOSITORY / "elt_assets").rglob("*.py")]
    assert len(named) == 3
    assert all(any(f'"{name}"' in source for source in sources) for name in named)


def test_loading_definitions_starts_no_program_and_opens_no_connection() -> None:
    """An audit hook sees each program that Python starts, and each connection that it opens."""
    done = subprocess.run(
        [sys.executable, "-c", AUDIT], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "loaded\n"), done.stderr


AUDIT = """
import os, sys

def forbid(event, arguments):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect"):
        raise SystemExit(f"{event} {arguments}")

import elt_assets.orchestration.component  # some library asks `file` about the interpreter
sys.addaudithook(forbid)
from elt_assets.definitions import defs
defs.resolve_asset_graph()
from elt_assets.cli.entry import main
sys.stdout = open(os.devnull, "w")
assert main(["validate"]) == 0
print("loaded", file=sys.__stdout__)
"""


def test_dagsters_telemetry_is_off_and_its_ui_listens_on_this_machine_only() -> None:
    settings = yaml.safe_load((REPOSITORY / "dagster_home" / "dagster.yaml").read_text())
    assert settings["telemetry"] == {"enabled": False}
    (host,) = (option.default for option in dagster_webserver.params if option.name == "host")
    assert host == "127.0.0.1"
    makefile = (REPOSITORY / "Makefile").read_text()
    (ui,) = re.findall(r"dagster dev (.*)", makefile)
    assert ui == "-w workspace.yaml $(ARGS)"  # no host of its own
    assert makefile.count("mkdir") == makefile.count('mkdir -p -m 700 "$(DAGSTER_HOME)"') == 2


def test_the_api_of_the_demo_listens_on_this_machine_only() -> None:
    with api.serve("the key") as url:
        assert url.startswith("http://127.0.0.1:")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{url}/depots")
        with refused.value as answer:  # an error of urllib holds the connection until it is closed
            assert answer.code == 401


def test_no_port_of_the_code_server_is_published() -> None:
    """It runs what it is told, and has no login."""
    template = REPOSITORY / "elt_assets/cli/project_template/deployment/compose.yaml.template"
    services = yaml.safe_load(template.read_text().replace("$$", "$"))["services"]
    assert "4000" in services["code"]["command"]
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"webserver": ["127.0.0.1:3000:3000"]}
    assert not any("network_mode" in service for service in services.values())


@pytest.mark.parametrize(
    ("threat", "test"),
    [
        ("reads the rows of its own table", "connection/test_read_only_query.py"),
        ("check each part, or pass it as a literal", "connectors/postgres/test_hostile_states.py"),
        ("`elt import meltano` starts a tap", "cli/test_import.py"),
        ("other links are an error", "connectors/files/test_links.py"),
        ("a file that needs more is an error", "connectors/files/test_bombs.py"),
        ("without TLS (`mysql`)", "connectors/test_hostile_databases.py"),
        ("and the config does not", "connectors/declarative/test_private_hosts.py"),
    ],
)
def test_each_threat_has_tests(threat: str, test: str) -> None:
    assert threat in DOCUMENT
    assert "def test_" in (REPOSITORY / "tests" / test).read_text()
