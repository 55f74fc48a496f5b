"""Find the Python of a connector's environment: `python` beside `package` or `tap` in a connection's YAML."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from elt_assets.errors import ConfigError
from elt_assets.machine_faults import EXHAUSTED
from elt_assets.runner.config.environment import INSTALLER
from elt_assets.runner.uv import find_uv

VERSION = re.compile(r"3\.\d{1,2}(\.\d{1,2})?")
"""Pattern of a version of Python."""
_OWN = (f"{sys.version_info.major}.{sys.version_info.minor}", sys.version.split()[0])
_PRINT_VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
_FIND = ["find", "--system"]
_TIMEOUT_SECONDS = 30
_DOWNLOAD_SECONDS = 600
"""Time limit for uv to bring an interpreter."""


def check_python(python: object) -> str:
    """Return the `python` of a connection unchanged, if it is a version or a path.

    Raises:
        ValueError: it is neither, as a number, of which YAML drops a zero at its end.
    """
    if isinstance(python, str) and (VERSION.fullmatch(python) or "/" in python):
        return python
    raise ValueError(
        'write a version in quotes, as "3.12", or the path of an interpreter, as /opt/python/bin/python3'
    )


def environment_label(python: str | None) -> str:
    """Return what the folder of an environment is called by its Python: `py3.12`, or `path` for a path."""
    version = _OWN[0] if python is None else python
    return f"py{version}" if VERSION.fullmatch(version) else "path"


def find_python(python: str | None) -> str:
    """Return the interpreter that a connection names; this process's own if it names none.

    It is searched for in this order: this Python, `python3.X` on the `PATH`, those that uv knows. If there
    is none, uv may bring one.

    Raises:
        ConfigError: there is none, or a path is not that of an interpreter that can be started.
    """
    if python is None or python in _OWN:
        return sys.executable
    if not VERSION.fullmatch(python):
        path = str(Path(python).expanduser())
        if _version(path) is None:
            raise ConfigError(
                f"python: {path} is not an interpreter that can be started",
                guidance="write the path of a Python 3, or a version",
            )
        return path
    program = shutil.which(f"python{'.'.join(python.split('.')[:2])}")
    if program is not None and f"{_version(program)}.".startswith(f"{python}."):
        return program
    return _ask_uv(python)


def _ask_uv(python: str) -> str:
    uv, detail = find_uv(), ""
    for words in (_FIND, ["install", "--no-bin"], _FIND) if uv is not None else ():
        done = _run([str(uv), "python", *words, "--directory=/", python], _DOWNLOAD_SECONDS)
        if done is not None and done.returncode == 0 and words == _FIND:
            return done.stdout.strip()
        detail = done.stderr.strip() if done is not None else "uv exceeded its time limit"
    raise ConfigError(
        f"python: there is no Python {python} on this machine"
        + ("" if uv is None else ", and uv could not bring it"),
        guidance=f"install it, so that `python{python}` is on the PATH of Dagster, or uv finds it; write the "
        "path of an interpreter" + ("; or install uv, which brings one" if uv is None else ""),
        detail=detail or None,
    )


def _version(program: str) -> str | None:
    """Return the version of an interpreter; None if it cannot be started or is not Python 3."""
    done = _run([program, "-I", "-S", "-c", _PRINT_VERSION], _TIMEOUT_SECONDS)
    version = done.stdout.strip() if done is not None and done.returncode == 0 else ""
    return version if VERSION.fullmatch(version) else None


def _run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    variables, _ = INSTALLER.variables()
    try:
        return subprocess.run(
            command,
            env={**variables, "PATH": os.environ.get("PATH", os.defpath)},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return None
