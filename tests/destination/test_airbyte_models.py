"""Messages of `elt-destination`, read with Airbyte's own models."""

from __future__ import annotations

from typing import Any

import pytest

from tests.destination.running import (
    Destination,
    legacy,
    make_shared_state,
    record,
    records,
    state,
    status,
    stream,
)
from tests.support.airbyte_models import kinds, parsed


@pytest.mark.spec("protocol.45", "protocol.47")
def test_airbytes_models_read_the_specification(destination: Destination) -> None:
    (message,) = parsed(destination.run(["spec"]).output)
    modes = [mode.value for mode in message.spec.supported_destination_sync_modes]
    assert modes == ["append", "overwrite", "append_dedup"]
    assert message.spec.documentationUrl is not None


@pytest.mark.spec("protocol.138")
def test_airbytes_models_read_both_results_of_a_check(destination: Destination) -> None:
    check = ["check", "--config", destination.config_file]
    (refused,) = parsed(destination.run([*check[:2], "/nowhere/config.json"]).output)
    (accepted,) = parsed(destination.run(check).output)
    statuses = (accepted.connectionStatus.status, refused.connectionStatus.status)
    assert [status.value for status in statuses] == ["SUCCEEDED", "FAILED"]


@pytest.mark.spec("protocol.10", "protocol.166")
@pytest.mark.parametrize(
    "make",
    [state, lambda value: make_shared_state(value, "users"), legacy],
    ids=["stream", "global", "legacy"],
)
def test_airbytes_models_read_states_and_logs(destination: Destination, make: Any) -> None:
    sent = [*records(1), record({"name": "no key"}), *records(2, name="strangers")]
    answer = destination.write([stream(mode="append_dedup")], [*sent, make({"n": 1})])
    assert set(kinds(answer.output)) == {"LOG", "STATE"}
    (state,) = (message.state for message in parsed(answer.output) if message.state)
    assert (state.destinationStats.recordCount, state.destinationStats.rejectedRecordCount) == (
        1,
        1,
    )


@pytest.mark.spec("protocol.145")
def test_airbytes_models_read_errors(destination: Destination) -> None:
    failed = destination.write([stream()], [*records(1), status("INCOMPLETE")], code=1)
    refused = destination.write([stream(mode="update")], records(1), code=1)
    (trace,) = (message.trace for message in parsed(failed.output) if message.trace)
    assert trace.error.stream_descriptor.name == "users"
    assert kinds(refused.output) == ["ERROR"]
