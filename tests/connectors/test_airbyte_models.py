"""Messages of this project's sources, read with Airbyte's own models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.faker import Faker
from connectors.sdk import Checkpoint
from connectors.sdk.source import Source
from elt_assets.errors import TransientError
from tests.connectors.support import catalog, output_of
from tests.connectors.test_sdk import Script, Scripted
from tests.support.airbyte_models import kinds, parsed


def printed(source: Source, folder: Path, command: str, **files: Any) -> bytes:
    return output_of(source, folder, command, **files)[1]


@pytest.mark.spec("protocol.10", "protocol.166")
def test_airbytes_models_read_every_answer_of_a_source(tmp_path: Path) -> None:
    config = {"count": 20}
    (spec,) = parsed(printed(Faker(), tmp_path, "spec"))
    (check,) = parsed(printed(Faker(), tmp_path, "check", config=config))
    (refused,) = parsed(printed(Faker(), tmp_path, "check", config={"count": "x"}))
    (message,) = parsed(printed(Faker(), tmp_path, "discover", config=config))
    assert spec.spec.connectionSpecification["type"] == "object"
    statuses = (check.connectionStatus.status, refused.connectionStatus.status)
    assert [each.value for each in statuses] == ["SUCCEEDED", "FAILED"]

    streams = [json.loads(s.model_dump_json(exclude_none=True)) for s in message.catalog.streams]
    wanted = {"config": config, "catalog": catalog(*streams, mode="incremental")}
    output = printed(Faker(), tmp_path, "read", **wanted)

    assert set(kinds(output)) == {"ESTIMATE", "RECORD", "STATE", "STREAM_STATUS"}
    states = [each.state.model_dump(mode="json") for each in parsed(output) if each.state]
    assert set(kinds(printed(Faker(), tmp_path, "read", **wanted, state=states[-3:]))) >= {"STATE"}


@pytest.mark.spec("protocol.142")
def test_airbytes_models_read_logs_and_errors_of_a_source(tmp_path: Path) -> None:
    stream = Script("users", {"x": 1}, Checkpoint({"n": 1}), TransientError("it is down"))
    files = {"config": {"host": "h"}, "catalog": catalog("users")}
    output = printed(Scripted(stream), tmp_path, "read", **files)
    assert set(kinds(output)) == {"STREAM_STATUS", "RECORD", "STATE", "ERROR"}
