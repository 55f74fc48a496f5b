"""Runs both engines against one server, and says where they differ."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.declarative.api import ROUNDS
from tests.e2e.declarative.comparison import ASPECTS, ends_of_intervals, instant, observe
from tests.e2e.declarative.deviations import allow, remove_starts, replace_ends
from tests.e2e.declarative.engines import Engine, Job, Outcome, oracle, ours
from tests.e2e.declarative.scenarios import Scenario
from tests.programs.recording_api import RecordingApi, Script, serving

Json = dict[str, Any]


@dataclass(frozen=True)
class Laboratory:
    """Both engines, and the server that they read."""

    api: RecordingApi
    engines: dict[str, Engine]

    def run(self, engine: str, job: Job, script: Script) -> Outcome:
        """Do a job with one engine.

        Args:
            engine: "cdk" or "ours".
            job: the job.
            script: how the server answers.
        """
        return self.engines[engine].run(job, self.api, script)

    def first(self, scenario: Scenario, **changes: Any) -> dict[str, Outcome]:
        """Return the first read of a scenario with each engine."""
        job = scenario.job(0, **changes)
        return {name: self.run(name, job, scenario.api(0)) for name in self.engines}

    def second(
        self, scenario: Scenario, first: dict[str, Outcome], **changes: Any
    ) -> Iterator[tuple[str, dict[str, Outcome]]]:
        """Yield the second reads: with each engine from the states of "cdk", and of "ours"."""
        for origin, outcome in first.items():
            job = scenario.job(1, outcome.states, **changes)
            yield origin, {name: self.run(name, job, scenario.api(1)) for name in self.engines}


def compare(
    scenario: Scenario, outcomes: dict[str, Outcome], round_: str, *more: str
) -> list[tuple[str, Any, Any]]:
    """Return what differs, after the known deviations: the aspect, what is expected, and what is found.

    Args:
        scenario: the scenario.
        outcomes: the outcomes of "cdk" and "ours".
        round_: which read it is, for deviations.
        more: the aspects that are compared besides the usual ones.
    """
    expected = allow(scenario.name, round_, observe(outcomes["cdk"], [*ASPECTS, *more]))
    actual = observe(outcomes["ours"], [*ASPECTS, *more])
    start = instant(scenario.config.get("start", ""))
    for aspect in (expected, actual):
        aspect["states"] = remove_starts(aspect["states"], start)
    ends = ends_of_intervals(outcomes["ours"], ROUNDS[round_ == "second"])
    expected["states"] = replace_ends(expected["states"], actual["states"], ends)
    return [
        (aspect, expected[aspect], actual[aspect])
        for aspect in actual
        if expected[aspect] != actual[aspect]
    ]


@contextlib.contextmanager
def laboratory(python: Path, folder: Path) -> Iterator[Laboratory]:
    """Both engines while the context lasts.

    Args:
        python: the interpreter of the oracle's environment.
        folder: where the logs of the workers go.
    """
    with contextlib.ExitStack() as stack:
        engines: dict[str, Engine] = {}
        starts: dict[str, Callable[[], Engine]] = {
            "cdk": lambda: oracle(python, folder),
            "ours": lambda: ours(folder),
        }
        for name, start in starts.items():
            engines[name] = start()
            stack.callback(engines[name].close)
        yield Laboratory(stack.enter_context(serving(RecordingApi())), engines)
