"""`probe`: whether a read would yield anything, on the command line of a connector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.faker import Faker
from connectors.sdk import Source, Stream
from connectors.sdk.items import Item
from elt_assets.errors import TransientError
from elt_assets.protocol.catalog import ConfiguredStream
from tests.connectors.support import call, catalog

Json = dict[str, Any]


class Mute(Stream):
    """Cannot tell, as streams are by default."""

    json_schema: Json = {"type": "object"}  # noqa: RUF012 - never changed

    def __init__(self, name: str, namespace: str | None = None):
        self.name, self.namespace = name, namespace

    def read(self, configured: ConfiguredStream, state: Json | None) -> Iterator[Item]:
        raise AssertionError("a probe reads nothing")


class Counting(Mute):
    """A stream with as many rows as its name is long."""

    def has_new_data(self, configured: ConfiguredStream, state: Json | None) -> bool:
        if not self.name:
            raise TransientError("no server answers at hunter2")
        return state is None or state["rows"] < len(self.name)


class Scripted(Source):
    name = "scripted"
    connection_specification: Json = {  # noqa: RUF012 - never changed
        "type": "object",
        "properties": {"password": {"type": "string", "airbyte_secret": True}},
    }

    def __init__(self, *streams: Stream):
        self.offered = streams

    def check(self, config: Json) -> None:
        """Succeed: this source is always available."""

    def streams(self, config: Json) -> Sequence[Stream]:
        return self.offered


def probe(
    folder: Path, source: Source, names: Sequence[str], states: Json, **config: Any
) -> tuple[int, list[Json]]:
    known = [
        {"type": "STREAM", "stream": {"stream_descriptor": {"name": name}, "stream_state": blob}}
        for name, blob in states.items()
    ]
    wanted = catalog(*names, mode="incremental")
    return call(source, folder, "probe", config=config, catalog=wanted, state=known)


def news(messages: list[Json]) -> Json:
    (message,) = messages
    assert message["type"] == "NEWS"
    streams = message["news"]["streams"]
    return {each["stream_descriptor"]["name"]: each.get("has_news") for each in streams}


def test_each_stream_is_reported_in_one_message(tmp_path: Path) -> None:
    source = Scripted(Counting("users"), Counting("tags"), Counting("new"), Mute("mute"))
    states = {"users": {"rows": 5}, "tags": {"rows": 2}}
    code, messages = probe(tmp_path, source, ["users", "tags", "new", "mute", "gone"], states)
    assert code == 0
    assert news(messages) == {
        "users": False,
        "tags": True,
        "new": True,
        "mute": None,
        "gone": None,
    }


def test_a_failed_probe_of_the_only_stream_is_an_error(tmp_path: Path) -> None:
    code, messages = probe(tmp_path, Scripted(Counting("")), [""], {}, password="hunter2")
    (message,) = messages
    assert code == 1
    assert message["trace"]["error"]["failure_type"] == "transient_error"
    assert message["trace"]["error"]["message"] == "no server answers at ****"


def test_a_failed_probe_of_a_stream_does_not_affect_other_streams(tmp_path: Path) -> None:
    source = Scripted(Counting(""), Counting("users"))
    code, (log, *messages) = probe(tmp_path, source, ["", "users"], {}, password="hunter2")
    assert code == 0
    assert "no server answers at ****" in log["log"]["message"]
    assert news(messages) == {"": None, "users": True}


def test_the_shop_has_no_new_data_in_partitions_that_were_read(tmp_path: Path) -> None:
    end = "2026-01-02T00:00:00.000000Z"
    marks = [
        {"context": {"region": region}, "replication_key_value": end}
        for region in ("east", "north", "south", "west")
    ]
    for number, expected in ((4, False), (3, True)):
        states = {"visits": {"partitions": marks[:number]}}
        config = {"count": 10, "days": 1, "all_streams": True}
        _, messages = probe(tmp_path, Faker(), ["visits"], states, **config)
        assert news(messages) == {"visits": expected}


@pytest.mark.parametrize(("days", "expected"), [(None, True), (2, True), (1, False)])
def test_the_shop_has_new_data_until_its_last_day(
    tmp_path: Path, days: int | None, expected: bool
) -> None:
    end = "2026-01-02T00:00:00.000000Z"
    config = {"count": 10} if days is None else {"count": 10, "days": days}
    states = {"users": {"updated_at": end, "clock": end}}
    code, messages = probe(tmp_path, Faker(), ["users", "orders"], states, **config)
    assert code == 0
    assert news(messages) == {"users": expected, "orders": True}
