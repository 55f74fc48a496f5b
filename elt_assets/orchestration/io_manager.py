"""The Spark IO manager: takes a stream about to be read and makes it a table; gives tables back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from elt_assets.errors import ConfigError, EltError, TransientError
from elt_assets.lake.admin.snapshots import snapshot
from elt_assets.lake.spark.session import DataFrame
from elt_assets.lake.write import dataframes
from elt_assets.lake.write.stream_tables import app_id
from elt_assets.orchestration.events.metadata import (
    DESTINATION,
    ROW_COUNT,
    TABLE_PATH,
    plain,
    table_metadata,
)
from elt_assets.orchestration.events.report import Complete, Report, Running
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.orchestration.resources import (
    IO_MANAGER_KEY,
    LAKE_KEY,
    SPARK_KEY,
    LakeResource,
    SparkResource,
)
from elt_assets.orchestration.stream_sync import StreamSync
from elt_assets.pipeline.read_plan import ReadPlan

TOLD = 10
"""Partitions whose failures are told in the run's own."""


class SparkIOManager(dg.ConfigurableIOManager):
    """Commits a stream's checkpoints as they are sealed; loads any stream as a Spark DataFrame.

    An asset downstream that returns a DataFrame gets a table of its own, at the asset key's levels under
    the lake's root. Each materialisation replaces the table, or the partitions that the run is for.
    """

    spark: SparkResource
    lake: LakeResource

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        if obj is None:
            return
        with as_dagster_failure():
            self._handle(context, obj)

    def _handle(self, context: dg.OutputContext, obj: object) -> None:
        if isinstance(obj, StreamSync):
            self._sync(context, obj)
        elif isinstance(obj, DataFrame):
            self._store(context, obj)
        else:
            raise dg.DagsterInvariantViolationError(
                f"the Spark IO manager stores Spark DataFrames, not {type(obj).__name__}"
            )

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """Return the rows of the upstream asset's table at one snapshot: of the partitions that the
        partition mapping gives, or all of them."""
        upstream = context.upstream_output
        assert upstream is not None
        with as_dagster_failure():
            _refuse_elsewhere(upstream)
            uri = self.lake.table_uri(_path_of(upstream))
            partitions = _partitions_of(context)
            writer = app_id(upstream.asset_key.path)
            return snapshot(self.spark.provider.get(), uri, writer, partitions=partitions)

    def _sync(self, context: dg.OutputContext, sync: StreamSync) -> None:
        """Read what is wanted; a partition that fails does not keep the others from being read, unless it
        fails for what only the user can change."""
        try:
            self._each(context, sync)
        except BaseException:
            # The event of the whole output is never made then: tell of those that are committed.
            for each in sync.done:
                context.log_event(
                    dg.AssetMaterialization(
                        sync.asset.key, metadata=dict(each.metadata), partition=each.partition
                    )
                )
            raise

    def _each(self, context: dg.OutputContext, sync: StreamSync) -> None:
        failures: dict[str, EltError] = {}
        for partition in sync.partitions:
            error = self._one(context, sync, partition)
            if error is None:
                continue
            if partition is None or len(sync.partitions) == 1:
                raise error
            context.log.error(f"partition {partition!r}: {error}")
            failures[partition] = error
            if isinstance(error, ConfigError):
                break
        if failures:
            raise _all_told(failures, len(sync.partitions))

    def _one(
        self, context: dg.OutputContext, sync: StreamSync, partition: str | None
    ) -> EltError | None:
        """What went wrong; None if it is committed."""
        try:
            complete = list(self.land(context, context.run_id, sync.plan(partition)))
        except EltError as error:
            return error
        for read in complete:  # none of a read that failed, be its stream complete or not
            sync.keep(read)
        return None

    def land(self, run: Running, run_id: str, plan: ReadPlan) -> Iterator[Complete]:
        """Run a planned read into the tables of its streams; yields those that are complete.

        Raises:
            EltError: the source, a stream or a table failed; some streams may be complete before it.
        """
        return Report(self.spark.provider, run, run_id, plan).complete()

    def _store(self, context: dg.OutputContext, rows: DataFrame) -> None:
        """Replace the table of an asset downstream, or the partitions of it that the run is for."""
        path, key = _path_of(context), context.asset_key.path
        target = dataframes.Target(self.lake.table_uri(path), key, context.run_id)
        if not context.has_asset_partitions:
            metadata = table_metadata(dataframes.replace_table(target, rows).table, ".".join(path))
        else:
            partitions = [str(key) for key in context.asset_partition_keys]
            done = dataframes.replace_partitions(target, rows, partitions)
            metadata = table_metadata(done.table, ".".join(path), partition_rows=done.rows)
            if len(partitions) > 1:  # their events get the same metadata
                metadata = {name: metadata[name] for name in metadata if name != ROW_COUNT}
        context.add_output_metadata(dict(metadata))


def _partitions_of(context: dg.InputContext) -> list[str] | None:
    """Return the partitions of the upstream asset that the partition mapping gives; None for all rows."""
    if not context.has_asset_partitions:
        return None
    keys = [str(key) for key in context.asset_partition_keys]
    every = context.asset_partitions_def.get_partition_keys(
        dynamic_partitions_store=context.instance
    )
    # A run without partitions that is given every key reads the table as it is, with no long list of keys.
    is_whole = not context.has_partition_key and set(keys) >= set(every)
    return None if is_whole else keys


def _refuse_elsewhere(upstream: dg.OutputContext) -> None:
    destination = (upstream.definition_metadata or {}).get(DESTINATION)
    if destination is not None:
        raise ConfigError(
            f"the rows of {upstream.asset_key.to_user_string()} are not in the lake: its connection sends "
            f"them to another destination, {plain(destination)}",
            guidance="read them from there",
        )


def _path_of(context: dg.OutputContext) -> list[str]:
    """The table's levels under the root: as its definition says, or else as its key does."""
    given: Any = (context.definition_metadata or {}).get(TABLE_PATH)
    value = getattr(given, "value", given)
    return value.split("/") if isinstance(value, str) else list(context.asset_key.path)


def _all_told(failures: Mapping[str, EltError], wanted: int) -> EltError:
    """The failures of some partitions as one; of the kind that is all of theirs, or else transient."""
    kinds = {type(error) for error in failures.values()}
    kind = kinds.pop() if len(kinds) == 1 else TransientError
    told = [f"partition {name!r}: {error.message}" for name, error in failures.items()][:TOLD]
    if len(failures) > TOLD:
        told.append(f"and {len(failures) - TOLD} more (see the log)")
    return kind(
        f"{len(failures)} of {wanted} partitions failed; what is committed stays\n"
        + "\n".join(told),
        guidance=next(iter(failures.values())).guidance,
    )


SPARK, LAKE = SparkResource(), LakeResource()
_RESOURCES = {
    SPARK_KEY: SPARK,
    LAKE_KEY: LAKE,
    IO_MANAGER_KEY: SparkIOManager(spark=SPARK, lake=LAKE),
}


def resources() -> dict[str, Any]:
    """The resources that the assets of connections need, configured by the environment (`ELT_LAKE`,
    `ELT_STAGING`, `ELT_SPARK`). The same objects each time, so that definitions that bring them can be
    merged."""
    return dict(_RESOURCES)
