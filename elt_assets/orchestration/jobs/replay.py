"""The replay of dead letters: as a job, and of one stream."""

# No `from __future__ import annotations`: Dagster looks at the context's annotation itself.

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from elt_assets.errors import EltError
from elt_assets.lake.admin.distinct_values import texts_of
from elt_assets.lake.admin.replay import replay
from elt_assets.lake.schema.metadata_columns import PARTITION
from elt_assets.orchestration.events.metadata import head_metadata
from elt_assets.orchestration.jobs.maintenance import refuse_unknown
from elt_assets.orchestration.resources import LAKE_KEY, SPARK_KEY, LakeResource, SparkResource
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.stream_plan import plan_replay
from elt_assets.sync.events import Committed

JOB = "elt_replay"


class ReplayConfig(dg.Config):
    """`assets`: keys, as "shop/users"; default all."""

    assets: list[str] = []  # noqa: RUF012 - pydantic copies it


def replay_job(assets: Sequence[StreamAsset]) -> dg.JobDefinition:
    """Tries the records in streams' dead letters again, one stream after the other."""
    known = {asset.key.to_user_string(): asset for asset in assets}

    @dg.op(name="replay_dead_letters", required_resource_keys={LAKE_KEY, SPARK_KEY})
    def replay_dead_letters(context: dg.OpExecutionContext, config: ReplayConfig) -> None:
        refuse_unknown(config.assets, known)
        wanted = config.assets or sorted(known)
        failed = [key for key in wanted if not _replayed(context, known[key])]
        if failed:
            raise dg.Failure(f"not replayed: {', '.join(failed)} (see the log)")

    @dg.job(name=JOB, description=replay_job.__doc__)
    def job() -> None:
        replay_dead_letters()

    return job


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
    spec = plan_replay(asset, tables, partition).write_spec(run_id)
    done = replay(spark.provider, tables, spec)
    if done is not None:
        metadata = {
            **head_metadata(tables.head, tables.main.version),
            "elt/records_replayed": done.records,
            "elt/records_rejected": done.rejected,
        }
        event = dg.AssetObservation(asset.key, metadata=metadata, partition=partition)
        instance.report_runless_asset_event(event)
    return done
