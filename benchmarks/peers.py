"""The peers' environments, each of its own and outside the project's tree: made on first use."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

DEFAULT_FOLDER = Path("~/.cache/elt-assets-bench")

_VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


@dataclass(frozen=True)
class Peer:
    """A distribution to install, and what does the work with it: a script beside this file, or a program of
    the distribution. `requirement`: of it and what it needs besides, with spaces between them."""

    package: str
    requirement: str
    script: str


PYAIRBYTE = Peer("airbyte", "airbyte>=0.71", "peer_pyairbyte.py")
SINGER_SDK = Peer("singer-sdk", "singer-sdk==0.54.9", "peer_singer_sdk.py")
DUCKDB = Peer("duckdb", "duckdb>=1.4", "peer_limit.py")
DUCKDB_SCANNER = Peer(
    "duckdb-extension-postgres-scanner",
    "duckdb==1.5.5 duckdb-extension-postgres-scanner==1.5.5",
    "peer_tables.py",
)
CONNECTORX = Peer("connectorx", "connectorx==0.4.6 pyarrow", "peer_tables.py")
DLT = Peer(
    "dlt",
    "dlt[deltalake,filesystem,parquet,sql-database]==1.31.0 connectorx==0.4.6 psycopg2-binary",
    "peer_tables.py",
)
SLING = Peer("sling-linux-amd64", "sling-linux-amd64==1.4.11", "peer_tables.py")
"""A program for Linux on x86-64 only."""
AIRBYTE_CDK = Peer("airbyte-cdk", "airbyte-cdk==7.39.1", "source-declarative-manifest")


def version(peer: Peer, folder: Path) -> str | None:
    """The version installed in the peer's environment, None where there is none."""
    python = interpreter(peer, folder)
    if not python.exists():
        return None
    asked = subprocess.run(
        [python, "-c", _VERSION, peer.package], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or None


def ensure(peer: Peer, folder: Path) -> str:
    """Make the peer's environment if need be; returns the version it has."""
    found = version(peer, folder)
    if found is None:
        home = folder / peer.package
        print(f"Installing {peer.requirement} into {home}; this happens once.", file=sys.stderr)
        venv.create(home, clear=True, with_pip=True)
        pip = [str(interpreter(peer, folder)), "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", *peer.requirement.split()], check=True)
        found = version(peer, folder)
    assert found is not None
    return found


def interpreter(peer: Peer, folder: Path) -> Path:
    return folder / peer.package / "bin" / "python"
