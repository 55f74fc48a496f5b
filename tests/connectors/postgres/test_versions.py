"""The tests of this source with servers of other versions than the one of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.project import REPOSITORY

pytestmark = [pytest.mark.external, pytest.mark.long]

VERSIONS = {
    13: "13.23.0-beta.16",
    14: "14.23.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
    18: "18.4.0-beta.17",
}
OTHERS = ["a_standby_that_is_promoted", "test_versions"]
"""pg_basebackup is that of this machine, and knows no later server."""
SLICES = [
    *("slices_see_one_state", "an_interrupted_read_goes_on", "without_a_key_starts_again"),
    *("rights_that_are_lost", "a_session_that_ends", "a_process_that_is_killed_is_continued"),
]
"""Tests that need a table with several slices: PostgreSQL 13 cannot read a range of pages."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the user of the server can read."""
    with tempfile.TemporaryDirectory(prefix="elt-pg-programs-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("version", VERSIONS)
def test_other_versions(version: int, folder: Path) -> None:
    script = [str(REPOSITORY / "scripts" / "fetch-postgres.sh"), VERSIONS[version], str(folder)]
    fetched = subprocess.run(script, capture_output=True, text=True, check=False)
    assert fetched.returncode == 0, fetched.stderr
    left_out = [*OTHERS, *(SLICES if version < 14 else ())]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long"]
    command += ["-k", " and ".join(f"not {name}" for name in left_out), str(Path(__file__).parent)]
    variables = {"POSTGRES_BIN": fetched.stdout.strip(), "POSTGRES_VERSION": str(version)}
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
