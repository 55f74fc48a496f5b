"""The tutorial works as it stands there, in an environment that has the built wheel and what it brings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.e2e.daemons import free_ports, wait
from tests.support import postgres
from tests.support.project import REPOSITORY
from tests.support.tutorial import Shell, chapters, follow

CHAPTERS = chapters((REPOSITORY / "docs" / "tutorial.md").read_text())
DATABASE_CHAPTERS = chapters((REPOSITORY / "docs" / "tutorial-databases.md").read_text())
DBT_CHAPTER = 5
"""The chapter of the tutorial of databases that installs dbt."""
SHORT = (1, 2)
"""Chapters that show that a project works; the others take minutes."""
ASSETS = "{ assetNodes { assetKey { path } } }"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel in a copy of the sources, so that no file appears in the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("elt_assets", "connectors"):
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder / "dist"), str(folder)]
    subprocess.run(command, check=True)
    (path,) = (folder / "dist").glob("elt_assets-*.whl")
    return path


def environment(folder: Path, wheel: Path) -> dict[str, str]:
    """Return the environment of a new shell, in which `pip install elt-assets` installs the wheel."""
    variables = ("ELT_", "DAGSTER_", "PYTHON", "VIRTUAL_ENV")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(variables)}
    python = Path(sysconfig.get_config_var("BINDIR"))
    return inherited | {
        "PATH": f"{python}:{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(REPOSITORY / "constraints.txt"),
        "PIP_FIND_LINKS": f"{wheel.parent} {os.environ.get('PIP_FIND_LINKS', '')}",
        "HOME": str(folder),
        "ELT_SPARK_ARCHIVE": "off",
    }


@pytest.fixture
def shell(tmp_path: Path, wheel: Path) -> Iterator[Shell]:
    folder = tmp_path / "empty"
    folder.mkdir()
    shell = Shell(folder, environment(tmp_path, wheel))
    yield shell
    shell.close()


def _share_packages(folder: Path, wheel: Path) -> None:
    """Make the environment that the tutorial makes, with the packages of the one that runs the tests.

    Only the wheel is installed into it, so it has no programs of other packages.
    """
    subprocess.run([sys.executable, "-m", "venv", folder / ".venv"], check=True)
    purelib = sysconfig.get_path("purelib")
    (site,) = (folder / ".venv" / "lib").glob("python*/site-packages")
    (site / "shared.pth").write_text(f"{purelib}\n")
    pip = [str(folder / ".venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--ignore-installed", str(wheel)], check=True)


def test_a_project_needs_nothing_but_the_wheel(tmp_path: Path, shell: Shell, wheel: Path) -> None:
    _share_packages(shell.folder, wheel)
    for number in SHORT:
        follow(CHAPTERS[number], shell, {})
    assert _count(tmp_path / "empty" / "shop" / "dagster_home" / "lake", "example/users") == 1000
    module = shell.run("python -c 'import elt_assets; print(elt_assets.__file__)'").strip()
    assert Path(module).is_relative_to(tmp_path)


@pytest.fixture
def database_shell(shell: Shell) -> Iterator[Shell]:
    """A shell whose `psql` connects to a new server as its superuser."""
    with postgres.run_postgres("wal_level=logical") as server:
        shell.run(f"export PGHOST=127.0.0.1 PGPORT={server.port} PGUSER=elt")
        shell.run(f"PATH={server.programs}:$PATH")
        yield shell


def test_changes_of_a_database_arrive_as_the_tutorial_says(
    tmp_path: Path, database_shell: Shell, wheel: Path
) -> None:
    _share_packages(database_shell.folder, wheel)
    output = {
        number: follow(text, database_shell, {})
        for number, text in DATABASE_CHAPTERS.items()
        if number != DBT_CHAPTER
    }
    assert "orders: 501" in output[4]
    lake = tmp_path / "empty" / "shop" / "dagster_home" / "lake"
    assert _count(lake, "store/public/orders") == 501
    assert _count(lake, "store/public/customers") == 30


@pytest.mark.long
@pytest.mark.external
def test_the_tutorial_of_databases_works_as_written(database_shell: Shell) -> None:
    """In a fresh environment, with all packages installed from the index."""
    output = {}
    for number, text in DATABASE_CHAPTERS.items():
        if number == DBT_CHAPTER:  # its packages are not those that are pinned here
            database_shell.run("unset PIP_CONSTRAINT")
        output[number] = follow(text, database_shell, {})
    assert "orders: 501" in output[4]
    assert "5,990" in output[DBT_CHAPTER] and "Completed successfully" in output[DBT_CHAPTER]


def test_the_wheel_has_its_license_and_neither_demo_nor_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
    assert "License-Expression: Apache-2.0" in text
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("elt_assets/defs", "tests", "scripts"))]
    assert any(name.endswith("project_template/pyproject.toml.template") for name in names)


def _count(lake: Path, key: str) -> int:
    """Return the number of rows of the table of an asset."""
    return int(DeltaTable(str(lake / key)).to_pyarrow_table().num_rows)


@pytest.mark.long
@pytest.mark.external
def test_the_tutorial_works_as_written(tmp_path: Path, shell: Shell) -> None:
    """In a fresh environment, with all packages installed from the index."""
    served: set[str] = set()

    def open_dagster(shell: Shell) -> None:
        (port,) = free_ports(1)
        shell.run("set -m")  # without it, programs in the background ignore Ctrl-C
        shell.run(f"dg dev --port {port} >dev.log 2>&1 & DEV=$!")

        def has_assets() -> bool:
            served.update(_read_assets(port))
            return bool(served)

        wait(has_assets, "the assets in Dagster", seconds=180)
        shell.run("kill -INT -- -$DEV; wait $DEV; set +m")

    servers = {"dg dev": open_dagster}
    follow(CHAPTERS[1], shell, servers)
    shell.run("unset PIP_CONSTRAINT")  # a connector's environment has other versions
    output = {n: follow(text, shell, servers) for n, text in CHAPTERS.items() if n > 1}
    root = tmp_path / "empty" / "shop"
    assert {"example/users", "store/users", "store/purchases"} <= served
    lake = root / "dagster_home" / "lake"
    ages = DeltaTable(str(lake / "ages")).to_pyarrow_table()
    assert sum(ages["people"].to_pylist()) == _count(lake, "store/users") == 500
    assert "people" in output[5]
    assert "purchases_by_gender" in output[6] and "Completed successfully" in output[6]
    assert _count(lake, "example/users") == _count(root / "prod_lake", "example/users") == 1000


def _read_assets(port: int) -> set[str]:
    """Return the keys of the assets that a webserver shows; none as long as it does not answer."""
    body = json.dumps({"query": ASSETS}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            nodes = json.load(answer)["data"]["assetNodes"]
    except OSError:
        return set()
    return {"/".join(node["assetKey"]["path"]) for node in nodes}
