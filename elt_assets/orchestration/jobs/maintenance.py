"""The Dagster job for the maintenance of tables: compaction and vacuum."""

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.

import datetime as dt
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import dagster as dg

from elt_assets import paths
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.write.companions import app_id
from elt_assets.lake.write.paths import open_tables
from elt_assets.orchestration.events.metadata import HISTORY, cluster_columns_of, table_path_of
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.orchestration.jobs.each_stream import (
    make_job,
    refuse_failures,
    select_streams,
    try_each,
)
from elt_assets.orchestration.jobs.run_history import remove_compute_logs, remove_runs
from elt_assets.orchestration.resources import (
    LAKE_KEY,
    SPARK_KEY,
    AnySparkResource,
    LakeResource,
    spark_provider,
)
from elt_assets.orchestration.runs.executor import STEP_TAGS
from elt_assets.runner.packages import sweep
from elt_assets.storage.folders import sweep_temporary

JOB = "elt_maintenance"
_DAY = 24 * 3600


class MaintenanceConfig(dg.Config):
    """Config of the job. 0 days: nothing of this kind is removed."""

    # Minimum age of an unreferenced file before it is removed; no sync may take longer. The same age
    # applies to staging folders and to Spark's temporary files that killed runs left.
    retention_hours: int = 7 * 24
    # Asset keys, for example "shop/users"; default: all streams.
    assets: list[str] = []  # noqa: RUF012 - pydantic copies it
    dead_letter_days: int = 90  # age at which a rejected record is removed
    # Age at which a run that reported nothing about an asset is removed from the event log.
    run_days: int = 90
    compute_log_days: int = 30  # age at which the stdout and stderr of a run are removed
    package_days: int = (
        90  # time since its last use after which the environment of a package is removed
    )


def maintenance_job(specs: Iterable[dg.AssetSpec]) -> dg.JobDefinition:
    """Compacts and vacuums the tables of streams, one after the other, and removes what runs left behind."""
    tables = {spec.key.to_user_string(): spec for spec in specs if HISTORY in spec.metadata}

    @dg.op(
        name="maintain_tables",
        required_resource_keys={LAKE_KEY, SPARK_KEY},
        tags=STEP_TAGS,
    )
    def maintain_tables(context: dg.OpExecutionContext, config: MaintenanceConfig) -> None:
        selected = select_streams(config.assets, tables)
        failed = try_each(context, "maintenance", selected, partial(_maintain, context, config))
        with as_dagster_failure():
            _clean_up(context, config)
        refuse_failures("maintenance", failed)

    return make_job(JOB, maintain_tables, str(maintenance_job.__doc__))


def maintenance_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the schedule of the job: Sundays at 03:00. It is off until a user turns it on."""
    return dg.ScheduleDefinition(
        job=job, cron_schedule="0 3 * * 0", default_status=dg.DefaultScheduleStatus.STOPPED
    )


def _clean_up(context: dg.OpExecutionContext, config: MaintenanceConfig) -> None:
    """Remove what runs left outside of the tables, each kind after its time."""
    lake: LakeResource = context.resources.elt_lake
    staged = lake.sync_staging.sweep(config.retention_hours * 3600)
    context.log.info(f"removed {staged} abandoned staging folders and files")
    temporary = sweep_temporary(Path(tempfile.gettempdir()), config.retention_hours * 3600)
    context.log.info(f"removed {temporary} temporary folders of killed Spark processes")
    if config.package_days:
        removed = sweep(paths.packages(), config.package_days * _DAY)
        context.log.info(f"removed {removed} unused environments of packages")
    if config.compute_log_days:
        removed = remove_compute_logs(context.instance, config.compute_log_days * _DAY)
        context.log.info(f"removed the compute logs of {removed} runs")
    if config.run_days:
        removed = remove_runs(context.instance, config.run_days * _DAY)
        context.log.info(f"removed {removed} runs that reported nothing about an asset")


def _maintain(
    context: dg.OpExecutionContext, config: MaintenanceConfig, spec: dg.AssetSpec
) -> None:
    lake: LakeResource = context.resources.elt_lake
    spark: AnySparkResource = context.resources.elt_spark
    path = table_path_of(spec.metadata)
    assert path is not None
    retention = dt.timedelta(hours=config.retention_hours)
    dead_letter_age = dt.timedelta(days=config.dead_letter_days) or None
    history = bool(spec.metadata[HISTORY])
    tables = open_tables(lake.location, path, app_id(spec.key.path), history=history)
    if not tables.main.exists:
        return
    session, cluster_by = spark_provider(spark).get(), cluster_columns_of(spec.metadata)
    for report in maintain(session, tables, retention, dead_letter_age, cluster_by):
        counts = {
            "{} sorted": report.clustered,
            "{} rejected records expired": report.expired,
            "{} documents removed": report.documents,
        }
        files = f"{report.table}: {report.files_before} files → {report.files_after}"
        others = [text.format(count) for text, count in counts.items() if count]
        context.log.info("; ".join([files, f"{report.removed} removed", *others]))
