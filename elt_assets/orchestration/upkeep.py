"""What is done to tables between syncs: maintenance as a job, and the replay of dead letters."""

# No `from __future__ import annotations`: Dagster looks at the context's annotation itself.

import datetime as dt
import time
import uuid
from collections.abc import Iterable

import dagster as dg

from elt_assets.errors import EltError
from elt_assets.lake.landing import Landing
from elt_assets.lake.maintenance import maintain, sweep
from elt_assets.lake.replaying import replay
from elt_assets.lake.tables import StreamTables, app_id
from elt_assets.orchestration.metadata import HISTORY, TABLE_PATH, head_metadata
from elt_assets.orchestration.resources import LAKE_KEY, SPARK_KEY, LakeResource, SparkResource
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.sync.events import Committed

JOB = "elt_maintenance"


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
        unknown = sorted(set(config.assets) - set(tables))
        if unknown:
            raise dg.Failure(f"no assets of connections: {', '.join(unknown)}", allow_retries=False)
        lake: LakeResource = context.resources.elt_lake
        retention = dt.timedelta(hours=config.retention_hours)
        wanted = config.assets or sorted(tables)
        failed = [key for key in wanted if not _maintained(context, tables[key], retention)]
        context.log.info(f"{sweep(lake.staging_path, retention)} abandoned staging folders removed")
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


def replay_stream(
    asset: StreamAsset, lake: LakeResource, spark: SparkResource, instance: dg.DagsterInstance
) -> Committed | None:
    """Try a stream's dead letter again; what came of it is an event of the asset.

    Raises:
        EltError: as `replay`.
    """
    tables = asset.tables(lake.uri)
    run_id = str(uuid.uuid4())
    tables.settle(run_id)
    head, stream = tables.head, asset.landed()
    stream.generation_id, stream.minimum_generation_id = max(head.generation, 1), 0
    stream.sync_id = max(int(time.time() * 1000), head.sync_id + 1)
    land = Landing(
        stream=stream,
        run_id=run_id,
        history=asset.wanted.history,
        on_schema_change=asset.wanted.on_schema_change,
        salt=asset.salt_fingerprint,
        selection=asset.selection,
    )
    done = replay(spark.provider, tables, land)
    if done is not None:
        metadata = {
            **head_metadata(tables.head, tables.main.version),
            "elt/records_replayed": done.records,
            "elt/records_rejected": done.rejected,
        }
        instance.report_runless_asset_event(dg.AssetObservation(asset.key, metadata=metadata))
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
