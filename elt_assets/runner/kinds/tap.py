"""`tap:`, a Singer tap: a program of this machine, or a package from PyPI."""

from __future__ import annotations

from pathlib import Path

from elt_assets.runner.config.environment import Declared, Environment
from elt_assets.runner.kinds.command import WORDS
from elt_assets.runner.kinds.package import installed_command
from elt_assets.runner.kinds.source_kind import Command, Installed, SourceKind, Value
from elt_assets.runner.singer_tap import SingerTap


class Tap(SourceKind):
    """A Singer tap; a text names a package, a list is a command line."""

    key = "tap"
    value_type = WORDS | str
    examples = (
        ("tap: [tap-x, --flag]", "any program that is a Singer tap"),
        (
            "tap: meltanolabs-tap-postgres==0.10.0",
            "a tap of a package from PyPI, installed on first use",
        ),
    )
    connector_class = SingerTap
    label = "singer"
    can_reopen = True

    def command(self, value: Value, packages: Installed) -> tuple[Command, str]:
        if isinstance(value, str):
            return installed_command(value, packages)
        return lambda: value, Path(value[0]).name

    def environment(self, value: Value, declared: Declared | None) -> Environment:
        return Environment(declared, closed=isinstance(value, str))

    def package(self, value: Value) -> str | None:
        return value if isinstance(value, str) else None
