"""Places where a lake may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from elt_assets.lake.session import SparkProvider
from elt_assets.protocol.catalog import APPEND_DEDUP
from tests.lake.harness import USERS, Lake, user
from tests.lake.staging import stream


@pytest.mark.parametrize("name", ["[ab]", "{a,b} c"])
def test_a_path_with_pattern_characters_is_read_and_written(
    spark_provider: SparkProvider, tmp_path: Path, name: str
) -> None:
    """Segments and tables, read and written; the neighbour that the pattern matches is left alone."""
    lake = Lake(spark_provider, tmp_path / name)
    neighbours = [tmp_path / each for each in ("a", "b", "a c", "b c")]
    for neighbour in neighbours:
        neighbour.mkdir()
    configured = stream(USERS, APPEND_DEDUP, key=["id"])
    lake.sync(configured, user(1), user(2))
    lake.sync(configured, user(2), user(3), {"id": "none"})
    assert lake.ids() == [1, 2, 3]
    assert lake.dead_letter.records == 1
    assert [path for folder in neighbours for path in folder.iterdir()] == []
