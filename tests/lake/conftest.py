from __future__ import annotations

from pathlib import Path

import pytest

from elt_assets.lake.merge import file_splitting
from elt_assets.lake.spark.session import SparkProvider
from tests.lake.harness import Lake


@pytest.fixture
def lake(spark_provider: SparkProvider, tmp_path: Path) -> Lake:
    return Lake(spark_provider, tmp_path)


@pytest.fixture(params=["whole", "tasks", "joins"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way in which a merge splits files by key."""
    if request.param != "whole":
        monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", 0)
    if request.param == "joins":
        monkeypatch.setattr(file_splitting, "MAX_KEYS", 0)
    return str(request.param)
