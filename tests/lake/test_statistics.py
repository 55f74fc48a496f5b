"""Whatever a reader filters by, it finds the rows that the whole table has, whatever its values are."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.worker.parquet import FileWriter, Output
from tests.support.examples import examples

pytestmark = pytest.mark.unit

UTC = dt.timezone.utc
FIRST = dt.datetime.min.replace(tzinfo=UTC)
LAST = dt.datetime.max.replace(tzinfo=UTC)
LENGTHS = st.sampled_from([0, 1, 63, 64, 255, 256, 257, 300, 4097])
ENDS = st.sampled_from(["", "a", "\ud7ff", "\U0010ffff", "\U0010ffff\U0010ffff", "é"])
TEXTS = st.builds(
    lambda begin, fill, size, end: begin + fill * size + end,
    *(ENDS, st.sampled_from("a\x7f\ud7ff\U0010ffff"), LENGTHS, ENDS),
)
TIMES = st.sampled_from([FIRST, LAST, LAST.replace(microsecond=999_000)]) | st.datetimes(
    timezones=st.just(UTC)
)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**28) + 1,
                       max_value=10**28 - 1)  # fmt: skip
VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int64(), st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1, 0]) | st.integers(-5, 5)),
    (pa.float64(), st.floats(width=64) | st.sampled_from([0.0, -0.0, 0.1, -1.5])),
    (pa.float64(), st.floats(-2, 2, allow_nan=False)),
    (pa.string(), TEXTS),
    (pa.string(), st.text(st.characters(codec="utf-8"), max_size=3)),
    (pa.binary(), st.binary(max_size=3)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), TIMES),
    (pa.decimal128(38, 9), DECIMALS),
]
FEATURES = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}


@st.composite
def tables(draw: st.DrawFn) -> list[pa.Table]:
    """The rows of a few files of one table: a number, some columns, and one in a structure."""
    kinds = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))
    width = draw(st.sampled_from([0, 0, 30, 31, 40]))
    count = itertools.count()
    files = []
    for _ in range(draw(st.integers(1, 2))):
        rows = draw(st.integers(1, 4))
        columns: dict[str, pa.Array] = {"number": pa.array([next(count) for _ in range(rows)])}
        lists = pa.array([[n] for n in range(rows)], pa.list_(pa.int64()))
        maps = pa.array([[("a", n)] for n in range(rows)], pa.map_(pa.string(), pa.int64()))
        columns |= {"list": lists, "map": maps}
        columns |= {f"wide{n}": pa.array(range(rows), pa.int64()) for n in range(width)}
        for position, (type_, values) in enumerate(kinds):
            some = draw(st.sampled_from([values | st.none(), values, st.none()]))
            cells = pa.array([draw(some) for _ in range(rows)], type_)
            columns |= {f"c{position}": cells}
            columns |= {f"s{position}": pa.StructArray.from_arrays([cells], ["inner"])}
        files.append(pa.table(columns))
    return files


def write(folder: Path, files: list[pa.Table]) -> None:
    """Write a table as syncs do, a row group for each two rows."""
    writer = FileWriter(Output((fs.LocalFileSystem(), str(folder)), "part"))
    for rows in files:
        for batch in rows.to_batches(max_chunksize=2):
            writer.write(batch)
            writer.flush()
        writer.close()
    names = [
        field["name"]
        for field in json.loads(Schema.from_arrow(files[0].schema).to_json())["fields"]
    ]
    assert names == files[0].column_names
    schema = Schema.from_arrow(files[0].schema).to_json()
    form = {"provider": "parquet", "options": {}}
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **FEATURES}},
        {"metaData": {"id": "x", "format": form, "schemaString": schema, "partitionColumns": [],
                      "configuration": {}, "createdTime": 0}},
    ]  # fmt: skip
    for file in (DataFile(*values) for values in writer.files):
        entry = {"path": file.path, "size": file.size, "partitionValues": {}, "modificationTime": 0}
        actions.append({"add": {**entry, "dataChange": True, "stats": file.add().stats}})
    (folder / "_delta_log").mkdir()
    # As delta-rs writes it: the reader of escaped pairs of surrogates makes other characters of some.
    lines = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions)
    (folder / "_delta_log" / f"{0:020}.json").write_text(lines, encoding="utf-8")


def numbers(rows: Any) -> list[int]:
    return sorted(
        rows["number"].to_pylist() if isinstance(rows, pa.Table) else rows["number"].to_list()
    )


def compare(path: ds.Expression, value: pa.Scalar) -> list[ds.Expression]:
    return [
        path == value,
        path <= value,
        path > value,
        path != value,
        path.is_null(),
        ~path.is_null(),
    ]


@settings(max_examples=examples(15), deadline=None)
@given(tables())
def test_a_filter_finds_the_rows_of_the_whole_table(files: list[pa.Table]) -> None:
    whole = pa.concat_tables(files)
    with TemporaryDirectory() as name:
        write(Path(name), files)
        delta = DeltaTable(name)
        dataset = delta.to_pyarrow_dataset(
            filesystem=fs.SubTreeFileSystem(name, fs.LocalFileSystem())
        )
        query = QueryBuilder().register("t", delta)
        for column in [
            name for name in whole.column_names if name[0] in "cs" and name[1:].isdigit()
        ]:
            is_inner = column.startswith("s")
            cells = pa.compute.struct_field(whole[column], "inner") if is_inner else whole[column]
            path = ds.field(column, "inner") if is_inner else ds.field(column)
            for value in {repr(cell.as_py()): cell for cell in cells if cell.is_valid}.values():
                for condition in compare(path, value):
                    expected = numbers(ds.dataset(whole).to_table(filter=condition))
                    assert numbers(dataset.to_table(filter=condition)) == expected
                if is_inner:
                    continue
                frame = delta.to_pandas(filters=[(column, "=", value.as_py())])
                equal = ds.dataset(whole).to_table(filter=path == value)
                assert sorted(frame["number"]) == numbers(equal)
                for operator in ("__eq__", "__ge__", "__lt__"):
                    condition_of_polars = getattr(pl.col(column), operator)(pl.lit(value.as_py()))
                    expected = numbers(
                        pl.from_arrow(whole.select(["number", column])).filter(condition_of_polars)
                    )
                    lazy = pl.scan_delta(name).select("number", column).filter(condition_of_polars)
                    assert numbers(lazy.collect()) == expected
            nulls = f'select number from t where "{column}" is null'
            if not is_inner:
                table = pa.table(query.execute(nulls).read_all())
                assert len(table) == cells.null_count
