from __future__ import annotations

from pathlib import Path

import pytest

from elt_assets.lake.session import SparkProvider
from tests.destination.running import Destination


@pytest.fixture
def destination(
    spark_provider: SparkProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Destination:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    return Destination(tmp_path, spark_provider)
