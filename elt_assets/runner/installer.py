"""Create the environment of a package, and install into it with uv or pip."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.masking import Masker
from elt_assets.runner.config.credentials import secrets_in
from elt_assets.runner.config.environment import INSTALLER
from elt_assets.runner.process.child import Process
from elt_assets.runner.uv import find_uv, uv_command, uv_environment

_MISSING = re.compile(r"No matching distribution found for (?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)")
_HASHES = re.compile("do not match the hashes|in --require-hashes mode", re.IGNORECASE)
_MAX_OUTPUT = 2_000
"""Maximum number of characters of pip's output in an error. The last ones are kept."""


class Installer:
    """Creates one environment, within a time limit.

    Args:
        environment: the folder of the environment.
        requirement: the package, as `name==version`, for messages.
        seconds: the time limit, from now on.
    """

    def __init__(self, environment: Path, requirement: str, seconds: float):
        self._environment = environment
        self._requirement = requirement
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._variables, _ = INSTALLER.variables()

    def create_environment(self, python: str) -> None:
        """Create the environment with pip and nothing else.

        Args:
            python: the interpreter.

        Raises:
            ConfigError: the interpreter cannot create environments.
            TransientError: the time limit is exceeded.
        """
        if python == sys.executable:
            venv.create(self._environment, with_pip=True)
            return
        command = [python, "-I", "-m", "venv", str(self._environment)]
        code, output = self._run(command, self._variables)
        if code != 0:
            raise ConfigError(
                f"python: {python} cannot create an environment",
                guidance="install its modules `venv` and `ensurepip`, which some systems have in a "
                "package of their own, or name another Python",
                detail=mask_output(output) or None,
            )

    def install(self, arguments: list[str], suits_uv: bool) -> None:
        """Install packages: by uv if this machine has it; if uv fails or cannot be used, by pip.

        Args:
            arguments: the arguments that select packages, for pip and uv.
            suits_uv: whether uv installs the same as pip; else pip installs.

        Raises:
            ConfigError: the packages cannot be installed with these arguments.
            TransientError: the installation failed for another reason, or the time limit is exceeded.
        """
        python = self._environment / "bin" / "python"
        uv = find_uv() if suits_uv else None
        variables = uv_environment(self._variables)
        if uv is not None and variables is not None:
            command = uv_command(uv, python, arguments, variables)
            with contextlib.suppress(ConfigError):  # it cannot be started
                if self._run(command, variables)[0] == 0:
                    return
        # Isolated (-I), so that a module in the working directory cannot replace one of pip's.
        pip = [str(python), "-I", "-m", "pip", "install", "--quiet"]
        command = [*pip, "--disable-pip-version-check", "--no-input", *arguments]
        code, output = self._run(command, self._variables)
        if code != 0:
            raise _failure(self._requirement, output)

    def _run(self, command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str]:
        """Run a command to its end; return its exit code and the end of its stderr."""
        with Process(command, environment=variables, deadline=self._deadline) as process:
            try:
                for _ in process.lines():
                    pass
                return process.wait(), process.stderr_tail
            except TransientError:
                raise TransientError(
                    f"installing {self._requirement} took longer than {self._seconds:g} seconds",
                    guidance="if it needs longer, set `install: {seconds: …}` beside the package in the YAML",
                ) from None


def _failure(requirement: str, output: str) -> ConfigError | TransientError:
    """Return the error for a failed pip, with pip's output masked."""
    detail = mask_output(output)
    message = f"installing {requirement} failed"
    missing = _MISSING.search(output)
    if missing is not None and "connection broken" not in output:
        name = missing["name"]
        return ConfigError(
            f"{message}: there is no compatible wheel of {name}",
            guidance="correct the version; or, if there is only a source distribution and you trust it, "
            f"allow pip to build it: `install: {{source_distributions: [{name}]}}` beside the package in the "
            "YAML",
            detail=detail,
        )
    if _HASHES.search(output):
        return ConfigError(
            f"{message}: the packages do not match the lock file",
            guidance="create the lock file again, with a hash for every required package",
            detail=detail,
        )
    return TransientError(
        message,
        guidance="check the network and the package index; the details contain the output of pip",
        detail=detail,
    )


def mask_output(output: str) -> str:
    """Return the end of pip's output, with the secrets of this process's variables masked."""
    secret_texts = (text for name, value in os.environ.items() for text in secrets_in(name, value))
    return Masker(secret_texts)(output)[-_MAX_OUTPUT:]
