"""The registry of all kinds of source. Packages add kinds through entry points of the group `GROUP`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.runner.config.environment import Declared
from elt_assets.runner.config.secrets import refuse_reserved_references
from elt_assets.runner.config.update_files import UpdateFile
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import LogFunction, ignore
from elt_assets.runner.failures import DEADLINES
from elt_assets.runner.kinds.builtin import BuiltIn
from elt_assets.runner.kinds.command import Program
from elt_assets.runner.kinds.image import ImageKind
from elt_assets.runner.kinds.manifest import Manifest
from elt_assets.runner.kinds.package import Package
from elt_assets.runner.kinds.source_kind import Installed, SourceKind, Value
from elt_assets.runner.kinds.tap import Tap
from elt_assets.runner.packages import Installation, is_installed
from elt_assets.runner.process.container import ContainerOptions

GROUP = "elt_assets.source_kinds"


def _kinds() -> Iterator[SourceKind]:
    yield from (BuiltIn(), Program(), Package(), ImageKind(), Manifest(), Tap())
    for entry in entry_points(group=GROUP):
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


@dataclass(frozen=True)
class ConnectorOptions:
    """How a connector runs, beside its kind and config.

    Attributes:
        heartbeat: maximum seconds without output; None for no limit.
        store: the file of the config changes that the connector makes; None keeps them in memory.
        environment: the variables in `source.environment`, if it is set.
        installation: the options for installing a package.
        container: the options for running an image.
        on_log: as for `Connector`.
        deadlines: as for `Connector`.
        trusted: the Python modules and the origins that a manifest may use.
        engine: the engine of a manifest; None for the one that it needs.
    """

    heartbeat: float | None = None
    store: Path | UpdateFile | None = None
    environment: Declared | None = None
    installation: Installation | None = None
    container: ContainerOptions | None = None
    on_log: LogFunction = ignore
    deadlines: Mapping[str, float] = field(default_factory=lambda: DEADLINES)
    trusted: Sequence[str] = ()
    engine: str | None = None


DEFAULT_OPTIONS = ConnectorOptions()


def open_connector(
    kind: str,
    value: str | Sequence[str],
    config: Mapping[str, Any],
    workdir: Path,
    packages: Path,
    options: ConnectorOptions = DEFAULT_OPTIONS,
) -> Connector:
    """Return the connector of a connection's `source`. Nothing is started or installed yet.

    Args:
        kind: the key that is set in `source`.
        value: the value of that key.
        config: the config as the user wrote it.
        workdir: the parent directory of the connector's private files.
        packages: the directory of installed PyPI packages.

    Raises:
        ConfigError: there is no such kind; or as for `SourceKind.command`.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"`source.{kind}` is not a kind of source", guidance=f"write one of {', '.join(KINDS)}"
        )
    source_kind = KINDS[kind]
    setup = Installed(packages, options.installation, options.trusted, options.engine)
    command, name = source_kind.command(value, setup)
    return source_kind.connector_class(
        command,
        config,
        workdir,
        name,
        options.heartbeat,
        source_kind.image(value, options.container),
        options.store,
        source_kind.environment(value, options.environment),
        on_log=options.on_log,
        deadlines=options.deadlines,
    )
