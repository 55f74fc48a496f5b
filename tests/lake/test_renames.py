"""New names of fields, before every policy: the table is that of the source's names, with the new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, json

from elt_assets.lake.session import SparkProvider
from elt_assets.protocol.catalog import (
    APPEND,
    APPEND_DEDUP,
    OVERWRITE,
    OVERWRITE_DEDUP,
    ConfiguredStream,
)
from elt_assets.protocol.messages import RawRecord
from elt_assets.sync.documents import SegmentDocuments, SelectiveSegmentWriter
from elt_assets.sync.field_selection import Renames
from elt_assets.sync.record_filter import RecordFilter
from elt_assets.sync.segments import Segment
from tests.lake.harness import Lake
from tests.lake.staging import INTEGER, checkpoint, rows, stream, take_generations
from tests.support.examples import few

FIELDS = {"k": INTEGER, "c": INTEGER, "v": INTEGER}
Batch = list[dict[str, int | None]]
batches = st.lists(
    st.lists(
        st.fixed_dictionaries(
            {"k": st.integers(0, 3), "c": st.none() | st.integers(0, 2), "v": st.integers(0, 99)}
        ),
        min_size=1,
        max_size=8,
    ),
    min_size=2,
    max_size=3,
)


def stage(folder: Path, batch: Batch, renames: Renames) -> Segment:
    folder.mkdir(parents=True, exist_ok=True)
    record_filter = RecordFilter(None, renames=renames)
    writer = SelectiveSegmentWriter(
        folder / f"{uuid4().hex}.jsonl", 0, record_filter, SegmentDocuments("users", None)
    )
    for data in batch:
        writer.append(RawRecord("users", Raw(json.encode(data)), 1))
    return writer.close()


def sync_all(lake: Lake, configured: ConfiguredStream, syncs: list[Batch], renames: Renames) -> Any:
    """Sync batches one after the other; return the rows with the columns of k, c and v."""
    for batch in syncs:
        take_generations(configured, lake.table.metadata)
        writer = lake.writer(renames.rename_stream(configured))
        writer.write(stage(lake.folder / "staging", batch, renames))
        writer.commit(checkpoint(final=True))
        writer.close()
    return rows(lake.spark, lake.table, *(renames[name] for name in FIELDS))


@pytest.mark.parametrize("policy", [APPEND, OVERWRITE, APPEND_DEDUP, OVERWRITE_DEDUP])
@few(1)
@given(syncs=batches)
def test_a_policy_with_new_names_gives_the_same_rows(
    spark_provider: SparkProvider,
    tmp_path_factory: pytest.TempPathFactory,
    policy: str,
    syncs: list[Batch],
) -> None:
    tables = []
    for names in ({}, {"k": "c", "c": "id"}):  # `c` is a new name and an old one
        lake = Lake(spark_provider, tmp_path_factory.mktemp(policy), history="dedup" in policy)
        key = ["k"] if lake.history else []
        configured = stream(FIELDS, policy, key=key, cursor=["c"])
        tables.append(sync_all(lake, configured, syncs, Renames(names, frozenset(FIELDS))))
    assert tables[0] == tables[1]
