"""What looks at sources and tables now and then, and asks for runs. A look is quick, and never fails: what
keeps it from seeing is why it is skipped."""

# No `from __future__ import annotations`: Dagster looks at the context's annotation itself.

import datetime as dt
from collections.abc import Sequence

import dagster as dg

from elt_assets.connection import Connection
from elt_assets.connection.partitions import Discovery, MultiPartitions, dynamic_partitions
from elt_assets.errors import ConfigError, EltError
from elt_assets.lake.admin.distinct_values import plain_column, texts_of
from elt_assets.lake.write.write_spec import declared_schema
from elt_assets.orchestration.assets import partitions
from elt_assets.orchestration.automation.new_data import can_be_asked, streams_with_news
from elt_assets.orchestration.resources import LAKE_KEY, LakeResource
from elt_assets.orchestration.streams import StreamAsset

STOPPED = dg.DefaultSensorStatus.STOPPED
_LOOK = 300
"""Seconds at most between ticks of a sensor that goes by its cursor."""
_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]
_NO_KEY = ("...", "\a", "\b", "\f", "\n", "\r", "\t", "\v", "\0")
"""What Dagster allows in no partition key."""


def sensors(
    connection: Connection, assets: Sequence[StreamAsset], discover: dg.JobDefinition
) -> list[dg.SensorDefinition]:
    """Those that the connection asks for; all are off until someone turns them on.

    Raises:
        ConfigError: what is written does not go with the streams.
    """
    found = []
    if connection.drift is not None:
        found.append(_drift(connection.name, connection.drift.every, discover))
    if connection.new_data is not None:
        found.append(_new_data(connection, connection.new_data.every, assets))
    for asset in assets:
        dynamic = dynamic_partitions(asset.wanted.partitions)
        if dynamic is not None and dynamic.discover is not None:
            found.append(_partitions(asset, dynamic.discover, assets))
    return found


def _drift(name: str, every: dt.timedelta, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Asks for a run of the discover job; the cursor is when it last did."""

    @dg.sensor(
        name=f"{name}_drift",
        description=f"Once in {every}: has the source of {name} other streams or columns?",
        job=job,
        minimum_interval_seconds=max(1, min(_LOOK, int(every.total_seconds()))),
        default_status=STOPPED,
    )
    def drift(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        now = dt.datetime.now(dt.timezone.utc)
        if context.cursor and now < (due := dt.datetime.fromisoformat(context.cursor) + every):
            return dg.SkipReason(f"the next look is due at {due.isoformat(timespec='seconds')}")
        return dg.SensorResult(run_requests=[dg.RunRequest()], cursor=now.isoformat())

    return drift


def _new_data(
    connection: Connection, every: dt.timedelta, assets: Sequence[StreamAsset]
) -> dg.SensorDefinition:
    asked = [asset for asset in assets if can_be_asked(asset)]
    if not asked:
        raise ConfigError(
            "new_data: no stream is incremental and without partitions, so there is no state to ask from",
            guidance="write `sync_mode: incremental` for a stream, or a `schedule` instead",
        )
    name = f"{connection.name}_new_data"

    @dg.sensor(
        name=name,
        description=f"Every {every}: has the source of {connection.name} anything new?",
        asset_selection=dg.AssetSelection.assets(*(asset.key for asset in asked)),
        minimum_interval_seconds=max(1, int(every.total_seconds())),
        default_status=STOPPED,
        required_resource_keys={LAKE_KEY},
    )
    def new_data(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        tags = {"dagster/sensor_name": name}
        running = dg.RunsFilter(tags=tags, statuses=_UNDER_WAY)
        if context.instance.get_runs_count(running):
            return dg.SkipReason("the run that the last look asked for is under way")
        lake: LakeResource = context.resources.elt_lake
        try:
            found = streams_with_news(connection, asked, lake)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason for the tick to fail
            return dg.SkipReason(f"the source could not be asked: {_short(error)}")
        if not found.news:
            return dg.SkipReason(found.told)
        return dg.SensorResult(run_requests=[dg.RunRequest(asset_selection=found.news)])

    return new_data


def _partitions(
    asset: StreamAsset, discovery: Discovery, assets: Sequence[StreamAsset]
) -> dg.SensorDefinition:
    """Adds keys; the cursor is the version of the table that was looked at."""
    origin, definition = _origin(asset, discovery, assets), _dynamic_definition(asset)
    name = definition.name
    assert name is not None

    @dg.sensor(
        name=f"{asset.op_name}_partitions",
        description=f"New values of {'.'.join(discovery.field)} of {origin.key.to_user_string()} become "
        f"partitions of {asset.key.to_user_string()}.",
        asset_selection=dg.AssetSelection.assets(asset.key),
        default_status=STOPPED,
        required_resource_keys={LAKE_KEY},
    )
    def new_partitions(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        lake: LakeResource = context.resources.elt_lake
        try:
            table = origin.tables(lake.uri).main
            if str(table.version) == context.cursor:
                return dg.SkipReason(f"{table.uri} has not changed")
            values = texts_of(table, discovery.field)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason for the tick to fail
            return dg.SkipReason(f"the table could not be read: {_short(error)}")
        known = set(context.instance.get_dynamic_partitions(name))
        new = [value for value in values if value not in known]
        keys = [value for value in new if _is_key(asset, value)]
        if len(keys) < len(new):
            context.log.warning(
                f"values that are no partition keys: {sorted({*new} - {*keys})[:10]}"
            )
        cursor = str(table.version)
        if not keys:
            return dg.SensorResult(skip_reason="no new values", cursor=cursor)
        wanted = _requests(asset, keys, context) if discovery.materialize else []
        return dg.SensorResult(
            run_requests=wanted,
            skip_reason=None
            if wanted
            else f"{len(keys)} partitions were added, to be materialised later",
            dynamic_partitions_requests=[definition.build_add_request(keys)],
            cursor=cursor,
        )

    return new_partitions


def _origin(asset: StreamAsset, discovery: Discovery, assets: Sequence[StreamAsset]) -> StreamAsset:
    """The stream that the keys come from.

    Raises:
        ConfigError: there is none, or its field has no keys.
    """
    where = f"stream {str(asset.stream.id)!r}: partitions.discover"
    origin = next((one for one in assets if str(one.stream.id) == discovery.stream), None)
    if origin is None or origin is asset:
        others = [str(one.stream.id) for one in assets if one is not asset]
        raise ConfigError(
            f"{where}: {discovery.stream!r} is no other stream of the connection",
            guidance=f"name one of its `streams`: {', '.join(others) or 'there is none yet'}",
        )
    try:
        plain_column(declared_schema(origin.landed()), discovery.field)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", guidance=error.guidance) from error
    return origin


def _dynamic_definition(asset: StreamAsset) -> dg.DynamicPartitionsDefinition:
    found = asset.partitions
    if isinstance(found, dg.MultiPartitionsDefinition):
        found = found.get_partitions_def_for_dimension(partitions.KEY)
    assert isinstance(found, dg.DynamicPartitionsDefinition)
    return found


def _is_key(asset: StreamAsset, value: str) -> bool:
    unfit = any(mark in value for mark in _NO_KEY) or not value
    return not unfit and not ("|" in value and isinstance(asset.wanted.partitions, MultiPartitions))


def _requests(
    asset: StreamAsset, keys: Sequence[str], context: dg.SensorEvaluationContext
) -> list[dg.RunRequest]:
    """A run for each key; of a stream that has windows too, of the newest one."""
    found = asset.partitions
    if isinstance(found, dg.MultiPartitionsDefinition):
        windows = found.get_partitions_def_for_dimension(partitions.WINDOW)
        with dg.partition_loading_context(dynamic_partitions_store=context.instance):
            window = windows.get_last_partition_key()
        if window is None:
            return []
        pairs = [{partitions.KEY: key, partitions.WINDOW: window} for key in keys]
        keys = [dg.MultiPartitionKey(pair) for pair in pairs]
    return [dg.RunRequest(asset_selection=[asset.key], partition_key=key) for key in keys]


def _short(error: Exception) -> str:
    if isinstance(error, EltError):
        return " ".join(filter(None, [error.message, error.guidance]))
    return f"{type(error).__name__}: {error}"
