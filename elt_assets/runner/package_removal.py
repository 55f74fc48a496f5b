"""Remove the environment of a package that no connection uses any more."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
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
    with exclusive(home / f".{environment.name}.lock"):
        if any(_runs_from(environment, command) for command in _command_lines()):
            return False
        (environment / DONE).unlink(missing_ok=True)
        shutil.rmtree(environment, ignore_errors=True)
    return not environment.exists()


def _runs_from(environment: Path, command: bytes) -> bool:
    folder = f"{environment}/".encode()
    return any(word.startswith(folder) for word in command.split(b"\0"))


def _command_lines() -> Iterator[bytes]:
    """Yield the command lines of the processes of this machine, as far as its system shows them."""
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            yield (folder / "cmdline").read_bytes()
