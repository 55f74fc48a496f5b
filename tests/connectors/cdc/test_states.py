"""States of each form that the sources store or have stored are loaded, and stored again byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from connectors.mysql.log import state as mysql
from connectors.postgres.log import state as postgres
from connectors.sdk.groups import GroupState
from elt_assets.protocol.catalog import StreamId

_FOLDER = Path(__file__).parent / "states"


class StoredState(msgspec.Struct):
    """A line of a file.

    Attributes:
        form: what the state is.
        dumped: what is stored after it was loaded; empty if that is the same.
    """

    form: str
    state: msgspec.Raw
    dumped: msgspec.Raw = msgspec.Raw()


def list_states(source: str) -> list[Any]:
    lines = (_FOLDER / f"{source}.jsonl").read_bytes().splitlines()
    states = msgspec.json.Decoder(StoredState)
    return [pytest.param(entry, id=entry.form) for entry in map(states.decode, lines)]


def parse(encoded: msgspec.Raw) -> GroupState:
    state = msgspec.json.decode(encoded)
    streams = {
        StreamId(*reversed(name.split("."))): part for name, part in state["streams"].items()
    }
    return GroupState(state["shared"], streams, is_independent=True)


def encode(state: GroupState) -> bytes:
    streams = {f"{name.namespace}.{name.name}": part for name, part in state.streams.items()}
    return msgspec.json.encode({"shared": state.shared, "streams": streams})


@pytest.mark.parametrize("stored", list_states("postgres"))
def test_states_of_postgres_stay_as_they_are(stored: StoredState) -> None:
    loaded = postgres.load_state(parse(stored.state), "elt", lambda _: True)
    assert encode(loaded.to_state()) == bytes(stored.dumped or stored.state)


@pytest.mark.parametrize("stored", list_states("mysql"))
def test_states_of_mysql_stay_as_they_are(stored: StoredState) -> None:
    state = parse(stored.state)
    loaded = mysql.load_state(
        state, is_mariadb=state.shared["server"] == "mariadb", is_configured=lambda _: True
    )
    assert encode(loaded.to_state()) == bytes(stored.dumped or stored.state)
