"""`read_table`: the table of any stream as a Spark DataFrame, for a notebook or a script."""

from __future__ import annotations

from collections.abc import Sequence

from elt_assets import paths
from elt_assets.connection import DEFINITION_FILE, load_connection
from elt_assets.lake.admin.snapshots import is_table, snapshot
from elt_assets.lake.schema.names import table_name
from elt_assets.lake.spark.session import DataFrame, SparkSession
from elt_assets.lake.write.stream_tables import SUFFIXES, app_id
from elt_assets.storage.location import Location


def read_table(
    spark: SparkSession,
    key: str | Sequence[str],
    *,
    version: int | None = None,
    partition: str | None = None,
) -> DataFrame:
    """Return the table of an asset at one snapshot.

    Args:
        key: the asset's key, for example "shop/users" or ["shop", "users"]; with `_history` or `_dead_letter`
            at its end, that companion table of the stream.
        version: version of the Delta table; default: the newest.
        partition: the Dagster partition whose rows are returned; default: all rows.

    Raises:
        ConfigError: there is no such table, version or partition.
    """
    levels = key.split("/") if isinstance(key, str) else list(key)
    place = Location.of(paths.lake()).child(*table_path(levels))
    partitions = None if partition is None else [partition]
    return snapshot(spark, place, app_id(levels), version=version, partitions=partitions)


def table_path(key: Sequence[str]) -> list[str]:
    """Return the levels of an asset's table below the root of the lake."""
    connection, *namespaces, name = key
    folder = paths.connections() / connection
    namespace = connection
    if (folder / DEFINITION_FILE).is_file():
        namespace = load_connection(folder).lake_namespace
    found = [namespace, *map(table_name, namespaces), table_name(name)]
    stem, suffix = _companion(name)
    if suffix and not is_table(Location.of(paths.lake()).child(*found)):
        found[-1] = table_name(stem) + suffix
    return found


def _companion(name: str) -> tuple[str, str]:
    """Return a table's stream name and its companion suffix, which is empty for the stream's own table."""
    suffix = next((each for each in SUFFIXES.values() if name.endswith(each)), "")
    return name.removesuffix(suffix), suffix
