"""Downstream of a stream: its rows in the type that the input is annotated with."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from elt_assets.definitions import build
from tests.orchestration.days import DAILY, DAYS, FIRST, THIRD
from tests.programs.scripted import record, script, state
from tests.programs.windowed_source import windowed
from tests.support.project import Project
from tests.support.runs import failure_of, materialize

pytestmark = pytest.mark.usefixtures("spark")

FRAMES: Sequence[Any] = (
    *(DataFrame, pl.LazyFrame, pl.DataFrame),
    *(pa.Table, pd.DataFrame, duckdb.DuckDBPyRelation),
)


def arrow_of(rows: Any) -> pa.Table:
    match rows:
        case DataFrame():
            return rows.toArrow()
        case pl.LazyFrame():
            return rows.collect().to_arrow()
        case pl.DataFrame():
            return rows.to_arrow()
        case pd.DataFrame():
            return pa.Table.from_pandas(rows, preserve_index=False)
        case duckdb.DuckDBPyRelation():
            return rows.to_arrow_table()
    return rows


def reader(name: str, annotation: Any, input_: dg.AssetIn, seen: dict[str, Any], **how: Any) -> Any:
    """Return an asset that keeps the rows of its input, and their type."""

    def keep(rows):  # type: ignore[no-untyped-def] # the annotation follows
        seen[name] = type(rows), arrow_of(rows)

    keep.__annotations__["rows"] = annotation
    return dg.asset(name=name, ins={"rows": input_}, io_manager_key="io_manager", **how)(keep)


def test_an_input_has_the_annotated_type(own: Project) -> None:
    properties = {
        "id": {"type": "integer"},
        "amount": {"type": "string", "airbyte_type": "big_number"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "local": {
            "type": "string",
            "format": "date-time",
            "airbyte_type": "timestamp_without_timezone",
        },
        "is_new": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
        },
    }
    row = {
        "id": 2**53 + 1,
        "amount": "12345678901234567890.123456789",
        "day": "1600-02-28",
        "at": "2026-01-01T00:00:00.000001Z",
        "local": "9999-12-31T23:59:59",
        "is_new": True,
        "tags": ["a", None],
        "place": {"city": "x", "zip": 1},
    }
    script(own, [record(**row), state(1)], schema=properties)
    assert materialize(own, 'key:"scripted/things"').success
    script(own, [record(id=None), state(2)], schema=properties)  # a second file

    seen: dict[str, Any] = {}
    upstream = dg.AssetIn(["scripted", "things"], metadata={"columns": [*properties]})
    names = [f"reader_{number}" for number in range(len(FRAMES))]
    readers = [reader(name, kind, upstream, seen) for name, kind in zip(names, FRAMES, strict=True)]
    assert materialize(own, extra=readers).success
    expected = {
        "id": 2**53 + 1,
        "amount": Decimal("12345678901234567890.123456789"),
        "day": dt.date(1600, 2, 28),
        "at": dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.timezone.utc),
        "local": dt.datetime.fromisoformat("9999-12-31T23:59:59"),
        "is_new": True,
        "tags": ["a", None],
        "place": {"city": "x", "zip": 1},
    }
    for name, kind in zip(names, FRAMES, strict=True):
        frame_type, rows = seen[name]
        assert issubclass(frame_type, kind)
        assert rows.column_names == [*properties]
        first, second = sorted(rows.to_pylist(), key=lambda row: row["id"] is None)
        assert first == expected, name
        assert set(second.values()) == {None}


def test_an_input_has_the_partitions_of_its_mapping_and_the_columns_it_asks_for(
    own: Project,
) -> None:
    seen: dict[str, Any] = {}

    def readers(name: str, mapping: dg.PartitionMapping | None, **how: Any) -> list[Any]:
        columns = {"columns": ["value", "station"]}
        input_ = dg.AssetIn(["weather", "readings"], partition_mapping=mapping, metadata=columns)
        return [
            reader(f"{name}_{number}", kind, input_, seen, **how)
            for number, kind in enumerate((DataFrame, pl.LazyFrame, pa.Table))
        ]

    daily = [
        *readers("one", None, partitions_def=DAYS),
        *readers("two", dg.TimeWindowPartitionMapping(start_offset=-1), partitions_def=DAYS),
    ]
    windowed(own, partitions=DAILY)
    select = 'key:"weather/readings"'
    assert materialize(own, select, partition=FIRST, through=THIRD).success
    assert materialize(own, "key:one_* or key:two_*", daily, partition=THIRD).success
    assert materialize(own, "key:all_*", readers("all", None)).success
    rows = {name: table.num_rows for name, (_, table) in seen.items()}
    assert rows == {
        f"{name}_{number}": 48 * days
        for name, days in (("one", 1), ("two", 2), ("all", 3))
        for number in range(3)
    }
    assert {tuple(table.column_names) for _, table in seen.values()} == {("value", "station")}

    own.table("weather", "readings").optimize.compact()  # all days are in one file
    assert materialize(own, "key:one_*", daily, partition=THIRD).success
    assert [seen[f"one_{number}"][1].num_rows for number in range(3)] == [48] * 3


def test_inputs_that_cannot_be_loaded_are_refused(own: Project) -> None:
    def fail(annotation: Any, columns: Any) -> str:
        metadata = {} if columns is None else {"columns": columns}
        input_ = dg.AssetIn(["scripted", "things"], metadata=metadata)
        return failure_of(materialize(own, "key:asset", [reader("asset", annotation, input_, {})]))

    script(own, [record(id=1), state(1)])
    assert "materialise it first" in fail(pl.DataFrame, None)
    assert materialize(own, 'key:"scripted/things"').success
    text = fail(dict[str, int], None)
    assert "the input `rows` of asset" in text and "polars.LazyFrame" in text
    assert "is of the type polars.series.series.Series" in fail(pl.Series, None)
    text = fail(pl.DataFrame, ["id", "ID"])
    assert "has no column 'ID'" in text and "it has the columns id, name," in text
    assert "name at least one column" in fail(pl.DataFrame, [])
    assert "name at least one column" in fail(DataFrame, ["id", "id"])
    assert "no list of names: 'id'" in fail(pl.DataFrame, "id")


def test_a_check_and_a_notebook_read_an_asset_in_any_of_these_types(own: Project) -> None:
    @dg.asset_check(asset=["scripted", "things"])
    def has_rows(things: pl.DataFrame) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=len(things) == 2)

    script(own, [record(id=1), record(id=2), state(2)])
    assert materialize(own, 'key:"scripted/things"').success
    definitions = dg.Definitions.merge(build(), dg.Definitions(asset_checks=[has_rows]))
    with dg.DagsterInstance.from_config(str(own.home)) as instance:
        rows = definitions.load_asset_value(
            ["scripted", "things"], python_type=pd.DataFrame, instance=instance
        )
        job = dg.define_asset_job("check", selection=dg.AssetSelection.checks(has_rows))
        resolved = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
        result = resolved.resolve_job_def("check").execute_in_process(instance=instance)
    assert isinstance(rows, pd.DataFrame) and sorted(rows["id"]) == [1, 2]
    [evaluation] = result.get_asset_check_evaluations()
    assert evaluation.passed
