"""Snapshots of tables, as their readers get them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.table import Table
from elt_assets.lake.merge import partition_files
from elt_assets.lake.schema import metadata_columns
from elt_assets.lake.write.stream_tables import SUFFIXES, find_named_commit, is_named
from elt_assets.storage.location import Location


def snapshot(
    spark: SparkSession,
    location: str | Location,
    app_id: str,
    *,
    version: int | None = None,
    partitions: Collection[str] | None = None,
) -> DataFrame:
    """Return the rows of a table, or of some of its partitions, at its newest version or an older one.

    A history or dead letter is read at the version that its stream's table names: a later commit, left by a
    run that was killed, is not shown.

    Raises:
        ConfigError: there is no such table, version or partition.
    """
    root = Location.parse(location)
    table = Table(root, app_id, _companion_version(root, app_id) if version is None else version)
    if not table.exists:
        raise ConfigError(f"there is no table {root} yet", guidance="materialise it first")
    if partitions is None:
        return table.dataframe(spark)
    if metadata_columns.PARTITION not in table.schema.names:
        raise ConfigError(f"the table {root} has no partitions", guidance="remove `partition`")
    return partition_files.read(spark, table, partitions)


def _companion_version(location: Location, app_id: str) -> int | None:
    """Return the version of a companion that its stream's table names; None for the newest version, and if
    `location` is not a companion."""
    for kind, suffix in SUFFIXES.items():
        if not location.uri.endswith(suffix):
            continue
        main = Table(
            replace(location, uri=location.uri.removesuffix(suffix)), app_id.removesuffix(suffix)
        )
        companions = main.metadata.companions
        companion = Table(location, f"{main.app_id}|{kind}")
        if companions is None or not is_named(companions, kind) or not companion.exists:
            return None
        commit = find_named_commit(companions, kind)
        if commit != companion.metadata.stands_for:
            return 0 if commit is None else companion.version_of(commit)
    return None
