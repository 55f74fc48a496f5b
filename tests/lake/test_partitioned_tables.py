"""Tables with partition columns of Delta have the rows of tables without them, and files of one value."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.errors import ConfigError
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.delta import log
from elt_assets.lake.delta.snapshot import commit_text
from elt_assets.lake.delta.storage import DataFile, TableStorage
from elt_assets.lake.merge import file_splitting
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.worker.parquet import Output, PartitionedWriter, serialize, split_by_values
from elt_assets.lake.write import states
from elt_assets.lake.write.stored_stream import RefreshMode
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP, OVERWRITE, OVERWRITE_DEDUP
from tests.lake.harness import Lake
from tests.lake.readers import assert_all_readers_agree, by_datafusion
from tests.lake.staging import (
    BIG_INTEGER,
    BOOLEAN,
    DATE,
    INTEGER,
    STRING,
    checkpoint,
    rows,
    stage,
    stream,
    take_generations,
)

PROPERTIES: dict[str, Any] = {
    "id": INTEGER,
    "at": INTEGER,
    "country": STRING,
    "day": DATE,
    "amount": BIG_INTEGER,
    "paid": BOOLEAN,
    "more": INTEGER,
}
PARTITIONS = ("country", "day", "amount", "paid", "more")
COUNTRIES = ["DE", "", None, "a/b=c %2F", "ü\n", "'\"\\", "x" * 300, "__HIVE_DEFAULT_PARTITION__"]


def record(chance: random.Random, time: int) -> dict[str, Any]:
    return {
        "id": chance.choice([None, *range(1, 9)]),
        "at": time,
        "country": chance.choice(COUNTRIES),
        "day": chance.choice([None, "2024-02-29", "0999-01-01"]),
        "amount": chance.choice([None, 10**30, -2000000]),
        "paid": chance.choice([None, True, False]),
        "more": chance.choice([None, 7]),
    }


def sync(
    lake: Lake,
    policy: str,
    batches: list[list[dict[str, Any]]],
    properties: dict[str, Any],
    refresh: RefreshMode = "none",
) -> None:
    key = ["id"] if policy in (APPEND_DEDUP, OVERWRITE_DEDUP) else []
    configured = stream(properties, policy, key=key, cursor=["at"])
    take_generations(configured, lake.table.metadata, refresh)
    configured.sync_id = lake.table.metadata.sync_id + 1
    writer, first = lake.writer(configured), 0
    for number, batch in enumerate(batches, 1):
        writer.write(stage(lake.folder / "staging", batch, first=first))
        first += len(batch)
        writer.commit(checkpoint(number, final=number == len(batches)))
    writer.close()


def contents(lake: Lake) -> list[tuple[Any, ...]]:
    names = [name for name in PROPERTIES if name in lake.table.schema.names]
    parts = [rows(lake.spark, lake.table, *names)]
    if lake.history:
        parts.append(lake.versions(*names, "_is_current"))
    plain = (
        tuple(None if value == "" else value for value in row) for part in parts for row in part
    )
    return sorted(plain, key=repr)


def assert_split(lake: Lake) -> None:
    """Assert that each file has one value in each partition column, and that the log has that value."""
    table, seen = lake.table, DeltaTable(lake.uri)
    assert tuple(seen.metadata().partition_columns) == tuple(lake.partition_by)
    for file in table.files:
        assert set(file.partition) == set(lake.partition_by)
        columns = pq.ParquetFile(f"{lake.uri}/{file.path}").read()
        names = [name for name in lake.partition_by if name in columns.column_names]
        stored = {tuple(row.values()) for row in columns.select(names).to_pylist()}
        assert len(stored) == 1
        texts = dict(zip(names, map(serialize, stored.pop()), strict=True))
        assert file.partition == {**dict.fromkeys(lake.partition_by), **texts}


SEEDS = [0, 3, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 4, 5))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_with_partition_columns_has_the_rows_of_one_without(
    seed: int, spark_provider: SparkProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    policy = [APPEND_DEDUP, APPEND, OVERWRITE, OVERWRITE_DEDUP, APPEND_DEDUP, APPEND_DEDUP][seed]
    monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", chance.choice([0, 10, 200_000]))
    monkeypatch.setattr(file_splitting, "MIN_SMALL_FILES", chance.choice([2, 8]))
    if seed == 4:
        monkeypatch.setattr(file_splitting, "MAX_KEYS", 0)
    plain, split = (Lake(spark_provider, tmp_path / name) for name in ("plain", "split"))
    plain.history = split.history = policy == APPEND_DEDUP and seed != 5
    split.partition_by = chance.sample(PARTITIONS, chance.randint(1, 3))
    properties = {name: PROPERTIES[name] for name in PROPERTIES if name != "more"}
    properties |= {name: PROPERTIES[name] for name in split.partition_by}
    for number in range(3):
        batches = [
            [record(chance, number * 10 + n) for _ in range(chance.randint(1, 12))]
            for n in range(chance.randint(1, 3))
        ]
        refresh: RefreshMode = chance.choice(["none", "none", "truncate", "retain"])
        for lake in (plain, split):
            sync(lake, policy, batches, properties, refresh)
        properties = PROPERTIES
        assert contents(split) == contents(plain), (seed, number, refresh)
        assert_split(split)
        if number == 1:
            order = chance.choice([[], [["at"]], [["country"], ["id"]]])
            maintain(split.spark, split.tables(), dt.timedelta(0), None, order)
            maintain(split.spark, split.tables(), dt.timedelta(0), None, order)
            assert contents(split) == contents(plain)
            assert_split(split)
    assert_all_readers_agree(split.spark, split.folder)


def test_a_replay_a_wider_type_and_a_reset_keep_one_value_in_each_file(lake: Lake) -> None:
    lake.history, lake.partition_by = True, ["place"]
    fields = {"id": INTEGER, "at": INTEGER, "place": INTEGER}
    events = [{"id": n or None, "at": n, "place": n % 2} for n in range(6)]
    lake.sync(stream(fields, APPEND_DEDUP, key=["id"], cursor=["at"]), *events, value=1)
    assert lake.dead_letter.records == 1
    wider = stream({**fields, "place": BIG_INTEGER}, APPEND_DEDUP, key=["at"], cursor=["at"])
    wider.sync_id = 43
    done = replay(lake.provider, lake.tables(), WriteSpec(wider, "run-2", True), lake.scratch)
    assert done is not None and (done.records, done.rejected) == (1, 0)
    assert_split(lake)
    wider.sync_id = 44
    lake.sync(wider, {"id": 7, "at": 3, "place": 10**30}, value=2)
    assert_split(lake)
    places = {0: 0, 1: 1, 2: 0, 3: 10**30, 4: 0, 5: 1}
    assert rows(lake.spark, lake.table, "at", "place") == sorted(places.items())
    states.remove_rows(lake.tables(), "hand")
    assert not rows(lake.spark, lake.table, "at")
    wider.sync_id = 45
    lake.sync(wider, {"id": 1, "at": 1, "place": 1}, value=3)
    assert rows(lake.spark, lake.table, "at", "place") == [(1, 1)]
    assert_split(lake)
    assert_all_readers_agree(lake.spark, lake.folder)


def test_rows_are_split_by_value_in_the_form_of_the_log() -> None:
    """No worker is needed: the writer of the files is asked itself."""
    table = pa.table(
        {
            "id": range(6),
            "text": pa.array(["", None, "a", "é/=", "a", "a"]),
            "amount": pa.array([None, None, "15", "15", "15.0", "-0"], pa.string()).cast(
                pa.decimal128(38, 0)
            ),
            "day": pa.array([None, None, *[dt.date(999, 1, 2)] * 4]),
            "paid": pa.array([None, None, True, True, True, False]),
        }
    )
    parts = split_by_values(table, ["text", "amount", "day", "paid", "number"])
    stored = {values: part["id"].to_pylist() for values, part in parts}
    assert stored == {
        (None, None, None, None, None): [0, 1],
        ("a", "15", "0999-01-02", "true", None): [2, 4],
        ("é/=", "15", "0999-01-02", "true", None): [3],
        ("a", "0", "0999-01-02", "false", None): [5],
    }


PARTITION_VALUES = st.one_of(
    st.tuples(st.just(pa.string()), st.text(min_size=1) | st.sampled_from(COUNTRIES[3:])),
    st.tuples(st.just(pa.int64()), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(pa.decimal128(38, 0)), st.integers(1 - 10**38, 10**38 - 1).map(Decimal)),
    st.tuples(st.just(pa.bool_()), st.booleans()),
    st.tuples(st.just(pa.date32()), st.dates()),
)


@given(st.lists(PARTITION_VALUES, min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_each_reader_reads_partition_values_from_the_log(
    values: list[tuple[pa.DataType, Any]],
) -> None:
    names = [f"p{number}" for number in range(len(values))]
    columns = {
        name: pa.array([value, None], kind)
        for name, (kind, value) in zip(names, values, strict=True)
    }
    rows = pa.table({"id": [1, 2], **columns})
    with TemporaryDirectory() as folder:
        DeltaTable.create(folder, rows.schema, partition_by=names)
        files = []
        for texts, part in split_by_values(rows, names):
            path = Path(folder) / f"{part['id'][0]}.parquet"
            pq.write_table(part, path)
            partition = dict(zip(names, texts, strict=True))
            files.append(DataFile(path.name, path.stat().st_size, len(part), partition=partition))
        entry = commit_text([file.add() for file in files], CommitProperties())
        (Path(folder) / log.path_of(1)).write_text(entry, encoding="utf-8")
        assert log.file_changes(TableStorage(folder), 1).added == {file.path for file in files}
        delta = DeltaTable(folder)
        readers = [delta.to_pyarrow_table(), by_datafusion(delta), pl.read_delta(folder).to_arrow()]
        for stored in readers:
            read = pa.table(stored).select(rows.column_names).to_pylist()
            assert sorted(read, key=lambda row: row["id"]) == rows.to_pylist()


def test_many_values_do_not_need_many_open_files(tmp_path: Path) -> None:
    root = (pafs.LocalFileSystem(), str(tmp_path))
    writer = PartitionedWriter(Output(root, "data", ["n"], max_rows=100), group_bytes=1 << 14)
    batch = pa.record_batch({"n": [number % 200 for number in range(4000)]})
    for start in range(0, 4000, 500):
        writer.write(batch.slice(start, 500))
    writer.close()
    files = [DataFile(*file) for file in writer.files]
    assert sum(file.records for file in files) == 4000
    assert {file.partition["n"] for file in files} == set(map(str, range(200)))
    names = [file.path for file in files]
    assert len(names) == len(set(names))
    for name in names:
        assert len(set(pq.read_table(tmp_path / name)["n"].to_pylist())) == 1
    writer.discard()
    assert not list(tmp_path.rglob("*.parquet"))


def test_other_partition_columns_and_files_without_them_are_refused(lake: Lake) -> None:
    lake.partition_by = ["country"]
    properties = {"id": INTEGER, "country": STRING}
    configured = stream(properties, APPEND_DEDUP, key=["id"])
    lake.sync(configured, {"id": 1, "country": "DE"}, {"id": 2, "country": None}, value=1)
    configured.sync_id = 43
    lake.sync(configured, {"id": 1, "country": "FR"}, value=2)  # the row moves
    assert rows(lake.spark, lake.table, "id", "country") == [(1, "FR"), (2, None)]
    before = lake.table.version
    for other in ([], ["id"], ["country", "id"]):
        lake.partition_by = other
        with pytest.raises(
            ConfigError, match="created with the partition columns country, but now"
        ):
            lake.writer(configured)
    lake.partition_by = ["country"]
    assert lake.table.version == before
    DeltaTable(lake.uri).delete("id = 2 and country is null")  # of whole files: nothing is written
    assert rows(lake.spark, lake.table, "id", "country") == [(1, "FR")]
    lake.sync(configured, {"id": 5, "country": "FR"}, value=3)
    DeltaTable(lake.uri).update({"id": "id + 1"})
    with pytest.raises(ConfigError, match="another engine wrote the file country=FR/"):
        lake.ids()
