"""The Dagster job for the maintenance of tables: compaction and vacuum."""

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.

import datetime as dt
from collections.abc import Iterable

import dagster as dg

from elt_assets.errors import EltError
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.write.stream_tables import StreamTables, app_id
from elt_assets.orchestration.events.metadata import HISTORY, TABLE_PATH
from elt_assets.orchestration.resources import LAKE_KEY, SPARK_KEY, LakeResource, SparkResource

JOB = "elt_maintenance"


class MaintenanceConfig(dg.Config):
    """Config of the job. `retention_hours`: minimum age of an unreferenced file before it is removed; no
    sync may take longer. `assets`: asset keys, for example "shop/users"; default: all streams."""

    retention_hours: int = 7 * 24
    assets: list[str] = []  # noqa: RUF012 - pydantic copies it


def maintenance_job(specs: Iterable[dg.AssetSpec]) -> dg.JobDefinition:
    """Compacts and vacuums the tables of streams, one after the other."""
    tables = {spec.key.to_user_string(): spec for spec in specs if HISTORY in spec.metadata}

    @dg.op(name="maintain_tables", required_resource_keys={LAKE_KEY, SPARK_KEY})
    def maintain_tables(context: dg.OpExecutionContext, config: MaintenanceConfig) -> None:
        refuse_unknown(config.assets, tables)
        lake: LakeResource = context.resources.elt_lake
        retention = dt.timedelta(hours=config.retention_hours)
        selected = config.assets or sorted(tables)
        failed = [key for key in selected if not _try_maintain(context, tables[key], retention)]
        removed = lake.sync_staging.sweep(retention.total_seconds())
        context.log.info(f"removed {removed} abandoned staging folders and files")
        if failed:
            raise dg.Failure(
                f"the maintenance of these assets failed: {', '.join(failed)} (see the log)"
            )

    @dg.job(name=JOB, description=maintenance_job.__doc__)
    def job() -> None:
        maintain_tables()

    return job


def maintenance_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the schedule of the job: Sundays at 03:00. It is off until a user turns it on."""
    return dg.ScheduleDefinition(
        job=job, cron_schedule="0 3 * * 0", default_status=dg.DefaultScheduleStatus.STOPPED
    )


def refuse_unknown(requested: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(requested) - set(known))
    if unknown:
        raise dg.Failure(
            f"these assets are not streams of a connection: {', '.join(unknown)}",
            allow_retries=False,
        )


def _try_maintain(
    context: dg.OpExecutionContext, spec: dg.AssetSpec, retention: dt.timedelta
) -> bool:
    """Return whether the maintenance of a stream succeeded; an error is logged, so the others continue."""
    lake: LakeResource = context.resources.elt_lake
    spark: SparkResource = context.resources.elt_spark
    path = str(spec.metadata[TABLE_PATH]).split("/")
    try:
        place, history = lake.table(path), bool(spec.metadata[HISTORY])
        tables = StreamTables(place, app_id(spec.key.path), history=history)
        if tables.main.exists:
            for one in maintain(spark.provider.get(), tables, retention):
                context.log.info(
                    f"{one.table}: {one.files_before} files → {one.files_after}; {one.removed} removed"
                )
    except EltError:
        context.log.exception(f"the maintenance of {spec.key.to_user_string()} failed")
        return False
    return True
