"""The rules about slices, on sources that break one of them, and on one that does not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from connectors.testing import RULES, Kit, KitOptions, Report
from connectors.testing.findings import NOT_APPLICABLE, PASSED
from tests.programs.broken.sliced import AGAIN, DEFECTS, ELSEWHERE, SAME, STATES, WAITS

pytestmark = pytest.mark.process

SLICE_RULES = [ELSEWHERE, AGAIN, SAME, STATES, WAITS]


def check(folder: Path, defect: str, **options: Any) -> Report:
    command = [sys.executable, "-m", "tests.programs.broken.sliced"]
    config = {"defect": defect, "folder": str(folder)}
    return Kit(command, config, KitOptions(**options)).report()


@pytest.mark.parametrize(
    "defect",
    [
        pytest.param(defect, marks=[] if defect == "lost_row" else pytest.mark.long)
        for defect in DEFECTS
        if defect != "none"
    ],
)
def test_a_defect_of_slices_is_found(tmp_path: Path, defect: str) -> None:
    report = check(tmp_path, defect, rules=SLICE_RULES)
    assert {*report.failed_rules} == DEFECTS[defect], "\n".join(report.lines())


def test_a_source_with_slices_passes_all_rules(tmp_path: Path) -> None:
    report = check(tmp_path, "none", cuts=1)
    assert report.passed, "\n".join(report.lines())
    statuses = {outcome.rule: outcome.status for outcome in report.outcomes}
    assert {statuses[rule] for rule in SLICE_RULES} == {PASSED}


def test_each_rule_about_slices_can_be_violated() -> None:
    assert set.union(*DEFECTS.values()) == {*SLICE_RULES} <= {*RULES}


def test_a_source_without_slices_is_not_concerned() -> None:
    command = [sys.executable, "-m", "connectors.faker"]
    options = KitOptions(rules=SLICE_RULES, streams=["users"])
    report = Kit(command, {"days": 1, "count": 5}, options).report()
    assert {(outcome.status, outcome.reason) for outcome in report.outcomes} == {
        (NOT_APPLICABLE, "no stream is read by slices")
    }
