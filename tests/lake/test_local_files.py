"""What Spark writes beside tables is in a folder that only its user can enter."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from elt_assets.lake.session import LOCAL_DIR, choose_local_dir

PROGRAM = """
import os
from elt_assets.lake.session import choose_local_dir
print(choose_local_dir({"spark.master": "local[*]"})["spark.local.dir"])
if %d: os._exit(9)
"""


def run(folder: Path, *, killed: bool) -> Path:
    """The folder of a process that ends."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % killed],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Path(done.stdout.strip())


def test_shuffled_rows_are_in_a_private_folder(spark: SparkSession) -> None:
    spark.range(1000).repartition(3).count()
    folder = Path(str(spark.sparkContext.getConf().get(LOCAL_DIR)))
    assert folder.is_relative_to(tempfile.gettempdir()) and folder.stat().st_mode & 0o777 == 0o700
    assert [*folder.glob("blockmgr-*")]


def test_folders_do_not_pile_up_after_kills(tmp_path: Path) -> None:
    ended = run(tmp_path, killed=False)
    assert not ended.exists()
    killed = run(tmp_path, killed=True)
    assert killed.parent == tmp_path and killed.is_dir()
    (killed / "blockmgr-1").mkdir()
    run(tmp_path, killed=False)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "config",
    [
        {"spark.master": "local[*]", LOCAL_DIR: "/fast"},
        {"spark.master": "spark://host:7077"},
        {"spark.remote": "sc://host"},
    ],
)
def test_folders_that_are_set_and_those_of_clusters_stay(config: dict[str, str]) -> None:
    assert choose_local_dir(config) == {}


def test_the_variable_of_spark_has_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/fast")
    assert choose_local_dir({"spark.master": "local[*]"}) == {}
