"""`read_table` and `open_document`: the table of any asset as a data frame, and its documents, for a notebook
or a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, TypeAlias, TypeVar, cast, overload

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.lake.admin.maintenance import find_document
from elt_assets.lake.read.frames import find_frame_type
from elt_assets.lake.read.snapshots import scan, snapshot
from elt_assets.lake.session import DataFrame, SparkSession
from elt_assets.lake.write.companions import app_id
from elt_assets.orchestration.io_manager import project_lake, resources
from elt_assets.orchestration.resources import SPARK_KEY, spark_provider
from elt_assets.pipeline.stream import table_of, tables_with_documents

Frame = TypeVar("Frame")
AnyKey: TypeAlias = str | Sequence[str] | dg.AssetKey
"""The key of an asset: "shop/users", ["shop", "users"] or an AssetKey."""


@overload
def read_table(
    spark: SparkSession,
    key: AnyKey,
    *,
    version: int | None = None,
    partition: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame: ...


@overload
def read_table(
    key: AnyKey,
    /,
    *,
    form: type[Frame],
    version: int | None = None,
    partition: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> Frame: ...


def read_table(
    spark: SparkSession | AnyKey | None = None,
    key: AnyKey | None = None,
    *,
    form: type[Any] = DataFrame,
    version: int | None = None,
    partition: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> Any:
    """Return the table of an asset at one snapshot, from the lake of the project.

    `read_table(spark, "shop/users")` returns a DataFrame of that session;
    `read_table("shop/users", form=polars.DataFrame)` needs no Spark.

    Args:
        key: the asset's key, for example "shop/users" or ["shop", "users"]; with `_history` or `_dead_letter`
            at its end, that companion table of the stream.
        form: `pyspark.sql.DataFrame` (default), `polars.LazyFrame`, `polars.DataFrame`, `pyarrow.Table`,
            `pandas.DataFrame` or `duckdb.DuckDBPyRelation`.
        version: version of the Delta table; default: the newest.
        partition: the Dagster partition whose rows are returned, or several; default: all rows.
        columns: the columns to read; default: all.

    Raises:
        ConfigError: there is no such table, version, partition or column; or no table can be read in `form`.
    """
    session, asset = (None, spark) if key is None else (spark, key)
    if not isinstance(asset, str | list | tuple | dg.AssetKey) or not asset:
        raise ConfigError(
            "read_table needs the key of an asset",
            guidance='write read_table("shop/users", form=…), or read_table(spark, "shop/users")',
        )
    frame_type = find_frame_type(form, "the argument `form` of read_table")
    levels = asset_levels(asset)
    place, writer = table_of(project_lake(), levels), app_id(levels)
    partitions = [partition] if isinstance(partition, str) else partition
    if frame_type is not None:
        rows = scan(place, writer, version=version, partitions=partitions, columns=columns)
        return frame_type.load(rows)
    return snapshot(
        project_session() if session is None else cast("SparkSession", session),
        place,
        writer,
        version=version,
        partitions=partitions,
        columns=columns,
    )


def open_document(key: AnyKey, reference: Mapping[str, Any] | str) -> BinaryIO:
    """Open the document of a row for reading, from the lake of the project.

    The file is a context manager, and can be read at any place.

    Args:
        key: the key of the asset that has the row, as for `read_table`.
        reference: the row's `file_reference`, or its `path`.

    Raises:
        ConfigError: the reference is none of a document, or the document is not there.
    """
    path = reference if isinstance(reference, str) else str(reference["path"])
    levels = asset_levels(key)
    document = find_document(tables_with_documents(project_lake(), levels), path)
    if document is None:
        raise ConfigError(
            f"there is no document {path} of {'/'.join(levels)}",
            guidance="read the row again: maintenance removes a document when no row of a kept version names "
            "it",
        )
    return document


def asset_levels(key: AnyKey) -> list[str]:
    """Return the levels of an asset's key, which may be written with slashes."""
    if isinstance(key, dg.AssetKey):
        return list(key.path)
    return key.split("/") if isinstance(key, str) else list(key)


def project_session() -> SparkSession:
    """Return the Spark session of the project's resources; it is started if there is none yet."""
    return spark_provider(resources()[SPARK_KEY]).get()
