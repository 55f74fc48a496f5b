"""`elt new-connector`: creates a source of one's own, with a test."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from elt_assets import paths
from elt_assets.cli.output import OK, Output, subcommand
from elt_assets.cli.templates import render
from elt_assets.errors import ConfigError
from elt_assets.runner.kinds import CONNECTOR_GROUP, NOT_CONNECTORS, list_built_in

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ROOT_MODULE = re.compile(r"""^\s*root_module\s*=\s*["']([\w.]+)["']""", re.MULTILINE)
_ENTRY_POINTS = f'[project.entry-points."{CONNECTOR_GROUP}"]'
_toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


@dataclass(frozen=True)
class _Place:
    """The files of a new connector. `is_found`: it is known by its name without an entry point."""

    module: str
    source: Path
    test: Path
    is_found: bool


@subcommand("new-connector", "elt new-connector crm", "elt new-connector crm --package acme_data")
@click.argument("name")
@click.option(
    "--package",
    help="Package of the project that gets the source; default: `root_module` in pyproject.toml.",
)
def command(out: Output, name: str, package: str | None) -> int:
    """Create the source NAME in the project of the working directory: a module, and a test of it.

    The source works as it is created: replace its config and its stream. In a connection it is
    `connector: NAME`.
    """
    _check_name(name)
    project = Path.cwd()
    place = _place(project, name, package)
    for path in (place.source, place.test):
        if path.exists():
            raise ConfigError(
                f"{path} exists already", guidance="choose another name, or remove it"
            )
    title = "".join(part.capitalize() for part in name.split("_"))
    values = {"name": name, "module": place.module, "title": title}
    for path, template in ((place.source, "source.py"), (place.test, "test.py")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(f"connector/{template}", values))
        out.note(f"created {path.relative_to(project)}")
    steps = [
        *([] if place.is_found else _register(project, name, place.module)),
        f"pytest {place.test.relative_to(project)}",
        f'elt new NAME --source {name} --config \'{{"api_key": "…"}}\'',
    ]
    out.table(["next step"], [(step,) for step in steps])
    out.document(
        {
            "connector": name,
            "module": place.module,
            "files": [str(place.source), str(place.test)],
            "next": steps,
        }
    )
    return OK


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a connector",
            guidance="use lower-case letters, digits and underscores, as in `shop_orders`",
        )
    if name in (*list_built_in(), *NOT_CONNECTORS):
        raise ConfigError(f"there is a connector {name!r} already", guidance="choose another name")


def _place(project: Path, name: str, package: str | None) -> _Place:
    file = project / "pyproject.toml"
    if not file.is_file():
        raise ConfigError(
            f"{project} is not a project: it has no pyproject.toml",
            guidance="run the command in the root folder of the project that gets the connector",
        )
    if package is None and project == paths.repository():
        folder = project / "connectors"
        test = project / "tests" / "connectors" / f"test_{name}.py"
        return _Place(f"connectors.{name}", folder / f"{name}.py", test, is_found=True)
    if package is None:
        declared = _ROOT_MODULE.search(file.read_text())
        if declared is None:
            raise ConfigError(
                f"{file} does not declare which package is the project's",
                guidance="name the package that gets the source, with --package",
            )
        package = declared[1]
    roots = (project / "src", project)
    folders = [root / package.replace(".", "/") for root in roots]
    package_folder = next((path for path in folders if path.is_dir()), None)
    if package_folder is None:
        raise ConfigError(
            f"there is no package {package!r} in {project} or {project / 'src'}",
            guidance="name the package that gets the source, with --package",
        )
    test = project / "tests" / f"test_{name}_connector.py"
    source = package_folder / "connectors" / f"{name}.py"
    return _Place(f"{package}.connectors.{name}", source, test, is_found=False)


def _register(project: Path, name: str, module: str) -> list[str]:
    """Add the entry point to pyproject.toml, and return what is left to do."""
    file = project / "pyproject.toml"
    text, line = file.read_text(), f'{name} = "{module}"'
    if _ENTRY_POINTS in text:
        changed = text.replace(_ENTRY_POINTS, f"{_ENTRY_POINTS}\n{line}", 1)
    else:
        changed = f"{text.rstrip()}\n\n{_ENTRY_POINTS}\n{line}\n"
    try:
        _toml.loads(changed)
    except ValueError:  # the entry points are written in another form
        return [
            f"add to {file.name}, to the entry points {CONNECTOR_GROUP!r}: {line}",
            "pip install -e .",
        ]
    file.write_text(changed)
    return ["pip install -e ."]
