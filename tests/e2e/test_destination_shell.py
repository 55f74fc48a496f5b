"""A third-party Airbyte source from PyPI, piped into `elt-destination` by a shell."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from elt_assets.runner.packages import install
from tests.support.project import BIN, Project

pytestmark = pytest.mark.external

PIPE = """
"$0" read --config source.json --catalog catalog.json | tee sent.jsonl |
"$1" write --config destination.json --catalog catalog.json > out.jsonl
"""
COUNT = 1000


@pytest.mark.long
def test_the_states_of_airbyte_source_faker_are_returned(project: Project) -> None:
    faker = install("airbyte-source-faker==7.2.1", project.home / "packages")
    catalog = {"streams": [_configure(stream) for stream in _discover(project, str(faker))]}
    _write(project, "catalog.json", catalog)
    _write(project, "destination.json", {"checkpoint": {"rows": 300}})

    for _ in range(2):
        done = subprocess.run(
            ["sh", "-c", PIPE, str(faker), str(BIN / "elt-destination")],
            cwd=project.root,
            env=project.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

        source_messages, returned = (
            _messages(project, "sent.jsonl"),
            _messages(project, "out.jsonl"),
        )
        assert {message["type"] for message in returned} == {"LOG", "STATE"}
        for name in ("users", "purchases", "products"):
            source_states, acknowledged = _states(source_messages, name), _states(returned, name)
            counts = [state.pop("destinationStats") for state in acknowledged]
            assert acknowledged == source_states != []
            expected = [state["sourceStats"]["recordCount"] for state in source_states]
            assert [stats["recordCount"] for stats in counts] == expected
            # The second time the source says the same again: one row a key all the same.
            rows = project.rows("destination", name)
            assert len(rows) == len({row["id"] for row in rows}) == sum(expected) > 0
    assert len(project.rows("destination", "users")) == COUNT


def _discover(project: Project, faker: str) -> list[dict[str, Any]]:
    config = _write(project, "source.json", {"count": COUNT, "seed": 1, "parallelism": 1})
    done = subprocess.run(
        [faker, "discover", "--config", config], capture_output=True, text=True, check=True
    )
    messages = map(json.loads, done.stdout.splitlines())
    (catalog,) = [message["catalog"] for message in messages if message["type"] == "CATALOG"]
    streams: list[dict[str, Any]] = catalog["streams"]
    return streams


def _configure(stream: dict[str, Any]) -> dict[str, Any]:
    return {
        "stream": stream,
        "sync_mode": "full_refresh",
        "destination_sync_mode": "append_dedup",
        "primary_key": [["id"]],
        "cursor_field": ["updated_at"],
    }


def _write(project: Project, name: str, content: Any) -> str:
    path = project.root / name
    path.write_text(json.dumps(content))
    return str(path)


def _messages(project: Project, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project.root / name).read_text().splitlines()]


def _states(messages: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    states = [message["state"] for message in messages if message["type"] == "STATE"]
    return [state for state in states if state["stream"]["stream_descriptor"]["name"] == name]
