"""Test classes of the conformance kit: one assignment each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from connectors.testing import RULES, connector_tests
from tests.programs.broken.base import CONFIG

pytestmark = pytest.mark.process

SHOP = {"count": 30, "days": 1, "records_per_state": 7, "api_key": "only-an-example"}

TestFaker = connector_tests([sys.executable, "-m", "connectors.faker"], SHOP)


def program(name: str) -> list[str]:
    return [sys.executable, "-S", "-m", f"tests.programs.broken.{name}"]


def test_a_class_has_a_test_for_each_rule() -> None:
    tests = {name for name in vars(TestFaker) if name.startswith("test_")}
    assert tests == {f"test_{name.replace('-', '_')}" for name in RULES}


def test_a_failure_names_the_rule(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    rules = ["final-state-is-final", "estimates-are-plausible", "refresh-resumes-exactly"]
    command = program("final_state_is_final")
    tests = connector_tests(command, config, rules=rules, streams=["users"])()
    tests.test_estimates_are_plausible()
    with pytest.raises(pytest.fail.Exception, match="final-state-is-final") as failure:
        tests.test_final_state_is_final()
    assert "stream users, `read` of users from state 3 of 3" in str(failure.value)
    with pytest.raises(pytest.skip.Exception, match="no stream declares `is_resumable`"):
        tests.test_refresh_resumes_exactly()
