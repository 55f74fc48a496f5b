"""The README's commands run as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from elt_assets import branches, paths, settings
from tests.support.documents import code_blocks, run_command, shell_environment
from tests.support.project import REPOSITORY, Project

README = (REPOSITORY / "README.md").read_text()


def _commands() -> list[str]:
    lines = [line for block in code_blocks(README, "sh") for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def test_the_documented_first_connection_works(project: Project) -> None:
    (document,) = code_blocks(README, "yaml")
    folder = project.root / "defs" / yaml.safe_load(document)["attributes"]["name"]
    folder.mkdir(parents=True)
    (folder / "defs.yaml").write_text(document)
    (downstream,) = code_blocks(README, "python")
    (project.root / "defs" / "ages.py").write_text(downstream)
    environment = shell_environment(project)
    commands = [c for c in _commands() if not c.startswith(("make", "export"))]
    assert len(commands) == 6
    shown = []
    for command in commands:
        done = run_command(command, environment)
        shown.append(done.stdout)
    assert shown[-2].strip() == "2000"
    assert sum(row["count"] for row in project.rows("ages")) == 2000


@pytest.mark.process
def test_the_documented_command_finds_java() -> None:
    (found,) = {name for command in _commands() for name in re.findall(r"\$\((\S+)\)", command)}
    done = subprocess.run(
        ["sh", "-c", found], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert (Path(done.stdout.strip()) / "bin" / "java").exists()


@pytest.mark.process
@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make (\w+)", README))))
def test_each_documented_make_target_exists(target: str) -> None:
    done = subprocess.run(
        ["make", "-n", target], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_each_documented_variable_is_read() -> None:
    read = re.findall(r'environ\.get\("(\w+)"\)', Path(paths.__file__).read_text())
    rows = re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|", README, flags=re.MULTILINE)
    documented = re.findall(r"`(\w+)`", " ".join(rows))
    of_settings = [f"ELT_{name.upper()}" for name in settings.Settings.model_fields]
    others = (settings.PROJECT, branches.ENVIRONMENT, paths.SALT_VARIABLE)
    assert set(documented) == {*read, *of_settings, *others}


def test_the_second_demo_reads_only_new_data(project: Project) -> None:
    """`make demo`, twice."""
    assert shutil.which("make")
    command = ["make", "demo", f"DAGSTER_HOME={project.home}"]
    environment = {k: v for k, v in project.environment.items() if k != "ELT_DEFS"}
    shown = []
    for _ in range(2):
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        shown.append(done.stdout)
    assert "make ui" in shown[1]
    assert "last sync" in shown[1] and shown[1].count("complete") == 6
    tables = dict.fromkeys(("users", "products", "orders"), "shop")
    tables |= dict.fromkeys(("parcels", "scans"), "carrier")
    rows = {name: project.rows(group, name) for name, group in tables.items()}
    metadata = {name: project.metadata(group, name) for name, group in tables.items()}
    for name, found in rows.items():
        assert metadata[name]["elt/state"] == project.committed_state(tables[name], name)
        assert metadata[name]["dagster/row_count"] == len(found)
    assert 0 < metadata["users"]["elt/records_read"] < 1000
    assert 0 < metadata["orders"]["elt/records_read"] < 2000
    assert len({row["id"] for row in rows["users"]}) == len(rows["users"]) > 1000
    assert len(rows["orders"]) == 2000 + metadata["orders"]["elt/records_read"]
    assert len(rows["products"]) == metadata["products"]["elt/records_read"]
    for name in ("parcels", "scans"):
        assert metadata[name]["elt/records_read"] < 100 < 1000 < len(rows[name])
    assert len(project.rows("carrier", "depots")) == 5
