"""Deployment: Dagster's databases in a real PostgreSQL, and the processes of `deploy/compose.yaml`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from deltalake import DeltaTable

from elt_assets.cli import main
from tests.e2e.daemons import wait
from tests.e2e.dagster_dev import LAUNCH, REPOSITORY_NAME, START_SCHEDULE
from tests.e2e.deployed import Deployment
from tests.programs.scripted import record, script, state
from tests.support.postgres import Postgres, postgres
from tests.support.project import Project

__all__ = ["postgres"]

pytestmark = pytest.mark.external

SUCCESS = dg.DagsterRunStatus.SUCCESS


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


@pytest.fixture
def deployment(tmp_path: Path, postgres: Postgres) -> Iterator[Deployment]:
    """A project with two connections: `timed` is synced every minute, `slow` waits after its first state."""
    project = Project(tmp_path)
    script(project, [record(id=1), state(1)], name="timed")
    project.amend("timed", schedule="* * * * *")
    script(project, [record(id=1), state(1), "!sleep 600"], name="slow")
    project.amend("slow", checkpoint={"rows": 1})
    (tmp_path / "pyproject.toml").write_text('[tool.elt]\ndefs = "defs"\n[tool.elt.env.prod]\n')
    assert main(["init", str(tmp_path), "--deployment"]) == 0
    deployed = Deployment(tmp_path, postgres, tmp_path / "lake")
    try:
        yield deployed
    finally:
        deployed.stop()


def location(deployment: Deployment) -> dict[str, str]:
    return {"repositoryLocationName": deployment.name, "repositoryName": REPOSITORY_NAME}


def runs_of(deployment: Deployment, asset: str) -> list[dg.DagsterRun]:
    """Return the runs of an asset, the newest first."""
    key = dg.AssetKey(asset.split("/"))
    with deployment.instance() as instance:
        return [run for run in instance.get_runs() if key in (run.asset_selection or ())]


def has_run(deployment: Deployment, asset: str, status: dg.DagsterRunStatus) -> bool:
    return any(run.status is status for run in runs_of(deployment, asset))


def count_commits(table: Path) -> int:
    return len(list((table / "_delta_log").glob("*.json")))


@pytest.mark.long
def test_a_scheduled_run_finishes_and_a_killed_one_is_resumed_with_new_homes(
    deployment: Deployment, postgres: Postgres
) -> None:
    """The code server, the webserver and the daemon have homes of their own, which are lost with the run."""
    here = location(deployment)
    deployment.start()
    deployment.ask(START_SCHEDULE, schedule={**here, "scheduleName": "timed_schedule"})
    selector = {**here, "jobName": "__ASSET_JOB", "assetSelection": [{"path": ["slow", "things"]}]}
    deployment.ask(LAUNCH, run={"selector": selector})
    slow = deployment.lake / "slow" / "things"
    wait(lambda: count_commits(slow) > 1, "the first commit of the slow run", seconds=240)
    wait(lambda: has_run(deployment, "timed/things", SUCCESS), "a scheduled run", seconds=240)
    # meanwhile the daemon, which has no file of this run, has asked the code server many times
    assert has_run(deployment, "slow/things", dg.DagsterRunStatus.STARTED)
    deployment.lose()

    source = deployment.root / "slow-source"
    (source / "read.jsonl").write_text("\n".join(map(json.dumps, [record(id=2), state(2)])))
    deployment.start()
    wait(lambda: has_run(deployment, "slow/things", SUCCESS), "the resumed run", seconds=240)
    resumed, killed = runs_of(deployment, "slow/things")
    assert (killed.status, resumed.parent_run_id) == (dg.DagsterRunStatus.FAILURE, killed.run_id)
    assert '"cursor":1' in (source / "state.json").read_text().replace(" ", "")
    ids = DeltaTable(str(slow)).to_pyarrow_table().column("id").to_pylist()
    assert sorted(ids) == [1, 2]
