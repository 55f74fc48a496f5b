"""The settings of the Spark session, and their sources."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from elt_assets import SparkResource
from elt_assets.errors import ConfigError
from elt_assets.orchestration import resources
from elt_assets.orchestration.resources import spark_provider
from tests.programs.scripted import record, script
from tests.support.project import REPOSITORY, Project
from tests.support.runs import failure_of, materialize

SETTING = "spark.sql.files.maxRecordsPerFile"
"""Can be set on a running session, and has no bearing on what the tests do."""


@pytest.fixture(autouse=True)
def reset(spark: SparkSession) -> Iterator[None]:
    yield
    spark.conf.unset(SETTING)


def test_the_settings_file_is_read_when_a_session_is_requested(
    own: Project, spark: SparkSession
) -> None:
    resource = SparkResource()
    (own.home / "spark-defaults.conf").write_text(f"{SETTING} 1234567\n")
    assert resource.spark_session.conf.get(SETTING) == "1234567"
    assert resource.spark_context is spark.sparkContext


def test_elt_spark_selects_another_settings_file(
    own: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own.home / "spark-defaults.conf").write_text(f"{SETTING} 1\n")
    (tmp_path / "other.conf").write_text(f"{SETTING} 7654321\n")
    monkeypatch.setenv("ELT_SPARK", str(tmp_path / "other.conf"))
    assert SparkResource().spark_session.conf.get(SETTING) == "7654321"


def test_a_nested_setting_takes_precedence_over_the_file(own: Project) -> None:
    (own.home / "spark-defaults.conf").write_text(f"{SETTING} 1\n")
    nested: dict[str, Any] = {"spark": {"sql": {"files.maxRecordsPerFile": 42}}}
    assert SparkResource(spark_config=nested).spark_session.conf.get(SETTING) == "42"


def test_a_missing_settings_file_fails_the_run_with_guidance(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(own, [record(id=1)])
    monkeypatch.setenv("ELT_SPARK", str(own.root / "absent.conf"))
    message = failure_of(materialize(own))
    assert "absent.conf cannot be read" in message and "correct the path in ELT_SPARK" in message


def test_loading_definitions_reads_no_spark_settings(own: Project) -> None:
    (own.home / "spark-defaults.conf").write_text("nonsense\n")
    definitions = dg.Definitions(resources={"spark": SparkResource()})
    assert definitions.resources
    with pytest.raises(ConfigError, match="line 1"):
        _ = SparkResource().provider


def test_python_workers_use_the_same_python(spark: SparkSession) -> None:
    def executable(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [os.fsdecode(sys.executable)]})

    rows = spark.range(1).mapInArrow(executable, "path string").collect()
    assert [row.path for row in rows] == [sys.executable]


def test_a_failed_start_of_spark_is_an_error_with_guidance() -> None:
    code = "from elt_assets import SparkResource; SparkResource().provider.get()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAVA_HOME": "/nowhere"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "SystemFailure: Spark cannot be started at local[*]" in done.stderr
    assert "check that JAVA_HOME is" in done.stderr


def test_the_resources_of_former_runs_are_not_kept() -> None:
    """Each run of a process has a resource of its own."""
    for _ in range(100):
        spark_provider(LazyPySparkResource(spark_config={}))
    assert len(resources._PROVIDERS) <= resources._MAX_PROVIDERS
    newest = LazyPySparkResource(spark_config={})
    assert spark_provider(newest) is spark_provider(newest)
