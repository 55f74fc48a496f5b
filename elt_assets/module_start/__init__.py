"""Command lines that run a Python module whatever the working directory holds.

`python -m MODULE` looks for modules in the working directory first. A folder `connectors` of a team's project
would then hide the package of that name of this project, and a file `types.py` a module of Python itself. The
option `-P` of Python prevents that, but Python 3.10 does not have it. So Python runs the folder of this
package, whose `__main__` removes the folder from the path, and then runs the module.
"""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGES = Path(__file__).parents[2]
"""The folder of this project's packages: that of an installation, or the repository."""


def module_command(module: str) -> list[str]:
    """Return the command line that runs a module, which need not be one of this project, with this Python."""
    return [sys.executable, str(Path(__file__).parent), module]
