"""A rewrite that does not find every row commits nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from elt_assets.errors import SystemFailure
from elt_assets.lake.admin.maintenance import compact
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP
from tests.lake.harness import USERS, Lake, user
from tests.lake.staging import NUMBER, data_files, stream

KEYED = stream(USERS, APPEND_DEDUP, key=["id"])


def lose_a_row(lake: Lake) -> None:
    """Hide a row of a file, as a stale listing or a damaged file would: the log still counts it."""
    path = max(
        Path(lake.uri).glob("data/*/*.parquet"), key=lambda each: pq.read_metadata(each).num_rows
    )
    pq.write_table(pq.read_table(path).slice(1), path)


def merge(lake: Lake) -> None:
    lake.sync(KEYED, user(2, name="new"), user(5, name="new"), user(9))  # keys of both files


def widen(lake: Lake) -> None:
    lake.sync(stream({**USERS, "id": NUMBER}, APPEND), user(9))


def put_together(lake: Lake) -> None:
    compact(lake.spark, lake.table)


def test_a_merge_that_misses_a_row_commits_nothing(lake: Lake, engine: str) -> None:
    refuses_to_lose(lake, merge)


@pytest.mark.parametrize("rewrite", [widen, put_together])
def test_a_rewrite_that_misses_a_row_commits_nothing(
    lake: Lake, rewrite: Callable[[Lake], None]
) -> None:
    refuses_to_lose(lake, rewrite)


def refuses_to_lose(lake: Lake, rewrite: Callable[[Lake], None]) -> None:
    for first in (1, 4):
        lake.sync(stream(USERS, APPEND), *map(user, range(first, first + 3)))
    lose_a_row(lake)
    version, files = lake.table.version, data_files(lake.uri)
    with pytest.raises(SystemFailure, match=r"expected \d+, found \d+") as caught:
        rewrite(lake)
    assert lake.table.version == version
    assert lake.uri in caught.value.message
    if rewrite is put_together:
        assert data_files(lake.uri) == files
