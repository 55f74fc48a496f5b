"""A stream's sink: every record read is committed or rejected, or nothing happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.errors import ConcurrentSync, ConfigError, SystemFailure
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.stored_stream import Generations, StoredStream
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, OVERWRITE, ConfiguredCatalog
from elt_assets.protocol.messages import Form, RawRecord, RecordLines
from elt_assets.sync.events import Acknowledged, Checkpoint
from elt_assets.sync.segments import SegmentWriter
from elt_assets.sync.session import Session, Threshold
from tests.lake.crashing import position
from tests.lake.harness import USERS, Lake, user
from tests.lake.staging import (
    DATE,
    INTEGER,
    STRING,
    array,
    checkpoint,
    data_files,
    rows,
    stream,
    struct,
)
from tests.support.examples import few
from tests.sync.doubles import record, state

# Committed or rejected


def test_a_sync_with_only_rejected_records_leaves_an_empty_table(lake: Lake) -> None:
    done = lake.sync(stream(USERS), b"1", b"2")
    assert (done.records, done.rejected) == (0, 2)
    assert lake.ids() == []
    assert lake.dead_letter.records == 2


def test_no_dead_letter_table_is_created_without_rejected_records(lake: Lake) -> None:
    lake.sync(stream(USERS), user(1))
    assert not lake.dead_letter.exists


simple = st.sampled_from([INTEGER, STRING, DATE, array(INTEGER), struct(x=INTEGER, y=DATE)])
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
finite = values.filter(lambda value: "Infinity" not in json.dumps(value))
broken = st.sampled_from([b"1", b'{"k":\xff}', b'"\\ud800"', b'{"k":1e999,"k":"x"}', b"{ }"])


@few(4)
@given(
    schemas=st.fixed_dictionaries({"k": simple, "a": simple, "b": simple}),
    data=st.lists(
        st.dictionaries(st.sampled_from(["k", "a", "b", "z"]), finite) | finite | broken,
        min_size=60,
        max_size=120,
    ),
    keyed=st.booleans(),
)
def test_the_committed_and_rejected_records_are_all_records_read(
    spark_provider: SparkProvider,
    tmp_path_factory: pytest.TempPathFactory,
    schemas: dict[str, Any],
    data: list[Any],
    keyed: bool,
) -> None:
    lake = Lake(spark_provider, tmp_path_factory.mktemp("any"))
    keys = ["k"] if keyed and schemas["k"] in (INTEGER, STRING) else []
    done = lake.sync(stream(schemas, key=keys), *data)
    assert done.records + done.rejected == len(data)
    assert (lake.table.records, lake.dead_letter.records) == (done.records, done.rejected)


# Checkpoints


def test_each_checkpoint_is_a_commit_with_its_state(lake: Lake) -> None:
    writer = lake.writer()
    for number in (1, 2):
        writer.write(lake.stage(user(number)))
        done = writer.commit(checkpoint(number))
        assert (done.sequence, done.records) == (number, 1)
        assert position(lake.table.metadata.state) == number
    assert lake.ids() == [1, 2]


def test_several_segments_are_written_in_one_commit(lake: Lake) -> None:
    writer = lake.writer()
    for number in (1, 2, 3):
        writer.write(lake.stage(user(number)))
    assert not lake.table.files
    assert writer.commit(checkpoint(3)).records == 3
    assert lake.ids() == [1, 2, 3]


def test_a_commit_has_its_generation_run_sequence_and_record_count(lake: Lake) -> None:
    lake.sync(stream(USERS, generation=7), user(1), value=1)
    entry = DeltaTable(lake.uri).history(1)[0]
    assert (entry["elt.generation"], entry["elt.run_id"]) == ("7", "run-1")
    assert (entry["elt.sequence"], entry["elt.records"]) == ("1", "1")
    [(generation, sync_id)] = rows(
        lake.spark, lake.table, "_airbyte_generation_id", "_airbyte_meta.sync_id"
    )
    assert (generation, sync_id) == (7, 42)


def test_a_new_state_is_committed_without_data(lake: Lake) -> None:
    lake.sync(stream(USERS), user(1), value=1)
    before = lake.table
    done = lake.writer().commit(checkpoint(2))
    assert (done.sequence, done.records, position(lake.table.metadata.state)) == (2, 0, 2)
    assert (lake.table.version, lake.table.files) == (before.version + 1, before.files)


def test_a_sync_without_new_data_makes_no_commit(lake: Lake) -> None:
    lake.sync(stream(USERS), user(1), value=1)
    before = lake.table.version
    writer = lake.writer()
    assert writer.commit(checkpoint(1)).sequence == 1
    assert writer.commit(checkpoint(final=True)).sequence == 1
    assert lake.table.version == before


def test_a_first_sync_without_records_creates_the_table(lake: Lake) -> None:
    lake.writer().commit(checkpoint(final=True))
    assert lake.table.exists
    assert lake.table.schema.names[:2] == ["id", "name"]


def test_a_final_commit_without_a_state_keeps_the_previous_state(lake: Lake) -> None:
    lake.sync(stream(USERS), user(1), value=1)
    former = lake.table.metadata.state
    lake.sync(stream(USERS), user(2))
    assert lake.table.metadata.state == former


# Overwrites


def test_an_overwrite_replaces_rows_state_and_generation(lake: Lake) -> None:
    lake.sync(stream(USERS), user(1), value=1)
    lake.sync(stream(USERS, OVERWRITE, generation=2), user(2))
    assert lake.ids() == [2]
    assert (lake.table.metadata.generation, lake.table.metadata.state) == (2, None)


def test_an_overwrite_without_records_empties_the_table(lake: Lake) -> None:
    lake.sync(stream(USERS), user(1))
    lake.writer(stream(USERS, OVERWRITE, generation=2)).commit(checkpoint(final=True))
    assert lake.ids() == []


def test_a_failed_overwrite_keeps_the_former_table(lake: Lake) -> None:
    lake.sync(stream(USERS), user(1), value=1)
    before = (lake.table.version, lake.table.metadata)
    writer = lake.writer(stream(USERS, OVERWRITE, generation=2))
    writer.write(lake.stage(user(2)))
    missing = lake.stage(user(3))
    missing.path.unlink()
    with pytest.raises(Exception, match="has 0 bytes"):
        writer.write(missing)
    writer.close()
    assert (lake.table.version, lake.table.metadata) == before
    assert lake.ids() == [1]
    assert len(data_files(lake.uri)) == 1


@pytest.mark.parametrize(
    ("policy", "former", "expected"),
    [
        (APPEND, 0, Generations(1, 0)),
        (APPEND, 4, Generations(4, 0)),
        (OVERWRITE, 0, Generations(1, 1)),
        (OVERWRITE, 4, Generations(5, 5)),
    ],
)
def test_an_overwrite_begins_a_generation(policy: str, former: int, expected: Generations) -> None:
    assert (
        StoredStream(stream(USERS, policy), CommitMetadata(1, former, None)).generations()
        == expected
    )


def test_whole_messages_become_the_rows_that_their_records_become(lake: Lake) -> None:
    data = [b'{"id":1,"name":"a"}', b'{"id":2,"name":5}', b'{"id":"no"}', b'{"id":3,"name":NaN}']
    airbyte = b'{"type":"RECORD","record":{"stream":"users","data":%b,"emitted_at":7}}\n'
    singer = b'{"type":"RECORD","stream":"users","record":%b}\n'
    staged = SegmentWriter(lake.folder / "staged.jsonl", 0)
    for form, line in ((Form.AIRBYTE, airbyte), (Form.SINGER, singer)):
        lines = b"".join(line % each for each in data)
        staged.append_run(RecordLines(form, "users", None, "users", lines, len(data)))
    staged.append(RawRecord("users", Raw(data[0]), emitted_at=7))
    segment, writer = staged.close(), lake.writer()
    writer.write(segment)
    done = writer.commit(Checkpoint((), final=True))
    assert (len(segment.pieces), done.records, done.rejected, done.changed) == (3, 9, 0, 2)
    assert list(lake.folder.glob("*.rows")) == []


# What fails


def test_a_truncated_segment_is_an_error(lake: Lake) -> None:
    segment = lake.stage(user(1), user(2))
    lines = segment.path.read_bytes().splitlines(keepends=True)
    segment.path.write_bytes(lines[0])
    writer = lake.writer()
    found = f"has {len(lines[0])} bytes, but {len(lines[0]) + len(lines[1])} were written"
    with pytest.raises(SystemFailure, match=found):
        writer.write(segment)
    writer.close()
    assert data_files(lake.uri) == []


def test_close_removes_uncommitted_files(lake: Lake) -> None:
    lake.sync(stream(USERS), user(1))
    writer = lake.writer()
    writer.write(lake.stage(user(2), b"5"))
    assert len(data_files(lake.uri)) == 2
    writer.close()
    writer.close()
    assert len(data_files(lake.uri)) == 1
    assert data_files(lake.dead_letter.uri) == []
    assert lake.ids() == [1]


def test_close_removes_the_files_of_a_failed_policy(lake: Lake) -> None:
    keyed = stream(USERS, APPEND_DEDUP, key=["id"])
    lake.sync(keyed, user(1))
    writer = lake.writer(keyed)
    writer.write(lake.stage(user(2)))
    committed = [Path(lake.uri) / file.path for file in lake.table.files]
    for path in committed:
        path.rename(path.with_suffix(".away"))
    with pytest.raises(Exception, match="No such file"):
        writer.commit(checkpoint(2))
    writer.close()
    assert data_files(lake.uri) == []
    assert not lake.table.metadata.state


@pytest.mark.parametrize("policy", [APPEND, APPEND_DEDUP])
def test_a_writer_that_loses_a_conflict_changes_nothing(lake: Lake, policy: str) -> None:
    configured = stream(USERS, policy, key=["id"] if policy == APPEND_DEDUP else [])
    lake.sync(configured, user(1), value=1)
    loser = lake.writer(configured)
    loser.write(lake.stage(user(2)))
    lake.sync(configured, user(3), value=3)
    before = (lake.table.version, data_files(lake.uri))
    with pytest.raises(ConcurrentSync):
        loser.commit(checkpoint(2))
    loser.close()
    assert lake.ids() == [1, 3]
    assert lake.table.version == before[0]
    assert set(data_files(lake.uri)) < set(before[1])


def test_a_merge_leaves_no_files_of_its_batch(lake: Lake) -> None:
    keyed = stream(USERS, APPEND_DEDUP, key=["id"])
    lake.sync(keyed, user(1), user(2))
    lake.sync(keyed, user(2), user(3))
    committed = {Path(file.path).name for file in lake.table.files}
    removed = 1  # the first sync's file, which older versions of the table still read
    assert len(data_files(lake.uri)) == len(committed) + removed


def test_a_merge_finds_its_keys_in_other_writers_files(lake: Lake) -> None:
    keyed = stream(USERS, APPEND_DEDUP, key=["id"])
    lake.sync(keyed, user(1))
    others = pa.table({"id": [2], "name": ["other"]})
    write_deltalake(lake.uri, others, mode="append", schema_mode="merge")
    lake.sync(keyed, user(2))
    assert rows(lake.spark, lake.table, "id", "name") == [(1, "user 1"), (2, "user 2")]


def test_an_incompatible_column_is_refused_before_records_are_read(lake: Lake) -> None:
    lake.sync(stream(USERS), user(1))
    with pytest.raises(
        ConfigError, match="'id' is bigint in the table, struct<x:bigint> in the catalog"
    ):
        lake.writer(stream({"id": struct(x=INTEGER)}))
    assert lake.ids() == [1]


def test_a_new_column_of_the_catalog_is_added(lake: Lake) -> None:
    lake.sync(stream({"id": INTEGER}), user(1))
    lake.sync(stream(USERS), user(2))
    assert rows(lake.spark, lake.table, "id", "name") == [(1, None), (2, "user 2")]


# With the session


def test_a_session_writes_records_and_states_to_a_table(lake: Lake) -> None:
    configured = stream({"n": INTEGER}, cursor=["n"])
    configured.stream.name = "a"
    writer = lake.writer(configured)
    catalog = ConfiguredCatalog(streams=[configured])
    session = Session(catalog, {configured.id: writer}, lake.folder / "s", Threshold(rows=2))
    script = [record(0), record(1), state(2), record(2), record(3), state(4), record(4)]
    events = [each for each in session.run(script) if isinstance(each, Acknowledged)]
    assert [each.commit.records for each in events] == [2, 2, 1]
    assert [each for (each,) in rows(lake.spark, lake.table, "n")] == [0, 1, 2, 3, 4]
    ids = [each for (each,) in rows(lake.spark, lake.table, "_airbyte_raw_id")]
    assert len(set(ids)) == 5
