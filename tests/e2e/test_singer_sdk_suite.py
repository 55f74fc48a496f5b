"""The Singer SDK's own suite for targets, run by the SDK over `target-elt` as a process."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.project import BIN, REPOSITORY, Project, environment_with

pytestmark = pytest.mark.external

SDK = "singer-sdk[testing]==0.54.9"
SUITE = '''
"""The SDK knows targets as classes: this one hands its input to the program."""

import json
import subprocess
import sys
from pathlib import Path

from singer_sdk import Target
from singer_sdk.exceptions import RecordsWithoutSchemaException
from singer_sdk.testing import get_target_test_class

HERE = Path(__file__).parent


class TargetElt(Target):
    name = "target-elt"
    config_jsonschema = {"type": "object", "properties": {}}

    def process_lines(self, file_input):
        config = HERE / "config.json"
        config.write_text(json.dumps({"namespace": "sdk"}))  # theirs has settings of the SDK's own
        command = [PROGRAM, "--config", str(config)]
        done = subprocess.run(command, input=file_input.read(), capture_output=True, text=True)
        sys.stdout.write(done.stdout)
        if "before its SCHEMA" in done.stderr:
            raise RecordsWithoutSchemaException(done.stderr)
        if done.returncode:
            raise RuntimeError(done.stderr)

    def process_endofpipe(self):
        pass


TestTargetElt = get_target_test_class(TargetElt)
'''
DIFFERENT = {"test_target_record_missing_key_property"}
"""The reason is in docs/singer.md."""


@pytest.fixture
def python(project: Project) -> Path:
    """The Python of an environment that has the SDK."""
    return environment_with(project.home / "packages", SDK)


@pytest.mark.spec("singer.32")
@pytest.mark.long
def test_the_target_suite_passes_except_for_documented_failures(
    project: Project, python: Path
) -> None:
    module = project.root / "test_suite.py"
    module.write_text(SUITE.replace("PROGRAM", repr(str(BIN / "target-elt"))))

    done = subprocess.run(
        [python, "-m", "pytest", "-v", "-p", "no:cacheprovider", module],
        cwd=project.root,
        env=project.environment,
        capture_output=True,
        text=True,
        check=False,
    )

    outcomes = dict(re.findall(r"::(\w+) (PASSED|FAILED|ERROR)", done.stdout))
    failed = {name for name, outcome in outcomes.items() if outcome != "PASSED"}
    assert len(outcomes) == 16, done.stdout
    assert failed == DIFFERENT, done.stdout
    documented = (REPOSITORY / "docs" / "singer.md").read_text()
    assert all(f"`{name}`" in documented for name in failed)

    rows = {row["id"]: row["metric"] for row in project.rows("sdk", "test_duplicate_records")}
    assert rows == {1: 100, 2: 20}
    assert len(project.rows("sdk", "test_schema_updates")) == 6
    assert len(project.rows("sdk", "test_record_missing_key_property_dead_letter")) == 1
