"""The kinds of source that there are; packages add others by entry points of `GROUP`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.runner.config.environment import Declared
from elt_assets.runner.connector import Connector
from elt_assets.runner.connector_log import Hear, ignore
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
"""By their keys in the YAML."""


def to_install(
    kind: str, value: Value, packages: Path, installation: Installation | None = None
) -> str | None:
    """The package that starting a connector would install first; None if it would install nothing."""
    package = KINDS[kind].package(value)
    if package is None or is_installed(package, packages, installation):
        return None
    return package


def open_connector(
    kind: str,
    value: str | Sequence[str],
    config: Mapping[str, Any],
    workdir: Path,
    packages: Path,
    heartbeat: float | None = None,
    store: Path | None = None,
    environment: Declared | None = None,
    installation: Installation | None = None,
    container: ContainerOptions | None = None,
    user: str | None = None,
    hear: Hear = ignore,
    deadlines: Mapping[str, float] = DEADLINES,
) -> Connector:
    """The connector that a connection's `source` names; nothing is started or installed yet.

    Args:
        kind: which key of `source` is set; `value`: what it says.
        workdir: for private files while the connector runs.
        packages: where PyPI packages are installed.
        heartbeat: seconds for which it may say nothing; None for ever.
        store: the file that keeps what the connector changes in its config; None: nothing outlives it.
        environment: what `source.environment` declares, if it does.
        installation: how a package is installed.
        container: how an image is run.
        user: of this machine, that it runs as; default this process's.
        hear, deadlines: as of `Connector`.

    Raises:
        ConfigError: there is no such kind; and as `SourceKind.command`.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"`source.{kind}` is no kind of source", guidance=f"write one of {', '.join(KINDS)}"
        )
    known = KINDS[kind]
    command, name = known.command(value, Installed(packages, installation))
    return known.connector_class(
        command,
        config,
        workdir,
        name,
        heartbeat,
        known.image(value, container),
        store,
        known.environment(value, environment),
        user=user,
        hear=hear,
        deadlines=deadlines,
    )
