"""Tables as their readers get them: one snapshot, whole."""

from __future__ import annotations

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from elt_assets.errors import ConfigError
from elt_assets.lake import types
from elt_assets.lake.conform import path
from elt_assets.lake.table import Table
from elt_assets.lake.tables import NOT_KEPT, SUFFIXES


def snapshot(
    spark: SparkSession,
    uri: str,
    app_id: str,
    *,
    version: int | None = None,
    partition: str | None = None,
) -> DataFrame:
    """The rows of a table, or of one partition of it, at its newest version or an older one.

    A history or dead letter is read as its stream's table has it: a commit of it that the stream's never
    followed (a run was killed in between) is not shown.

    Raises:
        ConfigError: there is no such table, version or partition.
    """
    table = Table(uri, app_id, _followed(uri, app_id) if version is None else version)
    if not table.exists:
        raise ConfigError(f"there is no table {uri} yet", guidance="materialise it first")
    if partition is None:
        return table.dataframe(spark)
    if types.PARTITION not in table.schema.names:
        raise ConfigError(f"the table {uri} has no partitions", guidance="leave `partition` out")
    bounds = table.bounds([types.PARTITION])
    files = [
        file
        for file in table.files
        if file.path not in bounds or bounds[file.path][0] <= partition <= bounds[file.path][1]  # type: ignore[operator]
    ]
    rows = table.read_files(spark, files)
    return rows.where(path([types.PARTITION]).eqNullSafe(f.lit(partition)))


def is_table(uri: str) -> bool:
    return DeltaTable.is_deltatable(uri)


def _followed(uri: str, app_id: str) -> int | None:
    """The version of a companion that its stream's table names; None for the newest, and where `uri`
    is no companion."""
    for kind, suffix in SUFFIXES.items():
        if not uri.endswith(suffix):
            continue
        main = Table(uri.removesuffix(suffix), app_id.removesuffix(suffix))
        companions = main.head.companions
        companion = Table(uri, f"{main.app_id}|{kind}")
        if companions is None or not companion.exists:
            return None
        told = companions.get(kind)
        if told not in (companion.head.stands_for, NOT_KEPT):
            return 0 if told is None else companion.version_of(told)
    return None
