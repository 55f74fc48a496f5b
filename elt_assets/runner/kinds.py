"""The kinds of source that a connection can use, but for `manifest`, and the registry of all.

`connection` checks `source:` by the registry; `pipeline.connectors` and `elt` open connectors;
`pipeline.connection_read` and `orchestration` ask what a kind can do.

They are `command`, any program that speaks the Airbyte Protocol; `image`, a container; `package`, a connector
from PyPI; `tap`, a Singer tap; and `connector`, a module of this project or of another package. The registry
is at the end: `open_connector` returns the connector of a spec.

Packages add kinds by entry points of the group `elt_assets.source_kinds`, and connectors for the kind
`connector:` by entry points of the group `elt_assets.connectors`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from elt_assets.errors import ConfigError
from elt_assets.module_start import PACKAGES, module_command
from elt_assets.runner.connector import Connector
from elt_assets.runner.container import ContainerOptions, Image
from elt_assets.runner.environment import Declared, Environment
from elt_assets.runner.manifests import Manifest, ManifestConnector
from elt_assets.runner.packages import (
    Installation,
    install,
    is_installed,
    list_installed,
    package_name,
)
from elt_assets.runner.references import refuse_reserved_references
from elt_assets.runner.singer_tap import SingerTap
from elt_assets.runner.source_kind import ConnectorSpec, SourceKind, Value

COMMAND_LINE = Annotated[list[str], Field(min_length=1)]
"""The type of a command line: the program and its first arguments."""


class Program(SourceKind):
    """Runs a command line, unchanged."""

    key = "command"
    value_type = COMMAND_LINE
    examples = (("command: [source-x, --flag]", "any program that speaks the Airbyte Protocol"),)
    is_destination = True
    follows = True

    def command(self, spec: ConnectorSpec) -> list[str]:
        return list(spec.value)

    def name(self, value: Value) -> str:
        return Path(value[0]).name

    def available(self, packages: Path) -> Iterable[tuple[Value, str]]:
        return [([name], str(path)) for name, path in find_programs("source-*")]


def find_programs(pattern: str) -> list[tuple[str, Path]]:
    """Return the name and the path of each program on the PATH whose name matches a pattern."""
    programs: dict[str, Path] = {}
    for folder in os.get_exec_path():
        for path in Path(folder).glob(pattern):
            if path.is_file() and os.access(path, os.X_OK):
                programs.setdefault(path.name, path)
    return sorted(programs.items())


_CLIENT = re.compile("(DOCKER|CONTAINERD?|CONTAINERS|BUILDKIT|NERDCTL|PODMAN|XDG)_.*")
"""Matches the variables that a container client may need. Containers do not get them."""


class ImageKind(SourceKind):
    """Runs the entry point of an image."""

    key = "image"
    value_type = str
    examples = (
        ("image: airbyte/source-faker:6.2.0", "a container, run by docker or a compatible client"),
    )
    label = "docker"
    is_destination = True

    def command(self, spec: ConnectorSpec) -> list[str]:
        return [spec.value]

    def check(self, value: Value) -> None:
        Image(value)

    def environment(self, value: Value, declared: Declared | None) -> Environment:
        return Environment(declared, needs=_CLIENT, of_container=True)

    def image(self, value: Value, options: ContainerOptions | None) -> Image | None:
        return Image(value, options or ContainerOptions())


TAP_NAME = re.compile(r"(?:^|-)tap-")
"""Pattern of the names of Singer taps (`tap-x`) and of their packages (`tap-x`, `somebody-tap-x`)."""
INSTALLED = "installed from PyPI"
"""The place of a package that is installed."""


class Package(SourceKind):
    """Runs the program of a package of an exact version."""

    key = "package"
    value_type = str
    examples = (
        (
            "package: airbyte-source-faker==7.2.1",
            "a program of a package from PyPI, installed on first use",
        ),
    )
    is_destination = True

    def command(self, spec: ConnectorSpec) -> list[str]:
        return [str(install(spec.value, spec.packages, spec.installation))]

    def check(self, value: Value) -> None:
        package_name(value)

    def environment(self, value: Value, declared: Declared | None) -> Environment:
        return Environment(declared)

    def available(self, packages: Path) -> Iterable[tuple[Value, str]]:
        return [
            (package, INSTALLED)
            for package in list_installed(packages)
            if not TAP_NAME.search(package)
        ]

    def package(self, value: Value, engine: str | None = None) -> str | None:
        return str(value)


class Tap(SourceKind):
    """Runs a Singer tap. A string names a package, and a list is a command line."""

    key = "tap"
    value_type = COMMAND_LINE | str
    examples = (
        ("tap: [tap-x, --flag]", "any program that is a Singer tap"),
        (
            "tap: meltanolabs-tap-postgres==0.10.0",
            "a tap of a package from PyPI, installed on first use",
        ),
    )
    label = "singer"
    is_tap = True
    lists_partitions = False

    def command(self, spec: ConnectorSpec) -> list[str]:
        if isinstance(spec.value, str):
            return [str(install(spec.value, spec.packages, spec.installation))]
        return list(spec.value)

    def check(self, value: Value) -> None:
        if isinstance(value, str):
            package_name(value)

    def name(self, value: Value) -> str:
        return value if isinstance(value, str) else Path(value[0]).name

    def available(self, packages: Path) -> Iterable[tuple[Value, str]]:
        programs = [([name], str(path)) for name, path in find_programs("tap-*")]
        return [
            *programs,
            *(
                (package, INSTALLED)
                for package in list_installed(packages)
                if TAP_NAME.search(package)
            ),
        ]

    def environment(self, value: Value, declared: Declared | None) -> Environment:
        is_package = isinstance(value, str)
        return Environment(declared) if is_package else super().environment(value, declared)

    def package(self, value: Value, engine: str | None = None) -> str | None:
        return value if isinstance(value, str) else None


CONNECTOR_GROUP = "elt_assets.connectors"
"""The entry-point group in which packages register their connectors: the name, and the module to run."""
_PACKAGE = "connectors"
NOT_CONNECTORS = ("cdc", "declarative", "sdk", "sql", "testing")
"""Packages of `connectors` that are no connectors."""


class BuiltIn(SourceKind):
    """Runs a module with this Python."""

    key = "connector"
    value_type = str
    examples = (("connector: faker", "a built-in connector, or one of an installed package"),)
    label = "python"
    reports_new_data = True
    follows = True
    releases = True

    def command(self, spec: ConnectorSpec) -> list[str]:
        return module_command(connector_modules()[spec.value])

    def check(self, value: Value) -> None:
        modules = connector_modules()
        if value not in modules:
            raise ConfigError(
                f"there is no built-in connector {value!r}",
                guidance=f"there are: {', '.join(sorted(modules))}; a package adds others in the entry-point "
                f"group {CONNECTOR_GROUP!r}; run other programs with `command:` or `package:`",
            )

    def program_module(self, value: Value) -> str | None:
        return connector_modules().get(value)


def list_built_in() -> list[str]:
    """Return the names of the connectors, without importing them."""
    return sorted(connector_modules())


def connector_modules() -> dict[str, str]:
    """Return the module of each connector by its name, without importing them: those of this project, and
    those that packages register. A package cannot replace a connector of this project.

    Raises:
        ConfigError: two packages register different connectors of one name.
    """
    return dict(_find_modules(tuple(sys.path)))


@lru_cache(maxsize=8)
def _find_modules(search_path: tuple[str, ...]) -> dict[str, str]:  # noqa: ARG001 - the cache's
    packages = {module.name for module in iter_modules([str(PACKAGES / _PACKAGE)])}
    own = {name: f"{_PACKAGE}.{name}" for name in packages.difference(NOT_CONNECTORS)}
    modules = dict(own)
    for entry in entry_points(group=CONNECTOR_GROUP):
        other = modules.setdefault(entry.name, entry.module)
        if entry.name not in own and other != entry.module:
            raise ConfigError(
                f"two packages register the connector {entry.name!r}: {other} and {entry.module}",
                guidance=f"rename one of them in its entry-point group {CONNECTOR_GROUP!r}",
            )
    return modules


def _kinds() -> Iterator[SourceKind]:
    yield from (BuiltIn(), Program(), Package(), ImageKind(), Manifest(), Tap())
    for entry in entry_points(group="elt_assets.source_kinds"):
        yield entry.load()()


KINDS: Mapping[str, SourceKind] = MappingProxyType({kind.key: kind for kind in _kinds()})
"""The kinds of source by their keys in the YAML."""


def to_install(
    kind: str,
    value: Value,
    packages: Path,
    installation: Installation | None = None,
    engine: str | None = None,
) -> str | None:
    """Return the package that must be installed before a connector starts; None if there is none."""
    package = KINDS[kind].package(value, engine)
    if package is None or is_installed(package, packages, installation):
        return None
    return package


def check_references(config: Mapping[str, Any], environment: Declared | None = None) -> None:
    """Check that a config and declared variables refer to no reserved variable. None is read.

    Raises:
        ConfigError: they do; the connector could not start.
    """
    declared = environment or {}
    if not isinstance(declared, Mapping):
        declared = {name: {"env": name} for name in declared}
    refuse_reserved_references(config, "config")
    for name, value in declared.items():
        refuse_reserved_references(value, f"environment.{name}")


def open_connector(spec: ConnectorSpec) -> Connector:
    """Return the connector of a spec. Nothing is started or installed yet.

    Raises:
        ConfigError: as for `SourceKind.check`.
    """
    spec.kind.check(spec.value)
    if spec.kind.is_tap:
        return SingerTap(spec)
    return ManifestConnector(spec) if spec.kind.runs_manifests else Connector(spec)
