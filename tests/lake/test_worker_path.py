"""Spark's workers do not import what lies in the working directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.project import REPOSITORY

LEAVE = """
import sys
from elt_assets.lake.worker.slices import leave_working_directory
leave_working_directory()
leave_working_directory()
import wave
print(wave.__file__)
print(sys.path.count({!r}))
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not know PYTHONSAFEPATH")
def test_workers_do_not_search_the_working_directory(spark: SparkSession) -> None:
    numbers = spark.sparkContext.parallelize([0], 1)
    [(is_safe, paths)] = numbers.map(
        lambda _: (getattr(sys.flags, "safe_path", False), list(sys.path))
    ).collect()
    assert is_safe and "" not in paths and str(Path.cwd() / "tests") not in paths


@pytest.mark.parametrize("is_named", [False, True])
def test_a_task_leaves_the_working_directory_of_any_worker(tmp_path: Path, is_named: bool) -> None:
    """Also of a session that others have started. A folder that PYTHONPATH names stays."""
    (tmp_path / "wave.py").write_text("")
    (tmp_path / "worker.py").write_text(LEAVE.format(str(tmp_path)))
    places = [str(REPOSITORY), *[str(tmp_path)] * is_named]
    done = subprocess.run(
        [sys.executable, "-m", "worker"],
        cwd=tmp_path,
        # A process before it has left its own.
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(places),
            "ELT_SAFE_PROCESS": str(os.getpid()),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    file, count = done.stdout.split()
    assert (Path(file).parent == tmp_path) is is_named
    assert count == str(int(is_named))
