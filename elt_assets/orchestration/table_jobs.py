"""Dagster jobs on the tables of streams: maintenance, and replay of the dead letter; removal of old runs.

`project` adds the jobs; `source_jobs` makes its own by `make_job`; `elt replay` calls `replay_stream`.

First what the jobs share, one op and work on several streams, of which one may fail alone; then the removal
of runs and of their logs; then the two jobs.

Runs that reported something about an asset are never removed: the event log is the history of the assets, and
says which partitions are materialised. Without these events, Dagster would show partitions as missing, and
automation conditions would request them again.
"""

import datetime as dt
import shutil

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.
import tempfile
import time

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg
from dagster import DagsterEventType, DagsterRunStatus, RunsFilter
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager

from elt_assets import paths
from elt_assets.errors import ConfigError, EltError
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.columns.logical_types import column_of
from elt_assets.lake.columns.metadata_columns import PARTITION
from elt_assets.lake.delta.table import Table
from elt_assets.lake.read.snapshots import texts_of
from elt_assets.lake.write.companions import app_id
from elt_assets.lake.write.paths import open_tables
from elt_assets.machine_faults import translate
from elt_assets.orchestration.checks import report_health
from elt_assets.orchestration.failures import as_dagster_failure, is_explained
from elt_assets.orchestration.metadata import (
    CONNECTION,
    HISTORY,
    ICEBERG,
    cluster_columns_of,
    commit_metadata,
    losses_metadata,
    table_path_of,
    unwrap,
)
from elt_assets.orchestration.resources import (
    LAKE_KEY,
    SPARK_KEY,
    AnySparkResource,
    LakeResource,
    spark_provider,
)
from elt_assets.orchestration.runs.executor import STEP_TAGS
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.following import make_lake_table
from elt_assets.pipeline.progress import SyncFigures, describe_losses
from elt_assets.pipeline.publication import open_publisher
from elt_assets.pipeline.stream_plan import plan_replay
from elt_assets.runner.packages import sweep
from elt_assets.settings import settings
from elt_assets.storage.folders import newest_change, sweep_temporary

S = TypeVar("S")


def make_job(
    name: str, op: dg.OpDefinition, description: str, tags: Mapping[str, Any] | None = None
) -> dg.JobDefinition:
    """Return a job of one op."""

    @dg.job(name=name, description=description, tags=tags)
    def job() -> None:
        op()

    return job


def select_streams(requested: Collection[str], streams: Mapping[str, S]) -> dict[str, S]:
    """Return the requested streams by asset key; all of them, in the order of their keys, if none is named.

    Raises:
        dagster.Failure: a key is not that of a stream.
    """
    unknown = sorted(set(requested) - set(streams))
    if unknown:
        raise dg.Failure(
            f"these assets are not streams of a connection: {', '.join(unknown)}",
            allow_retries=False,
        )
    return {key: streams[key] for key in requested or sorted(streams)}


def try_each(
    context: dg.OpExecutionContext,
    work: str,
    streams: Mapping[str, S],
    run: Callable[[S], None],
) -> list[str]:
    """Run a function for each stream, and return the keys of the streams for which it failed.

    Any error is logged, and the next stream follows: a table that a library cannot read, or a full disk, may
    concern one stream only. An interruption ends the job.

    Args:
        work: what the function does, as a noun for messages.
        streams: the streams by their asset key.
    """
    failed = []
    for key, stream in streams.items():
        try:
            run(stream)
        except Exception as error:  # noqa: PERF203 - libraries raise errors of many types
            failed.append(key)
            translated = translate(error)
            has_trace = translated is None or not is_explained(translated)
            text = f"the {work} of {key} failed: {translated or error}"
            context.log.error(text, exc_info=has_trace)  # noqa: TRY400 - not always with a trace
    return failed


def refuse_failures(work: str, failed: list[str]) -> None:
    """Raise a dagster.Failure that lists the streams for which the work failed, if there are any."""
    if failed:
        raise dg.Failure(f"the {work} of these assets failed: {', '.join(failed)} (see the log)")


_FINISHED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
_OF_ASSETS = (
    DagsterEventType.ASSET_MATERIALIZATION,
    DagsterEventType.ASSET_OBSERVATION,
    DagsterEventType.ASSET_CHECK_EVALUATION,
)
_PAGE = 200


def remove_runs(instance: dg.DagsterInstance, seconds: float) -> int:
    """Remove finished runs that were created more than `seconds` ago and reported nothing about an asset.

    Returns:
        The number of removed runs.
    """
    before = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=seconds)
    old = [
        run
        for run in _list_finished_runs(instance, before)
        if not any(instance.get_records_for_run(run, None, kind, 1).records for kind in _OF_ASSETS)
    ]
    for run in old:
        instance.delete_run(run)
    return len(old)


def remove_compute_logs(instance: dg.DagsterInstance, seconds: float) -> int:
    """Remove local compute logs that have not changed for `seconds`. Those in a store are left to the store.

    Returns:
        The number of runs whose logs were removed.
    """
    manager = instance.compute_log_manager
    if not isinstance(manager, LocalComputeLogManager):
        return 0
    root = Path(manager.get_captured_local_path(["run"], "out")).parent
    oldest = time.time() - seconds
    old = [logs for logs in root.glob("*/compute_logs") if newest_change(logs) < oldest]
    for logs in old:
        shutil.rmtree(logs, ignore_errors=True)
    return len(old)


def _list_finished_runs(instance: dg.DagsterInstance, before: dt.datetime) -> Iterator[str]:
    """Yield the ids of the finished runs that were created before a time."""
    filters, cursor = RunsFilter(statuses=_FINISHED, created_before=before), None
    while True:
        runs = instance.get_runs(filters, cursor=cursor, limit=_PAGE)
        yield from (run.run_id for run in runs)
        if len(runs) < _PAGE:
            return
        cursor = runs[-1].run_id


MAINTENANCE_JOB = "elt_maintenance"
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


def maintenance_job(
    specs: Iterable[dg.AssetSpec], assets: Iterable[StreamAsset] = ()
) -> dg.JobDefinition:
    """Compacts and vacuums the tables of streams, one after the other, and removes what runs left behind."""
    streams = {asset.key: asset for asset in assets}
    tables = {spec.key.to_user_string(): spec for spec in specs if HISTORY in spec.metadata}

    @dg.op(
        name="maintain_tables",
        required_resource_keys={LAKE_KEY, SPARK_KEY},
        tags=STEP_TAGS,
    )
    def maintain_tables(context: dg.OpExecutionContext, config: MaintenanceConfig) -> None:
        selected = select_streams(config.assets, tables)
        maintain_stream = partial(_maintain, context, config, streams)
        failed = try_each(context, "maintenance", selected, maintain_stream)
        with as_dagster_failure():
            _clean_up(context, config)
        refuse_failures("maintenance", failed)

    return make_job(MAINTENANCE_JOB, maintain_tables, str(maintenance_job.__doc__))


def maintenance_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the schedule of the job. The setting `maintenance_schedule` has its times, and whether it is on
    until a user decides.

    Raises:
        ConfigError: the setting is no cron expression.
    """
    configured = settings().maintenance_schedule
    try:
        return dg.ScheduleDefinition(
            job=job,
            cron_schedule=configured.cron,
            default_status=dg.DefaultScheduleStatus(configured.default_status.upper()),
        )
    except dg.DagsterInvalidDefinitionError as error:
        raise ConfigError(
            f"maintenance_schedule.cron: {configured.cron!r} is not a valid cron expression",
            guidance='write five fields, for example "0 3 * * 0": Sundays at 03:00',
        ) from error


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
    context: dg.OpExecutionContext,
    config: MaintenanceConfig,
    streams: Mapping[dg.AssetKey, StreamAsset],
    spec: dg.AssetSpec,
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
    prepare = partial(_prepare_vacuum, context, spec, retention)
    for report in maintain(session, tables, retention, dead_letter_age, cluster_by, prepare):
        counts = {
            "{} sorted": report.clustered,
            "{} rejected records expired": report.expired,
            "{} documents removed": report.documents,
        }
        files = f"{report.table}: {report.files_before} files → {report.files_after}"
        others = [text.format(count) for text, count in counts.items() if count]
        context.log.info("; ".join([files, f"{report.removed} removed", *others]))
    if (asset := streams.get(spec.key)) is not None:
        report_health(asset, tables, spark_provider(spark), context.instance)


def _prepare_vacuum(
    context: dg.OpExecutionContext,
    spec: dg.AssetSpec,
    retention: dt.timedelta,
    table: Table,
    companion: str | None,
) -> Sequence[str] | None:
    """Publish a table, and remove the Iceberg snapshots whose files a vacuum is about to remove.

    Returns:
        as `PrepareVacuum`; None, with a warning, if it is not certain that no snapshot needs the files.
    """
    publisher = open_publisher()
    if publisher is None:
        return ()
    lake: LakeResource = context.resources.elt_lake
    connection, iceberg = (unwrap(spec.metadata.get(key)) for key in (CONNECTION, ICEBERG))
    lake_table = make_lake_table(table, lake.location, connection, companion, iceberg=iceberg)
    try:
        done = publisher.expire(lake_table, retention)
    except EltError as error:
        context.log.warning(
            f"{table.uri} was compacted and not vacuumed, since Iceberg may name files that would be "
            f"removed: {error}"
        )
        return None
    if done.removed:
        context.log.info(f"{table.uri}: {done.removed} files of Iceberg metadata removed")
    return done.other_folders


REPLAY_JOB = "elt_replay"


class ReplayConfig(dg.Config):
    """Config of the job."""

    # Asset keys, for example "shop/users"; the empty list, the default, selects all streams.
    assets: list[str] = []  # noqa: RUF012 - pydantic copies it


def replay_job(assets: Sequence[StreamAsset]) -> dg.JobDefinition:
    """Return the job that replays the records in the dead letter tables of streams, one after the other.

    If the replay of a stream fails, the job continues with the other streams and fails at the end.
    """
    streams_by_key = {asset.key.to_user_string(): asset for asset in assets}

    @dg.op(
        name="replay_dead_letters",
        required_resource_keys={LAKE_KEY, SPARK_KEY},
        tags=STEP_TAGS,
    )
    def replay_dead_letters(context: dg.OpExecutionContext, config: ReplayConfig) -> None:
        selected = select_streams(config.assets, streams_by_key)
        failed = try_each(context, "replay", selected, partial(_replay_and_log, context))
        refuse_failures("replay", failed)

    text = "Replays the records in the dead letter tables of streams, one stream after the other."
    return make_job(REPLAY_JOB, replay_dead_letters, text)


def _replay_and_log(context: dg.OpExecutionContext, asset: StreamAsset) -> None:
    lake: LakeResource = context.resources.elt_lake
    if not asset.tables(lake.location).dead_letter.exists:
        return
    done = replay_stream(asset, lake, context.resources.elt_spark, context.instance)
    outcome = "the dead letter table is empty"
    if done is not None:
        outcome = f"{done.committed} records replayed, {done.rejected} rejected again"
    context.log.info(f"{asset.key.to_user_string()}: {outcome}")
    for loss in describe_losses(done) if done is not None else ():
        context.log.warning(f"{asset.key.to_user_string()}: {loss}")


def replay_stream(
    asset: StreamAsset, lake: LakeResource, spark: AnySparkResource, instance: dg.DagsterInstance
) -> SyncFigures | None:
    """Replay the dead letter table of a stream, partition by partition.

    For each partition with records in that table, an AssetObservation with the counts is reported.

    Returns:
        The records that were moved to the table (`committed`), and those that were rejected again; None if
        the dead letter table is empty.

    Raises:
        ConcurrentSync: a sync of the stream committed first.
        ConfigError: a refresh is unfinished, or the records were rejected under different `fields`.
        EltError: the replay of a partition failed. Partitions before it are replayed already.
    """
    partitions: Sequence[str | None] = [None]
    if asset.partitions is not None:
        table = asset.tables(lake.location).dead_letter
        partitions = texts_of(table, [column_of(field) for field in table.schema], [PARTITION])
    results = [_replay(asset, lake, spark, instance, partition) for partition in partitions]
    parts = [figures for figures in results if figures is not None]
    return sum(parts, SyncFigures()) if parts else None


def _replay(
    asset: StreamAsset,
    lake: LakeResource,
    spark: AnySparkResource,
    instance: dg.DagsterInstance,
    partition: str | None,
) -> SyncFigures | None:
    tables = asset.tables(lake.location, partition)
    run_id = str(uuid.uuid4())
    tables.roll_back_companions(run_id)
    spec = plan_replay(asset, tables, partition).write_spec(run_id)
    commit = replay(spark_provider(spark), tables, spec, lake.sync_staging)
    if commit is None:
        return None
    figures = SyncFigures()
    figures.add(commit)
    figures.read = figures.committed + figures.rejected
    metadata = {
        **commit_metadata(tables.main),
        "elt/records_replayed": commit.records,
        "elt/records_rejected": commit.rejected,
        **losses_metadata(figures),
    }
    event = dg.AssetObservation(asset.key, metadata=metadata, partition=partition)
    instance.report_runless_asset_event(event)
    return figures
