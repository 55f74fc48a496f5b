"""What the package says about itself, and the programs that contributors run, fit together."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import elt_assets
from tests.support.project import BIN, REPOSITORY

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ONLY_IN_HOOKS = ("--force-exclude", "--fix")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


@pytest.mark.process
def test_the_version_is_that_of_the_installed_package() -> None:
    assert elt_assets.__version__ == version("elt-assets") == PROJECT["project"]["version"]
    output = subprocess.run([BIN / "elt", "--version"], capture_output=True, text=True, check=True)
    assert output.stdout == f"elt, version {elt_assets.__version__}\n"
    assert f"## {elt_assets.__version__}" in (REPOSITORY / "CHANGELOG.md").read_text()


@pytest.mark.unit
def test_the_license_is_in_the_package() -> None:
    assert PROJECT["project"]["license"] == "Apache-2.0"
    (name,) = PROJECT["project"]["license-files"]
    assert (
        "Apache License\n                           Version 2.0" in (REPOSITORY / name).read_text()
    )


@pytest.mark.unit
def test_each_requirement_is_pinned() -> None:
    project = PROJECT["project"]
    groups = [*project["optional-dependencies"].values(), *PROJECT["dependency-groups"].values()]
    requirements = [*project["dependencies"], *(line for group in groups for line in group)]
    pins = [
        Requirement(line)
        for line in (REPOSITORY / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    pinned = {canonicalize_name(pin.name) for pin in pins} | {project["name"]}
    assert {canonicalize_name(Requirement(text).name) for text in requirements} <= pinned


@pytest.mark.unit
@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("jinja2", "3.1.5"),  # CVE-2025-27516: a template leaves the sandbox
        ("httpcore", "1.0.8"),  # CVE-2025-43859 of its h11: a chunked answer is read wrongly
        ("cryptography", "44.0.0"),  # CVE-2024-12797 of its OpenSSL
        (
            "uv",
            "0.9.5",
        ),  # CVE-2025-62518 and others: archives that unpack as another reader sees them
        ("pymysql", "1.1.0"),  # CVE-2024-36039: a key of an object becomes SQL
        ("pyarrow", "14.0.0"),  # CVE-2023-47248: a file runs code
        ("pyyaml", "5.3.1"),  # CVE-2020-14343: a document runs code
    ],
)
def test_a_version_with_a_known_hole_is_not_installed(package: str, version: str) -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    required = [Requirement(line) for line in lines]
    (requirement,) = [item for item in required if canonicalize_name(item.name) == package]
    assert not requirement.specifier.contains(version)


@pytest.mark.process
def test_the_hooks_of_pre_commit_run_what_make_check_runs() -> None:
    path = REPOSITORY / ".pre-commit-config.yaml"
    subprocess.run([BIN / "pre-commit", "validate-config", path], check=True)
    recipe = subprocess.run(
        ["make", "-n", "check"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    (repository,) = yaml.safe_load(path.read_text())["repos"]
    assert repository["repo"] == "local"  # nothing is fetched
    for hook in repository["hooks"]:
        program, *words = hook["entry"].split()
        assert program.startswith(".venv/bin/")
        command = " ".join([program, *(word for word in words if word not in ONLY_IN_HOOKS)])
        assert command in recipe.stdout
