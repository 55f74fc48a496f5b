"""The kind `manifest:`, an Airbyte low-code manifest, which our declarative engine runs, or Airbyte's.

Airbyte's engine is installed on first use. `kinds` registers the kind, and `elt new` finds manifests.

The process of the manifest chooses the engine, because it parses the file. If it needs Airbyte's and did
not get it, it ends with the exit code `NEEDS_AIRBYTE`. The engine is then installed, and the command starts
again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterable, Mapping
from importlib.machinery import FileFinder
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from elt_assets.errors import NEEDS_AIRBYTE, ConfigError, EltError
from elt_assets.module_start import module_command
from elt_assets.protocol.messages import Received
from elt_assets.runner.connector import Connector
from elt_assets.runner.packages import install, is_installed
from elt_assets.runner.source_kind import ConnectorSpec, SourceKind, Value

MANIFEST_FILE = "manifest.yaml"
"""The usual name of a manifest."""
ENGINE = "connectors.declarative"
"""The module that runs manifests."""
AIRBYTE, OURS = "airbyte", "ours"
"""The engines that a connection can choose."""
AIRBYTE_ENGINE = "airbyte-cdk==7.39.1"
"""The package that is Airbyte's engine."""
_IN_PACKAGE = re.compile(r"(?P<package>[A-Za-z_]\w*):(?P<path>[^/].*)")


def install_airbyte_engine(spec: ConnectorSpec) -> Path:
    """Install Airbyte's engine if it is missing, and return the Python of its environment.

    Raises:
        EltError: as for `install`.
    """
    return install(AIRBYTE_ENGINE, spec.packages, spec.installation).with_name("python")


class ManifestConnector(Connector):
    """Runs a manifest, with the engine that it needs."""

    def _messages(
        self, verb: str, files: Mapping[str, Any], **options: Any
    ) -> Generator[Received, None, None]:
        if "config" in files and self._settings.changed:
            # What a manifest or its API has put into the config is not what the user has written there.
            files = {**files, "changed-config": self._settings.changed}
        try:
            yield from super()._messages(verb, files, **options)
        except EltError as error:
            if error.exit_code != NEEDS_AIRBYTE:
                raise
            text = f"{self.name} needs Airbyte's engine; installing {AIRBYTE_ENGINE}"
            self.spec.on_log("INFO", text)
            install_airbyte_engine(self.spec)
            yield from super()._messages(verb, files, **options)


class Manifest(SourceKind):
    """Runs a manifest: a file, or `PACKAGE:FILE`, a file in an installed package."""

    key = "manifest"
    value_type = str
    examples = (
        ("manifest: manifest.yaml", "an Airbyte low-code manifest: a file beside defs.yaml"),
        ("manifest: source_x:manifest.yaml", "a manifest in an installed Python package"),
    )
    runs_manifests = True

    def command(self, spec: ConnectorSpec) -> list[str]:
        engine = spec.engine
        command = [*module_command(ENGINE), "--manifest", str(find_manifest(spec.value))]
        command += [word for name in spec.trusted for word in ("--trust", name)]
        if engine is not None:
            command += ["--engine", engine]
        elif is_installed(AIRBYTE_ENGINE, spec.packages, spec.installation):
            engine = AIRBYTE
        if engine == AIRBYTE:
            command += ["--airbyte-python", str(install_airbyte_engine(spec))]
        return command

    def check(self, value: Value) -> None:
        find_manifest(value)

    def package(self, value: Value, engine: str | None = None) -> str | None:
        return AIRBYTE_ENGINE if engine == AIRBYTE else None

    def available(self, packages: Path) -> Iterable[tuple[Value, str]]:
        finders = [(module.name, module.module_finder) for module in iter_modules() if module.ispkg]
        files = [
            (name, Path(finder.path) / name / MANIFEST_FILE)
            for name, finder in finders
            if isinstance(finder, FileFinder)
        ]
        return [(f"{name}:{MANIFEST_FILE}", str(file)) for name, file in files if _is_file(file)]

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
    manifest = next((file for file in files if _is_file(file)), None)
    if manifest is None:
        raise ConfigError(
            f"there is no manifest {' or '.join(map(str, files))}",
            guidance="write the path of the manifest, which starts at the folder of defs.yaml, or "
            "PACKAGE:FILE for a file in an installed Python package",
        )
    return manifest


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
