"""Destinations that attack the sync that sends them records."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from elt_assets.errors import EltError
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import Message
from elt_assets.sync.events import Acknowledged, Checkpoint, Logged, SessionEvent
from elt_assets.sync.relay import Relay
from tests.programs.hostile_destination import ATTACKS, ECHO
from tests.programs.hostile_source import hostile_source
from tests.sync.doubles import MemorySink, catalog, cursor, state, status

pytestmark = pytest.mark.process


def record(number: int) -> Message:
    body = {"stream": "a", "data": {"n": number}, "emitted_at": 1}
    return Message.from_json(json.dumps({"type": "RECORD", "record": body}))


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_acknowledges_nothing_that_was_not_sent(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "another-secret-value")
    attack, streams = ATTACKS[name], catalog(["a"])
    destination = hostile_source(tmp_path, ECHO + attack.script, heartbeat=attack.heartbeat)
    sinks = {StreamId("a"): MemorySink()}
    relay = Relay(streams, sinks, lambda lines: destination.write(streams, lines))
    sent = [record(1), state({"n": 1}), record(2), state({"n": 2}), status("COMPLETE")]
    error, events = "", list[SessionEvent]()
    try:
        events += relay.run(iter(sent))
    except EltError as failure:
        error = str(failure)
    states = [event.state for event in events if isinstance(event, Acknowledged)]
    values = [cursor(Checkpoint((last,), final=False))["n"] for last in states if last is not None]
    log = "\n".join(event.message for event in events if isinstance(event, Logged))
    assert re.search(attack.error or "^$", error)
    assert all(re.search(pattern, log) for pattern in attack.logs) and len(events) < 10
    if attack.error is None:
        assert values == attack.acknowledged
    assert "another-secret" not in json.dumps(destination.config) + log + error
