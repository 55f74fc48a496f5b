"""Whoever reads a table gets the same rows: Spark, deltalake's own engine (DataFusion), and DuckDB."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from elt_assets.lake.delta.table import Table

Row = dict[str, Any]


def assert_readers_agree(spark: SparkSession, table: Table) -> None:
    """Read the newest snapshot; what Spark reads is this project's `Table.dataframe`."""
    found = Table(table.uri, table.app_id)
    delta = DeltaTable(table.uri)
    ours = _canonical(found.dataframe(spark).toArrow())
    assert _canonical(by_datafusion(delta)) == ours
    assert _canonical(_by_duckdb(delta, found.schema.names)) == ours
    assert found.records == len(ours)


def assert_all_readers_agree(spark: SparkSession, folder: Path) -> None:
    """Assert that the readers agree on every table under a folder."""
    for log in sorted(folder.rglob("_delta_log")):
        assert_readers_agree(spark, Table(str(log.parent), "elt:reader"))


def by_datafusion(delta: DeltaTable) -> pa.Table:
    reader = QueryBuilder().register("found", delta).execute("select * from found")
    return pa.table(reader.read_all())


def _by_duckdb(delta: DeltaTable, names: list[str]) -> pa.Table:
    """Read the files that the log lists without a Delta reader; a column that no file has is null."""
    files = delta.file_uris()
    if not files:
        return pa.table({name: pa.nulls(0) for name in names})
    with duckdb.connect() as connection:
        relation = connection.sql(f"from read_parquet({files!r}, union_by_name = true)")
        there = [f'"{name}"' for name in names if name in relation.columns]
        found = relation.project(", ".join(there)).to_arrow_table()
    missing = [name for name in names if name not in found.column_names]
    for name in missing:
        found = found.append_column(name, pa.nulls(len(found)))
    return found


def _canonical(found: pa.Table) -> list[Row]:
    return sorted((_plain(row) for row in found.to_pylist()), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        # A field that a file does not have is null: of an object, too.
        return {name: _plain(value[name]) for name in sorted(value) if value[name] is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.timezone.utc).isoformat()
    return value
