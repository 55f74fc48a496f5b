"""Materialisation of streams of one connection in this process, with its result, for `elt sync`.

`status` explains failed steps with its `is_blocked` and `message_of`.

First `SyncResult`: figures, failed checks, and errors of the sync itself; then `materialize`.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import dagster as dg

from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError, error_class
from elt_assets.orchestration.checks import check_specs
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.metadata import IGNORED, SCHEMA_CHANGES, unwrap
from elt_assets.orchestration.report import IN_RESULT, SHOWS_DETAILS, WATCH, Watch
from elt_assets.orchestration.runs.liveness import alive
from elt_assets.orchestration.streams import StreamAsset, group_by_partitions
from elt_assets.orchestration.translator import companion_specs
from elt_assets.pipeline.connection_read import ConnectionRead
from elt_assets.pipeline.progress import SyncFigures
from elt_assets.protocol.catalog import StreamId, stream_names

_BLOCKED = "DagsterAssetCheckFailedError"
"""Dagster's error of a step whose blocking checks failed; it has no public name."""


@dataclass(frozen=True)
class FailedCheck:
    """A check that failed. `metadata`: the numbers of its result. `is_blocking`: it failed the run."""

    stream: StreamId
    name: str
    severity: Literal["ERROR", "WARN"]
    is_blocking: bool
    description: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class CompleteSync:
    """What the event of a complete stream knows beside its figures."""

    schema_changes: Sequence[str] = ()  # those of its table
    ignored: int = 0  # records that its source sent of streams that are not configured


@dataclass(frozen=True)
class SyncResult:
    """Result of one run, or of several.

    A failed check is no error of the sync: what it looked at is committed, with its state. Dagster fails the
    step of a blocking check all the same, so that its error is told apart here.
    """

    run_ids: Sequence[str]
    # Those of each stream that was read, added up over retries.
    figures: Mapping[StreamId, SyncFigures]
    complete: Mapping[StreamId, CompleteSync]  # the streams that were materialised
    failed_checks: Sequence[FailedCheck] = ()  # the checks that failed, of any severity
    # The names of the checks that have no result, by stream.
    unchecked: Mapping[StreamId, Sequence[str]] = field(default_factory=dict)
    # One for each failed step, without those that failed by a blocking check alone.
    errors: Sequence[EltError] = ()
    is_interrupted: bool = False  # whether a signal ended the run, for example Ctrl-C

    @property
    def has_failed_checks(self) -> bool:
        """Return whether a check of severity ERROR failed."""
        return any(check.severity == "ERROR" for check in self.failed_checks)


def make_result(
    results: Sequence[dg.ExecuteInProcessResult],
    selected: Sequence[StreamAsset],
    figures: Mapping[StreamId, SyncFigures],
) -> SyncResult:
    """Return the result of runs that materialised streams."""
    steps = [event for result in results for event in result.get_step_failure_events()]
    failures = [event.step_failure_data for event in steps]
    is_interrupted = any(map(is_interruption, failures))
    complete = dict(_list_complete(results, selected))
    errors = [_make_error(failure) for failure in failures if not is_blocked(failure)]
    if not is_interrupted:
        failed = {event.step_key for event in steps}
        missing = [asset for asset in selected if asset.stream.id not in complete]
        errors += _explain_missing(results, [a for a in missing if a.step_name not in failed])
    evaluations = {
        (evaluation.asset_key, evaluation.check_name): evaluation  # the last attempt's
        for result in results
        for evaluation in result.get_asset_check_evaluations()
    }
    return SyncResult(
        [result.run_id for result in results],
        figures,
        complete,
        list(_list_failed(evaluations.values(), selected)),
        dict(_list_unchecked(evaluations, selected)),
        errors,
        is_interrupted,
    )


def is_interruption(failure: Any) -> bool:
    """Return whether a signal ended a step."""
    return failure.error_source is not None and failure.error_source.name == "INTERRUPT"


def _list_complete(
    results: Sequence[dg.ExecuteInProcessResult], selected: Sequence[StreamAsset]
) -> Iterator[tuple[StreamId, CompleteSync]]:
    streams = {asset.key: asset.stream.id for asset in selected}
    for result in results:
        for event in result.get_asset_materialization_events():
            if event.asset_key not in streams:
                continue
            metadata = event.step_materialization_data.materialization.metadata
            changes = unwrap(metadata.get(SCHEMA_CHANGES)) or ()
            ignored = int(unwrap(metadata.get(IGNORED)) or 0)
            yield streams[event.asset_key], CompleteSync(changes, ignored)


def _list_failed(
    evaluations: Iterable[dg.AssetCheckEvaluation], selected: Sequence[StreamAsset]
) -> Iterator[FailedCheck]:
    streams = {asset.key: asset.stream.id for asset in selected}
    for evaluation in evaluations:
        if not evaluation.passed and evaluation.asset_key in streams:
            is_error = evaluation.severity is dg.AssetCheckSeverity.ERROR
            yield FailedCheck(
                streams[evaluation.asset_key],
                evaluation.check_name,
                "ERROR" if is_error else "WARN",
                bool(evaluation.blocking and is_error),
                evaluation.description or "",
                {name: unwrap(value) for name, value in evaluation.metadata.items()},
            )


def _list_unchecked(
    evaluated: Collection[tuple[dg.AssetKey, str]], selected: Sequence[StreamAsset]
) -> Iterator[tuple[StreamId, Sequence[str]]]:
    for asset in selected:
        names = [
            spec.name for spec in check_specs(asset) if (asset.key, spec.name) not in evaluated
        ]
        if names:
            yield asset.stream.id, names


def _explain_missing(
    results: Sequence[dg.ExecuteInProcessResult], assets: Sequence[StreamAsset]
) -> Iterator[EltError]:
    """Yield an error for streams that were not read although their steps did not fail: never a success."""
    if not assets:
        return
    names = ", ".join(repr(str(asset.stream.id)) for asset in assets)
    reasons = [
        event.message or ""
        for result in results
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.RUN_FAILURE
    ]
    yield SystemFailure(
        f"stream {names} was not synced",
        guidance="a step that it waits for failed, or a blocking check of a stream that it depends on",
        detail="\n".join(reasons) or None,
    )


def is_blocked(failure: Any) -> bool:
    """Return whether a step failed by a blocking check alone."""
    return failure.error is not None and failure.error.cls_name == _BLOCKED


def _make_error(failure: Any) -> EltError:
    """Return the error of a step, restored from its `dagster.Failure`."""
    if is_interruption(failure):
        return TransientError(
            "the sync was interrupted; what was committed is kept",
            guidance="run it again: it continues from the last commit",
        )
    user = failure.user_failure_data
    if user is None:
        return SystemFailure(message_of(failure))
    metadata = {name: value.value for name, value in (user.metadata or {}).items()}
    kind = error_class(str(metadata.get("failure_type")))
    return kind(message_of(failure))


def message_of(failure: Any) -> str:
    """Return the text of the failure of a step, as the UI shows it."""
    user = failure.user_failure_data
    if user is not None:
        return str(user.description or user.label)
    return str(failure.error.to_string()) if failure.error else "a step failed"


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
    config: Mapping[str, Any],
    log: Callable[[int, str], object],
    watch: Watch,
    shows_details: bool = False,
) -> SyncResult:
    """Materialise streams of a connection, their companion tables and checks in runs of this process.

    There is one run for all streams with the same partitions.

    Args:
        selected: the streams to materialise.
        partition: the partition of all the streams; None for streams without partitions.
        config: that of the streams' ops: see `SyncConfig`.
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
            job, run_id = _job(definitions, group, logger), str(uuid.uuid4())
            ops = {asset.step_name: {"config": dict(config)} for asset in group if config}
            with alive(instance, run_id):  # others know the process of the run
                result = job.execute_in_process(
                    run_config={"ops": ops, "loggers": {"console": {}}},
                    instance=instance,
                    partition_key=partition,
                    raise_on_error=False,
                    run_id=run_id,
                    tags=group[0].connection.run_tags,
                )
            results.append(result)
            failures = [event.step_failure_data for event in result.get_step_failure_events()]
            if any(map(is_interruption, failures)):
                break
    finally:
        WATCH.reset(token)
        SHOWS_DETAILS.reset(details)
    return make_result(results, selected, recorder.figures)


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
