"""Told of failed runs: a function of the user's, named by `ELT_ALERT_HOOK`."""

# No `from __future__ import annotations`: Dagster looks at the context's annotation itself.

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import dagster as dg

from elt_assets import paths
from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.lake.write.stream_tables import SUFFIXES
from elt_assets.orchestration.events.metadata import plain

HOOK = "ELT_ALERT_HOOK"


@dataclass(frozen=True)
class FailureAlert:
    """A failed run.

    `assets`: keys, as "shop/users", of what the failed steps were to make. `error`: as the user reads it in
    the UI. `failure_type`: who must act: "config_error", "transient_error" or "system_error". `url`: of
    the run in the UI, if `ELT_UI_URL` says where that is.
    """

    run_id: str
    job: str
    assets: tuple[str, ...]
    error: str
    failure_type: str
    url: str | None


def failure_sensors() -> list[dg.SensorDefinition]:
    """`elt_failure_alert`, if `ELT_ALERT_HOOK` names a function.

    Raises:
        ConfigError: it names none.
    """
    given = paths.alert_hook()
    if given is None:
        return []
    hook = _hook(given)

    @dg.run_failure_sensor(
        name="elt_failure_alert",
        description=f"Calls {given} for each run that fails.",
        default_status=dg.DefaultSensorStatus.STOPPED,
    )
    def failed(context: dg.RunFailureSensorContext) -> None:
        alert = _alert(context)
        try:
            hook(alert)
        except Exception:  # the user's own code: the next failure is to be told all the same
            context.log.exception(f"{HOOK}={given} failed for run {alert.run_id}")

    return [failed]


def _hook(given: str) -> Callable[[FailureAlert], Any]:
    module, _, name = given.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{HOOK}: {given!r} cannot be loaded: {error}",
            guidance='write "package.module:function", of a module on the Python path',
        ) from error
    if not callable(found):
        raise ConfigError(f"{HOOK}: {given!r} is no function")
    return found  # type: ignore[no-any-return]


def _alert(context: dg.RunFailureSensorContext) -> FailureAlert:
    run, steps = context.dagster_run, context.get_step_failure_events()
    error, failure_type = context.failure_event.message, SystemFailure.failure_type
    data = steps[0].step_failure_data if steps else None
    if data is not None and data.user_failure_data is not None:
        error = data.user_failure_data.description or error
        failure_type = str(plain(data.user_failure_data.metadata.get("failure_type", failure_type)))
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
    """Return the streams that the failed steps were to materialise; of a run that failed outside of any
    step, all of the run's. Histories and dead letters go with their streams."""
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
