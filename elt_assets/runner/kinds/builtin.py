"""The kind `connector:`, a Python module that is a connector: one of this project, or of another package."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import entry_points
from pkgutil import iter_modules

from elt_assets.errors import ConfigError
from elt_assets.module_start import PACKAGES, module_command
from elt_assets.runner.source_kind import ConnectorSpec, SourceKind, Value

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
