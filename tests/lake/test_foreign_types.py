"""Files of another engine: whatever types they have, rows keep their values, or the file is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import re
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from elt_assets.errors import SystemFailure
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import file_splitting, partition_files
from elt_assets.lake.worker.file_tasks import SplitJob, make_split
from elt_assets.lake.worker.foreign_types import conform, open_file
from elt_assets.lake.worker.parquet import Output
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP
from tests.lake.harness import Lake
from tests.lake.staging import (
    BIG_INTEGER,
    BIG_NUMBER,
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    NTZ,
    NUMBER,
    STRING,
    TIMESTAMP,
    array,
    stream,
    struct,
)
from tests.lake.test_foreign_rules import alter

UTC = pa.timestamp("us", "UTC")
NOON = dt.datetime(2024, 1, 1, 12, 0, 0, 123000, tzinfo=dt.timezone.utc)
LATE = dt.datetime(2250, 1, 1, tzinfo=dt.timezone.utc)
Encode = Callable[[pa.Array], pa.Array]
Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]


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
    result = conform(physical.slice(start), kind, "c")
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
        conform(values, kind, "c")


def test_a_decimal_in_bytes_of_any_length_is_read() -> None:
    """Writers of Avro and Hive store it as BYTE_ARRAY, which Arrow reads but does not write."""
    numbers = [decimal.Decimal("-1.50"), decimal.Decimal("12345678.90"), None]
    units = [None if each is None else int(each.scaleb(2)) for each in numbers]
    raw = [None if each is None else each.to_bytes(5, "big", signed=True) for each in units]
    buffer = io.BytesIO()
    options = {"store_schema": False, "write_statistics": False}
    pq.write_table(pa.table({"amount": pa.array(raw, pa.binary())}), buffer, **options)
    body, footer = buffer.getvalue()[:-8], bytes.fromhex("25 0a 15 04 15 14")
    # The fields 6 to 8 of its SchemaElement: converted_type DECIMAL, scale 2, precision 10.
    name = b"\x18\x06amount"
    size = int.from_bytes(buffer.getvalue()[-8:-4], "little") + len(footer)
    assert body.count(name + b"\x00") == 1
    body = body.replace(name + b"\x00", name + footer + b"\x00")
    source = io.BytesIO(body + size.to_bytes(4, "little") + b"PAR1")
    values = open_file(source).read()["amount"]
    assert conform(values, pa.decimal128(38, 9), "amount").to_pylist() == numbers


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


@pytest.mark.parametrize("name", ["legacyDateTime", "legacyINT96"])
def test_days_of_the_julian_calendar_are_refused(tmp_path: Path, name: str) -> None:
    """Spark converts them when it reads a file with such a property; Arrow does not."""
    table = pa.table({"day": pa.array([-1_000_000], pa.date32())})
    pq.write_table(table.replace_schema_metadata({f"org.apache.spark.{name}": ""}), tmp_path / "a")
    with pytest.raises(pa.ArrowInvalid, match=f"former calendar .*{name}"):
        open_file(tmp_path / "a")


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
    names = [name for name, *_ in make_split(job)(0)[1]]
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
        make_split(job)(0)
    assert "does not fit" in str(raised.value)
    assert not list(tmp_path.rglob("kept/*"))


def _job(root: Path, files: list[str], schema: pa.Schema) -> SplitJob:
    place = (pafs.LocalFileSystem(), str(root))
    rest, matching = (Output(place, name, (), 100, 1 << 20) for name in ("kept", "matching"))
    return SplitJob([files], frozenset([0]), (), (), rest, matching, schema)


# Tables

EVENTS = {"id": INTEGER, "at": TIMESTAMP, "name": STRING}


def rewrite(uri: str, change: Callable[[pa.Table], pa.Table] | None = None) -> None:
    """Write a table's files again as another engine does, into other types."""
    delta = DeltaTable(uri)
    actions: list[AddAction | RemoveAction] = []
    now = int(time.time() * 1000)
    for path in delta.get_add_actions(flatten=True).column("path").to_pylist():
        table = pq.read_table(f"{uri}/{path}", partitioning=None)
        name = f"part-{uuid.uuid4().hex}.parquet"
        pq.write_table(table if change is None else change(table), f"{uri}/{name}")
        stats = json.dumps({"numRecords": table.num_rows})
        size = Path(uri, name).stat().st_size
        actions += [
            AddAction(name, size, {}, now, False, stats),
            RemoveAction(path, False, now, 1, {}),
        ]
    delta.create_write_transaction(actions, "append", delta.schema())


def event(number: int, name: str, at: dt.datetime = NOON) -> dict[str, Any]:
    return {"id": number, "at": at.isoformat(), "name": name}


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


# Whole tables: all values of all columns, after each rewrite

FIELDS = {
    **EVENTS,
    "local": NTZ,
    "day": DATE,
    "count": INTEGER,
    "number": NUMBER,
    "is_new": BOOLEAN,
    "bytes": BINARY,
    "large": BIG_INTEGER,
    "exact": BIG_NUMBER,
    "tags": array(STRING),
    "parts": array(struct(at=TIMESTAMP, count=INTEGER, exact=BIG_NUMBER)),
    "item": struct(at=TIMESTAMP, name=STRING, days=array(DATE)),
}
WIDER = {**FIELDS, "count": NUMBER, "day": TIMESTAMP}
OTHERS = t.StructType(
    [
        t.StructField("small", t.ShortType()),
        t.StructField("single", t.FloatType()),
        t.StructField("cents", t.DecimalType(9, 2)),
        t.StructField("price", t.DecimalType(18, 4)),
        t.StructField("by_name", t.MapType(t.StringType(), t.TimestampType())),
    ]
)
"""Columns that another engine added: types that no stream has."""
KEY = ("id", "name")
OPTIONAL = [*(name for name in FIELDS if name not in KEY), *OTHERS.names]
Values = Callable[[Random], Any]
Kinds = tuple[Callable[[Any], bool], Values, Sequence[pa.DataType]]
_TEXTS = ("", "a", 'ä\n"', "1 000", "\U0001f600" * 3)
PHYSICAL: Sequence[Kinds] = (
    (
        pa.types.is_integer,
        lambda random: random.randint(0, 100),
        [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()],
    ),
    (
        pa.types.is_floating,
        lambda random: random.choice([-0.0, 0.5, float("inf"), 2.0**-14, 1.0]),
        [pa.float16(), pa.float32(), pa.float64()],
    ),
    (pa.types.is_boolean, lambda random: random.random() < 0.5, [pa.bool_()]),
    (
        pa.types.is_date,
        lambda random: dt.date.fromordinal(random.randint(630_000, 810_000)),
        [pa.date32(), pa.date64()],
    ),
    (
        pa.types.is_timestamp,
        lambda random: EPOCH + dt.timedelta(milliseconds=random.randint(-8 * 10**12, 8 * 10**12)),
        [pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in ("UTC", None)],
    ),
    (
        pa.types.is_string,
        lambda random: random.choice(_TEXTS),
        [pa.string(), pa.large_string(), pa.binary()],
    ),
    (
        pa.types.is_binary,
        lambda random: random.randbytes(random.randint(0, 5)),
        [pa.binary(), pa.large_binary()],
    ),
)
"""Kinds of types of a table, with their values, and the types that a file may have for them."""


def value_of(kind: pa.DataType, random: Random) -> Any:
    """Return a value of a type of a table; often null."""
    if random.random() < 0.2:
        return None
    if pa.types.is_struct(kind):
        return {field.name: value_of(field.type, random) for field in kind}
    if pa.types.is_list(kind):
        return [value_of(kind.value_type, random) for _ in range(random.randint(0, 3))]
    if pa.types.is_map(kind):
        return [(name, value_of(kind.item_type, random)) for name in random.sample(_TEXTS, 2)]
    if pa.types.is_decimal(kind):
        digits = random.randint(0, kind.precision)
        return decimal.Decimal(random.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(
            -kind.scale
        )
    values = next(values for is_kind, values, _ in PHYSICAL if is_kind(kind))
    return plain(values(random), kind)


def physical(kind: pa.DataType, random: Random) -> pa.DataType:
    """Return another type that holds the values of a type of a table; an object may lack a field."""
    if pa.types.is_struct(kind):
        fields = random.sample([*kind], random.randint(max(1, len(kind) - 1), len(kind)))
        return pa.struct([pa.field(field.name, physical(field.type, random)) for field in fields])
    if pa.types.is_list(kind):
        make = random.choice([pa.list_, pa.large_list])
        name = random.choice(["element", "item", "array"])
        return make(pa.field(name, physical(kind.value_type, random)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), physical(kind.item_type, random))
    if pa.types.is_decimal(kind):
        return random.choice([kind, pa.decimal128(38, kind.scale), pa.decimal256(40, kind.scale)])
    return random.choice(next(types for is_kind, _, types in PHYSICAL if is_kind(kind)))


def plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value as a table's type has it, whatever type it was read in."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: plain(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return [(name, plain(item, kind.item_type)) for name, item in value]
    if pa.types.is_timestamp(kind):
        if not isinstance(value, dt.datetime):  # a date that became a time
            value = EPOCH.replace(value.year, value.month, value.day)
        instant = (
            value.astimezone(EPOCH.tzinfo) if value.tzinfo else value.replace(tzinfo=EPOCH.tzinfo)
        )
        instant = getattr(instant, "to_pydatetime", lambda: instant)()  # of pandas, if nanoseconds
        return instant if kind.tz else instant.replace(tzinfo=None)
    if pa.types.is_string(kind) and isinstance(value, bytes):
        return value.decode()
    return float(value) if pa.types.is_floating(kind) else value


def plain_rows(rows: Sequence[Row], schema: pa.Schema) -> list[Row]:
    return [plain(row, pa.struct(list(schema))) for row in rows]


def by_arrow(_: Lake, rows: pa.Table, path: Path, random: Random) -> None:
    kinds = {field.name: physical(field.type, random) for field in rows.schema}
    kinds["name"] = random.choice([kinds["name"], pa.dictionary(pa.int32(), pa.string())])
    pq.write_table(
        pa.Table.from_pylist(rows.to_pylist(), pa.schema(kinds)),
        path,
        row_group_size=2,
        version=random.choice(["1.0", "2.4", "2.6"]),
        use_dictionary=random.random() < 0.5,
        use_deprecated_int96_timestamps=random.random() < 0.5,
        use_compliant_nested_type=random.random() < 0.5,
        store_decimal_as_integer=random.random() < 0.5,
        store_schema=random.random() < 0.5,
    )


def by_duckdb(_: Lake, rows: pa.Table, path: Path, __: Random) -> None:
    with duckdb.connect() as connection:
        connection.register("file_rows", rows)
        connection.sql(f"copy (from file_rows) to '{path}' (format parquet)")


def by_spark(lake: Lake, rows: pa.Table, path: Path, random: Random) -> None:
    chosen = {
        "spark.sql.parquet.outputTimestampType": random.choice(["INT96", "TIMESTAMP_MILLIS"]),
        "spark.sql.parquet.writeLegacyFormat": random.choice(["true", "false"]),
    }
    conf = lake.spark.conf
    before = {name: str(conf.get(name)) for name in chosen}
    folder = path.with_suffix(".spark")
    try:
        for name, value in chosen.items():
            conf.set(name, value)
        lake.spark.createDataFrame(rows).coalesce(1).write.parquet(str(folder))
    finally:
        for name, former in before.items():
            conf.set(name, former)
    (file,) = folder.glob("*.parquet")
    file.rename(path)


ENGINES = (by_arrow, by_spark, by_arrow, by_duckdb)


def rewrite_all(lake: Lake, table: Table, random: Random, new: Sequence[Row] = ()) -> Rows:
    """Write the files of a table again as other engines do, and a file with new rows.

    Their columns have other types and another order, and one is missing. Return the rows of the files.
    """
    schema = table.arrow_schema()
    written: Rows = {}
    add: list[AddAction | RemoveAction] = []
    files = [pq.ParquetFile(f"{table.uri}/{file.path}") for file in table.files]
    parts = [plain_rows(file.read().to_pylist(), schema) for file in files]
    for number, rows in enumerate(filter(None, [*parts, new])):
        names = random.sample(schema.names, len(schema.names))
        names.remove(random.choice([name for name in names if name in OPTIONAL]))
        held = pa.Table.from_pylist(list(rows), schema).select(names)
        path = Path(table.uri, f"part-{uuid.uuid4().hex}.parquet")
        ENGINES[number % len(ENGINES)](lake, held, path, random)
        stats, size = json.dumps({"numRecords": len(rows)}), path.stat().st_size
        add.append(AddAction(path.name, size, {}, int(time.time() * 1000), True, stats))
        found = pq.ParquetFile(path).read().to_pylist()
        written |= by_key(plain_rows(found, schema))
    remove = [file.remove() for file in table.files]
    delta = DeltaTable(table.uri)
    delta.create_write_transaction([*add, *remove], "append", delta.schema())
    return written


def by_key(rows: Sequence[Row]) -> Rows:
    """Return rows by their key; versions of a history also by their start."""
    return {(row["id"], row["name"], row.get("_valid_from")): row for row in rows}


def read_rows(lake: Lake, table: Table) -> Rows:
    rows = table.dataframe(lake.spark).toArrow().to_pylist()
    return by_key(plain_rows(rows, table.arrow_schema()))


def others(rows: Rows, *ids: int) -> Rows:
    """Return the rows but those of some ids."""
    return {key: row for key, row in rows.items() if key[0] not in ids}


def differences(rows: Rows, expected: Rows) -> list[Any]:
    """Return the values that differ: the row's key, the column and both values."""
    return [
        (key, name, rows.get(key, {}).get(name), expected.get(key, {}).get(name))
        for key in {**rows, **expected}
        for name in {**rows.get(key, {}), **expected.get(key, {})}
        if (rows.get(key) or {}).get(name, ...) != (expected.get(key) or {}).get(name, ...)
    ]


def assert_typed(table: Table) -> None:
    """Assert that all files have the types of their table, and can be read by any engine."""
    schema = table.arrow_schema()
    for file in table.files:
        columns = pq.read_schema(Path(table.uri, file.path))
        assert file.is_own
        assert [each.type for each in columns] == [schema.field(each.name).type for each in columns]
    assert DeltaTable(table.uri).to_pyarrow_table().num_rows == table.records


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 40))]
)
def test_every_rewrite_of_a_whole_table_keeps_all_values(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A merge that splits files, a compaction, a widening, a history that begins, and its merge."""
    monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", 0)
    random = Random(seed)
    narrow, wide = (
        stream(fields, APPEND_DEDUP, key=KEY, cursor=["at"]) for fields in (FIELDS, WIDER)
    )
    lake.sync(narrow, event(1, "a"))
    alter(lake.uri, schema=t.StructType([*lake.table.schema.fields, *OTHERS.fields]))
    kind = pa.struct(list(lake.table.arrow_schema()))
    rows = filter(None, (value_of(kind, random) for _ in range(9)))
    new = [{**row, "id": id_, "name": "b"} for id_, row in enumerate(rows, 2)]
    before = rewrite_all(lake, lake.table, random, new)
    assert differences(read_rows(lake, lake.table), before) == []

    lake.sync(narrow, event(2, "b", LATE), event(20, "c"))
    assert differences(others(read_rows(lake, lake.table), 2, 20), others(before, 2)) == []

    before = rewrite_all(lake, lake.table, random)
    maintain(lake.spark, lake.tables())
    assert differences(read_rows(lake, lake.table), before) == []
    assert_typed(lake.table)

    before = rewrite_all(lake, lake.table, random)
    lake.sync(wide, event(21, "d"))
    widened = plain_rows([*before.values()], lake.table.arrow_schema())
    assert differences(others(read_rows(lake, lake.table), 21), by_key(widened)) == []
    assert_typed(lake.table)

    before = rewrite_all(lake, lake.table, random)
    lake.history = True
    lake.sync(wide, event(22, "e"))
    versions = read_rows(lake, lake.tables().companions["history"])
    current = by_key(plain_rows([*versions.values()], lake.table.arrow_schema()))
    assert differences(others(read_rows(lake, lake.table), 22), before) == []
    assert differences(others(current, 22), before) == []

    before = rewrite_all(lake, lake.table, random)
    versions = rewrite_all(lake, lake.tables().companions["history"], random)
    lake.sync(wide, event(20, "c", LATE))
    assert differences(others(read_rows(lake, lake.table), 20), others(before, 20)) == []
    history = lake.tables().companions["history"]
    assert differences(others(read_rows(lake, history), 20), others(versions, 20)) == []
