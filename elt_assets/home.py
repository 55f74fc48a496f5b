"""Where things land: read from the environment when asked for, never at import."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$DAGSTER_HOME`, or where it would be for this project: `dagster_home` beside the package,
    if it is there, else in the working directory."""
    given = os.environ.get("DAGSTER_HOME")
    if given:
        return Path(given).expanduser()
    beside = Path(__file__).parent.parent / "dagster_home"
    return beside if beside.is_dir() else Path.cwd() / "dagster_home"


def lake() -> str:
    """`$ELT_LAKE`, a path or URI; default `lake` under the home. Without a slash at its end."""
    return (os.environ.get("ELT_LAKE") or str(home() / "lake")).rstrip("/")


def staging() -> Path:
    """`$ELT_STAGING`; default `staging` under the home."""
    return Path(os.environ.get("ELT_STAGING") or home() / "staging").expanduser()


def packages() -> Path:
    """Where connectors from PyPI are installed."""
    return home() / "packages"


def connections() -> Path:
    """`$ELT_DEFS`; default the package's own `defs`: a folder for each connection."""
    given = os.environ.get("ELT_DEFS")
    return Path(given).expanduser() if given else Path(__file__).parent / "defs"
