"""The registry of all kinds of source. Packages add kinds by entry points of `elt_assets.source_kinds`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

from elt_assets.runner.config.environment import Declared
from elt_assets.runner.config.secrets import refuse_reserved_references
from elt_assets.runner.connector import Connector
from elt_assets.runner.kinds.builtin import BuiltIn
from elt_assets.runner.kinds.command import Program
from elt_assets.runner.kinds.image import ImageKind
from elt_assets.runner.kinds.manifest import Manifest, ManifestConnector
from elt_assets.runner.kinds.package import Package
from elt_assets.runner.kinds.tap import Tap
from elt_assets.runner.packages import Installation, is_installed
from elt_assets.runner.singer_tap import SingerTap
from elt_assets.runner.source_kind import ConnectorSpec, SourceKind, Value


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
