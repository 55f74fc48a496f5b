"""`elt init`: creates a project, or adds to a Dagster project what connections need."""

from __future__ import annotations

import keyword
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from elt_assets.cli.commands.new.connection import create_connection
from elt_assets.cli.commands.new.source import choose_source
from elt_assets.cli.output import OK, Output, subcommand
from elt_assets.cli.templates import FOLDER, render, write_deployment_files, write_new
from elt_assets.errors import ConfigError
from elt_assets.settings import PROJECT, PROJECT_FILE, dg_defs, read_tool, use_project
from elt_assets.storage.folders import make_private, replace_text

_EXAMPLE = "example"
_SETTINGS = "settings.toml"


@subcommand("init", "elt init shop", "elt init .", "elt init . --deployment")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--deployment", is_flag=True, help="Add files for Docker, compose and Kubernetes.")
def command(out: Output, directory: Path, deployment: bool) -> int:
    """Create a project in DIRECTORY, with an example of a connection.

    In a Dagster project (`create-dagster project`), only what is missing is added: no file is changed, except
    that `pyproject.toml` gets the table [tool.elt]. With `--deployment`, a project gets the folder `deploy`.
    """
    root = directory.expanduser().absolute()
    tool = read_tool(root)
    if "elt" in tool and deployment:
        created = write_deployment_files(root, _definitions(root))
        if not created:
            raise ConfigError(
                f"{root / FOLDER} has all files of a deployment already",
                guidance="remove those that you want again as they come with this version",
            )
        _answer(out, root, created, ["docs/deployment.md"])
        return OK
    if "elt" in tool:
        raise ConfigError(
            f"{root} is a project of elt-assets already", guidance="add connections with `elt new`"
        )
    _refuse_project_above(root)
    if (root / PROJECT_FILE).exists() and dg_defs(root) is None:
        raise ConfigError(
            f"{root / PROJECT_FILE} is not of a Dagster project: it has no [tool.dg.project]",
            guidance="choose a new directory, or make it a Dagster project first (docs.dagster.io)",
        )
    package = dg_defs(root)
    module = package[0].removesuffix(".defs") if package is not None else _module_name(root.name)
    created = _write_files(root, module, package[1] if package is not None else None)
    if deployment:
        created += write_deployment_files(root, _definitions(root))
    os.environ.pop(PROJECT, None)  # the new project takes the place of another one
    use_project(root)
    create_connection(_EXAMPLE, choose_source("faker", out), {"count": 1000}, out)
    steps = ["make your definitions with `elt_assets.definitions_for` (docs/projects.md)"]
    steps = steps if package is not None else []
    steps.append(f"cd {directory} && pip install -e . && elt sync {_EXAMPLE}")
    _answer(out, root, created, steps)
    return OK


def _answer(out: Output, root: Path, created: Sequence[Path], steps: Sequence[str]) -> None:
    for path in created:
        out.note(f"created {path.relative_to(root)}")
    for step in steps:
        out.line(f"next: {step}")
    out.document({"project": str(root), "files": [str(path) for path in created]})


def _definitions(root: Path) -> str:
    """Return the module with the definitions of a project."""
    package = dg_defs(root)
    if package is None:
        return "elt_assets.definitions"
    dg = read_tool(root)["dg"]["project"]
    module = dg.get("code_location_target_module") or f"{dg['root_module']}.definitions"
    return str(module)


def _module_name(name: str) -> str:
    module = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")
    if not module.isidentifier() or keyword.iskeyword(module) or module in sys.stdlib_module_names:
        raise ConfigError(
            f"{name!r} cannot be the name of a project, which is also that of its Python package",
            guidance="begin it with a letter, and use letters, digits, hyphens and underscores",
        )
    return module


def _refuse_project_above(root: Path) -> None:
    above = next((folder for folder in root.parents if "elt" in read_tool(folder)), None)
    if above is not None:
        raise ConfigError(
            f"{root} is inside of the project {above}", guidance="create the project beside it"
        )


def _write_files(root: Path, module: str, defs: Path | None) -> list[Path]:
    """Write the files of a project that are missing; return their paths.

    Args:
        defs: the folder of definitions of an existing project.
    """
    package = root / "src" / module
    files = {
        "env.example": root / ".env.example",
        "dagster.yaml": root / "dagster_home" / "dagster.yaml",
        "test_connections.py": root / "tests" / "test_connections.py",
    }
    if defs is None:
        files |= {
            "pyproject.toml": root / PROJECT_FILE,
            "README.md": root / "README.md",
            "gitignore": root / ".gitignore",
            "definitions.py": package / "definitions.py",
            "__init__.py": package / "__init__.py",
            "defs.py": package / "defs" / "__init__.py",
        }
    parts = (defs or package / "defs").relative_to(root).parts
    folder = " / ".join(f'"{part}"' for part in parts)
    values = {"name": root.name, "module": module, "defs": folder}
    _make_home(root / "dagster_home")
    created = [path for name, path in files.items() if write_new(path, render(name, values))]
    project_file = root / PROJECT_FILE
    text = project_file.read_text(encoding="utf-8")
    replace_text(project_file, f"{text.rstrip()}\n\n{render(_SETTINGS, values)}")
    return created


def _make_home(home: Path) -> None:
    """Create the folder of Dagster's data in a project, for this user alone, whoever may read the project.

    Raises:
        ConfigError: it cannot be created.
    """
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        make_private(home)
    except OSError as error:
        raise ConfigError(
            f"{home} cannot be created: {error.strerror}",
            guidance="make the directory writable, and make room on the disk",
        ) from error
