"""Files of another engine: whatever types they have, rows keep their values, or the file is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.errors import SystemFailure
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.merge import file_splitting, partition_files
from elt_assets.lake.spark.foreign_types import conformed, open_file
from elt_assets.lake.spark.tasks import KEPT, Job, _split
from elt_assets.protocol.airbyte.sync_modes import APPEND, APPEND_DEDUP
from tests.lake.harness import Lake
from tests.lake.staging import INTEGER, STRING, TIMESTAMP, stream

UTC = pa.timestamp("us", "UTC")
NOON = dt.datetime(2024, 1, 1, 12, 0, 0, 123456, tzinfo=dt.timezone.utc)
Encode = Callable[[pa.Array], pa.Array]


def round_trip(values: pa.Array, **options: Any) -> pa.Array:
    """Return values as they are read from a Parquet file that has them."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"c": values}), buffer, **options)
    return open_file(io.BytesIO(buffer.getvalue())).read()["c"].combine_chunks()


# The cast

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_INSTANTS = st.timedeltas(dt.timedelta(days=-90_000), dt.timedelta(days=90_000)).map(EPOCH.__add__)
_DECIMAL = pa.decimal128(12, 3)
_NUMBERS = st.integers(-(10**11), 10**11).map(lambda n: decimal.Decimal(n).scaleb(-3))


def cast(kind: pa.DataType) -> Encode:
    return lambda values: values.cast(kind)


def naive(unit: str) -> Encode:
    return lambda values: values.cast(pa.timestamp("us")).cast(pa.timestamp(unit))


SCALARS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], list[Encode]]] = {
    "timestamp": (
        UTC,
        _INSTANTS,
        [cast(pa.timestamp("ns", "UTC")), cast(pa.timestamp("ns", "Asia/Tokyo")), naive("ns")],
    ),
    "timestamp in whole milliseconds": (
        UTC,
        _INSTANTS.map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000)),
        [cast(pa.timestamp("ms", "UTC")), naive("ms")],
    ),
    "long": (pa.int64(), st.integers(-128, 127), [cast(pa.int8()), cast(pa.int32())]),
    "unsigned": (pa.int64(), st.integers(0, 255), [cast(pa.uint8()), cast(pa.uint64())]),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1), [cast(pa.int64())]),
    "double": (
        pa.float64(),
        st.floats(width=16),
        [cast(pa.float16()), cast(pa.float32())],
    ),
    "decimal": (
        _DECIMAL,
        _NUMBERS,
        [cast(pa.decimal64(13, 3)), cast(pa.decimal128(38, 5)), cast(pa.decimal256(40, 3))],
    ),
    "string": (
        pa.string(),
        st.text(max_size=9),
        [
            *(cast(pa.large_string()), cast(pa.string_view()), cast(pa.binary())),
            lambda values: values.dictionary_encode(),
        ],
    ),
    "binary": (
        pa.binary(),
        st.binary(max_size=9),
        [cast(pa.large_binary()), cast(pa.binary_view())],
    ),
    "boolean": (pa.bool_(), st.booleans(), []),
    "date": (pa.date32(), st.dates(), [cast(pa.date64())]),
}


def nested(kind: pa.DataType, values: pa.Array, encoded: pa.Array, shape: str) -> Any:
    """Return values and their other encoding in a nested column, and its type."""
    ends = pa.array([*range(len(values) + 1)], pa.int32())
    if shape == "list":
        made = (
            pa.ListArray.from_arrays(ends, values),
            pa.LargeListArray.from_arrays(ends, encoded),
        )
    elif shape == "struct":
        more = pa.nulls(len(values), pa.int64())
        both = pa.struct([("a", kind), ("more", pa.int64())])
        made = (
            pa.StructArray.from_arrays([values, more], fields=list(both)),
            pa.StructArray.from_arrays([encoded], ["a"]),
        )
    else:
        keys = pa.array([str(number) for number in range(len(values))], pa.string())
        made = tuple(pa.MapArray.from_arrays(ends, keys, items) for items in (values, encoded))
    return (*made, made[0].type)


@pytest.mark.parametrize("name", SCALARS)
@given(data=st.data())
def test_values_stay_equal_whatever_type_a_file_has(name: str, data: st.DataObject) -> None:
    kind, values_of, encodings = SCALARS[name]
    values = pa.array(data.draw(st.lists(st.none() | values_of, max_size=5)), kind)
    encoded = data.draw(st.sampled_from([lambda same: same, *encodings]))(values)
    shape = data.draw(st.sampled_from(["plain", "list", "struct", "map"]))
    if shape != "plain":
        values, encoded, kind = nested(kind, values, encoded, shape)
    start = data.draw(st.integers(0, len(values)))
    is_int96 = data.draw(st.booleans())
    physical = round_trip(encoded, use_deprecated_int96_timestamps=is_int96)
    result = conformed(physical.slice(start), kind, "c")
    assert result.type == kind
    result.validate(full=True)
    assert repr(result.to_pylist()) == repr(values.slice(start).to_pylist())


REFUSED: dict[str, tuple[pa.Array, pa.DataType]] = {
    "nanoseconds": (pa.array([1], pa.timestamp("ns", "UTC")), UTC),
    "seconds out of range": (pa.array([2**60], pa.timestamp("s", "UTC")), UTC),
    "unsigned": (pa.array([2**63], pa.uint64()), pa.int64()),
    "long in an int": (pa.array([2**31], pa.int64()), pa.int32()),
    "decimal": (pa.array([decimal.Decimal("0.0001")], pa.decimal128(10, 4)), _DECIMAL),
    "double in a float": (pa.array([0.1], pa.float64()), pa.float32()),
    "long in a double": (pa.array([2**53 + 1], pa.int64()), pa.float64()),
    "text in a long": (pa.array(["1"]), pa.int64()),
    "long in a text": (pa.array([1]), pa.string()),
    "double in a long": (pa.array([1.0]), pa.int64()),
    "boolean in a long": (pa.array([True]), pa.int64()),
    "timestamp in a date": (pa.array([NOON], UTC), pa.date32()),
    "bytes in a text": (pa.array([b"\xff"]), pa.string()),
    "list in a struct": (pa.array([[1]]), pa.struct([("a", pa.int64())])),
    "nested": (pa.array([[{"a": "1"}]]), pa.list_(pa.struct([("a", pa.int64())]))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_value_that_would_change_is_refused_with_its_column(case: str) -> None:
    values, kind = REFUSED[case]
    with pytest.raises(pa.ArrowInvalid, match="its column c"):
        conformed(values, kind, "c")


# INT96


def int96(days: int, nanoseconds: int) -> io.BytesIO:
    """Return a Parquet file with one INT96 timestamp of any value."""
    mark = NOON.replace(year=1999)
    buffer = io.BytesIO()
    table = pa.table({"c": pa.array([mark], UTC)})
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, buffer, use_deprecated_int96_timestamps=True, **options)
    since = mark - EPOCH
    before = _int96(since.days, since.seconds * 10**9 + since.microseconds * 1000)
    assert buffer.getvalue().count(before) == 1
    return io.BytesIO(buffer.getvalue().replace(before, _int96(days, nanoseconds)))


def _int96(days: int, nanoseconds: int) -> bytes:
    return nanoseconds.to_bytes(8, "little") + (days + 2_440_588).to_bytes(4, "little")


@given(
    days=st.integers(-2_400_000, 3_000_000) | st.integers(100_000_000, 2**31),
    microseconds=st.integers(0, 86_400 * 10**6 - 1),
    rest=st.just(0) | st.integers(0, 999),
)
def test_an_int96_timestamp_is_read_exactly_or_refused(
    days: int, microseconds: int, rest: int
) -> None:
    source = int96(days, microseconds * 1000 + rest)
    value = days * 86_400 * 10**6 + microseconds
    if rest or value >= 2**63:
        with pytest.raises(pa.ArrowInvalid, match="its column c has the type INT96"):
            open_file(source)
    else:
        assert open_file(source).read()["c"].cast(pa.int64()).to_pylist() == [value]


# Tasks


def test_a_rewrite_gives_files_the_order_and_types_of_the_table(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "at": UTC, "name": pa.string()})
    foreign = pa.table(
        {
            "_elt_epoch": pa.array([7], pa.int64()),
            "name": pa.array(["a"], pa.large_string()),
            "id": pa.array([1], pa.int8()),
            "at": pa.array([NOON], UTC),
        }
    )
    path = tmp_path / "part.parquet"
    pq.write_table(foreign, path, use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"id": [2]}), tmp_path / "own.parquet")
    job = _job(tmp_path, ["part.parquet", "own.parquet"], schema)
    names = [name for role, name in _split(job, 0) if role == KEPT]
    tables = {
        table.schema.names[0]: table for table in (pq.read_table(tmp_path / n) for n in names)
    }
    merged = pa.concat_tables(
        [pq.read_table(tmp_path / name) for name in names], promote_options="default"
    )
    assert tables.keys() == {"id"}
    assert merged.schema.names == ["id", "at", "name", "_elt_epoch"]
    assert [merged.schema.field(name).type for name in schema.names] == schema.types
    assert merged.column("at").to_pylist() == [NOON, None]
    assert merged.column("_elt_epoch").to_pylist() == [7, None]


def test_a_rewrite_that_would_lose_something_names_file_column_and_types(tmp_path: Path) -> None:
    foreign = pa.table({"at": pa.array([1], pa.timestamp("ns", "UTC"))})
    pq.write_table(foreign, tmp_path / "part.parquet")
    job = _job(tmp_path, ["part.parquet"], pa.schema({"at": UTC}))
    with pytest.raises(OSError, match=r"part\.parquet .*column at .*\[ns.*\[us") as raised:
        list(_split(job, 0))
    assert "does not fit" in str(raised.value)
    assert not list(tmp_path.rglob("kept/*"))


def _job(root: Path, files: list[str], schema: pa.Schema) -> Job:
    place = (pafs.LocalFileSystem(), str(root))
    return Job(place, [files], frozenset([0]), (), (), "kept", "matching", 100, 1 << 20, schema)


# Tables

EVENTS = {"id": INTEGER, "at": TIMESTAMP, "name": STRING}


def rewrite(uri: str, change: Callable[[pa.Table], pa.Table] | None = None, **options: Any) -> None:
    """Write a table's files again as another engine does, into other types."""
    delta = DeltaTable(uri)
    actions: list[AddAction | RemoveAction] = []
    now = int(time.time() * 1000)
    for path in delta.get_add_actions(flatten=True).column("path").to_pylist():
        table = pq.read_table(f"{uri}/{path}", partitioning=None)
        name = f"part-{uuid.uuid4().hex}.parquet"
        pq.write_table(table if change is None else change(table), f"{uri}/{name}", **options)
        stats = json.dumps({"numRecords": table.num_rows})
        size = Path(uri, name).stat().st_size
        actions += [
            AddAction(name, size, {}, now, False, stats),
            RemoveAction(path, False, now, 1, {}),
        ]
    delta.create_write_transaction(actions, "append", delta.schema())


def encoded(**kinds: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        for name, kind in kinds.items():
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, table[name].cast(kind))
        return table.select(list(reversed(table.column_names)))

    return change


ENGINES: dict[str, tuple[Callable[[pa.Table], pa.Table] | None, dict[str, Any]]] = {
    "INT96, as Spark writes": (None, {"use_deprecated_int96_timestamps": True}),
    "nanoseconds and large types": (
        encoded(at=pa.timestamp("ns", "UTC"), name=pa.large_string(), id=pa.int32()),
        {"version": "2.6"},
    ),
}


def event(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "at": NOON.isoformat(), "name": name}


@pytest.mark.parametrize("engine", ENGINES)
def test_merges_and_maintenance_of_a_table_in_other_types(
    lake: Lake, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured = stream(EVENTS, APPEND_DEDUP, key=["id", "at"])
    lake.sync(configured, event(1, "a"), event(2, "b"))
    change, options = ENGINES[engine]
    rewrite(lake.uri, change, **options)
    before = [(1, NOON, "a"), (2, NOON, "b")]
    assert _events(lake) == before
    monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", 0)
    lake.sync(configured, event(2, "c"), event(3, "d"))
    after = [(1, NOON, "a"), (2, NOON, "c"), (3, NOON, "d")]
    assert _events(lake) == after
    rewrite(lake.uri, change, **options)
    maintain(lake.spark, lake.tables())
    assert _events(lake) == after
    for path in DeltaTable(lake.uri).file_uris():
        assert pq.read_schema(path).field("at").type == UTC


def test_a_merge_that_would_round_a_value_is_refused_with_file_and_column(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured = stream(EVENTS, APPEND_DEDUP, key=["id"])
    lake.sync(configured, event(1, "a"))

    def with_rest(table: pa.Table) -> pa.Table:
        fine = pc.add(table["at"].cast(pa.timestamp("ns", "UTC")).cast(pa.int64()), 1)
        place = table.schema.get_field_index("at")
        return table.set_column(place, "at", fine.cast(pa.timestamp("ns", "UTC")))

    rewrite(lake.uri, with_rest)
    version = lake.table.version
    monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", 0)
    with pytest.raises(SystemFailure, match="another engine wrote") as raised:
        lake.sync(configured, event(1, "b"))
    assert re.search(r"part-\w+\.parquet .*column at .*\[ns, .*\[us, ", str(raised.value.detail))
    assert not raised.value.is_machine_fault
    assert lake.table.version == version


def test_a_partition_in_a_file_with_bounds_of_another_engine_is_read(lake: Lake) -> None:
    lake.sync(stream(EVENTS, APPEND), event(1, "a"), partition="x")
    rewrite(lake.uri)
    found = partition_files.files_of(lake.table, ["x"])
    assert (len(found.own), len(found.mixed)) == (0, 1)


def _events(lake: Lake) -> list[tuple[Any, ...]]:
    """Return the rows, which delta-rs and this project read alike."""
    read = lake.table.dataframe(lake.spark).selectExpr("id", "unix_micros(at) at", "name")
    events = sorted(
        (id_, EPOCH + dt.timedelta(microseconds=at), name) for id_, at, name in read.collect()
    )
    delta = DeltaTable(lake.uri).to_pyarrow_table().select(["id", "at", "name"]).to_pylist()
    assert events == sorted(tuple(row.values()) for row in delta)
    return events
