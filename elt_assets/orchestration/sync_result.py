"""The result of runs that synced streams: figures, failed checks, and errors of the sync itself.

A failed check is no error of the sync: what it looked at is committed, with its state. Dagster fails the step
of a blocking check all the same, so that its error is told apart here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import dagster as dg

from elt_assets.errors import EltError, SystemFailure, TransientError, error_class
from elt_assets.orchestration.assets.checks import check_specs
from elt_assets.orchestration.events.metadata import IGNORED, SCHEMA_CHANGES, unwrap
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.progress import SyncFigures
from elt_assets.protocol.catalog import StreamId

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
    """Result of one run, or of several."""

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
