"""Connectors from PyPI, each in a virtual environment of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from elt_assets.errors import ConfigError, TransientError
from elt_assets.runner.locking import exclusive

_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==[A-Za-z0-9.!+_-]+")
_ENTRY_POINTS = """
import sys
from importlib.metadata import distribution
print("\\n".join(p.name for p in distribution(sys.argv[1]).entry_points if p.group == "console_scripts"))
"""


def package_name(requirement: str) -> str:
    """The name in `name==version`.

    Raises:
        ConfigError: it is anything else.
    """
    match = _PINNED.fullmatch(requirement)
    if match is None:
        raise ConfigError(
            f"{requirement!r} names no exact version",
            guidance="write `name==version`, so that every run uses the same connector",
        )
    return match["name"]


def install(requirement: str, home: Path) -> Path:
    """The executable of a pinned PyPI package, installed under `home` on first use.

    An environment is reused by exact version and Python; a half-made one is made again. Safe beside
    other processes that install the same.

    Raises:
        ConfigError: the requirement is not `name==version`, is not to be had, or has no program.
        TransientError: the installation failed for another reason.
    """
    name = package_name(requirement)
    version = f"py{sys.version_info.major}.{sys.version_info.minor}"
    home.mkdir(parents=True, exist_ok=True)
    environment = home / f"{requirement}-{version}"
    done = environment / ".installed"
    if not done.exists():
        with exclusive(home / f".{requirement}-{version}.lock"):
            if not done.exists():
                program = _create(requirement, name, environment)
                # In one step: whoever sees the file, without the lock too, sees it whole.
                partial = done.with_suffix(".partial")
                partial.write_text(program)
                partial.replace(done)
    return environment / "bin" / done.read_text()


def _create(requirement: str, name: str, environment: Path) -> str:
    shutil.rmtree(environment, ignore_errors=True)
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", requirement]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        unreachable = "connection broken" in done.stderr
        missing = "No matching distribution" in done.stderr and not unreachable
        kind = ConfigError if missing else TransientError
        raise kind(f"installing {requirement} failed", detail=done.stderr[-2000:])
    found = subprocess.run(
        [python, "-c", _ENTRY_POINTS, name], capture_output=True, text=True, check=True
    )
    return _program(name, found.stdout.split())


def _program(name: str, programs: list[str]) -> str:
    """The connector among a package's programs: the only one, or the one called as the package, or as
    its name ends (`airbyte-source-x`, `meltanolabs-tap-x`)."""
    if len(programs) == 1:
        return programs[0]
    named = [program for program in programs if f"-{name}".endswith(f"-{program}")]
    chosen = max(named, key=len, default=None)
    if chosen is None:
        raise ConfigError(
            f"the package {name} has no program that is clearly the connector: {programs}",
            guidance="install it yourself, and name the program: `command: [<program>]`, or `tap:`",
        )
    return chosen
