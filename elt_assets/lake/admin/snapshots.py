"""Tables as their readers get them: one snapshot, whole."""

from __future__ import annotations

from collections.abc import Collection

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import partition_files
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.write.stream_tables import NOT_KEPT, SUFFIXES


def snapshot(
    spark: SparkSession,
    uri: str,
    app_id: str,
    *,
    version: int | None = None,
    partitions: Collection[str] | None = None,
) -> DataFrame:
    """The rows of a table, or of some partitions of it, at its newest version or an older one.

    A history or dead letter is read as its stream's table has it: a commit of it that the stream's never
    followed (a run was killed in between) is not shown.

    Raises:
        ConfigError: there is no such table, version or partition.
    """
    table = Table(uri, app_id, _followed(uri, app_id) if version is None else version)
    if not table.exists:
        raise ConfigError(f"there is no table {uri} yet", guidance="materialise it first")
    if partitions is None:
        return table.dataframe(spark)
    if metadata_columns.PARTITION not in table.schema.names:
        raise ConfigError(f"the table {uri} has no partitions", guidance="leave `partition` out")
    return partition_files.read(spark, table, partitions)


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
