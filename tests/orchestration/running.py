"""Runs a project's assets in this process, on the tests' Spark session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from elt_assets.definitions import build
from tests.project import Project


def materialize(
    project: Project, select: str = "*", extra: Sequence[dg.AssetsDefinition] = ()
) -> dg.ExecuteInProcessResult:
    """One run; `project`'s environment must be in force (see the `own` fixture)."""
    definitions = dg.Definitions.merge(build(), dg.Definitions(assets=extra))
    job = dg.define_asset_job("run", selection=select)
    resolved = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        return resolved.resolve_job_def("run").execute_in_process(
            instance=instance, raise_on_error=False
        )


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """What a person reads of a failed run."""
    assert not result.success
    (event,) = result.get_step_failure_events()
    data = event.step_failure_data
    assert data.error is not None
    return data.error.to_string()


def logged(project: Project, result: dg.ExecuteInProcessResult) -> str:
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        entries = instance.all_logs(result.run_id)
    return "\n".join(entry.user_message for entry in entries)


def observations(project: Project, *key: str) -> list[dict[str, Any]]:
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        found = instance.fetch_observations(dg.AssetKey(list(key)), limit=100).records
    events = [record.event_log_entry.asset_observation for record in reversed(found)]
    return [{k: v.value for k, v in event.metadata.items()} for event in events if event]
