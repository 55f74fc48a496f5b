"""The kind `tap:`, a Singer tap: a program on this machine, or a package from PyPI."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elt_assets.runner.config.environment import Declared, Environment
from elt_assets.runner.kinds.command import COMMAND_LINE, find_programs
from elt_assets.runner.kinds.package import INSTALLED, TAP_NAME
from elt_assets.runner.packages import install, list_installed, package_name
from elt_assets.runner.source_kind import ConnectorSpec, SourceKind, Value


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
