"""The executor of a project's runs: connections share one process, and so one Spark; the rest is Dagster's.

`project` and `definitions` give it to all runs; `build`, `failures` and the jobs mark their steps with
`STEP_TAGS`.

A run of steps of this package alone is executed in one process. A run that has a step of somebody else's is
executed as without this package: by Dagster's default executor, whose configuration this one has too. The
process of a run with steps of this package shows that it is alive (`liveness`).
`tests/orchestration/test_executor.py`
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import dagster as dg

from elt_assets.orchestration.collector import pause_collector
from elt_assets.orchestration.runs.liveness import hold_until_exit

STEP_TAG = "elt/step"
STEP_TAGS: Mapping[str, str] = {STEP_TAG: "true"}
"""Tags of each op of this package. By them, and not by names, the executor knows its steps."""

_CHOICES = ("max_concurrent", "tag_concurrency_limits", "start_method")
"""Keys of `multiprocess` by which a run asks for separate processes."""
_IN_BOTH = ("retries", "step_dependency_config")
"""Keys that `multiprocess` and `in_process` have in common."""

HINT = (
    "each stream of this run is synced in a process of its own, which starts a Spark of its own. To share "
    "one, run the streams without other assets, with `executor=elt_assets.executor` in the project's "
    "Definitions; or start this run with the config {execution: {config: {in_process: {}}}}"
)


def log_separate_processes(context: dg.AssetExecutionContext) -> None:
    """Log `HINT` in one step of a run of several streams that Dagster's default executor executes."""
    job, execution = context.job_def, context.run.run_config.get("execution")
    config = execution.get("config", {}) if isinstance(execution, dict) else {}
    if job.executor_def is not dg.multi_or_in_process_executor or "in_process" in config:
        return
    names = [op.name for op in job.top_level_node_defs if STEP_TAG in op.tags]
    if len(names) > 1 and context.op_def.name == min(names):
        context.log.info(HINT)


class _ProjectExecutor(dg.Executor):
    """Executes a plan with steps of this package alone by `shared`, and any other plan by `default`.

    Args:
        shared: None if the run itself says how its steps are executed.
    """

    def __init__(self, default: dg.Executor, shared: dg.Executor | None):
        self._default = default
        self._shared = shared

    @property
    def retries(self) -> Any:
        return self._default.retries

    @property
    def step_dependency_config(self) -> Any:
        return self._default.step_dependency_config

    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[dg.DagsterEvent]:
        keys = execution_plan.step_keys_to_execute
        own = sum(STEP_TAG in execution_plan.get_step_by_key(key).tags for key in keys)
        executor = self._default
        if own:
            hold_until_exit(plan_context.instance, plan_context.run_id)
        if self._shared is not None and own == len(keys):
            executor = self._shared
        elif self._shared is not None and own > 1:
            plan_context.log.info(HINT)
        yield from executor.execute(plan_context, execution_plan)


def _create(context: dg.InitExecutorContext) -> dg.Executor:
    default = _create_by(dg.multi_or_in_process_executor, context)
    config: Any = context.executor_config.get("multiprocess")
    if config is None or any(config.get(key) for key in _CHOICES):
        return _ProjectExecutor(default, None)
    in_process = {key: config[key] for key in _IN_BOTH if key in config}
    shared = context._replace(executor_config=in_process)
    return _ProjectExecutor(default, _create_by(dg.in_process_executor, shared))


def _create_by(definition: dg.ExecutorDefinition, context: dg.InitExecutorContext) -> dg.Executor:
    create = definition.executor_creation_fn
    assert create is not None
    return create(context)


executor = dg.ExecutorDefinition(
    name="elt_executor",
    config_schema=dg.multi_or_in_process_executor.config_schema.as_field(),
    requirements=dg.multi_or_in_process_executor.get_requirements,
    executor_creation_fn=_create,
    description="Executes a run of connections alone in one process, in which they share one Spark, and any "
    "other run as Dagster's default executor does.",
)
"""The executor of a project, unless it names another one: `dg.Definitions(executor=elt_assets.executor)`."""


class _ProjectDefinitions(dg.Definitions):
    @cached_property
    def _with_executor(self) -> dg.Definitions:
        return dg.Definitions.merge(self, dg.Definitions(executor=executor))

    @pause_collector()
    def get_repository_def(self) -> dg.RepositoryDefinition:
        return self._with_executor.get_repository_def()


_FIELDS = inspect.signature(dg.Definitions).parameters


def add_executor(definitions: dg.Definitions) -> dg.Definitions:
    """Return definitions whose runs `executor` executes if they are loaded as they are.

    They name no executor, since Dagster refuses to merge two that differ. So what they are merged with may
    have any executor, or none: then Dagster's default one executes all runs.
    """
    return _ProjectDefinitions(**{name: getattr(definitions, name) for name in _FIELDS})
