"""The kind `package:`, a connector from PyPI, installed in its own environment on first use."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from elt_assets.runner.config.environment import Declared, Environment
from elt_assets.runner.kinds.source_kind import Command, Installed, SourceKind, Value
from elt_assets.runner.packages import install, list_installed, package_name

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

    def command(self, value: Value, packages: Installed) -> tuple[Command, str]:
        return package_command(value, packages)

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


def package_command(value: str, packages: Installed) -> tuple[Command, str]:
    """Return the command of a package, which installs the package when it is first called, and its name.

    Raises:
        ConfigError: the value names no exact version.
    """
    package_name(value)  # raises its error when definitions load, rather than at the first run
    return lambda: [str(install(value, packages.folder, packages.options))], value
