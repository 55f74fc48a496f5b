"""Install connectors from PyPI, each in its own virtual environment, look up their versions, and remove them.

`kinds` and `manifests` install, as `connection.connector` and `source_kind` say (`Installation`); `elt new`
and `elt upgrade` look up versions; the maintenance job of `orchestration.table_jobs` removes.

No code of a package runs while it is installed. uv installs only wheels, unless the connection allows source
distributions. The connector's program is found in the package's metadata, not by running its Python.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.runner.locks import exclusive
from elt_assets.runner.process import DeadlineError
from elt_assets.runner.uv import UvResult, installation_failure, run_uv
from elt_assets.storage.folders import make_private

_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)")
_ENVIRONMENT = re.compile(
    rf"(?P<requirement>{_PINNED.pattern})-(py3\.\d+(\.\d+)?|path)(-[0-9a-f]{{16}})?"
)
"""Matches the name of the folder of an environment."""
PACKAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PYTHON = re.compile(r"3\.\d{1,2}(\.\d{1,2})?")
"""Pattern of a version of Python."""
_OWN_PYTHON = (f"{sys.version_info.major}.{sys.version_info.minor}", sys.version.split()[0])
DONE = ".installed"
"""The file of a complete environment, which holds the name of its program."""


@dataclass(frozen=True)
class Installation:
    """The options for installing a package: `source.install` in a connection's YAML."""

    source_distributions: bool | list[str] = field(
        default=False,
        metadata={
            "description": "Packages that uv may build from source, which runs their code: names, or `true`."
        },
    )
    lock_file: Path | None = field(
        default=None,
        metadata={
            "description": "Requirements file with versions and hashes of all packages; others are refused."
        },
    )
    seconds: float = field(
        default=1800, metadata={"description": "Time limit for uv, in seconds; above 0."}
    )
    packages: Sequence[str] = field(
        default=(),
        metadata={
            "description": "Further packages, as `name==version`, such as those that a manifest imports."
        },
    )
    python: str | None = field(
        default=None,
        metadata={
            "description": "Python of the environment; written beside the package, not here."
        },
    )

    def __post_init__(self) -> None:
        for name in self._built_from_source:
            if not PACKAGE_NAME.fullmatch(name):
                raise ValueError(f"source_distributions: {name!r} is not a package name")
        for package in self.packages:
            if not _PINNED.fullmatch(package):
                raise ValueError(
                    f"packages: {package!r} names no exact version; write name==version"
                )
        if self.packages and self.lock_file is not None:
            raise ValueError("packages: the lock file already names every package; add them there")
        if self.seconds <= 0:
            raise ValueError("seconds: write a number greater than 0")

    def arguments(self, requirement: str) -> list[str]:
        """Return the arguments of `uv pip install` that select packages and their form."""
        wheels = [] if self.source_distributions is True else ["--only-binary=:all:"]
        built = [f"--no-binary={name}" for name in self._built_from_source]
        named = [requirement, *self.packages]
        if self.lock_file is not None:
            named = ["--require-hashes", f"--requirement={self.lock_file.absolute()}"]
        return [*wheels, *built, *named]

    def key(self) -> str:
        """Return a suffix that separates the environments of different options; empty for the defaults.

        Raises:
            ConfigError: the lock file cannot be read.
        """
        lock = b"" if self.lock_file is None else _read(self.lock_file)
        path = f"{self.python}\n" if _python_label(self.python) == "path" else ""
        if not lock and not self.source_distributions and not self.packages and not path:
            return ""
        packages = "".join(f"{package}\n" for package in self.packages)
        options = f"{self.source_distributions}\n{packages}{path}".encode() + lock
        return f"-{hashlib.sha256(options).hexdigest()[:16]}"

    @property
    def _built_from_source(self) -> Sequence[str]:
        """Return the packages that the options name to be built from source."""
        return () if isinstance(self.source_distributions, bool) else self.source_distributions


def check_python(python: object) -> str:
    """Return the `python` of a connection unchanged, if it is a version or a path.

    Raises:
        ValueError: it is neither, as a number, of which YAML drops a zero at its end.
    """
    if isinstance(python, str) and (_PYTHON.fullmatch(python) or "/" in python):
        return python
    raise ValueError(
        'write a version in quotes, as "3.12", or the path of an interpreter, as /opt/python/bin/python3'
    )


def package_name(requirement: str) -> str:
    """Return the name in `name==version`.

    Raises:
        ConfigError: the requirement has another form.
    """
    return _split_pin(requirement)[0]


def install(requirement: str, home: Path, options: Installation | None = None) -> Path:
    """Return the executable of a pinned PyPI package, which is installed under `home` on first use.

    An environment is reused for the same version, Python and options. An incomplete environment is created
    again. Several processes may install the same package at the same time.

    Raises:
        ConfigError: the requirement is not `name==version`, cannot be installed with these options, or has
            no program that is clearly the connector; or this machine does not have the Python of the options.
        TransientError: the installation failed for another reason, or exceeded its time limit.
    """
    options = options or Installation()
    name, version = _split_pin(requirement)
    make_private(home)
    environment = environment_folder(requirement, home, options)
    done = environment / DONE
    if not done.exists():
        with exclusive(home / f".{environment.name}.lock", 2 * options.seconds):
            if not done.exists():
                shutil.rmtree(environment, ignore_errors=True)
                _create_environment(environment, requirement, options)
                program = _program(name, _programs(environment, name, version, options))
                # Atomic: a process that does not hold the lock never sees an incomplete file.
                partial = done.with_suffix(".partial")
                partial.write_text(program)
                partial.replace(done)
    with contextlib.suppress(OSError):
        done.touch()  # for `sweep`: the time of the last use
    return environment / "bin" / done.read_text()


def _create_environment(environment: Path, requirement: str, options: Installation) -> None:
    """Create the environment of a package, and install it, within the time limit of its options."""
    deadline = time.monotonic() + options.seconds
    python = options.python
    if python is None or python in _OWN_PYTHON:
        python = sys.executable
    selection = f"--python={Path(python).expanduser() if '/' in python else python}"
    try:
        result = run_uv(["venv", selection, str(environment)], deadline)
        if result.code != 0:
            raise _python_failure(options.python, result)
        target = f"--python={environment / 'bin' / 'python'}"
        result = run_uv(["pip", "install", target, *options.arguments(requirement)], deadline)
    except DeadlineError:
        raise TransientError(
            f"installing {requirement} took longer than {options.seconds:g} seconds",
            guidance="if it needs longer, set `install: {seconds: …}` beside the package in the YAML",
        ) from None
    if result.code != 0:
        raise installation_failure(requirement, result)


def _python_failure(python: str | None, result: UvResult) -> EltError:
    """Return the error for an environment that cannot be created with a Python."""
    if python is None or python in _OWN_PYTHON:
        return TransientError(
            f"uv cannot create an environment with {sys.executable}",
            guidance="check the space on the disk, and whether this user may write to the folder `packages` "
            "of DAGSTER_HOME",
            detail=result.detail,
        )
    if "/" in python:
        return ConfigError(
            f"python: {python} is not an interpreter that can be started",
            guidance="write the path of a Python 3, or a version",
            detail=result.detail,
        )
    return ConfigError(
        f"python: there is no Python {python} on this machine, and uv could not bring it",
        guidance=f"install it, so that `python{python}` is on the PATH of Dagster, or uv finds it; or write "
        "the path of an interpreter",
        detail=result.detail,
    )


def sweep(home: Path, seconds: float) -> int:
    """Remove the environments under `home` that no run has used for `seconds`; the next use installs again.

    Returns:
        The number of removed environments.
    """
    oldest, removed = time.time() - seconds, 0
    for environment in home.glob("*"):
        if _ENVIRONMENT.fullmatch(environment.name) and _last_use(environment) < oldest:
            with exclusive(home / f".{environment.name}.lock"):
                if _last_use(environment) < oldest:
                    (environment / DONE).unlink(missing_ok=True)
                    shutil.rmtree(environment, ignore_errors=True)
                    removed += 1
    return removed


def _last_use(environment: Path) -> float:
    done = environment / DONE
    return (done if done.exists() else environment).stat().st_mtime


def is_installed(requirement: str, home: Path, options: Installation | None = None) -> bool:
    """Return whether `install` finds a complete environment."""
    return (environment_folder(requirement, home, options or Installation()) / DONE).exists()


def list_installed(home: Path) -> list[str]:
    """Return the packages, as `name==version`, that `install` has installed under `home`."""
    folders = [path.parent.name for path in home.glob(f"*/{DONE}")]
    environments = (_ENVIRONMENT.fullmatch(name) for name in folders)
    return sorted({match["requirement"] for match in environments if match})


def environment_folder(requirement: str, home: Path, options: Installation) -> Path:
    """Return the folder of the environment of a package with these options."""
    return home / f"{requirement}-{_python_label(options.python)}{options.key()}"


def _python_label(python: str | None) -> str:
    version = _OWN_PYTHON[0] if python is None else python
    return f"py{version}" if _PYTHON.fullmatch(version) else "path"


def _split_pin(requirement: str) -> tuple[str, str]:
    match = _PINNED.fullmatch(requirement)
    if match is None:
        raise ConfigError(
            f"{requirement!r} names no exact version",
            guidance="write `name==version`, so that every run uses the same connector",
        )
    return match["name"], match["version"]


def _programs(environment: Path, name: str, version: str, options: Installation) -> list[str]:
    """Return the programs of an installed package, from its metadata.

    Raises:
        ConfigError: the lock file installs another version of the package, or does not install it.
    """
    places = [str(place) for place in environment.glob("lib/python*/site-packages")]
    distribution = next(iter(distributions(name=name, path=places)), None)
    if options.lock_file is not None and (distribution is None or distribution.version != version):
        raise ConfigError(
            f"{options.lock_file} installs {distribution.version if distribution else 'no version'} of "
            f"{name}, but the connection requires {version}",
            guidance="write the same version in the connection's YAML and in the lock file",
        )
    scripts = distribution.entry_points.select(group="console_scripts") if distribution else ()
    return [script.name for script in scripts]


def _program(name: str, programs: list[str]) -> str:
    """Return the connector among a package's programs.

    It is the only program, or the one whose name is the package's name or the end of it
    (`airbyte-source-x`, `meltanolabs-tap-x`).
    """
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
        raise ConfigError(
            f"the lock file {path} cannot be read: {error.strerror}",
            guidance="make it readable, or correct `install: {lock_file: …}` in the YAML",
        ) from error


_TIMEOUT_SECONDS = 120
_COMPILE = ["pip", "compile", "--no-deps", "--no-header", "--no-annotate", "--only-binary=:all:"]


def newest_version(name: str) -> str:
    """Return the newest version of a package that has a wheel for this Python.

    Raises:
        ConfigError: the name is not a package name, or the index has no such wheel.
        TransientError: uv cannot reach the index.
    """
    remedy = f"or name a version yourself: {name}==VERSION"
    if not PACKAGE_NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a package name", guidance="write NAME or NAME==VERSION")
    command = [*_COMPILE, f"--python={sys.executable}", "-"]
    try:
        result = run_uv(command, time.monotonic() + _TIMEOUT_SECONDS, [name.encode()])
    except DeadlineError:
        raise TransientError(
            f"the package index did not return the newest version of {name} "
            f"within {_TIMEOUT_SECONDS} s",
            guidance=f"try again later, {remedy}",
        ) from None
    if result.code == 0:
        return result.stdout.strip().partition("==")[2]
    if result.has_no_solution:
        raise ConfigError(
            f"there is no package {name} with a wheel for this Python",
            guidance=f"correct the name, or check the settings of the package index, {remedy}",
            detail=result.detail,
        )
    raise TransientError(
        f"uv cannot look up the newest version of {name} in the package index",
        guidance=f"check that this machine is online, {remedy}",
        detail=result.detail,
    )


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
