"""States are exchanged with a tap on the SDK of Meltano itself, and targets of others take our tap's output.

Spec: SDK Implementation Details - Stream State; Singer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import BIN, REPOSITORY, Project, environment_with

pytestmark = pytest.mark.external

SDK = "singer-sdk==0.54.9"
PROGRAMS = REPOSITORY / "tests" / "programs"
OURS = [sys.executable, "-m", "tests.programs.sdk_source"]

Json = dict[str, Any]


@pytest.fixture
def theirs(packages: Path) -> list[str]:
    return [str(environment_with(packages, SDK)), str(PROGRAMS / "sdk_tap.py")]


def sync(folder: Path, tap: Sequence[str], config: Json, state: Json | None = None) -> bytes:
    """The output of a tap, which may fail."""
    options = []
    for name, content in (("config", config), ("state", state)):
        if content is not None:
            (folder / name).write_text(json.dumps(content))
            options += [f"--{name}", str(folder / name)]
    return subprocess.run([*tap, *options], cwd=REPOSITORY, capture_output=True, check=False).stdout


def messages(output: bytes, kind: str) -> list[Json]:
    decoded = (json.loads(line) for line in output.splitlines())
    return [message for message in decoded if message["type"] == kind]


def last_state(output: bytes) -> Json:
    return dict(messages(output, "STATE")[-1]["value"])


def records(output: bytes) -> list[Json]:
    unsorted = (message["record"] for message in messages(output, "RECORD"))
    return sorted(unsorted, key=lambda record: (record.get("storeId") or 0, record["id"]))


HASHES = ("sent", "sent_without_key")


def remove_hashes(state: Json) -> Json:
    """Return a state as the other SDK has it: ours sends the records at a bookmark once by their hashes."""

    def strip(entry: Json) -> Json:
        return {name: value for name, value in entry.items() if name not in HASHES}

    return dict(json.loads(json.dumps(state), object_hook=strip))


def bookmarks(state: Json) -> Json:
    """Return the bookmarks of a state, without what depends on the time of the sync or on the program."""
    text = json.dumps({name: mark for name, mark in state["bookmarks"].items() if mark})

    def strip(entry: Json) -> Json:
        dropped = ("Note", "replication_key_signpost", "starting_replication_value", *HASHES)
        return {name: value for name, value in entry.items() if name not in dropped}

    return dict(json.loads(text, object_hook=strip))


SLOW = [("sorted", False), ("unsorted", False), ("partitioned", False), ("partitioned", True)]
CASES = [("sorted", True), ("unsorted", True), ("orders", False)]


@pytest.mark.parametrize(
    ("stream", "fails"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in (*SLOW, ("orders", True)))],
)
def test_each_tap_resumes_from_the_state_of_the_other(
    tmp_path: Path, theirs: list[str], stream: str, fails: bool
) -> None:
    first: Json = {"stream": stream, "days": [1, 3, 5], **({"fail_after": 2} if fails else {})}
    states = [last_state(sync(tmp_path, tap, first)) for tap in (OURS, theirs)]
    assert bookmarks(states[0]) == bookmarks(states[1])

    second = {"stream": stream, "days": [2, 3, 4, 5, 6]}
    exchanges = [(OURS, remove_hashes(state)) for state in states]
    exchanges += [(theirs, state) for state in states]
    outputs = [sync(tmp_path, tap, second, state) for tap, state in exchanges]
    results = [records(output) for output in outputs]
    assert results[1:] == results[:-1]
    assert {record["id"] for record in results[0] if "updatedAt" in record} == (
        {5, 6} if not fails else {3, 4, 5, 6} if stream == "sorted" else {2, 3, 4, 5, 6}
    )
    ends = [bookmarks(last_state(output)) for output in outputs]
    assert ends[1:] == ends[:-1]


@pytest.mark.long
def test_target_jsonl_accepts_our_output(tmp_path: Path, packages: Path) -> None:
    python = environment_with(packages, "target-jsonl==0.1.4")
    output = sync(tmp_path, OURS, {"stream": "partitioned", "days": [1, 2]})
    config = tmp_path / "target.json"
    config.write_text(json.dumps({"destination_path": str(tmp_path)}))
    target = [str(python.parent / "target-jsonl"), "--config", str(config)]
    done = subprocess.run(target, input=output, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout.splitlines()[-1]) == last_state(output)
    [landed] = tmp_path.glob("partitioned*.jsonl")
    assert len(landed.read_text().splitlines()) == 4


@pytest.mark.long
def test_a_target_on_the_sdk_of_meltano_accepts_our_output(tmp_path: Path, packages: Path) -> None:
    python = environment_with(packages, "meltanolabs-target-csv==0.5.0")
    output = sync(tmp_path, OURS, {"stream": "orders", "days": [1, 2]})
    config = tmp_path / "target.json"
    config.write_text(json.dumps({"output_path": str(tmp_path)}))
    target = [str(python.parent / "target-csv"), "--config", str(config)]
    done = subprocess.run(target, input=output, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout.splitlines()[-1]) == last_state(output)
    [landed] = tmp_path.glob("orders*.csv")
    assert len(landed.read_text().splitlines()) == 5


def test_target_elt_loads_our_output(tmp_path: Path, project: Project) -> None:
    output = sync(tmp_path, OURS, {"stream": "orders", "days": [1, 2]})
    config = tmp_path / "target.json"
    config.write_text(json.dumps({"namespace": "tap"}))
    target = [str(BIN / "target-elt"), "--config", str(config)]
    done = subprocess.run(
        target, input=output, env=project.environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout.splitlines()[-1]) == last_state(output)
    assert len(project.rows("tap", "orders")) == 2
    assert len(project.rows("tap", "stores")) == 2
