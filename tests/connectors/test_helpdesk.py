"""A source that was written from the first part of docs/writing-a-connector.md, over the API of a helpdesk:
cursor pages, rate limits, deletes, a parent with its child, and refresh tokens that are valid once.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import json

from connectors.testing import Kit, KitOptions
from elt_assets.errors import EltError
from elt_assets.protocol.catalog import ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.messages import Message, RawRecord, State
from elt_assets.runner.connector import Connector
from tests.programs.json_api import Answer, JsonApi, Request, Tokens, serving
from tests.support.connector_specs import command_spec
from tests.support.project import REPOSITORY

Json = dict[str, Any]
PROGRAM = [sys.executable, "-m", "tests.programs.helpdesk_source"]

pytestmark = pytest.mark.process


class Helpdesk(JsonApi):
    """The API. Each fifth request is refused; `on_tickets` is called before tickets are sent."""

    on_tickets: Callable[[], None] | None = None
    refused = 0

    def add(self, ticket: int, day: int, *, is_deleted: bool = False) -> None:
        changed_at = f"2026-01-{day:02}T00:00:00Z"
        rows = self.resources.setdefault("tickets", [])
        rows[:] = [row for row in rows if row["id"] != ticket]
        deleted_at = changed_at if is_deleted else None
        rows.append({"id": ticket, "updated_at": changed_at, "_ab_cdc_deleted_at": deleted_at})
        self.resources.setdefault(f"tickets/{ticket}/comments", []).append(
            {"id": day, "text": f"of day {day}"}
        )

    def answer(self, request: Request) -> Answer:
        assert self.tokens is not None
        if request.path == "/token":
            return self.tokens.answer(request.form())
        if request.headers.get("authorization", "")[7:] not in self.tokens.valid:
            return Answer(401, {"message": "the token is not valid"})
        if len(self.requests) % 5 == 0:
            self.refused += 1
            return Answer(429, headers={"Retry-After": "0"})
        rows = self.resources[request.path[1:]]
        query = request.parameters()
        if request.path != "/tickets":
            return Answer(body={"comments": rows})
        if self.on_tickets is not None:
            self.on_tickets()
        since = int(query.get("updated_since", 0))
        rows = [row for row in rows if count_seconds(row["updated_at"]) >= since]
        begin, size = int(query.get("cursor", "c0")[1:]), int(query["limit"])
        following = f"c{begin + size}" if begin + size < len(rows) else None
        return Answer(body={"tickets": rows[begin : begin + size], "next_cursor": following})


def count_seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


@pytest.fixture
def api() -> Iterator[Helpdesk]:
    with serving(Helpdesk(tokens=Tokens(rotates=True))) as served:
        assert isinstance(served, Helpdesk)
        for ticket in range(1, 8):
            served.add(ticket, ticket)
        yield served


@pytest.fixture
def config(api: Helpdesk) -> Json:
    secrets = {"client_secret": "client-secret", "refresh_token": "refresh-0"}
    return {"url": api.url, "client_id": "client", **secrets}


def test_the_source_has_at_most_forty_five_lines() -> None:
    text = (REPOSITORY / "tests/programs/helpdesk_source.py").read_text()
    assert len([line for line in text.splitlines() if line.strip()]) <= 45


def test_it_passes_the_kit(api: Helpdesk, config: Json) -> None:
    report = Kit(PROGRAM, config, KitOptions(cuts=2)).report()
    assert report.passed, "\n".join(report.lines())
    assert api.refused > 5


class Platform:
    """Reads the source with its last states, as a sync does; its config changes are in a file."""

    def __init__(self, folder: Path, config: Json):
        self.folder, self.config = folder, config
        self.states: list[State] = []
        self.connector = self.connect()
        self.streams = [
            ConfiguredStream(stream, "incremental") for stream in self.connector.discover().streams
        ]

    def connect(self) -> Connector:
        store = self.folder / "config.json"
        return Connector(
            command_spec(PROGRAM, self.config, self.folder / "work", "helpdesk", store=store)
        )

    def sync(self) -> list[tuple[str, Json]]:
        """Return the records of a sync, with the names of their streams."""
        records: list[tuple[str, Json]] = []
        states: dict[Any, State] = {
            s.stream.stream_descriptor.id: s for s in self.states if s.stream
        }
        catalog = ConfiguredCatalog(streams=self.streams)
        for message in self.connector.read(catalog, self.states):
            if isinstance(message, RawRecord):
                records.append((message.stream, json.decode(message.data)))
            elif isinstance(message, Message) and message.state and message.state.stream:
                states[message.state.stream.stream_descriptor.id] = message.state
        self.states = list(states.values())
        return records


def test_the_token_is_kept_over_ten_syncs_and_a_kill(
    api: Helpdesk, config: Json, tmp_path: Path
) -> None:
    platform = Platform(tmp_path, config)
    first = platform.sync()
    assert sorted(row["id"] for name, row in first if name == "tickets") == list(range(1, 8))
    assert {row["ticket_id"] for name, row in first if name == "comments"} == set(range(1, 8))
    for number in range(10):
        api.add(number % 7 + 1, 8 + number, is_deleted=number == 9)
        if number == 5:
            api.on_tickets = kill_readers
            with pytest.raises(EltError, match="SIGKILL"):
                platform.sync()
            api.on_tickets = None
            platform.connector = platform.connect()
        rows = platform.sync()
        [ticket] = [row for name, row in rows if name == "tickets"]
        assert ticket["id"] == number % 7 + 1
        assert (ticket["_ab_cdc_deleted_at"] is not None) == (number == 9)
        assert {row["ticket_id"] for name, row in rows if name == "comments"} == {ticket["id"]}
    assert api.tokens is not None and api.tokens.issued >= 12
    assert platform.connect().config["refresh_token"] == api.tokens.refresh_token


def kill_readers() -> None:
    """Kill the source of this test: the token endpoint has answered, and no state was sent."""
    for process in psutil.Process().children(recursive=True):
        if "tests.programs.helpdesk_source" in process.cmdline() and "read" in process.cmdline():
            os.kill(process.pid, signal.SIGKILL)
