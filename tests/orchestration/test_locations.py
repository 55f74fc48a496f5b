"""Two code locations, each with its own connections, on one instance."""

from __future__ import annotations

import dagster as dg
import pytest
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from elt_assets.definitions import build
from tests.orchestration import hooks
from tests.orchestration.ticking import instance_of, run_job
from tests.programs.windowed_source import windowed
from tests.support.project import Project

ALERT = "elt_failure_alert"


@pytest.fixture
def locations(own: Project, monkeypatch: pytest.MonkeyPatch) -> dict[str, Project]:
    """The projects of two locations, which share the home of the first one."""
    monkeypatch.setenv("ELT_ALERT_HOOK", "tests.orchestration.hooks:hear")
    projects = {"first": own, "other": Project(own.root / "other")}
    for name, project in projects.items():
        windowed(project, f"{name}_weather")
        project.amend(f"{name}_weather", source={"command": ["/no/such/program"]})
    hooks.heard.clear()
    return projects


def report(home: Project, location: str, cursor: str | None) -> str | None:
    """Tick the alert sensor of a location, whose connections are in force; return the cursor."""
    repository = build().get_repository_def()
    origin = ManagedGrpcPythonEnvCodeLocationOrigin(
        LoadableTargetOrigin(module_name="elt_assets.definitions"), location
    )
    with instance_of(home) as instance:
        context = dg.SensorEvaluationContext(
            instance_ref=instance.get_ref(),
            cursor=cursor,
            sensor_name=ALERT,
            repository_name=repository.name,
            repository_def=repository,
            code_location_origin=origin,
        )
        with context:
            return repository.get_sensor_def(ALERT).evaluate_tick(context).cursor


def test_a_location_reports_the_runs_of_command_lines_that_are_its_own(
    own: Project, locations: dict[str, Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    cursors: dict[str, str | None] = dict.fromkeys(locations)
    for is_later in (False, True):
        for name, project in locations.items():
            monkeypatch.setenv("ELT_DEFS", str(project.root / "defs"))
            if is_later:
                assert not run_job(own, f"{name}_weather_check").success
        for name, project in locations.items():
            monkeypatch.setenv("ELT_DEFS", str(project.root / "defs"))
            hooks.heard.clear()
            for _ in range(4):  # a tick looks at one run
                cursors[name] = report(own, name, cursors[name])
            jobs = [alert.job for alert in hooks.heard]
            assert jobs == ([f"{name}_weather_check"] if is_later else [])
