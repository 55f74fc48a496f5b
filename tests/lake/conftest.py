from __future__ import annotations

from pathlib import Path

import pytest

from elt_assets.lake.spark.session import SparkProvider
from tests.lake.harness import Lake


@pytest.fixture
def lake(spark_provider: SparkProvider, tmp_path: Path) -> Lake:
    return Lake(spark_provider, tmp_path)
