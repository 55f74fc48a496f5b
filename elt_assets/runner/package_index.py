"""Look up package versions in the package index."""

from __future__ import annotations

import sys
import time

from elt_assets.errors import ConfigError, TransientError
from elt_assets.runner.packages import PACKAGE_NAME
from elt_assets.runner.process.child import DeadlineError
from elt_assets.runner.uv import run_uv

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
