"""Sensors that check sources and tables at intervals and request runs.

`component` adds them to the definitions of a connection.

First that of the partitions that a source lists itself, then those of drift, of new data, and of partitions
whose keys are in another table.

A tick ends within Dagster's limit of time. An error of the source or of a table is the reason why it is
skipped.
"""

import datetime as dt
import os

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.
from collections.abc import Sequence
from itertools import takewhile

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.connection.partitions import Discovery, SourcePartitions, dynamic_partitions
from elt_assets.errors import ConfigError
from elt_assets.lake.columns.from_json_schema import columns
from elt_assets.lake.read.snapshots import plain_column, texts_of
from elt_assets.lake.write.sync_columns import columns_of
from elt_assets.orchestration.failures import one_line
from elt_assets.orchestration.new_data import can_check, find_new_data
from elt_assets.orchestration.resources import LAKE_KEY, LakeResource
from elt_assets.orchestration.schedules import add_partitions, whole_requests
from elt_assets.orchestration.source_partitions import list_contexts
from elt_assets.orchestration.streams import StreamAsset, connection_name
from elt_assets.pipeline.connectors import make_source

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
            connector = make_source(asset.connection, lake.staging_path)
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


STOPPED = dg.DefaultSensorStatus.STOPPED
_MAX_INTERVAL = 300
"""Maximum seconds between ticks of a sensor whose cursor holds the time of its last request."""
MAX_PAUSE = dt.timedelta(hours=1)
"""Maximum time between a failed run and the next one, if the interval of the sensor is not longer."""
_MAX_FAILURES = 10
"""Maximum number of earlier runs that are looked at."""


def sensors(
    connection: Connection, assets: Sequence[StreamAsset], discover: dg.JobDefinition
) -> list[dg.SensorDefinition]:
    """Return the sensors that the connection configures. They are off until a user turns them on.

    What is not enabled is not in them.

    Raises:
        ConfigError: the configuration does not match the streams.
    """
    all_sensors = []
    if not connection.enabled:
        return []
    if connection.drift is not None:
        all_sensors.append(_drift(connection, connection.drift.every, discover))
    if connection.new_data is not None:
        all_sensors += _new_data(connection, connection.new_data.every, assets)
    for asset in assets:
        if not asset.controls.enabled:
            continue
        configured = asset.settings.partitions
        if isinstance(configured, SourcePartitions):
            all_sensors.append(source_partitions_sensor(asset, configured))
        dynamic = dynamic_partitions(configured)
        if dynamic is not None and dynamic.discover is not None:
            all_sensors.append(_partitions(asset, dynamic.discover, assets))
    return all_sensors


def _drift(
    connection: Connection, every: dt.timedelta, job: dg.JobDefinition
) -> dg.SensorDefinition:
    """Return a sensor that requests a run of the discover job; its cursor is the time of the last request."""
    name = f"{connection_name(connection)}_drift"

    @dg.sensor(
        name=name,
        description=f"Every {every}: checks whether streams or columns of the source of {connection.name} "
        "changed.",
        job=job,
        minimum_interval_seconds=max(1, min(_MAX_INTERVAL, int(every.total_seconds()))),
        default_status=STOPPED,
    )
    def drift(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        tick_time = dt.datetime.now(dt.timezone.utc)
        if context.cursor and tick_time < (
            due := dt.datetime.fromisoformat(context.cursor) + every
        ):
            return dg.SkipReason(f"the next check is due at {due.isoformat(timespec='seconds')}")
        if (reason := reason_to_wait(context.instance, name, tick_time, every)) is not None:
            return dg.SkipReason(reason)
        return dg.SensorResult(run_requests=[dg.RunRequest()], cursor=tick_time.isoformat())

    return drift


def _new_data(
    connection: Connection, every: dt.timedelta, assets: Sequence[StreamAsset]
) -> list[dg.SensorDefinition]:
    """Return the sensor of new data; none if the streams that it could check are not enabled."""
    candidates = [asset for asset in assets if can_check(asset)]
    if not candidates:
        raise ConfigError(
            "new_data: the sensor needs an incremental stream without partitions, and there is none",
            guidance="set `sync_mode: incremental` for a stream, or use a `schedule` instead",
        )
    checked = [asset for asset in candidates if asset.controls.enabled]
    if not checked:
        return []
    name = f"{connection_name(connection)}_new_data"

    @dg.sensor(
        name=name,
        description=f"Every {every}: checks whether the source of {connection.name} has new data.",
        asset_selection=dg.AssetSelection.assets(*(asset.key for asset in checked)),
        minimum_interval_seconds=max(1, int(every.total_seconds())),
        default_status=STOPPED,
        required_resource_keys={LAKE_KEY},
    )
    def new_data(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        tick_time = dt.datetime.now(dt.timezone.utc)
        if (reason := reason_to_wait(context.instance, name, tick_time, every)) is not None:
            return dg.SkipReason(reason)
        lake: LakeResource = context.resources.elt_lake
        try:
            result = find_new_data(connection, checked, lake)
        except Exception as error:  # noqa: BLE001 - no error may fail the tick
            return dg.SkipReason(f"the source could not be checked for new data: {one_line(error)}")
        if result.probe_error is not None:
            context.log.warning(
                "the source could not be probed, so its streams were read instead: "
                f"{one_line(result.probe_error)}"
            )
        if not result.new_data:
            return dg.SkipReason(result.skip_reason)
        changed = [asset for asset in checked if asset.key in result.new_data]
        return dg.SensorResult(run_requests=list(whole_requests(changed)))

    return [new_data]


def _partitions(
    asset: StreamAsset, discovery: Discovery, assets: Sequence[StreamAsset]
) -> dg.SensorDefinition:
    """Return a sensor that adds partition keys.

    Its cursor is the table, by its id, and the version all of whose values it has added.
    """
    origin = _origin(asset, discovery, assets)

    @dg.sensor(
        name=f"{asset.op_name}_partitions",
        description=f"Adds new values of {'.'.join(discovery.field)} of {origin.key.to_user_string()} as "
        f"partitions of {asset.key.to_user_string()}.",
        asset_selection=dg.AssetSelection.assets(asset.key),
        default_status=STOPPED,
        required_resource_keys={LAKE_KEY},
    )
    def new_partitions(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        lake: LakeResource = context.resources.elt_lake
        try:
            table = origin.tables(lake.location).main
            # A version alone may be that of a table of another lake, or of one that was created again.
            seen = f"{table.id}:{table.version}"
            if seen == context.cursor:
                return dg.SkipReason(f"{table.uri} has not changed")
            present = columns_of(origin.make_stored_stream(), table.schema)
            values = texts_of(table, present, discovery.field)
        except Exception as error:  # noqa: BLE001 - no error may fail the tick
            return dg.SkipReason(f"the table could not be read: {one_line(error)}")
        added = add_partitions(asset, values, context, materialize=discovery.materialize)
        return added.result(cursor=context.cursor if added.more else seen)

    return new_partitions


def _origin(asset: StreamAsset, discovery: Discovery, assets: Sequence[StreamAsset]) -> StreamAsset:
    """Return the stream that provides the partition keys.

    Raises:
        ConfigError: the connection has no such stream, or values of its field cannot be keys.
    """
    where = f"stream {str(asset.stream.id)!r}: partitions.discover"
    origin = next((asset for asset in assets if str(asset.stream.id) == discovery.stream), None)
    if origin is None or origin is asset:
        others = [str(other.stream.id) for other in assets if other is not asset]
        raise ConfigError(
            f"{where}: the connection has no other stream {discovery.stream!r}",
            guidance=f"use one of its `streams`: {', '.join(others) or 'there are no other streams'}",
        )
    try:
        plain_column(columns(origin.make_stored_stream().stream.json_schema), discovery.field)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", guidance=error.guidance) from error
    return origin


def reason_to_wait(
    instance: dg.DagsterInstance, sensor: str, tick_time: dt.datetime, every: dt.timedelta
) -> str | None:
    """Return why a sensor should not request a run now; None if it may.

    It waits while its previous run is in progress. After failures in succession it waits longer each time,
    twice `every` after the first one, so that a failure which lasts does not become a run at each tick.
    """
    runs = instance.get_run_records(
        dg.RunsFilter(tags={"dagster/sensor_name": sensor}), limit=_MAX_FAILURES
    )
    if not runs:
        return None
    if not runs[0].dagster_run.is_finished:
        return "skipped: the previous run is still in progress"
    failures = list(takewhile(lambda run: run.dagster_run.is_failure, runs))
    if not failures:
        return None
    pause = max(every, min(MAX_PAUSE, every * 2 ** len(failures)))
    due = dt.datetime.fromtimestamp(failures[0].end_time or 0, dt.timezone.utc) + pause
    if tick_time >= due:
        return None
    return (
        f"skipped: the last runs have failed ({len(failures)} in succession); the next one is requested "
        f"after {due.isoformat(timespec='seconds')}"
    )
