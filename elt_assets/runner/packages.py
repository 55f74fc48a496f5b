"""Connectors from PyPI, each in a virtual environment of its own.

No code of a package runs while it is installed: pip takes wheels alone, unless the connection allows source
distributions, and the programs are found in the package's metadata, not by starting its Python.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from elt_assets.errors import ConfigError, TransientError
from elt_assets.protocol.masking import Masker
from elt_assets.runner.config.credentials import secrets_in
from elt_assets.runner.config.environment import INSTALLER
from elt_assets.runner.process.child import Process
from elt_assets.runner.process.locks import exclusive
from elt_assets.storage.directories import make_private

_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MISSING = re.compile(r"No matching distribution found for (?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)")
_HASHES = re.compile("do not match the hashes|in --require-hashes mode", re.IGNORECASE)
_DONE = ".installed"
_SHOWN = 2_000
"""Characters of pip's output that an error shows: its last ones."""


@dataclass(frozen=True)
class Installation:
    """How a package is installed: `source.install` in a connection's YAML.

    Args:
        source_distributions: whether pip may build from source, which runs code of what it builds: all
            packages (True), those named here, or none.
        lock_file: a requirements file that has every package's version and hash; nothing else is installed.
        seconds: how long pip may take.
    """

    source_distributions: bool | list[str] = False
    lock_file: Path | None = None
    seconds: float = 1800

    def __post_init__(self) -> None:
        for name in self._built:
            if not _NAME.fullmatch(name):
                raise ValueError(f"source_distributions: {name!r} is no name of a package")
        if self.seconds <= 0:
            raise ValueError("seconds: write a number greater than 0")

    def arguments(self, requirement: str) -> list[str]:
        """What pip is told to install, and from what."""
        wheels = [] if self.source_distributions is True else ["--only-binary=:all:"]
        built = [f"--no-binary={name}" for name in self._built]
        locked = ["--require-hashes", f"--requirement={self.lock_file}"]
        return [*wheels, *built, *([requirement] if self.lock_file is None else locked)]

    def key(self) -> str:
        """Tells environments apart that are installed in different ways; empty for the default way.

        Raises:
            ConfigError: the lock file cannot be read.
        """
        lock = b"" if self.lock_file is None else _read(self.lock_file)
        if not lock and not self.source_distributions:
            return ""
        way = f"{self.source_distributions}\n".encode() + lock
        return f"-{hashlib.sha256(way).hexdigest()[:16]}"

    @property
    def _built(self) -> Sequence[str]:
        return () if isinstance(self.source_distributions, bool) else self.source_distributions


def package_name(requirement: str) -> str:
    """The name in `name==version`.

    Raises:
        ConfigError: it is anything else.
    """
    return _pinned(requirement)[0]


def install(requirement: str, home: Path, how: Installation | None = None) -> Path:
    """The executable of a pinned PyPI package, installed under `home` on first use.

    An environment is reused by exact version, Python and way of installation; a half-made one is made again.
    Safe beside other processes that install the same.

    Raises:
        ConfigError: the requirement is not `name==version`, cannot be installed so, or has no program.
        TransientError: the installation failed for another reason, or took too long.
    """
    how = how or Installation()
    name, version = _pinned(requirement)
    make_private(home)
    environment = _environment(requirement, home, how)
    done = environment / _DONE
    if not done.exists():
        with exclusive(home / f".{environment.name}.lock"):
            if not done.exists():
                shutil.rmtree(environment, ignore_errors=True)
                venv.create(environment, with_pip=True)
                _run_pip(environment, requirement, how)
                program = _program(name, _programs(environment, name, version, how))
                # In one step: whoever sees the file, without the lock too, sees it whole.
                partial = done.with_suffix(".partial")
                partial.write_text(program)
                partial.replace(done)
    return environment / "bin" / done.read_text()


def is_installed(requirement: str, home: Path, how: Installation | None = None) -> bool:
    """Whether `install` has nothing to do."""
    return (_environment(requirement, home, how or Installation()) / _DONE).exists()


def _environment(requirement: str, home: Path, how: Installation) -> Path:
    return home / f"{requirement}-py{sys.version_info.major}.{sys.version_info.minor}{how.key()}"


def _pinned(requirement: str) -> tuple[str, str]:
    match = _PINNED.fullmatch(requirement)
    if match is None:
        raise ConfigError(
            f"{requirement!r} names no exact version",
            guidance="write `name==version`, so that every run uses the same connector",
        )
    return match["name"], match["version"]


def _run_pip(environment: Path, requirement: str, how: Installation) -> None:
    variables, _ = INSTALLER.variables()
    # Isolated (-I), so that no module of the working directory is taken for one of pip's.
    pip = [str(environment / "bin" / "python"), "-I", "-m", "pip", "install", "--quiet"]
    options = ["--disable-pip-version-check", "--no-input", *how.arguments(requirement)]
    deadline = time.monotonic() + how.seconds
    with Process([*pip, *options], environment=variables, deadline=deadline) as process:
        try:
            for _ in process.lines():
                pass
            code = process.wait()
        except TransientError:
            raise TransientError(
                f"installing {requirement} took longer than {how.seconds:g} seconds",
                guidance="if it needs longer, set `install: {seconds: …}` beside the package in the YAML",
            ) from None
        if code != 0:
            raise _failure(requirement, process.stderr_tail)


def _failure(requirement: str, output: str) -> ConfigError | TransientError:
    """What pip's failure means, its output without secrets."""
    known = (text for name, value in os.environ.items() for text in secrets_in(name, value))
    detail = Masker(known)(output)[-_SHOWN:]
    message = f"installing {requirement} failed"
    missing = _MISSING.search(output)
    if missing is not None and "connection broken" not in output:
        name = missing["name"]
        return ConfigError(
            f"{message}: there is no wheel of {name} that fits",
            guidance="correct the version; or, if there is a source distribution alone and you trust it, "
            f"allow pip to build it: `install: {{source_distributions: [{name}]}}` beside the package in the "
            "YAML",
            detail=detail,
        )
    if _HASHES.search(output):
        return ConfigError(
            f"{message}: the packages do not match the lock file",
            guidance="make the lock file anew, with a hash of every package that is needed",
            detail=detail,
        )
    return TransientError(message, detail=detail)


def _programs(environment: Path, name: str, version: str, how: Installation) -> list[str]:
    """The programs of an installed package, by its metadata.

    Raises:
        ConfigError: the lock file has it in another version, or not at all.
    """
    places = [str(place) for place in environment.glob("lib/python*/site-packages")]
    found = next(iter(distributions(name=name, path=places)), None)
    if how.lock_file is not None and (found is None or found.version != version):
        raise ConfigError(
            f"{how.lock_file} installs {found.version if found else 'no version'} of {name}, "
            f"and {version} is wanted",
            guidance="write the same version in the connection's YAML and in the lock file",
        )
    scripts = found.entry_points.select(group="console_scripts") if found else ()
    return [script.name for script in scripts]


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


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the lock file {path} cannot be read: {error.strerror}") from error
