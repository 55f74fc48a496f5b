"""The step of an op: sync the selected streams, yield their outputs, and check their tables.

`build` makes the op that runs it.

There is one way to run a sync. The op plans a read, just before it starts (`planning`); the IO manager runs
the plan and commits the streams (`SparkIOManager.land`); each committed stream is reported (`ReadReporter`):
at once if several are read together, else when the read has ended without an error. A step has one read of a
whole stream, one for each partition of a stream, or one of several streams (`read_together`); if it follows a
log (`continuous`), each stream is reported again and again, and another read begins if one ends before its
time. The outputs of the op have no values: the tables already have the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from elt_assets.errors import ConfigError, EltError, TransientError, error_class
from elt_assets.lake.write.companions import StreamTables
from elt_assets.machine_faults import translated
from elt_assets.orchestration import checks
from elt_assets.orchestration.continuous import follow_run
from elt_assets.orchestration.io_manager import SparkIOManager
from elt_assets.orchestration.metadata import RECORDS_READ
from elt_assets.orchestration.planning import ReadPlanner, SyncConfig, validate
from elt_assets.orchestration.read_events import (
    REPORTED,
    CommittedRead,
    ReadReporter,
    companion_results,
    get_data_version,
    log_unread,
)
from elt_assets.orchestration.recovery import (
    EarlierAttempts,
    complete_refreshes,
    report_killed_runs,
)
from elt_assets.orchestration.report import IN_RESULT, CompleteStream, connector_lines
from elt_assets.orchestration.resources import LakeResource, spark_provider
from elt_assets.orchestration.source_partitions import MissingPartition, PartitionContexts
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.orchestration.table_events import TableEvents, name_lake
from elt_assets.protocol.messages import FollowRequest

StepEvent = dg.MaterializeResult[None] | dg.AssetCheckResult

MAX_LISTED_FAILURES = 10
"""Maximum number of partitions that the error of a run lists."""


@dataclass
class StreamResult:
    """The committed reads of a stream in one step."""

    asset: StreamAsset
    reporter: ReadReporter  # logs the events of each read when it is committed
    reads: list[CommittedRead] = field(default_factory=list)
    version_before: int = -1  # the version of the table before the first read
    tables: StreamTables | None = None  # the tables after the last read

    def skip(self, read: CommittedRead) -> None:
        """Add a read of an earlier attempt. Its files are unknown, so the checks take all of the table."""
        self.version_before = -1
        self.reads.append(read)

    def add(self, complete: CompleteStream) -> None:
        """Add and report the result of a read. The plan of the read is not stored."""
        plan = complete.plan
        if not self.reads:
            self.version_before = plan.version_before
        self.tables = plan.tables
        self.reads.append(CommittedRead(plan.partition, complete.metadata))
        self.reporter.report(self.reads[-1], plan.tables)

    def output(self) -> dg.MaterializeResult[None]:
        """Return the output of the stream. Dagster creates the event of a whole stream that is read alone."""
        if self.reporter.logs_stream:
            return dg.MaterializeResult(asset_key=self.asset.key, metadata=REPORTED)
        assert self.tables is not None, (
            "a stream without partitions has no read of an earlier attempt"
        )
        return dg.MaterializeResult(
            asset_key=self.asset.key,
            metadata=self.reads[-1].metadata,
            data_version=dg.DataVersion(get_data_version(self.tables)),
        )


class SyncStep:
    """The sync of the streams of one op in one step.

    Args:
        assets: the streams of a connection that are read together, or a single stream.
        source: the asset of their source.
    """

    def __init__(
        self, assets: Sequence[StreamAsset], source: dg.AssetKey, context: dg.AssetExecutionContext
    ):
        self._assets = assets
        self._source = source
        self._context = context
        self._lake: LakeResource = context.resources.elt_lake
        self._io_manager: SparkIOManager = context.resources.elt_io_manager
        self._config = SyncConfig(**context.op_execution_context.op_config)
        spark = spark_provider(self._io_manager.spark)
        self._planner = ReadPlanner(self._lake, spark, self._config, context)
        self._results: dict[dg.AssetKey, StreamResult] = {}

    def execute(self) -> Iterator[StepEvent]:
        """Read the selected streams; yield the outputs and the checks of those that are complete.

        The selected checks of streams that need no read are evaluated too.

        Raises:
            EltError: a read failed, or the run config is not valid. If streams that were read together with
                the failed ones are complete, their results are yielded first.
        """
        context = self._context
        name_lake(context.run, self._lake.uri, context.instance)
        selected = [asset for asset in self._assets if asset.key in context.selected_asset_keys]
        log_unread([asset for asset in self._assets if asset not in selected], context)
        earlier = complete_refreshes(selected, self._lake, context)
        requested = [asset for asset in selected if asset.key not in earlier]
        failure: EltError | None = None
        try:
            with translated():
                if requested:
                    self._read(requested)
        except EltError as error:
            failure = error
        for result in self._results.values():
            yield result.output()
            yield from companion_results(result.asset, context)
        for asset in self._assets:
            if asset not in requested or asset.key in self._results:
                checked = context.selected_asset_check_keys
                names = [key.name for key in checked if key.asset_key == asset.key]
                for check_result in checks.results(self._evidence(asset), names):
                    self._log_failure(check_result)
                    yield check_result
        if failure is not None:
            raise failure

    def _log_failure(self, result: dg.AssetCheckResult) -> None:
        """Log a failed check: its evaluation alone is an event that no one sees in the page of the run."""
        if not result.passed:
            key = result.asset_key.to_user_string() if result.asset_key else ""
            is_error = result.severity is dg.AssetCheckSeverity.ERROR
            self._context.log.log(
                logging.ERROR if is_error else logging.WARNING,
                f"{key}: check {result.check_name} failed (severity {result.severity.value}): "
                f"{result.description}",
                extra=IN_RESULT,
            )

    def _read(self, assets: Sequence[StreamAsset]) -> None:
        """Read streams without partitions in one process, or the partitions of one stream."""
        for asset in assets:
            validate(asset, self._config)
            if not asset.controls.enabled:
                self._context.log.info(
                    f"{asset.name} is not enabled: no schedule, sensor or condition starts it; this run was "
                    "requested by hand"
                )
        if any(asset.partitions is not None for asset in assets):
            self._read_partitions(*assets)
            return
        connection = assets[0].connection
        if not self._config.follows(connection):
            self._read_once(assets)
            return
        followed = follow_run(connection, self._context)
        self._read_once(assets, followed.begin_read())
        while followed.await_read():
            self._read_once(assets, followed.begin_read())

    def _read_once(
        self, assets: Sequence[StreamAsset], follow: FollowRequest | None = None
    ) -> None:
        """Read streams in one process. A stream that follows a log is complete several times."""
        by_id = {asset.stream.id: asset for asset in assets}
        with connector_lines(self._context.log) as on_log:
            read = self._planner.plan(assets, on_log, follow=follow)
            streams = self._io_manager.land(self._context, read)
            # A stream that is read alone is complete only if its source ends without an error.
            for complete in streams if read.rules.shares_state else list(streams):
                asset = by_id[complete.plan.id]
                reporter = ReadReporter(asset, self._source, self._context)
                self._results.setdefault(asset.key, StreamResult(asset, reporter)).add(complete)

    def _read_partitions(self, asset: StreamAsset) -> None:
        """Read the partitions of a stream one after the other.

        If a partition fails, the sync continues with the next one, unless the user must change the config or
        the machine has a fault: then all others would fail too. A partition that the source no longer has
        concerns no other partition.
        """
        context = self._context
        partitions = _partition_keys(asset, context)
        if self._config.state is not None and len(partitions) > 1:
            raise ConfigError(
                f"`state` is set, but the run has {len(partitions)} partitions, and each partition has "
                "a separate state",
                guidance="start a run of one partition, and set `state` for that partition",
            )
        contexts = self._planner.list_contexts(asset, partitions)
        result = StreamResult(asset, ReadReporter(asset, self._source, context))
        report_killed_runs(asset, self._lake, result.reporter, context)
        attempts = EarlierAttempts(asset, self._lake, result.reporter, context)
        failures: dict[str, EltError] = {}
        for partition in partitions:
            error = self._read_partition(result, partition, attempts, contexts)
            if error is None:
                continue
            if len(partitions) == 1:
                raise error
            context.log.error(f"partition {partition!r}: {error}")
            failures[partition] = error
            if _concerns_all(error):
                break
        if failures:
            raise _combine_failures(failures, len(partitions))
        self._results[asset.key] = result

    def _read_partition(
        self,
        result: StreamResult,
        partition: str,
        attempts: EarlierAttempts,
        contexts: PartitionContexts | None,
    ) -> EltError | None:
        """Read a partition unless an earlier attempt has completed it; return the error of the read."""
        try:
            with translated():
                read = attempts.find_completed_read(partition)
                if read is not None:
                    self._context.log.info(
                        f"partition {partition}: not read again, an earlier attempt has completed it"
                    )
                    result.skip(read)
                    return None
                with connector_lines(self._context.log) as on_log:
                    planned = self._planner.plan([result.asset], on_log, partition, contexts)
                    streams = list(self._io_manager.land(self._context, planned))
        except EltError as error:
            return error
        for complete in streams:  # reached only if the whole read succeeded
            result.add(complete)
        return None

    def _evidence(self, asset: StreamAsset) -> checks.Evidence:
        """Return the evidence for the checks: of this sync, or of the last sync of the stream."""
        resources, result = self._context.resources, self._results.get(asset.key)
        spark = spark_provider(resources.elt_spark)
        if result is not None:
            tables = result.tables or asset.tables(self._lake.location)
            files = tables.main.files_since(result.version_before)
            # The event that a killed run owed does not have the figures of its read.
            syncs = [read.metadata for read in result.reads if RECORDS_READ in read.metadata]
            is_partitioned = asset.partitions is not None
            partitions = [read.partition or "" for read in result.reads] if is_partitioned else None
            return checks.Evidence(asset, syncs, tables, files, spark, partitions)
        tables = asset.tables(self._lake.location)
        events = TableEvents(self._context.instance, asset.key, tables.main)
        last = events.newest_materialization()
        syncs = [last.metadata] if last is not None else []
        return checks.Evidence(asset, syncs, tables, tables.main.files, spark, is_of_run=False)


def _partition_keys(asset: StreamAsset, context: dg.AssetExecutionContext) -> Sequence[str]:
    if not (context.has_partition_key or context.has_partition_key_range):
        raise ConfigError(
            f"{asset.key.to_user_string()} has partitions, and this run selects no partition",
            guidance="use `--partition KEY` or `--partition-range FIRST...LAST` on the command line, or "
            "select partitions in the UI",
        )
    return list(context.partition_keys)


def _concerns_all(error: EltError) -> bool:
    """Return whether an error of one partition would occur in all others."""
    if error.is_machine_fault:
        return True
    return isinstance(error, ConfigError) and not isinstance(error, MissingPartition)


def _combine_failures(failures: Mapping[str, EltError], total: int) -> EltError:
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
