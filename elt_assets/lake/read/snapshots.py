"""Snapshots of tables, as their readers get them, and the distinct values of one field.

The readers are assets and code of a project (`orchestration.io_manager`, `orchestration.table_reading`), and
`changes`. The values of a field become partitions (`orchestration.sensors`), or say which ones are replayed
(`orchestration.table_jobs`).
"""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from elt_assets.errors import ConfigError
from elt_assets.lake.columns import metadata_columns
from elt_assets.lake.columns.logical_types import Column, describe_type
from elt_assets.lake.delta.opening import arrow_columns
from elt_assets.lake.delta.storage import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import partition_files
from elt_assets.lake.read.scans import ArrowScan, FileGroup, RowFilter
from elt_assets.lake.worker.parquet import read_keys
from elt_assets.lake.write.companions import SUFFIXES, find_named_commit, is_named
from elt_assets.lake.write.sync_columns import column_at, column_path
from elt_assets.storage.location import Location


def snapshot(
    spark: SparkSession,
    location: str | Location,
    app_id: str,
    *,
    version: int | dt.datetime | None = None,
    partitions: Collection[str] | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the rows of a table, or of some of its partitions, at its newest version or an older one.

    A history or dead letter is read at the version that its stream's table names: a later commit, left by a
    run that was killed, is not shown.

    Raises:
        ConfigError: there is no such table, version, partition or column.
    """
    table = open_snapshot(location, app_id, version=version)
    schema = select_columns(table, columns)
    if partitions is None:
        return table.read_files(spark, table.files, schema)
    _refuse_without_partitions(table)
    return partition_files.read(spark, table, partitions, schema)


def scan(
    location: str | Location,
    app_id: str,
    *,
    version: int | dt.datetime | None = None,
    partitions: Collection[str] | None = None,
    columns: Sequence[str] | None = None,
) -> ArrowScan:
    """Return the same rows as `snapshot`, as a scan that needs no Spark.

    Raises:
        ConfigError: there is no such table, version, partition or column.
    """
    table = open_snapshot(location, app_id, version=version)
    schema = arrow_columns(select_columns(table, columns))
    paths = [table.storage.locate(file) for file in list_files(table, partitions)]
    filters = []
    if partitions is not None:
        values = pa.array(sorted(partitions), pa.string())
        filters.append(RowFilter(metadata_columns.PARTITION, values))
    return ArrowScan(schema, [FileGroup(table.storage.system, paths, filters)])


def list_files(table: Table, partitions: Collection[str] | None) -> list[DataFile]:
    """Return the files that may have rows of some partitions; None for all rows.

    Raises:
        ConfigError: the table has no partitions.
    """
    if partitions is None:
        return table.files
    _refuse_without_partitions(table)
    files = partition_files.files_of(table, partitions)
    return [*files.own, *files.mixed]


def open_snapshot(
    location: str | Location, app_id: str, *, version: int | dt.datetime | None = None
) -> Table:
    """Open a table at the version that a reader gets.

    Args:
        version: its number; or a time, for the version that readers got then. None for the newest.

    Raises:
        ConfigError: there is no such table or version.
    """
    root = Location.parse(location)
    number, time = (None, version) if isinstance(version, dt.datetime) else (version, None)
    if number is None:
        number = _companion_version(root, app_id, time)
    if number is None and time is not None:
        number = _version_at(Table(root, app_id), time)
    table = Table(root, app_id, number)
    if not table.exists:
        raise ConfigError(f"there is no table {root} yet", guidance="materialise it first")
    return table


def _version_at(table: Table, time: dt.datetime) -> int:
    """Return the newest version of a table at a time.

    Raises:
        ConfigError: the table is newer.
    """
    first = None
    for entry in table.read_commits():
        first = dt.datetime.fromtimestamp(entry["timestamp"] / 1000, dt.timezone.utc)
        if first <= time:
            return int(entry["version"])
    if first is None:
        raise ConfigError(f"there is no table {table.uri} yet", guidance="materialise it first")
    raise ConfigError(
        f"the table {table.uri} has no version at {time.isoformat()}",
        guidance=f"its first version in the log is of {first.isoformat(timespec='milliseconds')}",
    )


def list_folders(location: Location) -> list[str]:
    """Return the names of the folders at a location that may be tables or have some."""
    system, path = location.file_system()
    infos = system.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    names = [info.base_name for info in infos if info.type == pafs.FileType.Directory]
    return sorted(name for name in names if not name.startswith(("_", ".")))


def find_near_tables(lake: Location, table: Location) -> list[str]:
    """Return the paths in a lake, with slashes, of folders whose names are near that of a table that is not
    there."""
    *above, name = table.uri.removeprefix(f"{lake.uri}/").split("/")
    names = difflib.get_close_matches(name, list_folders(lake.child(*above)), cutoff=0.5)
    if not names and above:
        names = difflib.get_close_matches(above[0], list_folders(lake), cutoff=0.5)
        above = []
    return ["/".join((*above, near)) for near in names]


def select_columns(table: Table, columns: Sequence[str] | None) -> t.StructType:
    """Return some of a table's columns, in their order; None for all.

    Raises:
        ConfigError: no column is named, one is not in the table, or one is named twice.
    """
    if columns is None:
        return table.schema
    names = table.schema.names
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise ConfigError(
            f"the table {table.uri} has no column {', '.join(map(repr, unknown))}",
            guidance=f"it has the columns {', '.join(names)}",
        )
    if not columns or len(set(columns)) < len(columns):
        raise ConfigError(
            f"`columns` of the table {table.uri} is {list(columns)}",
            guidance="name at least one column, and each one once; leave `columns` out to read all",
        )
    return t.StructType([table.schema[name] for name in columns])


def _refuse_without_partitions(table: Table) -> None:
    if metadata_columns.PARTITION not in table.schema.names:
        raise ConfigError(f"the table {table.uri} has no partitions", guidance="remove `partition`")


def _companion_version(
    location: Location, app_id: str, time: dt.datetime | None = None
) -> int | None:
    """Return the version of a companion that its stream's table names, now or at a time; None for the newest
    version, and if `location` is not a companion."""
    for kind, suffix in SUFFIXES.items():
        if not location.uri.endswith(suffix):
            continue
        main = Table(
            replace(location, uri=location.uri.removesuffix(suffix)), app_id.removesuffix(suffix)
        )
        if time is not None and main.exists:
            main = Table(main.storage.location, main.app_id, _version_at(main, time))
        companions = main.metadata.companions
        companion = Table(location, f"{main.app_id}|{kind}")
        if companions is None or not is_named(companions, kind) or not companion.exists:
            return None
        commit = find_named_commit(companions, kind)
        if commit != companion.metadata.stands_for:
            return companion.version_of(commit)
    return None


KEY_TYPES = ("string", "bigint", "date", "decimal(38,0)")
"""The types of columns in which each value has exactly one text."""


def texts_of(table: Table, columns: Sequence[Column], field: Sequence[str]) -> list[str]:
    """Return the distinct values of a field as sorted texts, without null. Only its column is read.

    Args:
        columns: the columns of the table.
        field: its path, with the names of the source.

    Raises:
        ConfigError: as `plain_column`.
    """
    if not table.exists:
        return []
    column, distinct = plain_column(columns, field), set()
    for file in table.files:
        path = f"{table.storage.root}/{file.path}"
        (values,) = read_keys(table.storage.system, path, [column], table.arrow_schema())
        distinct.update(pc.unique(values).to_pylist())
    return sorted(
        (value.isoformat() if isinstance(value, dt.date) else str(value))
        for value in distinct
        if value is not None
    )


def plain_column(columns: Sequence[Column], field: Sequence[str]) -> list[str]:
    """Return the path of the table column of a field.

    Raises:
        ConfigError: it has no column, or its values do not have exactly one text each.
    """
    column, path = column_at(columns, field), column_path(columns, field)
    if column is None or path is None:
        names = (c.name for c in columns)
        raise ConfigError(
            f"there is no field {'.'.join(field)!r}", guidance=f"name one of {', '.join(names)}"
        )
    kind = describe_type(column.kind)
    if kind not in KEY_TYPES:
        raise ConfigError(
            f"the field {'.'.join(field)!r} has the type {kind}, whose values cannot be partition keys",
            guidance=f"name a field of one of the types {', '.join(KEY_TYPES)}",
        )
    return path
