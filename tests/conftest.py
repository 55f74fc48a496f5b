"""One Spark session for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from elt_assets.lake.spark import SparkProvider
from elt_assets.orchestration.resources import SparkResource
from tests.project import Project

SPARK = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
}
"""Tiny data: scheduling is what takes the time."""


@pytest.fixture(scope="session")
def spark_provider() -> Iterator[SparkProvider]:
    """The session that the orchestration would build."""
    provider = SparkResource(spark_config=SPARK).provider
    yield provider
    provider.get().stop()


@pytest.fixture(scope="session")
def spark(spark_provider: SparkProvider) -> SparkSession:
    return spark_provider.get()


@pytest.fixture
def project(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project of the test's own; connectors from PyPI are installed once for all of them."""
    project = Project(tmp_path)
    packages = tmp_path_factory.getbasetemp() / "packages"
    packages.mkdir(exist_ok=True)
    project.home.mkdir()
    (project.home / "packages").symlink_to(packages)
    return project
