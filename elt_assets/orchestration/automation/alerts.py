"""Alerts about failed runs: a call of the user's function that `ELT_ALERT_HOOK` names."""

# No `from __future__ import annotations`: Dagster inspects the annotation of the context.

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import dagster as dg

from elt_assets import paths
from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.lake.write.stream_tables import SUFFIXES
from elt_assets.orchestration.events.metadata import unwrapped

HOOK = "ELT_ALERT_HOOK"


@dataclass(frozen=True)
class FailureAlert:
    """A failed run.

    `assets`: keys, for example "shop/users", of the assets that the failed steps should have materialised.
    `error`: the message that the UI shows. `failure_type`: "config_error", "transient_error" or
    "system_error"; it shows who must act. `url`: the page of the run in the UI; None without `ELT_UI_URL`.
    """

    run_id: str
    job: str
    assets: tuple[str, ...]
    error: str
    failure_type: str
    url: str | None


def failure_sensors() -> list[dg.SensorDefinition]:
    """Return the sensor `elt_failure_alert` if `ELT_ALERT_HOOK` is set; else no sensor.

    Raises:
        ConfigError: `ELT_ALERT_HOOK` does not name a function.
    """
    hook_path = paths.alert_hook()
    if hook_path is None:
        return []
    hook = _load_hook(hook_path)

    @dg.run_failure_sensor(
        name="elt_failure_alert",
        description=f"Calls {hook_path} for each run that fails.",
        default_status=dg.DefaultSensorStatus.STOPPED,
    )
    def failed(context: dg.RunFailureSensorContext) -> None:
        alert = _alert(context)
        try:
            hook(alert)
        except Exception:  # an error in the user's code must not stop the alerts for later failures
            context.log.exception(f"{HOOK}={hook_path} failed for run {alert.run_id}")

    return [failed]


def _load_hook(hook_path: str) -> Callable[[FailureAlert], Any]:
    module, _, name = hook_path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{HOOK}: {hook_path!r} cannot be loaded: {error}",
            guidance='write "package.module:function"; the module must be on the Python path',
        ) from error
    if not callable(found):
        raise ConfigError(
            f"{HOOK}: {hook_path!r} is not a function", guidance='write "package.module:function"'
        )
    return found  # type: ignore[no-any-return]


def _alert(context: dg.RunFailureSensorContext) -> FailureAlert:
    run, steps = context.dagster_run, context.get_step_failure_events()
    error, failure_type = context.failure_event.message, SystemFailure.failure_type
    data = steps[0].step_failure_data if steps else None
    if data is not None and data.user_failure_data is not None:
        error = data.user_failure_data.description or error
        failure_type = str(
            unwrapped(data.user_failure_data.metadata.get("failure_type", failure_type))
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


def _assets(context: dg.RunFailureSensorContext, steps: Iterable[str | None]) -> tuple[str, ...]:
    """Return the streams that the failed steps should have materialised, without their companion tables.

    If the run failed outside of a step, return all streams of the run.
    """
    records = context.instance.get_records_for_run(
        context.dagster_run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
    ).records
    events = [record.event_log_entry.dagster_event for record in records]
    failed = set(steps)
    keys = {
        event.asset_key.to_user_string()
        for event in events
        if event is not None and event.asset_key and (not failed or event.step_key in failed)
    }
    companions = {key + suffix for key in keys for suffix in SUFFIXES.values()}
    return tuple(sorted(keys - companions))
