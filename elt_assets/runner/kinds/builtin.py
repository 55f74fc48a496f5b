"""`connector:`, one of the connectors that come with this project."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pkgutil import iter_modules

from elt_assets.errors import ConfigError
from elt_assets.runner.config.environment import Declared, Environment
from elt_assets.runner.kinds.source_kind import Command, Installed, SourceKind, Value

_PACKAGE = "connectors"
_NO_CONNECTOR = ("sdk",)
_PYTHON = re.compile("PYTHONPATH|VIRTUAL_ENV")


class BuiltIn(SourceKind):
    """A module of this project, run by this Python."""

    key = "connector"
    value_type = str
    examples = (("connector: faker", "one that is built in"),)
    label = "python"
    tells_news = True

    def command(self, value: Value, packages: Installed) -> tuple[Command, str]:
        known = built_in()
        if value not in known:
            raise ConfigError(
                f"there is no built-in connector {value!r}",
                guidance=f"built in: {', '.join(known)}; others run by `command:` or `package:`",
            )
        return lambda: [sys.executable, "-m", f"{_PACKAGE}.{value}"], value

    def environment(self, value: Value, declared: Declared | None) -> Environment:
        return Environment(declared, needs=_PYTHON)


def built_in() -> list[str]:
    """The names of the connectors that come with this project; none of them is imported."""
    spec = find_spec(_PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return sorted(m.name for m in iter_modules(places) if m.name not in _NO_CONNECTOR)
