"""Spark's reader of JDBC as a peer: by the Spark of this project, with PostgreSQL's driver from Maven."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measure import environment

DRIVER = "org.postgresql:postgresql:42.7.13"
_ANNOTATIONS = "org.checkerframework:checker-qual"
"""Needed by the compiler of the driver only."""
_SECONDS = 300
_START = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate().stop()"


def install_driver(peer_folder: Path) -> Mapping[str, str] | None:
    """Return the environment of a Spark that has the driver.

    None, with a message, if there is no driver: a machine may not reach Maven's repository.
    """
    options = (
        f"--packages {DRIVER} --exclude-packages {_ANNOTATIONS} --master local[2] "
        f"--driver-memory 2g --conf spark.jars.ivy={peer_folder / 'ivy'} pyspark-shell"
    )
    variables = {"PYSPARK_SUBMIT_ARGS": options}
    done = subprocess.run(
        [sys.executable, "-c", _START],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if done.returncode == 0:
        return variables
    lines = [line for line in done.stderr.splitlines() if "unresolved" in line]
    reason = (lines or done.stderr.splitlines())[-1]
    print(
        f"Spark's reader of JDBC is left out, since {DRIVER} cannot be had: {reason}",
        file=sys.stderr,
    )
    return None
