"""Materialise streams of one connection in this process; `elt sync` uses it."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence

import dagster as dg

from elt_assets.errors import ConfigError
from elt_assets.orchestration.assets.run_config import Refresh
from elt_assets.orchestration.assets.translator import companion_specs
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.events.connector_log import SHOWS_DETAILS
from elt_assets.orchestration.events.report import IN_RESULT, WATCH, Watch
from elt_assets.orchestration.runs.liveness import alive
from elt_assets.orchestration.streams import StreamAsset, group_by_partitions
from elt_assets.orchestration.sync_result import SyncResult, is_interruption, make_result
from elt_assets.pipeline.connection_read import ConnectionRead
from elt_assets.pipeline.progress import SyncFigures
from elt_assets.protocol.catalog import StreamId, stream_names

JOB = "elt_sync"
_MAX_LISTED = 5
"""Maximum number of partitions that are listed in full."""


class _FigureRecorder:
    """Observer of reads that records their figures, also those of reads that fail."""

    def __init__(self, watch: Watch):
        self.figures: dict[StreamId, SyncFigures] = {}
        self._watch = watch

    @contextlib.contextmanager
    def watch(self, read: ConnectionRead) -> Iterator[None]:
        try:
            with self._watch(read):
                yield
        finally:
            for stream, figures in read.current_progress().figures.items():
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
    shows_details: bool = False,
) -> SyncResult:
    """Materialise streams of a connection, their companion tables and checks in runs of this process.

    There is one run for all streams with the same partitions.

    Args:
        selected: the streams to materialise.
        partition: the partition of all the streams; None for streams without partitions.
        log: is called with the level (as in `logging`) and the text of each line of the run's log.
        watch: observes each read while it runs.
        shows_details: show all lines of the connectors' logs on stderr.

    Raises:
        ConfigError: the connection cannot be loaded, or a stream has no such partition.
    """
    check_partition(selected, partition, instance)
    definitions, logger = component.definitions(), _logger(log, _name_steps(selected))
    recorder = _FigureRecorder(watch)
    token, details = WATCH.set(recorder.watch), SHOWS_DETAILS.set(shows_details)
    results: list[dg.ExecuteInProcessResult] = []
    try:
        for group in group_by_partitions(selected):
            job = _job(definitions, group, logger)
            results.append(_execute(job, group, instance, partition, refresh))
            failures = [event.step_failure_data for event in results[-1].get_step_failure_events()]
            if any(map(is_interruption, failures)):
                break
    finally:
        WATCH.reset(token)
        SHOWS_DETAILS.reset(details)
    return make_result(results, selected, recorder.figures)


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


def _name_steps(selected: Sequence[StreamAsset]) -> Mapping[str, str]:
    """Return the names of the steps that read one stream each, for their log lines, if there are several."""
    names = stream_names([asset.stream.id for asset in selected])
    return {
        asset.step_name: names[asset.stream.id]
        for asset in selected
        if len(selected) > 1 and not asset.connection.read_together
    }


def _logger(log: Callable[[int, str], object], names: Mapping[str, str]) -> dg.LoggerDefinition:
    """Return a logger that forwards the lines of the run's log to `log`, with the name of their stream.

    Dagster's own events, and what the result has too, are left out.
    """

    class Forwarding(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            metadata = getattr(record, "dagster_meta", {})
            if metadata.get("dagster_event") is None and not IN_RESULT.keys() & vars(record).keys():
                text = metadata.get("orig_message") or record.getMessage()
                name = names.get(str(metadata.get("step_key")))
                log(record.levelno, text if name is None else f"{name}: {text}")

    @dg.logger
    def create_logger(_: dg.InitLoggerContext) -> logging.Logger:
        logger = logging.getLoggerClass()(JOB)  # one for each run
        logger.addHandler(Forwarding())
        return logger

    return create_logger


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
