"""A program that reads a table with pandas, as docs/lake.md shows it, ends without an error."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.support.documents import code_blocks
from tests.support.project import REPOSITORY

pytestmark = pytest.mark.process

DOCUMENT = (REPOSITORY / "docs" / "lake.md").read_text()
PATH = "dagster_home/lake/shop/users"
BUSY = "while True: pass"


def program() -> str:
    """Return the program that the document shows."""
    [found] = [block for block in code_blocks(DOCUMENT, "python") if "to_pandas" in block]
    return f"{found}assert len(users) == 5_000\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a table of several files at the place that the program reads."""
    rows = pa.table({"id": range(1_000), "name": ["somebody"] * 1_000})
    for _ in range(5):
        write_deltalake(str(tmp_path / PATH), rows, mode="append")
    return tmp_path


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """The program runs beside others that keep two cores busy: threads end late there."""
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    try:
        yield
    finally:
        for each in programs:
            each.kill()
            each.wait()


def assert_ends_well(folder: Path, times: int) -> None:
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, "-c", program()],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_program_that_reads_with_pandas_exits_without_an_error(folder: Path) -> None:
    """Arrow's threads that read through a file system in Python may free what they have read while Python
    ends, which aborts the process: of 60 such programs up to 16 were."""
    assert_ends_well(folder, 10)


@pytest.mark.long
def test_a_program_that_reads_with_pandas_exits_without_an_error_under_load(folder: Path) -> None:
    with busy():
        assert_ends_well(folder, 200)
