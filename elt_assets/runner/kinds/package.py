"""The kind `package:`, a connector from PyPI, installed in its own environment on first use."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from elt_assets.runner.config.environment import Declared, Environment
from elt_assets.runner.packages import install, list_installed, package_name
from elt_assets.runner.source_kind import ConnectorSpec, SourceKind, Value

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
