"""The sensor of partitions that a source lists itself."""

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.

import datetime as dt
import os

import dagster as dg

from elt_assets.connection.partitions import SourcePartitions
from elt_assets.orchestration.automation.partition_requests import add_partitions
from elt_assets.orchestration.failures import one_line
from elt_assets.orchestration.resources import LAKE_KEY, LakeResource
from elt_assets.orchestration.source_partitions import list_contexts
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.connectors import connect

_INTERVAL = dt.timedelta(seconds=30)
"""Minimum time between two ticks."""
_EARLY = dt.timedelta(seconds=5)
"""Time by which a list may be early, so that a tick shortly before it is due does not delay it."""
_RETRY = dt.timedelta(minutes=5)
"""Time after an error until the source is asked again, if `every` is not shorter."""
_RESERVE = 20
"""Seconds of Dagster's time limit for a tick that are left to end the connector and to return the result."""


def source_partitions_sensor(
    asset: StreamAsset, configured: SourcePartitions
) -> dg.SensorDefinition:
    """Return a sensor that adds the partitions which the source lists, and requests runs of the new ones.

    Its cursor is the time from which the source is asked again.
    """

    @dg.sensor(
        name=f"{asset.op_name}_partitions",
        description=f"Every {configured.every}: asks the source for the partitions of "
        f"{asset.key.to_user_string()}, and adds the new ones.",
        asset_selection=dg.AssetSelection.assets(asset.key),
        minimum_interval_seconds=max(1, int(min(configured.every, _INTERVAL).total_seconds())),
        default_status=dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={LAKE_KEY},
    )
    def new_partitions(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        tick_time = dt.datetime.now(dt.timezone.utc)
        if context.cursor and tick_time + _EARLY < (
            due := dt.datetime.fromisoformat(context.cursor)
        ):
            return dg.SkipReason(f"the next list is due at {due.isoformat(timespec='seconds')}")
        try:
            lake: LakeResource = context.resources.elt_lake
            connector = connect(asset.connection, lake.staging_path)
            keys = list_contexts(connector, asset, seconds=_time_limit()).by_key
        except Exception as error:  # noqa: BLE001 - no error may fail the tick
            return dg.SensorResult(
                skip_reason=f"the source could not list its partitions: {one_line(error)}",
                cursor=(tick_time + min(configured.every, _RETRY)).isoformat(),
            )
        added = add_partitions(asset, keys, context, materialize=configured.materialize)
        context.log.info(added.description)
        return added.result(
            cursor=(tick_time if added.more else tick_time + configured.every).isoformat()
        )

    return new_partitions


def _time_limit() -> float:
    """Return the seconds that the source has for its list: less than Dagster gives to a tick."""
    names = ("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS", "DAGSTER_GRPC_TIMEOUT_SECONDS")
    limit = next(filter(None, map(os.environ.get, names)), "60")
    return max(_RESERVE, int(limit) - _RESERVE)
