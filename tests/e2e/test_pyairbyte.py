"""PyAirbyte, unmodified, writes its own smoke test to `elt-destination`, each strategy twice."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.project import BIN, Project, environment_with

pytestmark = [pytest.mark.external, pytest.mark.long]

PACKAGE = "airbyte==0.71.3"
SCRIPT = """
import json, sys
from pathlib import Path
import airbyte as ab
from airbyte.strategies import WriteStrategy

strategy, destination = sys.argv[1:]
executable = Path(sys.executable).with_name("source-smoke-test")
source = ab.get_source("source-smoke-test", config={}, local_executable=executable)
streams = source.discovered_catalog.streams
keyed = {each.name for each in streams if each.source_defined_primary_key}
names = [each.name for each in streams if each.name in keyed or strategy != "merge"]
lake = ab.get_destination(
    "destination-elt", config={"namespace": strategy}, local_executable=destination
)
for _ in range(2):
    lake.write(
        source, streams=names, cache=False, state_cache=False, write_strategy=WriteStrategy(strategy)
    )
counts = {each.name: len(list(source.get_records(each.name))) for each in streams}
Path(f"{strategy}.json").write_text(
    json.dumps({name: [counts[name], name in keyed] for name in names})
)
"""
DISTINCT_KEYS = {"duplicate_primary_keys": 3}
"""The number of keys, where two records of a stream have the same key."""


def test_every_strategy_of_pyairbyte_passes_twice(project: Project) -> None:
    python = environment_with(project.home / "packages", PACKAGE)
    environment = {**project.environment, "AIRBYTE_OFFLINE_MODE": "1", "DO_NOT_TRACK": "1"}
    for strategy in ("auto", "merge", "append", "replace"):
        done = subprocess.run(
            [python, "-c", SCRIPT, strategy, str(BIN / "elt-destination")],
            cwd=project.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-5000:]

        streams = json.loads((project.root / f"{strategy}.json").read_text())
        assert len(streams) >= 20
        for name, (records, is_keyed) in streams.items():
            merges = is_keyed and strategy in ("auto", "merge")
            expected = DISTINCT_KEYS.get(name, records) if merges else records
            times = 2 if strategy == "append" else 1
            assert len(project.rows(strategy, name)) == expected * times, (strategy, name)
