"""Check of the partition that a command line names for several streams."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg
from dagster_shared.check import CheckError

from elt_assets.errors import ConfigError
from elt_assets.orchestration.streams import StreamAsset

_MAX_LISTED = 5
"""Maximum number of partitions that are listed in full."""


def check_partition(
    assets: Sequence[StreamAsset], partition: str | None, instance: dg.DagsterInstance
) -> None:
    """Check that each stream has the partition.

    Args:
        partition: None for streams without partitions.

    Raises:
        ConfigError: a stream has partitions and none is named, or the other way round; or a stream does not
            have this partition.
    """
    for asset in assets:
        if (asset.partitions is None) != (partition is None):
            has = "no partitions" if asset.partitions is None else "partitions"
            action = "leave out" if asset.partitions is None else "add"
            raise ConfigError(
                f"stream {str(asset.stream.id)!r} has {has}",
                guidance=f"{action} --partition KEY, or name only streams that it applies to",
            )
    if partition is None:
        return
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        for asset in assets:
            _check_key(asset, partition)


def _check_key(asset: StreamAsset, key: str) -> None:
    definition = asset.partitions
    assert definition is not None
    try:
        is_known = definition.has_partition_key(key)
    except (CheckError, dg.DagsterError, ValueError):  # a key of another form
        is_known = False
    if not is_known:
        raise ConfigError(
            f"stream {str(asset.stream.id)!r} has no partition {key!r}: {_range(definition)}",
            guidance="name one of its partitions; a window is a partition once it is over, and keys that are "
            "found in the source are added by the sensor of the stream or in Dagster's UI",
        )


def _range(definition: dg.PartitionsDefinition[str]) -> str:
    """Return which partitions there are: all of them, or their number with the first and the last one."""
    keys = definition.get_partition_keys()
    if not keys:
        return "it has no partitions yet"
    if len(keys) <= _MAX_LISTED:
        return f"it has {', '.join(map(repr, keys))}"
    return f"it has {len(keys):,} partitions, from {keys[0]!r} to {keys[-1]!r}"
