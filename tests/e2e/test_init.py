"""`elt init`: a project that works as it is created, and what it adds to a project of Dagster's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.elt import Elt
from tests.support.project import BIN, REPOSITORY


def run_well(folder: Path, *command: str) -> str:
    """Run a program of the environment in a folder, as a shell without any setting would."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ELT_", "DAGSTER_"))}
    source = str(folder / "src")  # `pip install -e .` would put it there
    own = {"PYTHONPATH": source, "PATH": f"{BIN}:{os.environ['PATH']}", "VIRTUAL_ENV": sys.prefix}
    own |= {"DG_CLI_CONFIG": str(folder / "none"), "PYTHONWARNINGS": "ignore"}
    own |= {"ELT_SPARK_ARCHIVE": "off"}
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        env={**inherited, **own},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def here(tmp_path: Path, elt: Elt, monkeypatch: pytest.MonkeyPatch) -> Elt:
    """`elt` in this process and in the folder of the test, without any setting."""
    for name in [name for name in os.environ if name.startswith(("ELT_", "DAGSTER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return elt


def test_a_new_project_works_as_it_is_created(
    tmp_path: Path, here: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `elt` does there, `test_tutorial` shows."""
    assert "elt sync example" in here("init", "my-shop")
    root = tmp_path / "my-shop"
    run_well(root, "dg", "launch", "--assets", "example/users")
    table = DeltaTable(str(root / "dagster_home" / "lake" / "example" / "users"))
    assert table.to_pyarrow_table().num_rows == 1000
    assert "validated successfully" in run_well(root, "dg", "check", "yaml")
    definitions = run_well(root, "dg", "list", "defs", "--json")
    assert "example/orders" in definitions and "elt_maintenance" in definitions
    run_well(root, "dg", "scaffold", "defs", "elt_assets.ConnectionComponent", "crm")
    (root / "src" / "my_shop" / "defs" / "crm" / "defs.yaml").unlink()
    definition = root / "src" / "my_shop" / "defs" / "example" / "defs.yaml"
    with definition.open("a") as file:
        file.write("requirements: {env: [CRM_API_KEY]}\n")
    assert "CRM_API_KEY" in run_well(root, "dg", "list", "env")
    monkeypatch.chdir(root / "src" / "my_shop")
    monkeypatch.syspath_prepend(root / "src")
    here("validate")
    run_well(root, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    monkeypatch.chdir(root)
    assert "is a project of elt-assets already" in here("init", ".", code=2)
    assert "is inside of the project" in here("init", "inner", code=2)
    assert not (root / "inner").exists()


def test_a_project_of_dagster_gets_what_is_missing_and_keeps_the_rest(
    tmp_path: Path, here: Elt, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "acme"
    package = root / "acme_data"
    (package / "defs").mkdir(parents=True)
    own = '[project]\nname = "acme"\n\n[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\n'
    (root / "pyproject.toml").write_text(f'{own}root_module = "acme_data"\n')
    for path in (package / "__init__.py", package / "defs" / "__init__.py", root / "README.md"):
        path.write_text("# ours\n")
    monkeypatch.chdir(root)
    here("init", ".")
    text = (root / "pyproject.toml").read_text()
    assert text.startswith(own) and "[tool.elt]" in text
    assert (root / "README.md").read_text() == "# ours\n"
    assert (package / "defs" / "example" / "catalog.json").is_file()
    assert not (root / "src").exists()
    assert here.json("list")["connections"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2-shops", "cannot be the name of a project"),
        ("json", "cannot be the name of a project"),
        ("other", "is not of a Dagster project"),
    ],
)
def test_a_folder_that_cannot_be_a_project_is_refused(
    tmp_path: Path, here: Elt, name: str, message: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert message in here("init", name, code=2)
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["pyproject.toml"]
    assert not (tmp_path / name / "src").exists()


def test_the_dagster_yaml_of_a_new_project_is_that_of_this_one() -> None:
    template = REPOSITORY / "elt_assets" / "cli" / "project_template" / "dagster.yaml.template"
    assert template.read_text() == (REPOSITORY / "dagster_home" / "dagster.yaml").read_text()
