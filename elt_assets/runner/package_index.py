"""Look up package versions in the package index, through pip."""

from __future__ import annotations

import re
import subprocess
import sys

from elt_assets.errors import ConfigError, TransientError
from elt_assets.runner.config.environment import INSTALLER
from elt_assets.runner.installer import mask_output

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION_LINE = re.compile(r"^\S+ \((?P<version>[^)]+)\)", re.MULTILINE)
_TIMEOUT_SECONDS = 120


def newest_version(name: str) -> str:
    """Return the newest version of a package that this Python can run.

    Raises:
        ConfigError: the name is not a package name, or the index has no such package.
        TransientError: pip cannot reach the index.
    """
    remedy = f"or name a version yourself: {name}==VERSION"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a package name", guidance="write NAME or NAME==VERSION")
    command = [
        sys.executable,
        "-I",  # as in an installation
        "-m",
        "pip",
        "index",
        "versions",
        "--disable-pip-version-check",
        name,
    ]
    variables, _ = INSTALLER.variables()
    try:
        done = subprocess.run(
            command,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise TransientError(
            f"the package index did not return the newest version of {name} "
            f"within {_TIMEOUT_SECONDS} s",
            guidance=f"try again later, {remedy}",
        ) from None
    match = _VERSION_LINE.search(done.stdout)
    if done.returncode == 0 and match is not None:
        return match["version"]
    unreachable = "connection broken" in done.stderr
    if "No matching distribution" in done.stderr and not unreachable:
        raise ConfigError(
            f"pip found no package {name} for this Python",
            guidance=f"correct the name, or check that pip can reach its index, {remedy}",
        )
    raise TransientError(
        f"pip cannot look up the newest version of {name} in the package index",
        guidance=f"check that this machine is online, {remedy}",
        detail=mask_output(done.stderr),
    )
