"""The kind `connector:`, a built-in connector of this project."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pkgutil import iter_modules

from elt_assets.errors import ConfigError
from elt_assets.runner.config.environment import Declared, Environment
from elt_assets.runner.kinds.source_kind import Command, Installed, SourceKind, Value

_PACKAGE = "connectors"
_NOT_CONNECTORS = ("sdk",)
_PYTHON = re.compile("PYTHONPATH|VIRTUAL_ENV")


class BuiltIn(SourceKind):
    """Runs a module of this project with this Python."""

    key = "connector"
    value_type = str
    examples = (("connector: faker", "a built-in connector"),)
    label = "python"
    reports_new_data = True

    def command(self, value: Value, packages: Installed) -> tuple[Command, str]:
        known = built_in()
        if value not in known:
            raise ConfigError(
                f"there is no built-in connector {value!r}",
                guidance=f"built in: {', '.join(known)}; run others with `command:` or `package:`",
            )
        return lambda: [sys.executable, "-m", f"{_PACKAGE}.{value}"], value

    def environment(self, value: Value, declared: Declared | None) -> Environment:
        return Environment(declared, needs=_PYTHON)


def built_in() -> list[str]:
    """Return the names of this project's connectors, without importing them."""
    spec = find_spec(_PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return sorted(m.name for m in iter_modules(places) if m.name not in _NOT_CONNECTORS)
