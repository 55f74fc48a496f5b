"""Replay of dead letter tables: a Dagster job for several streams, and a function for one stream."""

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.

import uuid
from collections.abc import Sequence
from functools import partial

import dagster as dg

from elt_assets.lake.admin.replay import replay
from elt_assets.lake.columns.logical_types import column_of
from elt_assets.lake.columns.metadata_columns import PARTITION
from elt_assets.lake.read.snapshots import texts_of
from elt_assets.orchestration.events.metadata import commit_metadata, losses_metadata
from elt_assets.orchestration.jobs.each_stream import (
    make_job,
    refuse_failures,
    select_streams,
    try_each,
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
from elt_assets.pipeline.progress import SyncFigures, describe_losses
from elt_assets.pipeline.stream_plan import plan_replay

JOB = "elt_replay"


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
    return make_job(JOB, replay_dead_letters, text)


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
