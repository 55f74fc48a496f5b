"""Runs a project's assets in this process, on the tests' Spark session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from elt_assets.definitions import build
from tests.support.project import Project

START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def materialize(
    project: Project,
    select: str = "*",
    extra: Sequence[dg.AssetsDefinition] = (),
    *,
    partition: str | None = None,
    through: str | None = None,
    op: str | None = None,
    parent: str | None = None,
    **config: Any,
) -> dg.ExecuteInProcessResult:
    """One run; `project`'s environment must be in force (see the `own` fixture).

    Args:
        partition, through: a partition, or the first and the last of a range.
        op, config: of the one stream that is selected, or of the op named.
        parent: the id of a run that this one re-executes from failure.
    """
    definitions = dg.Definitions.merge(build(), dg.Definitions(assets=extra))
    name = op or select.strip('key:"').replace("/", "__")
    ops = {name: {"config": config}} if config else {}
    job = dg.define_asset_job("run", selection=select)
    tags = {} if through is None else {START: partition or "", END: through}
    if parent is not None:
        tags |= {"dagster/parent_run_id": parent, "dagster/root_run_id": parent}
        tags |= {"dagster/is_resume_retry": "true"}
    resolved = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        return resolved.resolve_job_def("run").execute_in_process(
            instance=instance,
            run_config={"ops": ops},
            raise_on_error=False,
            partition_key=partition if through is None else None,
            tags=tags,
        )


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """Return the text that a person reads about a failed run."""
    assert not result.success
    (event,) = result.get_step_failure_events()
    data = event.step_failure_data
    assert data.error is not None
    return data.error.to_string()


def read_log(project: Project, result: dg.ExecuteInProcessResult) -> str:
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        entries = instance.all_logs(result.run_id)
    return "\n".join(entry.user_message for entry in entries)


def observations(project: Project, *key: str) -> list[dict[str, Any]]:
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        records = instance.fetch_observations(dg.AssetKey(list(key)), limit=100).records
    events = [record.event_log_entry.asset_observation for record in reversed(records)]
    return [{k: v.value for k, v in event.metadata.items()} for event in events if event]


def evaluations(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    """The checks of a run, by name."""
    return {
        evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()
    }


def fetch_materializations(project: Project, *key: str) -> dict[str | None, dict[str, Any]]:
    """The metadata of the asset's latest materialisation of each partition."""
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        records = instance.fetch_materializations(dg.AssetKey(list(key)), limit=1000).records
    events = [record.asset_materialization for record in reversed(records)]
    return {e.partition: {k: v.value for k, v in e.metadata.items()} for e in events if e}
