"""The sensor of a project that calls the user's function of `ELT_ALERT_HOOK` for failed runs."""

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.
import threading
import time
from collections.abc import Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import dagster as dg

from elt_assets import paths
from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.lake.write.companions import SUFFIXES
from elt_assets.orchestration.metadata import unwrap
from elt_assets.settings import load_object

HOOK = "ELT_ALERT_HOOK"
SECONDS = 20.0
"""Time that a hook has, and after which a tick makes no further call: twice this is less than Dagster's limit
for a tick, 60 seconds. A tick above it is lost with its cursor, so its failures would be reported again."""


@dataclass(frozen=True)
class FailureAlert:
    """A failed run."""

    run_id: str
    job: str
    # Keys, for example "shop/users", of the assets that the failed steps should have materialised.
    assets: tuple[str, ...]
    error: str  # the message that the UI shows
    failure_type: str  # "config_error", "transient_error" or "system_error"; it shows who must act
    url: str | None  # the page of the run in the UI; None without `ELT_UI_URL`


@dataclass(frozen=True)
class _Tick:
    """A tick of the sensor: the name of the code location, and the start by `time.monotonic`."""

    location: str | None
    start: float


_OUTSIDE = _Tick(None, float("inf"))
_TICK: ContextVar[_Tick] = ContextVar("tick", default=_OUTSIDE)


class _FailureSensor(dg.RunStatusSensorDefinition):
    """A sensor of failed runs that makes the code location of a tick, and its start, known to its function.

    Dagster itself offers a sensor only the runs that a code location has launched, or those of all locations.
    """

    def evaluate_tick(self, context: dg.SensorEvaluationContext) -> Any:
        origin = context.code_location_origin
        name = origin.location_name if origin is not None else None
        token = _TICK.set(_Tick(name, time.monotonic()))
        try:
            return super().evaluate_tick(context)
        finally:
            _TICK.reset(token)


def failure_sensors() -> list[dg.SensorDefinition]:
    """Return the sensor `elt_failure_alert` if `ELT_ALERT_HOOK` is set; else no sensor.

    Raises:
        ConfigError: `ELT_ALERT_HOOK` does not name a function.
    """
    hook_path = paths.alert_hook()
    if hook_path is None:
        return []
    hook = load_object(HOOK, hook_path)
    if not callable(hook):
        raise ConfigError(
            f"{HOOK}: {hook_path!r} is not a function", guidance='write "package.module:function"'
        )

    def report_failure(context: dg.RunStatusSensorContext) -> dg.SkipReason | None:
        if not _is_ours(context):
            return None
        alert = _alert(context.for_run_failure())
        try:
            _call(hook, alert)
        except Exception:  # an error in the user's code must not stop the alerts for later failures
            context.log.exception(f"{HOOK}={hook_path} failed for run {alert.run_id}")
        if time.monotonic() - _TICK.get().start < SECONDS:
            return None
        return dg.SkipReason(
            "the time of the tick is used up; later failures follow at the next one"
        )

    return [
        _FailureSensor(
            name="elt_failure_alert",
            run_status=dg.DagsterRunStatus.FAILURE,
            run_status_sensor_fn=report_failure,
            description=f"Calls {hook_path} for each run that fails.",
            default_status=dg.DefaultSensorStatus.STOPPED,
            monitor_all_code_locations=True,
        )
    ]


def _is_ours(context: dg.RunStatusSensorContext) -> bool:
    """Return whether a run is of this code location.

    A run of a command line, such as `elt sync`, has no location: it is ours if we define its job or one of
    its assets.
    """
    origin, here = context.dagster_run.remote_job_origin, _TICK.get().location
    if origin is not None:
        return origin.location_name == here
    repository = context.repository_def
    if here is None or repository is None:  # the sensor is evaluated outside of a code location
        return True
    defined = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    planned = {key.to_user_string() for key in _list_planned_assets(context, None)}
    return not defined.isdisjoint(planned) or (
        not planned and repository.has_job(context.dagster_run.job_name)
    )


def _call(hook: Callable[[FailureAlert], Any], alert: FailureAlert) -> None:
    """Call a hook. It cannot end the process, and is left to itself after `SECONDS`.

    Raises:
        Exception: the error of the hook, or that it has not returned in time.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            hook(alert)
        except BaseException as error:  # noqa: BLE001 - `sys.exit` too
            errors.append(error)

    thread = threading.Thread(target=run, name="alert hook", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if thread.is_alive():
        raise TimeoutError(f"the function has not returned after {SECONDS:.0f} seconds")
    if errors:
        raise RuntimeError(f"the function raised {errors[0]!r}") from errors[0]


def _alert(context: dg.RunFailureSensorContext) -> FailureAlert:
    run, steps = context.dagster_run, context.get_step_failure_events()
    error, failure_type = context.failure_event.message, SystemFailure.failure_type
    data = steps[0].step_failure_data if steps else None
    if data is not None and data.user_failure_data is not None:
        error = data.user_failure_data.description or error
        failure_type = str(
            unwrap(data.user_failure_data.metadata.get("failure_type", failure_type))
        )
    elif data is not None and data.error is not None:
        error = (data.error.cause or data.error).message.strip()
    url = paths.ui_url()
    return FailureAlert(
        run_id=run.run_id,
        job=run.job_name,
        assets=_assets(context, {step.step_key for step in steps}),
        error=error or "the run failed",
        failure_type=failure_type,
        url=f"{url}/runs/{run.run_id}" if url else None,
    )


def _assets(context: dg.RunFailureSensorContext, steps: Collection[str | None]) -> tuple[str, ...]:
    """Return the streams that the failed steps should have materialised, without their companion tables.

    If the run failed outside of a step, return all streams of the run.
    """
    keys = {key.to_user_string() for key in _list_planned_assets(context, steps or None)}
    companions = {key + suffix for key in keys for suffix in SUFFIXES.values()}
    return tuple(sorted(keys - companions))


def _list_planned_assets(
    context: dg.RunStatusSensorContext, steps: Collection[str | None] | None
) -> list[dg.AssetKey]:
    """Return the assets that some steps of a run should have materialised; None: all steps."""
    records = context.instance.get_records_for_run(
        context.dagster_run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
    ).records
    events = [record.event_log_entry.dagster_event for record in records]
    return [
        event.asset_key
        for event in events
        if event is not None and event.asset_key and (steps is None or event.step_key in steps)
    ]
