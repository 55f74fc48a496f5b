"""`spark.read.format("elt")` and `spark.readStream.format("elt")`, in a session on this machine."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import elt_assets
from elt_assets.errors import ConfigError
from pyspark_elt import DefaultSource
from tests.support.project import REPOSITORY, Project

pytestmark = pytest.mark.usefixtures("own")

UTC = dt.timezone.utc
TIMES = [
    dt.datetime(1600, 1, 1, tzinfo=UTC),
    dt.datetime(2999, 12, 31, 23, 59, 59, 999_999, UTC),
    None,
]
EVERY_TYPE = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int32()),
        "big": pa.array([2**63 - 1, -(2**63), None], pa.int64()),
        "x": pa.array([1.5, float("nan"), None]),
        "flag": pa.array([True, False, None]),
        "text": ["a", "", None],
        "bytes": pa.array([b"a", b"", None]),
        "day": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
        "at": pa.array(TIMES, pa.timestamp("us", "UTC")),
        "amount": pa.array([1, None, 3], pa.decimal128(38, 9)),
        "tags": pa.array([["a", None], [], None], pa.list_(pa.string())),
        "place": pa.array(
            [{"city": "x", "codes": [{"n": 1}]}, {"city": None, "codes": None}, None],
            pa.struct({"city": pa.string(), "codes": pa.list_(pa.struct({"n": pa.int64()}))}),
        ),
        "a b.c`d": ["1", "2", None],
    }
)


@pytest.fixture
def session(spark: SparkSession, own: Project) -> SparkSession:
    """A session in which the project is registered."""
    elt_assets.register(spark)
    return spark


def lake_of(project: Project) -> Path:
    return project.home / "lake"


def load(spark: SparkSession, key: str, **options: Any) -> DataFrame:
    return spark.read.format("elt").options(**options).load(key)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=repr)


def test_rows_of_every_type_are_those_of_read_table(session: SparkSession, own: Project) -> None:
    for part in (EVERY_TYPE.slice(0, 1), EVERY_TYPE.slice(1)):
        write_deltalake(str(lake_of(own) / "shop" / "things"), part, mode="append")
    frame = load(session, "shop/things")
    expected = elt_assets.read_table(session, "shop/things")
    assert frame.schema == expected.schema
    # No NaN is equal to another.
    assert list(map(repr, rows_of(frame))) == list(map(repr, rows_of(expected)))
    assert frame.count() == 3
    assert frame.rdd.getNumPartitions() == 1
    columns = '["a b.c`d", "id"]'
    assert load(session, "shop/things", columns=columns).columns == ["a b.c`d", "id"]
    assert rows_of(load(session, "shop/things", version=0)) == rows_of(
        elt_assets.read_table(session, "shop/things", version=0)
    )
    frame.createOrReplaceTempView("elt_things")
    session.sql(
        "create temporary view elt_view using elt options (path 'shop/things', columns 'id')"
    )
    assert (
        session.sql("select count(id) from elt_view join elt_things using (id)").collect()[0][0]
        == 2
    )
    # What is loaded stays at its version.
    write_deltalake(str(lake_of(own) / "shop" / "things"), EVERY_TYPE, mode="append")
    assert frame.count() == 3 and load(session, "shop/things").count() == 6


def test_a_version_is_that_of_a_time(own: Project, spark: SparkSession) -> None:
    place = lake_of(own) / "totals"
    for number in range(3):
        write_deltalake(str(place), pa.table({"n": [number]}), mode="append")
        log = place / "_delta_log" / f"{number:020}.json"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = 1_000 * number + 500
        log.write_text("\n".join(map(json.dumps, lines)))

    def count(**options: str) -> int:
        source = DefaultSource({"path": "totals", **options})
        reader = source.reader(source.schema())
        return sum(len(batch) for part in reader.partitions() for batch in reader.read(part))

    for time_, rows in (
        ("00:00:00.500Z", 1),
        ("00:00:01.499+00:00", 1),
        ("00:00:01.5", 2),
        ("01:00:02Z", 3),
    ):
        assert count(timestamp=f"1970-01-01T{time_}") == rows
    with pytest.raises(ConfigError, match="no version at 1969") as raised:
        count(timestamp="1969-12-31")
    assert (
        raised.value.guidance == "its first version in the log is of 1970-01-01T00:00:00.500+00:00"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'write load("shop/users")'),
        ({"path": "shop/usrs"}, "near names: shop/users"),
        ({"path": "ship/users"}, "near names: shop"),
        ({"path": "shop/users", "version": "9"}, "version 9"),
        ({"path": "shop/users", "version": "-1"}, "'-1' is no number"),
        (
            {"path": "shop/users", "version": "1", "timestamp": "2026-01-01"},
            "leave one of the two out",
        ),
        ({"path": "shop/users", "timestamp": "yesterday"}, "write it as 2026-01-31T12:00:00Z"),
        ({"path": "shop/users", "columns": "ID"}, "it has the columns id"),
        ({"path": "shop/users", "columns": "[1]"}, "is no list of texts"),
        ({"path": "shop/users", "columns": "id,id"}, "each one once"),
        ({"path": "shop/users", "partition": "a"}, "has no partitions"),
        ({"path": "shop/users", "deletes": "rows"}, "write spark.readStream"),
        ({"path": "shop/users", "deletes": "some"}, "write one of fail, ignore, rows"),
        (
            {"path": "shop/users", "verison": "1"},
            "its options are lake, version, timestamp, columns",
        ),
        (
            {"path": "shop/users", "lake": "ftp://host/x"},
            "locations of the scheme ftp:// are not supported",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(
    own: Project, options: dict[str, str], message: str
) -> None:
    write_deltalake(str(lake_of(own) / "shop" / "users"), pa.table({"id": [1]}))
    source = DefaultSource(options)
    with pytest.raises(ConfigError) as raised:
        source.reader(source.schema()).partitions()
    assert message in str(raised.value)


def test_spark_shows_the_error_and_what_to_do(session: SparkSession, own: Project) -> None:
    write_deltalake(str(lake_of(own) / "shop" / "users"), pa.table({"id": [1]}))
    with pytest.raises(
        PySparkException, match=r"there is no table .*shop/usrs yet\nnear names: shop/users"
    ):
        load(session, "shop/usrs")
    with pytest.raises(PySparkException, match=r"leave \.schema\(…\) out"):
        session.read.format("elt").schema("id string").load("shop/users").collect()
    with pytest.raises(PySparkException, match="version or timestamp is no option of streams"):
        session.readStream.format("elt").option("version", 0).load("shop/users").writeStream.format(
            "noop"
        ).start().awaitTermination()


def test_no_secret_travels_to_spark(own: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a credential, the worker gets where it is, and reads it there."""
    registered: list[type[DefaultSource]] = []

    class Session:
        class dataSource:
            register = registered.append

    file = own.root / "options.yaml"
    file.write_text("aws_secret_access_key: hidden-1\naws_region: eu-central-1\n")
    monkeypatch.setenv("ELT_LAKE", "s3://bucket/lake")
    monkeypatch.setenv("ELT_STORAGE_OPTIONS", str(file))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "hidden-2")
    elt_assets.register(Session())  # type: ignore[arg-type]
    [source] = registered
    assert b"hidden" not in pickle.dumps(source.lake) and "hidden" not in json.dumps(source.lake)
    assert source.lake is not None and source.lake["options"] == {"region": "eu-central-1"}

    from elt_assets.lake.read.lake_reference import LakeReference

    reference = LakeReference.from_document(json.loads(json.dumps(source.lake)))
    assert reference.open().options == {"region": "eu-central-1", "secret_access_key": "hidden-1"}
    file.write_text("aws_region: eu-central-1\n")
    with pytest.raises(
        ConfigError, match="needs aws_secret_access_key, which is not in the env"
    ) as raised:
        reference.open()
    assert "spark.executorEnv.AWS_SECRET_ACCESS_KEY" in (raised.value.guidance or "")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-3")  # the remedy
    assert reference.open().options == {"region": "eu-central-1"}


def test_the_error_names_the_variable_that_the_project_has(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from elt_assets.lake.read.lake_reference import LakeReference
    from elt_assets.storage.location import Location

    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "hidden")
    reference = LakeReference.describe(Location.parse("abfss://box@account.dfs.core.windows.net/l"))
    assert "hidden" not in json.dumps(reference.to_document())
    assert reference.open().options["account_key"] == "hidden"
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    with pytest.raises(ConfigError, match="it in the variable AZURE_STORAGE_ACCOUNT_KEY"):
        reference.open()


MODULE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(sorted(row.id for row in spark.read.format("elt").load("shop/users").collect()))
"""


def run(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **python, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_spark_finds_the_format_by_its_module(own: Project) -> None:
    """In a session without `register`: the lake is that of the settings of Spark's workers."""
    write_deltalake(str(lake_of(own) / "shop" / "users"), pa.table({"id": [1, 2]}))
    done = run(MODULE, ELT_LAKE=str(lake_of(own)))
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[1, 2]", done.stderr


# Streams

DYING_QUERY = """
import os, sys
from pyspark.sql import SparkSession
import elt_assets
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
elt_assets.register(spark)

def die(rows, number):
    assert rows.count() == 2
    os.kill(os.getpid(), 9)

rows = spark.readStream.format("elt").option("deletes", "rows").load("shop/users")
query = rows.writeStream.foreachBatch(die).option("checkpointLocation", sys.argv[1])
query.trigger(availableNow=True).start().awaitTermination()
"""


def follow(project: Project, spark: SparkSession) -> None:
    def keep(rows: DataFrame, number: int) -> None:
        rows.write.mode("overwrite").parquet(f"{project.root}/out/{number}")

    rows = spark.readStream.format("elt").option("deletes", "rows").load("shop/users")
    query = rows.writeStream.foreachBatch(keep).trigger(availableNow=True)
    query = query.option("checkpointLocation", f"{project.root}/checkpoint")
    while (error := try_to_run(query)) is not None:
        # Spark waits ten seconds for a worker to start, which a busy machine may not do.
        assert "failed to connect back" in str(error)


def try_to_run(query: Any) -> PySparkException | None:
    try:
        query.start().awaitTermination()
    except PySparkException as error:
        return error
    return None


def batches_of(project: Project, spark: SparkSession) -> list[list[tuple[Any, ...]]]:
    folders = sorted((project.root / "out").iterdir(), key=lambda path: int(path.name))
    frames = [spark.read.parquet(str(folder)) for folder in folders]
    return [rows_of(frame.select("id", "_change_type")) for frame in frames]


def write(project: Project, ids: list[int], **how: Any) -> None:
    raw = [f"00000000-0001-7000-8000-{number:012}" for number in ids]
    rows = pa.table({"id": ids, "_airbyte_raw_id": raw})
    write_deltalake(str(lake_of(project) / "shop" / "users"), rows, mode="append", **how)


def test_a_query_that_is_killed_continues(own: Project, session: SparkSession) -> None:
    """Killed in the middle of a batch, it gets the same batch again, though the table has moved on."""
    write(own, [1, 2])
    follow(own, session)
    table = DeltaTable(str(lake_of(own) / "shop" / "users"))
    table.delete("id = 1")
    write(own, [3])
    killed = run(DYING_QUERY, f"{own.root}/checkpoint")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    write(own, [4])
    table.update_incremental()
    table.optimize.compact()
    for _ in range(2):  # the batch that was begun, and what came since
        follow(own, session)
    first, second, *others = batches_of(own, session)
    assert (first, second) == ([(1, "insert"), (2, "insert")], [(1, "delete"), (3, "insert")])
    assert others == [[(4, "insert")]]


class Stream:
    """The stream of a table, read as Spark reads it, from offset to offset."""

    def __init__(self, **options: str):
        self.options = {"path": "shop/users", **options}
        self.offset: dict[str, Any] | None = None

    def read(self) -> list[tuple[Any, ...]]:
        source = DefaultSource(self.options)
        stream = source.streamReader(source.schema())
        start = self.offset or stream.initialOffset()
        end = stream.latestOffset()  # type: ignore[call-arg]
        parts = pickle.loads(pickle.dumps((stream, stream.partitions(start, end))))
        rows = [
            tuple(row.values())
            for part in parts[1]
            for batch in parts[0].read(part)
            for row in batch.to_pylist()
        ]
        self.offset = json.loads(json.dumps(end))
        return sorted(rows)


def test_a_stream_of_new_rows_says_if_there_were_others(own: Project) -> None:
    write(own, [1, 2, 3])
    new, ignoring, rows = (
        Stream(columns="id", **how) for how in ({}, {"deletes": "ignore"}, {"deletes": "rows"})
    )
    for stream in (new, ignoring):
        assert stream.read() == [(1,), (2,), (3,)]
    assert rows.read() == [(1, "insert"), (2, "insert"), (3, "insert")]
    write(own, [4])
    assert new.read() == ignoring.read() == [(4,)] and rows.read() == [(4, "insert")]
    table = DeltaTable(str(lake_of(own) / "shop" / "users"))
    table.optimize.compact()  # which changes no row
    assert new.read() == ignoring.read() == rows.read() == []
    table.delete("id = 2")
    assert ignoring.read() == [] and rows.read() == [(2, "delete")]
    with pytest.raises(
        ConfigError, match="rows were updated or deleted since the last batch"
    ) as raised:
        new.read()
    assert 'option("deletes", "ignore")' in str(raised.value)
    new.options["deletes"] = "ignore"  # the remedy
    assert new.read() == []


def test_a_stream_that_lost_its_place_says_what_to_do(own: Project) -> None:
    place = lake_of(own) / "shop" / "users"
    write(own, [1, 2])
    stream = Stream(deletes="rows", columns="id")
    stream.read()

    def refuse(text: str) -> None:
        with pytest.raises(ConfigError, match=text) as raised:
            stream.read()
        assert "start the query with a new checkpoint" in (raised.value.guidance or "")
        stream.offset = None  # the remedy
        assert stream.read()

    before = set(DeltaTable(str(place)).file_uris())
    DeltaTable(str(place)).delete("id = 1")
    for path in before:
        (place / path.removeprefix(f"{place}/")).unlink()
    refuse("a vacuum has removed files of version 0")
    write(own, [5])
    stream.read()
    DeltaTable(str(place)).restore(1)
    refuse("the table was restored to an earlier version")
    place.rename(own.root / "away")
    write(own, [7])
    refuse("moved away, or restored from a backup")
