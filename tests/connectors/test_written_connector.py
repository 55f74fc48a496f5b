"""The source of docs/writing-a-connector.md, run over an API on the loopback."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.sdk import Checkpoint, Slice, Source, Window
from connectors.sdk.http import HttpClient
from connectors.testing import Kit
from tests.connectors.support import call, records
from tests.programs.json_api import Answer, JsonApi, serving
from tests.programs.written_source import SECRETS, order, program, programs, store_api

Json = dict[str, Any]


@pytest.fixture
def api() -> Iterator[JsonApi]:
    with store_api() as served:
        yield served


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    file = tmp_path / "my_source.py"
    file.write_text(program())
    spec = importlib.util.spec_from_file_location("my_source", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "my_source", module)
    spec.loader.exec_module(module)
    found = module.Shop()
    assert isinstance(found, Source)
    return found


class Reader:
    """Reads the source; its states go on from one call to the next."""

    def __init__(self, folder: Path, source: Source, api: JsonApi):
        self.folder, self.source, self.api = folder, source, api
        self.states: dict[str, Json] = {}

    def call(self, command: str, **files: Any) -> list[Json]:
        config = {"url": self.api.url, **SECRETS}
        code, messages = call(self.source, self.folder, command, config=config, **files)
        assert code == 0, messages
        return messages

    def read(self, stream: str, mode: str, **extra: Any) -> list[Json]:
        [message] = self.call("discover")
        [found] = [s for s in message["catalog"]["streams"] if s["name"] == stream]
        how = {"sync_mode": mode, "destination_sync_mode": "append", **extra}
        catalog = {"streams": [{"stream": found, **how}]}
        messages = self.call("read", catalog=catalog, state=list(self.states.values()))
        for message in messages:
            if message["type"] == "STATE":
                self.states[stream] = message["state"]
        return records(messages)


@pytest.fixture
def reader(tmp_path: Path, source: Source, api: JsonApi) -> Reader:
    return Reader(tmp_path, source, api)


def test_the_example_has_at_most_forty_lines() -> None:
    lines = program().splitlines()
    assert len([line for line in lines if line.strip()]) <= 40


def run_block(name: str) -> Any:
    """Run the program of the document that defines a name, and return what it defines there."""
    [block] = [
        block for block in programs()[1:] if f"class {name}(" in block or f"{name} =" in block
    ]
    defined: Json = {"__name__": "written"}
    exec(block, defined)
    return defined[name]


def test_every_other_program_of_the_document_does_what_it_says() -> None:
    assert len(programs()) == 6
    assert list(run_block("Lines")().records(Window(1))) == [
        {"number": 1, "text": "b"},
        {"number": 2, "text": "c"},
    ]
    files = [{"id": 7, "file": "a.txt"}]
    with serving(JsonApi({"attachments": files, "attachments/7/content": [], "events": []})) as api:
        with HttpClient(api.url) as client:
            [document] = run_block("Attachments")(client).records(Window())
            assert (document.path, b"".join(document.content)) == ("7/a.txt", b"[]")
            events = run_block("Events")(client)
            events.path = "all/events"
            window = Window("2026-01-31T10:00:00Z", "2026-02-28T10:00:00Z")
            assert list(events.records(window)) == []
            assert window.filters_start and window.filters_end
        assert api.requests[-1].parameters() == {"from": "2026-01-31", "to": "2026-03-01"}
    items = list(run_block("Orders")().slices(None, {"next": 18}))
    assert [item.data["number"] for item in items if isinstance(item, Slice)] == [18, 19]
    assert items[-1] == Checkpoint({"next": 20})
    assert run_block("TestShop").test_spec_is_valid


@pytest.mark.spec("singer.36")
def test_the_example_reads_parents_and_children_in_pages(reader: Reader) -> None:
    assert [row["id"] for row in reader.read("stores", "full_refresh")] == ["a", "b", "c"]
    rows = reader.read("orders", "incremental")
    assert [(row["store"], row["id"]) for row in rows] == [
        (store, number)
        for store, count in (("a", 3), ("b", 4), ("c", 5))
        for number in range(count)
    ]


def test_the_example_resumes_from_the_bookmark_of_each_store(reader: Reader) -> None:
    reader.read("orders", "incremental")
    reader.api.resources["stores/b/orders"].append(order(9))
    rows = reader.read("orders", "incremental")
    assert [(row["store"], row["id"]) for row in rows] == [("b", 9)]


def test_a_single_store_can_be_read(reader: Reader) -> None:
    [message] = [m for m in reader.call("discover") if m["type"] == "CATALOG"]
    [stream] = [s for s in message["catalog"]["streams"] if s["name"] == "orders"]
    how = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    found = reader.call("partitions", catalog={"streams": [{"stream": stream, **how}]})
    assert [m["partition"]["key"] for m in found] == ["a", "b", "c"]
    rows = reader.read("orders", "incremental", partitions=[found[1]["partition"]["context"]])
    assert {row["store"] for row in rows} == {"b"}


def test_expired_tokens_are_renewed_and_rate_limits_are_respected(reader: Reader) -> None:
    assert reader.api.tokens is not None
    reader.api.tokens.expires_in = 0
    reader.api.answers.extend([None, None, Answer(429, headers={"Retry-After": "0"}), None])
    assert len(reader.read("orders", "incremental")) == 12


def test_a_wrong_secret_fails_the_check(reader: Reader) -> None:
    assert reader.api.tokens is not None
    reader.api.tokens.client_secret = "another"
    [message] = reader.call("check")
    assert message["connectionStatus"]["status"] == "FAILED"
    assert "client-secret" not in json.dumps(message)


@pytest.mark.process
def test_the_example_passes_the_conformance_kit(api: JsonApi, tmp_path: Path) -> None:
    (tmp_path / "my_source.py").write_text(program())
    config = {"url": api.url, **SECRETS}
    report = Kit([sys.executable, str(tmp_path / "my_source.py")], config).report()
    assert report.passed, "\n".join(report.lines())
