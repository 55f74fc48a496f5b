"""Run a module as `python -m` does, but without the working directory on the path.

The packages of this project are those beside this one, even if `PYTHONPATH` names a folder with another
package of the same name. All other modules are searched for on the path, in its order.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 10 ms to import
_PACKAGES = os.path.dirname(os.path.dirname(_FOLDER))  # noqa: PTH120
_OWN = frozenset(["connectors", "elt_assets"])


class OwnPackageFinder:
    """Finds the packages of this project in its own folder, wherever else their names occur."""

    @staticmethod
    def find_spec(
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG004 - as the next one, of the import system
        target: ModuleType | None = None,  # noqa: ARG004
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [_PACKAGES]) if name in _OWN else None


if __name__ == "__main__":
    sys.path = [folder for folder in sys.path if folder != _FOLDER]
    sys.meta_path.insert(0, OwnPackageFinder)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
