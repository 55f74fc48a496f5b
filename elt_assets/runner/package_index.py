"""What the package index has, asked through pip."""

from __future__ import annotations

import re
import subprocess
import sys

from elt_assets.errors import ConfigError, TransientError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FOUND = re.compile(r"^\S+ \((?P<version>[^)]+)\)", re.MULTILINE)
_SECONDS = 120


def newest_version(name: str) -> str:
    """Return the newest version of a package that this Python can run.

    Raises:
        ConfigError: the index has no such package.
        TransientError: the index cannot be reached.
    """
    remedy = f"or name a version yourself: {name}==VERSION"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no package's name", guidance="write NAME or NAME==VERSION")
    command = [
        sys.executable,
        "-m",
        "pip",
        "index",
        "versions",
        "--disable-pip-version-check",
        name,
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise TransientError(
            f"the package index did not tell the newest version of {name} within {_SECONDS} s",
            guidance=f"try again later, {remedy}",
        ) from None
    found = _FOUND.search(done.stdout)
    if done.returncode == 0 and found is not None:
        return found["version"]
    unreachable = "connection broken" in done.stderr
    if "No matching distribution" in done.stderr and not unreachable:
        raise ConfigError(
            f"pip found no package {name} for this Python",
            guidance=f"correct the name, or see whether pip reaches its index, {remedy}",
        )
    raise TransientError(
        f"the package index cannot be asked for the newest version of {name}",
        guidance=f"see whether this machine is online, {remedy}",
        detail=done.stderr[-2000:],
    )
