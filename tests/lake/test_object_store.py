"""A lake in an S3 store, over HTTP: what holds on a disk holds there too, without any library of the JVM."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import types as t

from elt_assets.errors import ConcurrentSync, ConfigError
from elt_assets.failpoints import Failpoint
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.delta.commit_metadata import CommitMetadata
from elt_assets.lake.delta.storage import DataFile, TableChange
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import file_splitting
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.lake.write.sync_columns import WriteSpec
from elt_assets.protocol.catalog import APPEND
from elt_assets.storage.location import Location
from elt_assets.storage.staging import Staging
from tests.lake.crashing import (
    EVENTS,
    SCRIPT,
    configured,
    event,
    expected,
    killed_at,
    sync,
    view,
)
from tests.lake.harness import USERS, Lake
from tests.lake.staging import checkpoint, rows, stream
from tests.lake.test_two_writers import opened, together
from tests.support.lying_store import Lie, lying_store
from tests.support.object_store import ObjectStore, new_bucket, s3_server

FIRST = [event(1, 10), event(2, 10), event(None, 1)]
SECOND = [event(1, 20), event(3, 20), event(None, 2)]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s3") / "log"


@pytest.fixture(scope="module")
def endpoint(log: Path) -> Iterator[str]:
    with s3_server(log) as found:
        yield found


@pytest.fixture
def store(endpoint: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A bucket; this process has its credentials in its environment."""
    found = new_bucket(endpoint, log)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def lake(
    spark_provider: SparkProvider,
    tmp_path: Path,
    store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> Lake:
    environment = spark_provider.get().sparkContext.environment  # of the workers of the session
    for name, value in store.environment.items():
        monkeypatch.setitem(environment, name, value)
    return Lake(spark_provider, tmp_path, history=True, root=store.uri)


def test_syncs_end_with_the_rows_and_the_history_that_they_should(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are split by key in tasks, and by the value of a partition column."""
    monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", 0)
    lake.partition_by = ["text"]
    sync(lake, SCRIPT[:3])
    assert view(lake) == expected(SCRIPT[:3])


def test_segments_that_are_staged_in_a_store_are_read_there(lake: Lake, store: ObjectStore) -> None:
    data = [event(n if n % 50 else None, n) for n in range(5_000)]
    lake.history = False
    sync(lake, [[*data, b'{"id": 7, "at": 9000, "said": "\xff"}']])
    expected_rows, expected_dead = rows(lake.spark, lake.table, "id", "at"), lake.dead_letter
    lake.staging = Staging(lake.folder / "staging", Location.parse(f"s3://{store.bucket}/staging"))
    lake.root = f"{store.uri}/2"
    sync(lake, [[*data, b'{"id": 7, "at": 9000, "said": "\xff"}']])
    assert rows(lake.spark, lake.table, "id", "at") == expected_rows
    assert lake.dead_letter.records == expected_dead.records > 0
    staged = [each for each in store.requests() if "/staging/" in each]
    assert {each.partition(" ")[0] for each in staged} >= {"PUT", "GET"}
    assert not [name for name in store.objects() if "/staging/" in name]


@pytest.mark.long
def test_each_way_of_a_merge_ends_the_same(lake: Lake, engine: str) -> None:
    sync(lake, SCRIPT)
    assert view(lake) == expected(SCRIPT)


def test_a_replay_moves_the_records_that_fit_now(lake: Lake) -> None:
    sync(lake, [FIRST], configured(lake, APPEND))
    assert lake.dead_letter.records == 1
    lake.history = False
    done = replay(
        lake.provider, lake.tables(), WriteSpec(stream(EVENTS, APPEND), "run-2"), lake.scratch
    )
    assert done is not None and (done.records, done.rejected) == (1, 0)
    assert len(rows(lake.spark, lake.table, "text")) == 3


def test_a_run_after_a_kill_ends_where_an_undisturbed_one_does(lake: Lake) -> None:
    lake.history = False
    sync(lake, [FIRST])
    killed_at(Failpoint.COMMIT_READY, 2, partial(sync, lake, [FIRST, SECOND]))
    sync(lake, [FIRST, SECOND])
    assert view(lake) == expected([FIRST, SECOND])._replace(history=[])


def test_only_one_of_two_simultaneous_runs_commits(lake: Lake) -> None:
    lake.history = False
    sync(lake, [FIRST])
    candidates = [[event(who, 20), event(None, 20 + who)] for who in (1, 2)]
    state = checkpoint(2, final=True)
    raised = together(*(partial(opened(lake, one).commit, state) for one in candidates))
    [winner] = [at for at, error in enumerate(raised) if error is None]
    assert isinstance(raised[1 - winner], ConcurrentSync), raised
    assert view(lake) == expected([FIRST, candidates[winner]])._replace(history=[])


def test_maintenance_combines_files_and_removes_the_old_ones(
    lake: Lake, store: ObjectStore
) -> None:
    lake.history = False
    batches = [FIRST, SECOND, [event(4, 30)]]
    sync(lake, batches, configured(lake, APPEND))
    before = rows(lake.spark, lake.table, "id", "at")
    assert len(lake.table.files) == 3
    maintain(lake.spark, lake.tables(), dt.timedelta(0))
    assert len(lake.table.files) == 1
    assert rows(lake.spark, lake.table, "id", "at") == before
    data = [name for name in store.objects() if "/users/data/" in name]
    assert len(data) == 1


def test_a_writer_that_is_closed_leaves_no_files(lake: Lake, store: ObjectStore) -> None:
    sync(lake, [FIRST])
    before = store.objects()
    writer = lake.writer(configured(lake))
    writer.write(lake.stage(*SECOND))
    assert len(store.objects()) > len(before)
    writer.close()
    assert store.objects() == before


def test_columns_that_older_files_lack_are_null(lake: Lake) -> None:
    lake.history = False
    nested = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wider = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    array = {"type": "array", "items": nested}
    arrays = {"type": "array", "items": wider}
    lake.sync(
        stream({**USERS, "one": nested, "many": array}),
        {"id": 1, "one": {"a": 1}, "many": [{"a": 1}, None, {"a": 2}]},
        {"id": 2, "many": []},
    )
    lake.sync(
        stream({**USERS, "one": wider, "many": arrays, "more": {"type": "string"}}),
        {"id": 3, "one": {"a": 3, "b": "x"}, "many": [{"b": "y"}], "more": "z"},
    )
    found = lake.table.dataframe(lake.spark).select("id", "one", "many", "more").collect()
    assert sorted((row.asDict(recursive=True) for row in found), key=lambda row: row["id"]) == [
        {
            "id": 1,
            "one": {"a": 1, "b": None},
            "many": [{"a": 1, "b": None}, None, {"a": 2, "b": None}],
            "more": None,
        },
        {"id": 2, "one": None, "many": [], "more": None},
        {"id": 3, "one": {"a": 3, "b": "x"}, "many": [{"a": None, "b": "y"}], "more": "z"},
    ]


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_file_that_cannot_be_read_is_an_error(
    lake: Lake, store: ObjectStore, damage: str
) -> None:
    lake.history = False
    lake.sync(stream(USERS), {"id": 1})
    [name] = [name for name in store.objects() if "/data/" in name]
    if damage == "missing":
        store.system.delete_file(name)
    else:
        with store.system.open_output_stream(name) as sink:
            sink.write(b"PAR1 something else PAR1")
    with pytest.raises(Exception, match=r"FileNotFoundError|ArrowInvalid|OSError"):
        lake.table.dataframe(lake.spark).collect()


def test_a_commit_needs_few_requests_however_long_the_log_is(
    spark_provider: SparkProvider, store: ObjectStore
) -> None:
    """The requests are three lists, the commit, reads of both commits by delta-rs, and one of the newest
    checkpoint, by which the commit counts although an erasure may have removed its version from the log."""
    schema = spark_provider.get().range(1).schema
    table, counts = Table(f"{store.uri}/users", "elt:users"), []
    table.prepare(schema)
    for sequence in range(1, 13):
        before = len(store.requests())
        file = DataFile(f"data/{sequence}.parquet", 1, 1, '{"numRecords": 1}')
        table.commit(TableChange([file]), CommitMetadata(sequence, 1, None), 1)
        counts.append(len(store.requests()) - before)
    assert max(counts[1:]) <= 9


def test_options_are_enough_without_an_environment(
    spark_provider: SparkProvider, endpoint: str, tmp_path: Path
) -> None:
    store = new_bucket(endpoint)
    place = Location.parse(f"{store.uri}/users", store.options)
    assert store.options["aws_secret_access_key"] not in f"{place!r} {place}"
    tables = StreamTables(place, "elt:shop/users")
    tables.main.prepare(spark_provider.get().range(1).schema)
    assert tables.main.version == 0 and Table(place, "elt:other").exists


def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written(
    lake: Lake, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignoring = Lie(path=".", ignores_condition=True, times=10**6)
    with lying_store(store.endpoint) as proxy, proxy.telling(ignoring):
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        behind = Lake(lake.provider, lake.folder, root=store.uri)
        with pytest.raises(ConfigError, match="ignores the condition If-None-Match") as raised:
            sync(behind, [FIRST])
        with pytest.raises(ConfigError, match="ignores the condition"):
            behind.table.prepare(t.StructType([t.StructField("id", t.LongType())]), "other")
    assert store.uri in str(raised.value) and proxy.endpoint not in str(raised.value)
    assert store.objects() == []


def test_the_test_of_a_server_leaves_no_object(lake: Lake, store: ObjectStore) -> None:
    sync(lake, [FIRST])
    assert not [name for name in store.objects() if "conditional-write" in name]
