"""Remove the environment of a package that no connection uses any more."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from elt_assets.runner.packages import DONE, Installation, environment_folder
from elt_assets.runner.process.locks import exclusive

_PROCESSES = Path("/proc")


def remove_environment(requirement: str, home: Path, options: Installation | None = None) -> bool:
    """Remove the environment of a package, unless a process of this machine runs a program of it.

    Returns:
        Whether there is no such environment any more.
    """
    environment = environment_folder(requirement, home, options or Installation())
    folder = f"{environment}/".encode()
    with exclusive(home / f".{environment.name}.lock"):
        for process in _PROCESSES.glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                words = (process / "cmdline").read_bytes().split(b"\0")
                if any(word.startswith(folder) for word in words):
                    return False
        (environment / DONE).unlink(missing_ok=True)
        shutil.rmtree(environment, ignore_errors=True)
    return not environment.exists()
