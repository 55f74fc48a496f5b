"""What is done to tables between syncs: maintenance as a job, and the replay of dead letters."""

# No `from __future__ import annotations`: Dagster looks at the context's annotation itself.

import datetime as dt
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import dagster as dg

from elt_assets.errors import EltError
from elt_assets.lake.landing import Landing, begins
from elt_assets.lake.maintenance import maintain
from elt_assets.lake.replaying import replay
from elt_assets.lake.tables import StreamTables, app_id
from elt_assets.lake.types import PARTITION
from elt_assets.lake.values_of import texts_of
from elt_assets.orchestration.metadata import HISTORY, TABLE_PATH, head_metadata
from elt_assets.orchestration.resources import LAKE_KEY, SPARK_KEY, LakeResource, SparkResource
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.scratch import sweep
from elt_assets.sync.events import Committed

JOB = "elt_maintenance"
REPLAY_JOB = "elt_replay"


class MaintenanceConfig(dg.Config):
    """`retention_hours`: how old a file that nobody names must be to be removed; a sync must not take
    longer. `assets`: keys, as "shop/users"; default all."""

    retention_hours: int = 7 * 24
    assets: list[str] = []  # noqa: RUF012 - pydantic copies it


def maintenance_job(specs: Iterable[dg.AssetSpec]) -> dg.JobDefinition:
    """Compacts and vacuums the tables of streams, one after the other."""
    tables = {spec.key.to_user_string(): spec for spec in specs if HISTORY in spec.metadata}

    @dg.op(name="maintain_tables", required_resource_keys={LAKE_KEY, SPARK_KEY})
    def maintain_tables(context: dg.OpExecutionContext, config: MaintenanceConfig) -> None:
        _refuse_unknown(config.assets, tables)
        lake: LakeResource = context.resources.elt_lake
        retention = dt.timedelta(hours=config.retention_hours)
        wanted = config.assets or sorted(tables)
        failed = [key for key in wanted if not _maintained(context, tables[key], retention)]
        swept = sweep(lake.staging_path, retention.total_seconds())
        context.log.info(f"{swept} abandoned staging directories removed")
        if failed:
            raise dg.Failure(f"not maintained: {', '.join(failed)} (see the log)")

    @dg.job(name=JOB, description=maintenance_job.__doc__)
    def job() -> None:
        maintain_tables()

    return job


def maintenance_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Sundays at three; off until someone turns it on."""
    return dg.ScheduleDefinition(
        job=job, cron_schedule="0 3 * * 0", default_status=dg.DefaultScheduleStatus.STOPPED
    )


class ReplayConfig(dg.Config):
    """`assets`: keys, as "shop/users"; default all."""

    assets: list[str] = []  # noqa: RUF012 - pydantic copies it


def replay_job(assets: Sequence[StreamAsset]) -> dg.JobDefinition:
    """Tries the records in streams' dead letters again, one stream after the other."""
    known = {asset.key.to_user_string(): asset for asset in assets}

    @dg.op(name="replay_dead_letters", required_resource_keys={LAKE_KEY, SPARK_KEY})
    def replay_dead_letters(context: dg.OpExecutionContext, config: ReplayConfig) -> None:
        _refuse_unknown(config.assets, known)
        wanted = config.assets or sorted(known)
        failed = [key for key in wanted if not _replayed(context, known[key])]
        if failed:
            raise dg.Failure(f"not replayed: {', '.join(failed)} (see the log)")

    @dg.job(name=REPLAY_JOB, description=replay_job.__doc__)
    def job() -> None:
        replay_dead_letters()

    return job


def _refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise dg.Failure(f"no assets of connections: {', '.join(unknown)}", allow_retries=False)


def _replayed(context: dg.OpExecutionContext, asset: StreamAsset) -> bool:
    """Whether it went well; one stream's trouble does not keep the others waiting."""
    lake: LakeResource = context.resources.elt_lake
    key = asset.key.to_user_string()
    try:
        if not asset.tables(lake.uri).dead_letter.exists:
            return True
        done = replay_stream(asset, lake, context.resources.elt_spark, context.instance)
    except EltError:
        context.log.exception(f"{key} was not replayed")
        return False
    told = "its dead letter is empty"
    if done is not None:
        told = f"{done.records} records replayed, {done.rejected} rejected again"
    context.log.info(f"{key}: {told}")
    return True


@dataclass(frozen=True)
class Replayed:
    """How many records moved to the table, and how many were rejected again."""

    records: int
    rejected: int


def replay_stream(
    asset: StreamAsset, lake: LakeResource, spark: SparkResource, instance: dg.DagsterInstance
) -> Replayed | None:
    """Try a stream's dead letter again, each partition's records for it; what came of it is an event of
    the asset. None if the dead letter is empty.

    Raises:
        EltError: as `replay`.
    """
    partitions: Sequence[str | None] = [None]
    if asset.partitions is not None:
        partitions = texts_of(asset.tables(lake.uri).dead_letter, [PARTITION])
    tried = [_replay(asset, lake, spark, instance, each) for each in partitions]
    done = [each for each in tried if each is not None]
    if not done:
        return None
    return Replayed(sum(each.records for each in done), sum(each.rejected for each in done))


def _replay(
    asset: StreamAsset,
    lake: LakeResource,
    spark: SparkResource,
    instance: dg.DagsterInstance,
    partition: str | None,
) -> Committed | None:
    tables = asset.tables(lake.uri, partition)
    run_id = str(uuid.uuid4())
    tables.settle(run_id)
    head, stream = tables.head, asset.landed()
    stream.generation_id, stream.minimum_generation_id = max(head.generation, 1), 0
    stream.sync_id = begins(head)
    land = Landing(
        stream=stream,
        run_id=run_id,
        history=asset.wanted.history,
        on_schema_change=asset.wanted.on_schema_change,
        salt=asset.salt_fingerprint,
        selection=asset.selection,
        partition=partition,
    )
    done = replay(spark.provider, tables, land)
    if done is not None:
        metadata = {
            **head_metadata(tables.head, tables.main.version),
            "elt/records_replayed": done.records,
            "elt/records_rejected": done.rejected,
        }
        event = dg.AssetObservation(asset.key, metadata=metadata, partition=partition)
        instance.report_runless_asset_event(event)
    return done


def _maintained(
    context: dg.OpExecutionContext, spec: dg.AssetSpec, retention: dt.timedelta
) -> bool:
    """Whether it went well; one table's trouble does not keep the others waiting."""
    lake: LakeResource = context.resources.elt_lake
    spark: SparkResource = context.resources.elt_spark
    path = str(spec.metadata[TABLE_PATH]).split("/")
    try:
        uri, history = lake.table_uri(path), bool(spec.metadata[HISTORY])
        tables = StreamTables(uri, app_id(spec.key.path), history=history)
        if tables.main.exists:
            for one in maintain(spark.provider.get(), tables, retention):
                context.log.info(
                    f"{one.table}: {one.files_before} files → {one.files_after}; {one.removed} removed"
                )
    except EltError:
        context.log.exception(f"{spec.key.to_user_string()} was not maintained")
        return False
    return True
