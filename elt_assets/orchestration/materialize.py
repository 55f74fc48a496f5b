"""Materialise streams of one connection in this process; `elt sync` uses it."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError, error_class
from elt_assets.orchestration.assets.run_config import Refresh
from elt_assets.orchestration.assets.translator import companion_specs
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.events.report import WATCH, Watch
from elt_assets.orchestration.runs.liveness import alive
from elt_assets.orchestration.streams import StreamAsset, group_by_partitions
from elt_assets.pipeline.figures import SyncFigures
from elt_assets.pipeline.progress import Progress
from elt_assets.pipeline.read_plan import ReadPlan
from elt_assets.protocol.airbyte.catalog import StreamId

JOB = "elt_sync"
_MAX_LISTED = 5
"""Maximum number of partitions that are listed in full."""


@dataclass(frozen=True)
class Materialized:
    """Result of one run, or of several.

    Attributes:
        figures: those of each stream that was read, added up over retries.
        complete: the streams that were materialised.
        errors: one for each failed step.
        is_interrupted: whether a signal ended the run, for example Ctrl-C.
    """

    run_ids: Sequence[str]
    figures: Mapping[StreamId, SyncFigures]
    complete: Collection[StreamId]
    errors: Sequence[EltError]
    is_interrupted: bool = False


class _FigureRecorder:
    """Observer of reads that records their figures, also those of reads that fail."""

    def __init__(self, watch: Watch):
        self.figures: dict[StreamId, SyncFigures] = {}
        self._watch = watch

    @contextlib.contextmanager
    def watch(self, plan: ReadPlan, get_progress: Callable[[], Progress]) -> Iterator[None]:
        try:
            with self._watch(plan, get_progress):
                yield
        finally:
            for stream, figures in get_progress().figures.items():
                self.figures[stream] = self.figures.get(stream, SyncFigures()) + figures


def materialize(
    component: ConnectionComponent,
    selected: Sequence[StreamAsset],
    instance: dg.DagsterInstance,
    *,
    partition: str | None,
    refresh: Refresh,
    log: Callable[[int, str], object],
    watch: Watch,
) -> Materialized:
    """Materialise streams of a connection, their companion tables and checks in runs of this process.

    There is one run for all streams with the same partitions.

    Args:
        selected: the streams to materialise.
        partition: the partition of all the streams; None for streams without partitions.
        log: is called with the level (as in `logging`) and the text of each line of the run's log.
        watch: observes each read while it runs.

    Raises:
        ConfigError: the connection cannot be loaded, or a stream has no such partition.
    """
    check_partition(selected, partition, instance)
    definitions, logger = component.definitions(), _logger(log)
    recorder = _FigureRecorder(watch)
    token = WATCH.set(recorder.watch)
    results: list[dg.ExecuteInProcessResult] = []
    failures: list[Any] = []
    is_interrupted = False
    try:
        for group in group_by_partitions(selected):
            result = _execute(_job(definitions, group, logger), group, instance, partition, refresh)
            results.append(result)
            failed = [event.step_failure_data for event in result.get_step_failure_events()]
            failures += failed
            is_interrupted = any(_is_interruption(failure) for failure in failed)
            if is_interrupted:
                break
    finally:
        WATCH.reset(token)
    return Materialized(
        [result.run_id for result in results],
        recorder.figures,
        {stream for result in results for stream in _complete(result, selected)},
        [_error(failure) for failure in failures],
        is_interrupted,
    )


def _execute(
    job: dg.JobDefinition,
    assets: Sequence[StreamAsset],
    instance: dg.DagsterInstance,
    partition: str | None,
    refresh: Refresh,
) -> dg.ExecuteInProcessResult:
    """Run a job of some streams, as a run whose process is known to others."""
    config = {} if refresh is Refresh.none else {"refresh": refresh.name}
    ops = {asset.step_name: {"config": config} for asset in assets if config}
    run_id = str(uuid.uuid4())
    with alive(instance, run_id):
        return job.execute_in_process(
            run_config={"ops": ops, "loggers": {"console": {}}},
            instance=instance,
            partition_key=partition,
            raise_on_error=False,
            run_id=run_id,
            tags=assets[0].connection.run_tags,
        )


def _job(
    definitions: dg.Definitions, selected: Sequence[StreamAsset], logger: dg.LoggerDefinition
) -> dg.JobDefinition:
    """Return the job that materialises some streams of a connection."""
    specs = [spec for asset in selected for spec in (asset.spec, *companion_specs(asset))]
    job = dg.define_asset_job(
        JOB, selection=dg.AssetSelection.assets(*(spec.key for spec in specs))
    )
    merged = dg.Definitions.merge(
        definitions,
        dg.Definitions(jobs=[job], loggers={"console": logger}, executor=dg.in_process_executor),
    )
    return merged.resolve_job_def(JOB)


def _logger(log: Callable[[int, str], object]) -> dg.LoggerDefinition:
    """Return a logger that forwards the lines of the run's log to `log`, without Dagster's events."""

    class Forwarding(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            metadata = getattr(record, "dagster_meta", {})
            if metadata.get("dagster_event") is None:
                log(record.levelno, metadata.get("orig_message") or record.getMessage())

    @dg.logger
    def create_logger(_: dg.InitLoggerContext) -> logging.Logger:
        logger = logging.getLoggerClass()(JOB)  # one for each run
        logger.addHandler(Forwarding())
        return logger

    return create_logger


def _complete(result: dg.ExecuteInProcessResult, selected: Sequence[StreamAsset]) -> set[StreamId]:
    """Return the streams that the run materialised."""
    streams = {asset.key: asset.stream.id for asset in selected}
    events = result.get_asset_materialization_events()
    return {streams[event.asset_key] for event in events if event.asset_key in streams}


def _is_interruption(failure: Any) -> bool:
    return failure.error_source is not None and failure.error_source.name == "INTERRUPT"


def _error(failure: Any) -> EltError:
    """Return the error of a step, restored from its `dagster.Failure`."""
    if _is_interruption(failure):
        return TransientError(
            "the sync was interrupted; what was committed is kept",
            guidance="run it again: it continues from the last commit",
        )
    user = failure.user_failure_data
    if user is None:
        return SystemFailure(failure.error.to_string() if failure.error else "a step failed")
    metadata = {name: value.value for name, value in (user.metadata or {}).items()}
    kind = error_class(str(metadata.get("failure_type")))
    return kind(user.description or user.label)


def check_partition(
    assets: Sequence[StreamAsset], partition: str | None, instance: dg.DagsterInstance
) -> None:
    """Check that each stream has the partition.

    Args:
        partition: None for streams without partitions.

    Raises:
        ConfigError: a stream has partitions and none is named, or the other way round; or a stream does not
            have this partition.
    """
    for asset in assets:
        if (asset.partitions is None) != (partition is None):
            has = "no partitions" if asset.partitions is None else "partitions"
            action = "leave out" if asset.partitions is None else "add"
            raise ConfigError(
                f"stream {str(asset.stream.id)!r} has {has}",
                guidance=f"{action} --partition KEY, or name only streams that it applies to",
            )
    if partition is None:
        return
    with dg.partition_loading_context(dynamic_partitions_store=instance):
        for asset in assets:
            definition = asset.partitions
            if definition is not None and not definition.has_partition_key(partition):
                raise ConfigError(
                    f"stream {str(asset.stream.id)!r} has no partition {partition!r}: "
                    f"{_describe_keys(definition)}",
                    guidance="name one of its partitions; a window is a partition once it is over, and keys "
                    "that are found in the source are added by the sensor of the stream or in Dagster's UI",
                )


def _describe_keys(definition: dg.PartitionsDefinition[str]) -> str:
    """Return which partitions there are: all of them, or their number with the first and the last one."""
    keys = definition.get_partition_keys()
    if not keys:
        return "it has no partitions yet"
    if len(keys) <= _MAX_LISTED:
        return f"it has {', '.join(map(repr, keys))}"
    return f"it has {len(keys):,} partitions, from {keys[0]!r} to {keys[-1]!r}"
