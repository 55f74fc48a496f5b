"""Which runs share one process: those of connections alone. All others run as without this package."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest

import elt_assets
from elt_assets.orchestration.runs.executor import HINT
from tests.programs.scripted import script, state
from tests.support.project import REPOSITORY, Project

TEAM = """
import os
from pathlib import Path

import dagster as dg
import elt_assets


@dg.asset
def first(context):
    locks = Path(context.instance.root_directory, "run_locks", context.run.run_id)
    return dg.MaterializeResult(metadata={"alive": locks.exists()})


connections = elt_assets.definitions_for(Path(os.environ["ELT_DEFS"]))
team = dg.Definitions(assets=[first])
everything = dg.Definitions(jobs=[dg.define_asset_job("everything")])
ours = dg.Definitions(executor=elt_assets.executor)


def explicit():
    return dg.Definitions.merge(connections, team, ours, everything).resolve_job_def("everything")


def unnamed():
    return dg.Definitions.merge(connections, team, everything).resolve_job_def("everything")


def maintenance():
    return connections.resolve_job_def("elt_maintenance")
"""
STREAMS = [["one", "things"], ["two", "things"]]
TEAMS = [["first"]]
IN_PROCESS: dict[str, Any] = {"execution": {"config": {"in_process": {}}}}


@pytest.fixture
def team(own: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of a team's, beside two streams, whose source has no records: no run starts Spark."""
    for name in ("one", "two"):
        script(own, [state(1)], name=name)
    path = own.root / "team_of_test.py"
    path.write_text(TEAM)
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}:{own.root}")
    monkeypatch.chdir(own.root)  # where the processes of steps find it
    monkeypatch.syspath_prepend(own.root)
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    yield importlib.import_module(path.stem)
    del sys.modules[path.stem]


@dataclass(frozen=True)
class Ran:
    """The steps of a run that had processes of their own, its log, and the metadata of the asset `first`."""

    processes: set[str]
    log: str
    metadata: dict[str, Any]


def run(
    project: Project,
    job: Callable[[], dg.JobDefinition],
    select: Sequence[Sequence[str]] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Ran:
    with dg.DagsterInstance.from_config(str(project.home)) as instance:
        result = dg.execute_job(
            dg.reconstructable(job),
            instance,
            asset_selection=None if select is None else [dg.AssetKey(key) for key in select],
            run_config=dict(config or {}),
        )
        assert result.success
        started = dg.DagsterEventType.STEP_WORKER_STARTED
        entries = instance.all_logs(result.run_id)
    steps = {entry.step_key for entry in entries if entry.dagster_event_type is started}
    metadata = [
        entry.asset_materialization.metadata
        for entry in entries
        if entry.asset_materialization is not None and entry.step_key == "first"
    ]
    values = {key: value.value for key, value in metadata[0].items()} if metadata else {}
    return Ran(
        {str(step) for step in steps},
        "\n".join(entry.user_message for entry in entries),
        {"alive": values["alive"]} if "alive" in values else {},
    )


def test_streams_alone_share_one_process_and_others_run_as_without_them(
    own: Project, team: Any
) -> None:
    streams = run(own, team.explicit, STREAMS)
    assert (streams.processes, HINT in streams.log) == (set(), False)
    others = run(own, team.explicit, TEAMS)
    assert (others.processes, others.metadata) == ({"first"}, {"alive": False})
    both = run(own, team.explicit, [STREAMS[0], *TEAMS])
    assert (both.processes, both.metadata) == ({"first", "one__things"}, {"alive": True})
    assert HINT not in both.log


def test_a_run_in_one_process_is_one_as_with_dagsters_default(own: Project, team: Any) -> None:
    both = run(own, team.explicit, [*STREAMS, *TEAMS], IN_PROCESS)
    assert (both.processes, HINT in both.log) == (set(), False)
    unnamed = run(own, team.unnamed, STREAMS, IN_PROCESS)  # the remedy that `HINT` names
    assert (unnamed.processes, HINT in unnamed.log) == (set(), False)
    assert run(own, team.maintenance).processes == set()


@pytest.mark.long
def test_a_run_asks_for_processes_as_with_dagsters_default(own: Project, team: Any) -> None:
    two = {"execution": {"config": {"multiprocess": {"max_concurrent": 2}}}}
    streams = run(own, team.explicit, STREAMS, two)
    assert (streams.processes, HINT in streams.log) == ({"one__things", "two__things"}, False)


@pytest.mark.long
def test_streams_in_processes_of_their_own_say_once_how_to_share_one(
    own: Project, team: Any
) -> None:
    """In a run with others' assets, or in a project that names no executor."""
    both = run(own, team.explicit, [*STREAMS, *TEAMS])
    assert (len(both.processes), both.log.count(HINT)) == (3, 1)
    streams = run(own, team.unnamed, STREAMS)
    assert (streams.processes, streams.log.count(HINT)) == ({"one__things", "two__things"}, 1)
    assert HINT not in run(own, team.unnamed, STREAMS[:1]).log


EXECUTORS = {
    "in_process": dg.in_process_executor,
    "configured": dg.multiprocess_executor.configured({"max_concurrent": 3}),
    "default": dg.multi_or_in_process_executor,
}


@pytest.mark.parametrize("name", EXECUTORS)
def test_the_executor_of_a_team_can_be_merged_and_rules(own: Project, name: str) -> None:
    script(own, [state(1)])
    chosen = dg.Definitions(executor=EXECUTORS[name])
    connections = elt_assets.definitions_for(own.root / "defs")
    for merged in (
        dg.Definitions.merge(connections, chosen),
        dg.Definitions.merge(chosen, dg.Definitions.merge(connections, dg.Definitions())),
    ):
        jobs = [merged.resolve_implicit_global_asset_job_def(), *merged.resolve_all_job_defs()]
        assert {job.executor_def for job in jobs} == {EXECUTORS[name]}


def test_all_jobs_of_connections_alone_have_the_executor(own: Project) -> None:
    script(own, [state(1)], schedule="0 6 * * *")
    loaded = elt_assets.definitions_for(own.root / "defs")
    jobs = loaded.resolve_all_job_defs()
    assert {job.executor_def for job in jobs} == {elt_assets.executor}
    assert loaded.get_repository_def() is loaded.get_repository_def()
    copied = copy.copy(loaded)  # as Dagster does, for example in `with_reconstruction_metadata`
    assert copied.resolve_implicit_global_asset_job_def().executor_def is elt_assets.executor


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"in_process": {}},
        {"in_process": {"retries": {"disabled": {}}}},
        {"multiprocess": {"max_concurrent": 2}},
        {"multiprocess": {"start_method": {"forkserver": {}}, "retries": {"disabled": {}}}},
    ],
)
def test_run_configs_of_dagsters_default_executor_are_accepted(
    own: Project, config: dict[str, Any]
) -> None:
    script(own, [state(1)])
    job = elt_assets.definitions_for(own.root / "defs").resolve_implicit_global_asset_job_def()
    run_config = {"execution": {"config": config}} if config else {}
    plain = dg.Definitions(assets=[dg.asset(name="a")(lambda: None)])
    expected = dg.validate_run_config(plain.resolve_implicit_global_asset_job_def(), run_config)
    resolved = dg.validate_run_config(job, run_config)
    assert list(resolved["execution"].values()) == list(expected["execution"].values())
