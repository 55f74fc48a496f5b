"""Comparison of connectors.declarative with airbyte-cdk: the same requests, the same records, states with the
same meaning, also from the states of the other engine.

Spec: Incremental sync; Airbyte's low-code manifests. The intended differences are in
`tests/e2e/declarative/deviations.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.e2e.declarative.comparison import records, states
from tests.e2e.declarative.deviations import DEVIATIONS
from tests.e2e.declarative.engines import Outcome
from tests.e2e.declarative.generated import Case, cases
from tests.e2e.declarative.laboratory import Laboratory, compare, laboratory
from tests.e2e.declarative.scenarios import BY_NAME, MANIFESTS, SCENARIOS, Scenario
from tests.support.project import REPOSITORY, environment_with

pytestmark = pytest.mark.external

ORACLE = ("airbyte-cdk==7.39.1", "time-machine==3.2.0")
EXAMPLES = settings(
    max_examples=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
MANY_EXAMPLES = settings(EXAMPLES, max_examples=400, derandomize=False)
DISCOVERED = {"dynamic_schema", "dynamic_streams", "intervals"}
"""The scenarios whose `discover` and `check` are compared in every run."""


@pytest.fixture(scope="module")
def lab(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    with laboratory(
        environment_with(packages, *ORACLE), tmp_path_factory.mktemp("oracle")
    ) as opened:
        yield opened


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_both_engines_do_the_same(lab: Laboratory, scenario: Scenario) -> None:
    more = ("waits",) if scenario.waits else ()
    first = lab.first(scenario)
    assert first["cdk"].requests, first["cdk"].crash
    assert compare(scenario, first, "first", *more) == []
    if scenario.rounds > 1:
        for origin, outcomes in lab.second(scenario, first):
            differences = compare(scenario, outcomes, "second", *more)
            assert (origin, differences) == (origin, [])


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            scenario,
            marks=[] if scenario.name in DISCOVERED else [pytest.mark.long],
            id=scenario.name,
        )
        for scenario in SCENARIOS
    ],
)
def test_both_engines_check_and_discover_the_same(lab: Laboratory, scenario: Scenario) -> None:
    checked = lab.first(scenario, verb="check")
    statuses = {
        name: outcome.select_type("CONNECTION_STATUS")[0]["status"]
        for name, outcome in checked.items()
    }
    assert statuses["ours"] == statuses["cdk"]
    discovered = lab.first(scenario, verb="discover")
    assert catalog(discovered["ours"]) == catalog(discovered["cdk"])


def catalog(outcome: Outcome) -> list[dict[str, Any]]:
    """Return the streams of a catalog with what a source declares of them."""
    names = ("name", "json_schema", "default_cursor_field", "source_defined_primary_key")
    [message] = outcome.select_type("CATALOG")
    return [
        {name: stream.get(name) or None for name in (*names, "supported_sync_modes")}
        for stream in message["streams"]
    ]


@pytest.mark.long
def test_the_command_lines_do_what_the_workers_do(
    lab: Laboratory, tmp_path: Path, packages: Path
) -> None:
    scenario = BY_NAME["intervals"]
    first = lab.first(scenario)
    message = scenario.job().message(lab.api.url)
    files = {name: tmp_path / f"{name}.json" for name in ("manifest", "config", "catalog")}
    for name, path in files.items():
        path.write_text(json.dumps(message[name]))
    read = ["read", "--config", str(files["config"]), "--catalog", str(files["catalog"])]
    program = environment_with(packages, *ORACLE).parent / "source-declarative-manifest"
    commands = {
        "cdk": [str(program), *read, "--manifest-path", str(files["manifest"])],
        "ours": [
            *(sys.executable, "-m", "connectors.declarative"),
            *("--manifest", str(files["manifest"]), *read),
        ],
    }
    for name, command in commands.items():
        lab.api.script, lab.api.requests = scenario.api(0), []
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True)
        messages = [json.loads(line) for line in done.stdout.splitlines()]
        outcome = Outcome(lab.api.requests, messages, [])
        assert records(outcome)["fixed_end"] == records(first[name])["fixed_end"]
        assert states(outcome)["fixed_end"] == states(first[name])["fixed_end"]


@EXAMPLES
@given(case=cases())
def test_both_engines_do_the_same_with_any_cursor(lab: Laboratory, case: Case) -> None:
    check_case(lab, case)


@pytest.mark.long
@MANY_EXAMPLES
@given(case=cases())
def test_both_engines_do_the_same_with_any_cursor_often(lab: Laboratory, case: Case) -> None:
    check_case(lab, case)


def check_case(lab: Laboratory, case: Case) -> None:
    """Read a generated source twice with each engine, the second time from the states of both."""
    scenario = case.scenario
    first = lab.first(scenario)
    assert first["cdk"].crash is None
    assert compare(scenario, first, "first") == []
    for origin, outcomes in lab.second(scenario, first):
        assert (origin, compare(scenario, outcomes, "second")) == (origin, [])


def test_every_manifest_has_a_scenario() -> None:
    assert {path.stem for path in MANIFESTS.glob("*.yaml")} == set(BY_NAME)


def test_every_deviation_belongs_to_a_scenario() -> None:
    assert {deviation.scenario for deviation in DEVIATIONS} <= set(BY_NAME)
    assert all(deviation.title and deviation.reason for deviation in DEVIATIONS)
