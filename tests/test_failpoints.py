"""Failpoints end a process where its environment says, and cost nothing else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elt_assets import failpoints
from elt_assets.errors import ConfigError
from elt_assets.failpoints import Failpoint, armed, killer, reach
from tests.support.failpoints import KILLED_IN
from tests.support.project import REPOSITORY

REACHING = """
from elt_assets.failpoints import Failpoint, reach
for number in range(3):
    reach(Failpoint.TABLE_CREATED)
    reach(Failpoint.TABLE_COMMITTED)
    print(number, flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("setting", "returncode", "output"),
    [
        ("table_committed:2", -signal.SIGKILL, "0\n"),
        ("table_committed", -signal.SIGKILL, ""),
        ("TABLE_COMMITTED:4", 0, "0\n1\n2\n"),
        ("", 0, "0\n1\n2\n"),
    ],
)
def test_a_process_is_killed_at_the_failpoint_that_its_environment_names(
    setting: str, returncode: int, output: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REACHING],
        env={**os.environ, failpoints.VARIABLE: setting},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (returncode, output), done.stderr


@pytest.mark.unit
@pytest.mark.parametrize("setting", ["no_such", "table_committed:0", "table_committed:x", ":1"])
def test_a_failpoint_that_does_not_exist_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"not a failpoint with a count\n.*table_committed"):
        killer(setting)


@pytest.mark.unit
def test_a_hook_is_called_only_in_its_context() -> None:
    points: list[Failpoint] = []
    with armed(points.append):
        reach(Failpoint.STATE_SET)
    reach(Failpoint.STATE_SET)
    assert points == [Failpoint.STATE_SET]


SOURCE = "\n".join(path.read_text() for path in Path(REPOSITORY, "elt_assets").rglob("*.py"))


@pytest.mark.unit
def test_every_failpoint_is_in_the_code_and_a_test_ends_a_process_there() -> None:
    assert set(re.findall(r"reach\(Failpoint\.(\w+)\)", SOURCE)) == set(Failpoint.__members__)
    assert set(KILLED_IN) == set(Failpoint)


@pytest.mark.unit
def test_each_test_that_the_code_names_exists() -> None:
    names = {*re.findall(r"\btests/[\w/]+\.py(?:::\w+)?", SOURCE), *KILLED_IN.values()}
    assert not [name for name in sorted(names) if not exists(name)]


def exists(name: str) -> bool:
    file, _, function = name.partition("::")
    path = REPOSITORY / file
    return path.is_file() and (not function or f"def {function}(" in path.read_text())
