"""The executor of runs: all steps in the process of the run, which shows that it is alive."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Iterator
from typing import Any

import dagster as dg

from elt_assets.orchestration.runs.liveness import alive

_process = contextlib.ExitStack()
"""The files that are held until this process ends: a run is not over with its last step."""
atexit.register(_process.close)


class _AliveExecutor(dg.Executor):
    def __init__(self, inner: dg.Executor):
        self._inner = inner

    @property
    def retries(self) -> Any:
        return self._inner.retries

    @property
    def step_dependency_config(self) -> Any:
        return self._inner.step_dependency_config

    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[dg.DagsterEvent]:
        _process.enter_context(alive(plan_context.instance, plan_context.run_id))
        yield from self._inner.execute(plan_context, execution_plan)


def _create(context: dg.InitExecutorContext) -> dg.Executor:
    create = dg.in_process_executor.executor_creation_fn
    assert create is not None
    return _AliveExecutor(create(context))


in_process_executor = dg.ExecutorDefinition(
    name="in_process",
    config_schema=dg.in_process_executor.config_schema.as_field(),
    executor_creation_fn=_create,
    description="Executes all steps in the process of the run. If it dies, the run is marked as failed.",
)
