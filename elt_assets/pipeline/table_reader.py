"""`read_table`: the table of any stream as a Spark DataFrame, for a notebook or a script."""

from __future__ import annotations

from collections.abc import Sequence

from elt_assets import paths
from elt_assets.connection import DEFINITION_FILE, load_connection
from elt_assets.lake.admin.snapshots import snapshot
from elt_assets.lake.delta.opening import is_table
from elt_assets.lake.schema.names import table_name
from elt_assets.lake.spark.session import DataFrame, SparkSession
from elt_assets.lake.write.stream_tables import SUFFIXES, app_id
from elt_assets.lake.write.table_paths import find_table
from elt_assets.pipeline.connection_stream import table_path
from elt_assets.protocol.airbyte.catalog import StreamId
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
    partitions = None if partition is None else [partition]
    place = table_of(Location.parse(paths.lake()), levels)
    return snapshot(spark, place, app_id(levels), version=version, partitions=partitions)


def table_of(lake: Location, key: Sequence[str]) -> Location:
    """Return the location of an asset's table."""
    place = _find(lake, key)
    stem, suffix = _companion(key[-1])
    if suffix and not is_table(place):
        return _find(lake, [*key[:-1], stem]).add_suffix(suffix)
    return place


def _find(lake: Location, key: Sequence[str]) -> Location:
    connection, *namespaces, name = key
    folder, namespace = paths.connections() / connection, connection
    if (folder / DEFINITION_FILE).is_file():
        loaded = load_connection(folder)
        namespace, stream = loaded.lake_namespace, StreamId(name, *namespaces[:1])
        if len(namespaces) < 2 and any(settings.id == stream for settings in loaded.streams):
            return find_table(lake, table_path(loaded, stream), app_id(key))
    return lake.child(namespace, *map(table_name, namespaces), table_name(name))


def _companion(name: str) -> tuple[str, str]:
    """Return a table's stream name and its companion suffix, which is empty for the stream's own table."""
    suffix = next((suffix for suffix in SUFFIXES.values() if name.endswith(suffix)), "")
    return name.removesuffix(suffix), suffix
