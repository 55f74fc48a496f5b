"""Ticks of a project's sensors and schedules as its daemon would make them, and the runs they ask for."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster._core.definitions.sensor_definition import SensorExecutionData

from elt_assets.definitions import build
from tests.support.project import Project
from tests.support.runs import END, START


@contextlib.contextmanager
def instance_of(project: Project) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        yield instance


def tick(project: Project, sensor: str, cursor: str | None = None) -> SensorExecutionData:
    """One tick; partitions that it asks for are added."""
    repository = build().get_repository_def()
    definition = repository.get_sensor_def(sensor)
    available = repository.get_top_level_resources()
    with instance_of(project) as instance:
        context = dg.build_sensor_context(
            cursor=cursor,
            instance_ref=instance.get_ref(),
            repository_def=repository,
            sensor_name=sensor,
            resources={key: available[key] for key in definition.required_resource_keys},
        )
        with context:
            done = definition.evaluate_tick(context)
        for request in done.dynamic_partitions_requests or []:
            keys = list(request.partition_keys)
            instance.add_dynamic_partitions(request.partitions_def_name, keys)
    return done


def evaluate_schedule(project: Project, schedule: str, time: dt.datetime) -> list[dg.RunRequest]:
    definitions = build().get_repository_def()
    with instance_of(project) as instance:
        context = dg.build_schedule_context(
            instance=instance, scheduled_execution_time=time, repository_def=definitions
        )
        with context:  # it opens the instance again
            done = definitions.get_schedule_def(schedule).evaluate_tick(context)
    return list(done.run_requests or [])


def execute(project: Project, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
    """The run of assets that was asked for."""
    job = build().resolve_implicit_global_asset_job_def()
    with instance_of(project) as instance:
        return job.execute_in_process(
            instance=instance,
            asset_selection=list(request.asset_selection or []),
            run_config=request.run_config,
            partition_key=request.partition_key,
            tags={name: request.tags[name] for name in (START, END) if name in request.tags},
            raise_on_error=False,
        )


def run_job(project: Project, name: str, config: Any = None) -> dg.ExecuteInProcessResult:
    job = build().resolve_job_def(name)
    with instance_of(project) as instance:
        return job.execute_in_process(
            instance=instance, run_config=config or {}, raise_on_error=False
        )
