"""`elt init`: a project that works as it is created, and what it adds to a project of Dagster's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.project import BIN, REPOSITORY


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment in a folder, as a shell without any setting would."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ELT_", "DAGSTER_"))}
    source = str(folder / "src")  # `pip install -e .` would put it there
    own = {"PYTHONPATH": source, "PATH": f"{BIN}:{os.environ['PATH']}", "VIRTUAL_ENV": sys.prefix}
    own |= {"DG_CLI_CONFIG": str(folder / "none"), "PYTHONWARNINGS": "ignore"}
    own |= {"ELT_SPARK_ARCHIVE": "off"}
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        env={**inherited, **own},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def run_well(folder: Path, *command: str) -> str:
    done = run(folder, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_project_works_as_it_is_created(tmp_path: Path) -> None:
    """What `elt` does there, `test_tutorial` shows."""
    assert "elt sync example" in run_well(tmp_path, "elt", "init", "my-shop")
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
    run_well(root / "src" / "my_shop", "elt", "validate")
    run_well(root, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    again = run(root, "elt", "init", ".")
    assert again.returncode == 2 and "is a project of elt-assets already" in again.stderr
    inside = run(root, "elt", "init", "inner")
    assert inside.returncode == 2 and "is inside of the project" in inside.stderr
    assert not (root / "inner").exists()


def test_a_project_of_dagster_gets_what_is_missing_and_keeps_the_rest(tmp_path: Path) -> None:
    root = tmp_path / "acme"
    package = root / "acme_data"
    (package / "defs").mkdir(parents=True)
    own = '[project]\nname = "acme"\n\n[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\n'
    (root / "pyproject.toml").write_text(f'{own}root_module = "acme_data"\n')
    for path in (package / "__init__.py", package / "defs" / "__init__.py", root / "README.md"):
        path.write_text("# ours\n")
    run_well(root, "elt", "init", ".")
    text = (root / "pyproject.toml").read_text()
    assert text.startswith(own) and "[tool.elt]" in text
    assert (root / "README.md").read_text() == "# ours\n"
    assert (package / "defs" / "example" / "catalog.json").is_file()
    assert not (root / "src").exists()
    assert json.loads(run_well(root, "elt", "--json", "list"))["connections"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2-shops", "cannot be the name of a project"),
        ("json", "cannot be the name of a project"),
        ("other", "is not of a Dagster project"),
    ],
)
def test_a_folder_that_cannot_be_a_project_is_refused(
    tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pyproject.toml").write_text('[project]\nname = "other"\n')
    refused = run(tmp_path, "elt", "init", name)
    assert refused.returncode == 2 and message in refused.stderr
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["pyproject.toml"]
    assert not (tmp_path / name / "src").exists()


def test_the_dagster_yaml_of_a_new_project_is_that_of_this_one() -> None:
    template = REPOSITORY / "elt_assets" / "cli" / "project_template" / "dagster.yaml.template"
    assert template.read_text() == (REPOSITORY / "dagster_home" / "dagster.yaml").read_text()
