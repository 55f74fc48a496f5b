"""Deployment: Dagster's databases in a real PostgreSQL."""

from __future__ import annotations

import json

import dagster as dg
import pytest
import yaml

from tests.postgres import Postgres, postgres
from tests.programs.scripted import record, script, state
from tests.project import Project

__all__ = ["postgres"]

pytestmark = pytest.mark.external


class StoredProject(Project):
    """A project whose runs and events are in PostgreSQL, under its plain URL."""

    @property
    def environment(self) -> dict[str, str]:
        variables = super().environment
        path = self.home / "dagster.yaml"
        document = yaml.safe_load(path.read_text())
        document["storage"] = {"postgres": {"postgres_url": {"env": "DAGSTER_DATABASE"}}}
        path.write_text(yaml.safe_dump(document))
        return variables


def test_runs_and_events_are_in_postgresql(
    project: Project, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_DATABASE", postgres.url)
    stored = StoredProject(project.root)
    script(stored, [record(id=1), state(1)])
    done = stored.elt("sync", "scripted")
    assert done.returncode == 0, done.stdout + done.stderr
    (stream,) = json.loads(stored.elt("--json", "status", "scripted").stdout)["streams"]
    assert stream["rows"] == 1
    with dg.DagsterInstance.from_config(str(stored.home)) as instance:
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.SUCCESS
    postgres.execute(f"SELECT 1 / count(*) FROM runs WHERE run_id = '{run.run_id}'")
    assert stored.metadata("scripted", "things")["elt/records_committed"] == 1
