"""The kind `manifest:`, an Airbyte low-code manifest, run by the declarative engine of this project."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.machinery import FileFinder
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules

from elt_assets.errors import ConfigError
from elt_assets.runner.config.environment import Declared, Environment
from elt_assets.runner.kinds.builtin import PYTHON_VARIABLES
from elt_assets.runner.kinds.source_kind import Command, Installed, SourceKind, Value

MANIFEST_FILE = "manifest.yaml"
"""The usual name of a manifest."""
ENGINE = "connectors.declarative"
"""The module that runs manifests."""
_IN_PACKAGE = re.compile(r"(?P<package>[A-Za-z_]\w*):(?P<path>[^/].*)")


class Manifest(SourceKind):
    """Runs a manifest with this Python: a file, or `PACKAGE:FILE`, a file in an installed package."""

    key = "manifest"
    value_type = str
    examples = (
        ("manifest: manifest.yaml", "an Airbyte low-code manifest: a file beside defs.yaml"),
        ("manifest: source_x:manifest.yaml", "a manifest in an installed Python package"),
    )
    takes_trust = True

    def command(self, value: Value, packages: Installed) -> tuple[Command, str]:
        command = [sys.executable, "-m", ENGINE, "--manifest", str(find_manifest(value))]
        command += [word for name in packages.trusted for word in ("--trust", name)]
        return lambda: command, self.display(value)

    def available(self, packages: Path) -> Iterable[tuple[Value, str]]:
        finders = [(each.name, each.module_finder) for each in iter_modules() if each.ispkg]
        files = [
            (name, Path(finder.path) / name / MANIFEST_FILE)
            for name, finder in finders
            if isinstance(finder, FileFinder)
        ]
        return [(f"{name}:{MANIFEST_FILE}", str(file)) for name, file in files if _is_file(file)]

    def environment(self, value: Value, declared: Declared | None) -> Environment:
        return Environment(declared, closed=True, needs=PYTHON_VARIABLES)

    def resolve(self, value: Value, folder: Path) -> Value:
        if is_in_package(value):
            return value
        return str((folder / Path(value).expanduser()).absolute())

    def display(self, value: Value) -> str:
        return value if is_in_package(value) else "/".join(Path(value).parts[-2:])


def is_in_package(value: str) -> bool:
    """Return whether the value names a file in an installed package."""
    return _IN_PACKAGE.fullmatch(value) is not None


def find_manifest(value: str) -> Path:
    """Return the path of a manifest. No package is imported.

    Raises:
        ConfigError: there is no such file or package.
    """
    match = _IN_PACKAGE.fullmatch(value)
    if match is None:
        folders = [Path.cwd()]
    else:
        folders = _package_folders(match["package"])
        value = match["path"]
        if not folders:
            raise ConfigError(
                f"there is no package {match['package']!r} in the Python environment {sys.prefix}",
                guidance="install it there, or correct the name; a path that contains a colon is "
                "written with ./ at its beginning",
            )
    files = [folder / Path(value).expanduser() for folder in folders]
    found = next((file for file in files if _is_file(file)), None)
    if found is None:
        raise ConfigError(
            f"there is no manifest {' or '.join(map(str, files))}",
            guidance="write the path of the manifest, which starts at the folder of defs.yaml, or "
            "PACKAGE:FILE for a file in an installed Python package",
        )
    return found


def _package_folders(package: str) -> list[Path]:
    try:
        spec = find_spec(package)
    except ValueError:  # a module that was imported in an unusual way
        spec = None
    return [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder that may not be entered, or a name that is too long
        return False
