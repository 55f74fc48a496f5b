"""What the sources of this project print, read with Airbyte's own models."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from connectors.faker import Faker
from connectors.sdk import Checkpoint, run
from connectors.sdk.source import Source
from elt_assets.errors import TransientError
from tests.airbyte_models import kinds, parsed
from tests.connectors.test_sdk import Script, Scripted


def printed(source: Source, folder: Path, command: str, **files: Any) -> bytes:
    argv = [command]
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
        argv += [f"--{name}", str(folder / name)]
    stdout = io.BytesIO()
    run(source, argv, stdout)
    return stdout.getvalue()


def test_airbytes_models_read_every_answer_of_a_source(tmp_path: Path) -> None:
    config = {"count": 20}
    (spec,) = parsed(printed(Faker(), tmp_path, "spec"))
    (check,) = parsed(printed(Faker(), tmp_path, "check", config=config))
    (refused,) = parsed(printed(Faker(), tmp_path, "check", config={"count": "x"}))
    (message,) = parsed(printed(Faker(), tmp_path, "discover", config=config))
    assert spec.spec.connectionSpecification["type"] == "object"
    statuses = (check.connectionStatus.status, refused.connectionStatus.status)
    assert [each.value for each in statuses] == ["SUCCEEDED", "FAILED"]

    modes = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    streams = [
        {"stream": json.loads(each.model_dump_json(exclude_none=True)), **modes}
        for each in message.catalog.streams
    ]
    wanted = {"config": config, "catalog": {"streams": streams}}
    output = printed(Faker(), tmp_path, "read", **wanted)

    assert set(kinds(output)) == {"ESTIMATE", "RECORD", "STATE", "STREAM_STATUS"}
    states = [each.state.model_dump(mode="json") for each in parsed(output) if each.state]
    assert set(kinds(printed(Faker(), tmp_path, "read", **wanted, state=states[-3:]))) >= {"STATE"}


def test_airbytes_models_read_logs_and_errors_of_a_source(tmp_path: Path) -> None:
    stream = Script("users", {"x": 1}, Checkpoint({"n": 1}), TransientError("it is down"))
    modes = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}
    wanted = {"stream": {"name": "users", "json_schema": {}}, **modes}
    files = {"config": {"host": "h"}, "catalog": {"streams": [wanted]}}
    output = printed(Scripted(stream), tmp_path, "read", **files)
    assert set(kinds(output)) == {"STREAM_STATUS", "RECORD", "STATE", "ERROR"}
