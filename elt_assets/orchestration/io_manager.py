"""The Spark IO manager: it writes streams and DataFrames to tables, and loads tables as DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from elt_assets.errors import ConfigError, EltError, TransientError, error_class
from elt_assets.lake.admin.snapshots import snapshot
from elt_assets.lake.spark.session import DataFrame
from elt_assets.lake.write import dataframes
from elt_assets.lake.write.stream_tables import SUFFIXES, app_id
from elt_assets.lake.write.table_paths import TablePath, find_table
from elt_assets.machine_faults import translated
from elt_assets.orchestration.events.metadata import (
    COMPANION_OF,
    DESTINATION,
    ROW_COUNT,
    table_metadata,
    table_path_of,
    unwrapped,
)
from elt_assets.orchestration.events.report import CompleteStream, ReportedRead, RunContext
from elt_assets.orchestration.failures import as_dagster_failure
from elt_assets.orchestration.resources import (
    IO_MANAGER_KEY,
    LAKE_KEY,
    SPARK_KEY,
    LakeResource,
    SparkResource,
)
from elt_assets.orchestration.source_partitions import MissingPartition
from elt_assets.orchestration.stream_sync import StreamSync
from elt_assets.pipeline.read_plan import ReadPlan
from elt_assets.storage.location import Location

MAX_LISTED_FAILURES = 10
"""Maximum number of partitions that the error of a run lists."""


class SparkIOManager(dg.ConfigurableIOManager):
    """IO manager that commits checkpoints of a stream during its read, and loads streams as DataFrames.

    A downstream asset that returns a DataFrame gets its own table. The path of the table under the root of
    the lake is the asset key. Each materialisation replaces the table, or the partitions of the run.
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
        """Return the rows of the upstream asset's table from one snapshot.

        The rows are those of the partitions in the partition mapping, or all rows.
        """
        upstream = context.upstream_output
        assert upstream is not None
        with as_dagster_failure():
            _refuse_other_destination(upstream)
            place, writer = _table_of(self.lake.location, upstream)
            partitions = _partitions_of(context)
            return snapshot(self.spark.provider.get(), place, writer, partitions=partitions)

    def _sync(self, context: dg.OutputContext, sync: StreamSync) -> None:
        """Sync a stream, or its partitions; each committed read is reported at once.

        If a partition fails, the sync continues with the next one, unless the user must change the config or
        the machine has a fault: then all others would fail too. A partition that the source no longer has
        concerns no other partition.
        """
        failures: dict[str, EltError] = {}
        for partition in sync.partitions:
            error = self._sync_partition(context, sync, partition)
            if error is None:
                continue
            if partition is None or len(sync.partitions) == 1:
                raise error
            context.log.error(f"partition {partition!r}: {error}")
            failures[partition] = error
            if _concerns_all(error):
                break
        if failures:
            raise _combined_failure(failures, len(sync.partitions))

    def _sync_partition(
        self, context: dg.OutputContext, sync: StreamSync, partition: str | None
    ) -> EltError | None:
        """Sync one partition, or a whole stream; return its error, or None if it is committed."""
        try:
            with translated():
                read = None if partition is None else sync.completed_read(partition)
                if read is not None:
                    context.log.info(
                        f"partition {partition}: not read again, an earlier attempt has completed it"
                    )
                    sync.skip(read)
                    return None
                complete = list(self.land(context, context.run_id, sync.plan(partition)))
        except EltError as error:
            return error
        for stream in complete:  # reached only if the whole read succeeded
            sync.add(stream)
        return None

    def land(self, run: RunContext, run_id: str, plan: ReadPlan) -> Iterator[CompleteStream]:
        """Run a planned read and write its streams to their tables; yield each stream when it is complete.

        Raises:
            EltError: the source, a stream or a table failed; some streams may be complete before the error.
        """
        return ReportedRead(self.spark.provider, run, run_id, plan).run()

    def _store(self, context: dg.OutputContext, rows: DataFrame) -> None:
        """Replace the table of a downstream asset, or the partitions of the run."""
        path, key = _path_of(context).levels, context.asset_key.path
        target = dataframes.Target(self.lake.location.child(*path), key, context.run_id)
        if not context.has_asset_partitions:
            metadata = table_metadata(dataframes.replace_table(target, rows).table, ".".join(path))
        else:
            partitions = [str(key) for key in context.asset_partition_keys]
            stored = dataframes.replace_partitions(target, rows, partitions)
            metadata = table_metadata(stored.table, ".".join(path), partition_rows=stored.rows)
            if len(partitions) > 1:  # Dagster adds the same metadata to the event of each partition
                metadata = {name: metadata[name] for name in metadata if name != ROW_COUNT}
        context.add_output_metadata(dict(metadata))


def _concerns_all(error: EltError) -> bool:
    """Return whether an error of one partition would occur in all others."""
    if error.is_machine_fault:
        return True
    return isinstance(error, ConfigError) and not isinstance(error, MissingPartition)


def _partitions_of(context: dg.InputContext) -> list[str] | None:
    """Return the partitions of the upstream asset in the partition mapping; None for all rows."""
    if not context.has_asset_partitions:
        return None
    keys = [str(key) for key in context.asset_partition_keys]
    every = context.asset_partitions_def.get_partition_keys(
        dynamic_partitions_store=context.instance
    )
    # A run without partitions that gets all keys reads the whole table, without a long list of keys.
    is_whole = not context.has_partition_key and set(keys) >= set(every)
    return None if is_whole else keys


def _refuse_other_destination(upstream: dg.OutputContext) -> None:
    destination = (upstream.definition_metadata or {}).get(DESTINATION)
    if destination is not None:
        raise ConfigError(
            f"the rows of {upstream.asset_key.to_user_string()} are not in the lake: its connection writes "
            f"to the destination {unwrapped(destination)}",
            guidance="read the rows from this destination",
        )


def _path_of(context: dg.OutputContext) -> TablePath:
    """Return the path of the table: from the asset's definition, or else from its key."""
    levels = tuple(context.asset_key.path)
    return table_path_of(context.definition_metadata or {}) or TablePath(levels, levels)


def _table_of(lake: Location, upstream: dg.OutputContext) -> tuple[Location, str]:
    """Return the location of an asset's table, and its writer.

    A companion is beside the table of its stream, which is its writer.
    """
    path, key = _path_of(upstream), upstream.asset_key
    stream = unwrapped((upstream.definition_metadata or {}).get(COMPANION_OF))
    if stream is None:
        writer = app_id(key.path)
        return find_table(lake, path, writer), writer
    suffix = next(each for each in SUFFIXES.values() if path.levels[-1].endswith(each))
    writer = app_id(dg.AssetKey.from_user_string(stream).path)
    place = find_table(lake, path.without_suffix(suffix), writer)
    return place.beside(suffix), writer + suffix


def _combined_failure(failures: Mapping[str, EltError], total: int) -> EltError:
    """Return one error for the failures of several partitions: of their common type, or else transient."""
    kinds = {error.failure_type for error in failures.values()}
    kind = error_class(kinds.pop()) if len(kinds) == 1 else TransientError
    lines = [f"partition {name!r}: {error.message}" for name, error in failures.items()]
    if len(lines) > MAX_LISTED_FAILURES:
        more = f"and {len(lines) - MAX_LISTED_FAILURES} more (see the log)"
        lines = [*lines[:MAX_LISTED_FAILURES], more]
    return kind(
        f"{len(failures)} of {total} partitions failed; committed partitions are kept\n"
        + "\n".join(lines),
        guidance=next(iter(failures.values())).guidance,
    )


SPARK, LAKE = SparkResource(), LakeResource()
_RESOURCES = {
    SPARK_KEY: SPARK,
    LAKE_KEY: LAKE,
    IO_MANAGER_KEY: SparkIOManager(spark=SPARK, lake=LAKE),
}


def resources() -> dict[str, Any]:
    """Return the resources that the assets of connections need.

    The environment variables `ELT_LAKE`, `ELT_STAGING` and `ELT_SPARK` configure them. Each call returns the
    same objects, so definitions that contain them can be merged.
    """
    return dict(_RESOURCES)
