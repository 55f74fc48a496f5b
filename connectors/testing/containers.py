"""Run a command that starts a container, and remove the container if the end of its client left it."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from connectors.testing.process import Ended, run_process
from elt_assets.errors import ConfigError

NAME = "{container}"
"""Stands for the name of the container, in the command that starts it and in the one that removes it."""

_REMOVAL_SECONDS = 60.0
"""Time limit for the removal of a container."""


@dataclass(frozen=True)
class Containers:
    """Runs commands that start a container. `removal`: the command that removes one, in any state.

    Raises:
        ConfigError: the container has no name in `removal`.
    """

    removal: Sequence[str]

    def __post_init__(self) -> None:
        _require_name(self.removal, "the command of --removal")

    def run(self, command: Sequence[str], stdout: Path, stderr: Path, seconds: float) -> Ended:
        """Run a command as `run_process` does, in a container with a name of its own.

        Raises:
            ConfigError: the command cannot be started, or the container has no name in it.
        """
        _require_name(command, "the command of the connector")
        name = f"elt-{uuid.uuid4().hex[:16]}"
        ended = None
        try:
            ended = run_process(_name(command, name), stdout, stderr, seconds)
        finally:
            if ended is None or ended.code is None or ended.code < 0:
                self._remove(name)
        return ended

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                _name(self.removal, name),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_REMOVAL_SECONDS,
                check=False,
            )


def _name(command: Sequence[str], name: str) -> list[str]:
    return [word.replace(NAME, name) for word in command]


def _require_name(command: Sequence[str], what: str) -> None:
    if not any(NAME in word for word in command):
        raise ConfigError(
            f"{what} has no {NAME}, which stands for the name of the container",
            guidance=f"write --removal 'docker rm --force {NAME}' -- docker run --rm --name {NAME} …",
        )
