"""Materialise streams of one connection in this process; `elt sync` uses it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from elt_assets.errors import EltError, SystemFailure, error_class
from elt_assets.orchestration.assets.run_config import Refresh
from elt_assets.orchestration.assets.translator import companion_specs
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.events.metadata import figures_of
from elt_assets.orchestration.events.report import WATCH, Watch
from elt_assets.orchestration.streams import StreamAsset, shared_op_name
from elt_assets.pipeline.figures import SyncFigures
from elt_assets.protocol.airbyte.catalog import StreamId

JOB = "elt_sync"


@dataclass(frozen=True)
class Materialized:
    """Result of one run. `figures`: one for each complete stream. `errors`: one for each failed step."""

    run_id: str
    figures: Mapping[StreamId, SyncFigures]
    errors: Sequence[EltError]


def materialize(
    component: ConnectionComponent,
    folder: Path,
    wanted: Sequence[StreamAsset],
    instance: dg.DagsterInstance,
    *,
    partition: str | None,
    refresh: Refresh,
    log: Callable[[int, str], object],
    watch: Watch,
) -> Materialized:
    """Materialise streams of a connection, their companion tables and checks in one run of this process.

    Args:
        folder: the folder of the connection.
        wanted: the streams to materialise.
        partition: the partition of all the streams; None for streams without partitions.
        log: is called with the level (as in `logging`) and the text of each line of the run's log.
        watch: observes each read while it runs.

    Raises:
        ConfigError: the connection cannot be loaded, or has no such partition.
    """
    definitions = component.definitions(folder)
    keys = [key for asset in wanted for key in _keys(asset)]
    job = dg.define_asset_job(JOB, selection=dg.AssetSelection.assets(*keys))
    logger = _logger(log)
    merged = dg.Definitions.merge(
        definitions,
        dg.Definitions(jobs=[job], loggers={"console": logger}, executor=dg.in_process_executor),
    )
    config = {} if refresh is Refresh.none else {"refresh": refresh.name}
    ops = {_op(asset): {"config": config} for asset in wanted if config}
    token = WATCH.set(watch)
    try:
        result = merged.resolve_job_def(JOB).execute_in_process(
            run_config={"ops": ops, "loggers": {"console": {}}},
            instance=instance,
            partition_key=partition,
            raise_on_error=False,
        )
    finally:
        WATCH.reset(token)
    return Materialized(result.run_id, _figures(result, wanted), _errors(result))


def _keys(asset: StreamAsset) -> list[dg.AssetKey]:
    """Return the keys of the assets that the sync of a stream writes."""
    return [asset.key, *(spec.key for spec in companion_specs(asset))]


def _op(asset: StreamAsset) -> str:
    """Return the name of the op that syncs a stream."""
    connection = asset.connection
    return shared_op_name(connection) if connection.read_together else asset.op_name


def _logger(log: Callable[[int, str], object]) -> dg.LoggerDefinition:
    """Return a logger that forwards the lines of the run's log to `log`, without Dagster's events."""

    class Forwarding(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            metadata = getattr(record, "dagster_meta", {})
            if metadata.get("dagster_event") is None:
                log(record.levelno, metadata.get("orig_message") or record.getMessage())

    @dg.logger
    def forwarding(_: dg.InitLoggerContext) -> logging.Logger:
        logger = logging.getLoggerClass()(JOB)  # one for each run
        logger.addHandler(Forwarding())
        return logger

    return forwarding


def _figures(
    result: dg.ExecuteInProcessResult, wanted: Sequence[StreamAsset]
) -> dict[StreamId, SyncFigures]:
    streams = {asset.key: asset.stream.id for asset in wanted}
    return {
        streams[event.asset_key]: figures_of(event.materialization.metadata)
        for event in result.get_asset_materialization_events()
        if event.asset_key in streams
    }


def _errors(result: dg.ExecuteInProcessResult) -> list[EltError]:
    return [_error(event.step_failure_data) for event in result.get_step_failure_events()]


def _error(failure: Any) -> EltError:
    """Return the error of a step, restored from its `dagster.Failure`."""
    user = failure.user_failure_data
    if user is None:
        return SystemFailure(failure.error.to_string() if failure.error else "a step failed")
    metadata = {name: value.value for name, value in (user.metadata or {}).items()}
    kind = error_class(str(metadata.get("failure_type")))
    return kind(user.description or user.label)
