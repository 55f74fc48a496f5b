"""Records that a filter keeps from being stored, and new names: what a session and a relay make of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import COMPLETE, Message, RawRecord
from elt_assets.sync.destination_messages import DestinationNames
from elt_assets.sync.events import Acknowledged
from elt_assets.sync.field_selection import FieldSelection, Renames
from elt_assets.sync.record_filter import RecordFilter
from elt_assets.sync.relay import Relay
from elt_assets.sync.session import Threshold
from elt_assets.sync.streams import StreamRules
from tests.support.examples import examples
from tests.sync.doubles import MemorySink, Sync, catalog, message, record, shared, status
from tests.sync.test_filters_model import OBJECTS, RULES, SALT, written
from tests.sync.test_relay import Destination, States
from tests.sync.test_relay import record as whole_record

A = StreamId("a")


def is_even(fields: Mapping[str, Raw]) -> bool:
    return int(bytes(fields["n"])) % 2 == 0


EVEN = RecordFilter(None, condition=is_even)


def state_after(value: int, records: int, stream: str = "a") -> Any:
    body = {"stream_descriptor": {"name": stream}, "stream_state": value}
    stats = {"recordCount": records}
    return message("STATE", {"type": "STREAM", "stream": body, "sourceStats": stats})


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(0, 9) | st.none()), st.integers(1, 4))
def test_filtered_records_are_counted_and_lose_no_state(
    steps: list[int | None], limit: int
) -> None:
    """`None` stands for a state, with the count of the records before it."""
    messages, since = [], 0
    for position, number in enumerate([*steps, None]):
        messages.append(state_after(position, since) if number is None else record(number))
        since = 0 if number is None else since + 1
    with TemporaryDirectory() as folder:
        sink = MemorySink()
        sync = Sync(Path(folder), {"a": sink}, Threshold(rows=limit), filters={A: EVEN})
        sync.run([*messages, status(COMPLETE)])
    assert sync.failure is None
    numbers = [number for number in steps if number is not None]
    assert sink.numbers == [number for number in numbers if number % 2 == 0]
    assert sink.state == len(steps)
    committed = sum(
        event.commit.records for event in sync.events if isinstance(event, Acknowledged)
    )
    assert committed == len(sink.numbers)


def test_a_filtered_record_after_the_last_state_is_counted_once(tmp_path: Path) -> None:
    sink = MemorySink()
    sync = Sync(tmp_path, {"a": sink}, Threshold(rows=100), filters={A: EVEN})
    sync.run(
        [record(0), record(1), state_after(1, 2), record(3), message("TRACE", {"type": "ERROR"})]
    )
    assert sync.failure is not None
    assert (sink.numbers, sink.state) == ([0], 1)


class Relayed:
    """A relay of streams, some with other names at the destination, and what became of it."""

    def __init__(self, names: Mapping[str, str], **rules: Any):
        streams = ["a", "b"]
        self.sinks = {StreamId(name): States() for name in streams}
        by_stream = {StreamId(name): new for name, new in names.items()}
        self.destination = Destination()
        rules = {"filters": {A: EVEN}, **rules}
        names_there = DestinationNames(by_stream)
        self.relay = Relay(
            catalog(streams),
            self.sinks,
            self.send,
            StreamRules(**rules),
            names_there,
        )

    def send(self, lines: Iterable[bytes]) -> Iterator[Message]:
        return self.destination(lines)

    def run(self, *messages: Any) -> list[Acknowledged]:
        events = list(self.relay.run(messages))
        return [event for event in events if isinstance(event, Acknowledged)]


def test_a_destination_gets_its_names_and_the_records_that_a_state_counts() -> None:
    relayed = Relayed({"a": "crm_a", "b": "a"})
    sent = [whole_record(number) for number in range(3)]
    acknowledged = relayed.run(
        *sent, state_after(1, 3), whole_record(7, stream="b"), state_after(2, 1, "b"),
        whole_record(5), state_after(3, 1), status(COMPLETE), status(COMPLETE, "b"),
    )  # fmt: skip
    lines = relayed.destination.lines
    records = [line["record"] for line in lines if line["type"] == "RECORD"]
    numbers = [(item["stream"], item["data"]["n"]) for item in records]
    assert numbers == [("crm_a", 0), ("crm_a", 2), ("a", 7)]
    states = [line["state"] for line in lines if line["type"] == "STATE"]
    names = [item["stream"]["stream_descriptor"]["name"] for item in states]
    assert names == ["crm_a", "a", "crm_a"]
    assert [item["sourceStats"]["recordCount"] for item in states] == [2, 1, 0]
    statuses = [line["trace"]["stream_status"] for line in lines if line["type"] == "TRACE"]
    assert [item["stream_descriptor"]["name"] for item in statuses] == ["crm_a", "a"]
    totals = {
        str(stream): sum(event.commit.records for event in acknowledged if event.stream == stream)
        for stream in relayed.sinks
    }
    assert totals == {"a": 2, "b": 1}
    assert [sink.state for sink in relayed.sinks.values()] == [3, 2]
    states_stored = relayed.sinks[A].commits[-1].states or relayed.sinks[A].commits[0].states
    assert (
        states_stored[-1].stream is not None
        and states_stored[-1].stream.stream_descriptor.name == "a"
    )


def test_a_shared_state_reaches_the_destination_with_its_names_and_counts() -> None:
    relayed = Relayed({"a": "crm_a"}, shares_state=True)
    relayed.run(
        whole_record(0), whole_record(1), whole_record(3, stream="b"), shared(1, ["a", "b"], 3),
        status(COMPLETE), status(COMPLETE, "b"),
    )  # fmt: skip
    [sent] = [line["state"] for line in relayed.destination.lines if line["type"] == "STATE"]
    entries = sent["global"]["stream_states"]
    assert [item["stream_descriptor"]["name"] for item in entries] == ["crm_a", "b"]
    assert sent["sourceStats"]["recordCount"] == 2
    assert [sink.state for sink in relayed.sinks.values()] == [1, 1]


def test_an_error_of_the_destination_names_the_stream_of_the_catalog() -> None:
    failed = {"message": "disk full", "stream_descriptor": {"name": "crm_a"}}
    answer = message("TRACE", {"type": "ERROR", "error": failed})
    assert isinstance(answer, Message)
    relayed = Relayed({"a": "crm_a"})
    relayed.destination = Destination(lambda echo: [echo, answer])
    with pytest.raises(Exception, match="stream 'a'"):
        relayed.run(whole_record(0), state_after(1, 1), status(COMPLETE), status(COMPLETE, "b"))


RENAMES = Renames({"a": "b", "b": "x"}, frozenset({"a", "b", "ü"}))


def rename(data: dict[str, Any]) -> dict[str, Any]:
    return {RENAMES.names.get(name, name): value for name, value in data.items()}


@settings(max_examples=examples(300), deadline=None)
@given(OBJECTS, RULES)
def test_new_names_do_not_change_what_the_rules_for_fields_do(
    raw: Any, rules: FieldSelection
) -> None:
    data = Raw(written(raw).encode())
    plain = RecordFilter(rules, SALT)(RawRecord("a", data, 1.0))
    renamed = RecordFilter(rules, SALT, renames=RENAMES)(RawRecord("a", data, 1.0))
    assert plain is not None and renamed is not None
    assert json.loads(bytes(renamed.data)) == rename(json.loads(bytes(plain.data)))
    changed = [json.loads(bytes(item.meta)) or {} for item in (plain, renamed)]
    before, after = ([item["field"] for item in meta.get("changes", [])] for meta in changed)
    assert after == [RENAMES.rename_path(field) for field in before]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"X": 5}', {}),  # an undeclared field is not taken for the renamed item
        ('{"A": 1, "B": 2}', {"b": 1, "x": 2}),  # the case of a name does not matter
        ('{"a": 1, "A": 2, "c": 3}', {"b": 1, "A": 2, "c": 3}),
        ('{"\\u0061": 1.50}', {"b": 1.5}),
        ('["a"]', '["a"]'),  # no object: rejected by the table, with its content
        ('{"a": 1', '{"a": 1'),
    ],
)
def test_a_record_that_the_catalog_does_not_describe_keeps_what_it_can(
    data: str, expected: Any
) -> None:
    renamed = RecordFilter(None, renames=RENAMES)(RawRecord("a", Raw(data.encode()), 1.0))
    assert renamed is not None and json.loads(bytes(renamed.data)) == expected


def test_the_key_and_the_cursor_have_the_new_names_in_every_part_of_a_schema() -> None:
    [stream] = catalog().streams
    stream.cursor_field, stream.primary_key = ["a"], [["a", "in"], ["c"]]
    stream.stream.default_cursor_field = ["b"]
    stream.stream.source_defined_primary_key = [["b"]]
    stream.stream.json_schema = {
        "properties": {"a": {"type": "string"}, "c": {}},
        "required": ["a", 5],
        "anyOf": [{"properties": {"b": {}}}, True],
    }
    renamed = RENAMES.rename_stream(stream)
    assert (renamed.cursor_field, renamed.primary_key) == (["b"], [["b", "in"], ["c"]])
    assert (renamed.stream.default_cursor_field, renamed.key) == (["x"], [["x"]])
    assert renamed.stream.json_schema == {
        "properties": {"b": {"type": "string"}, "c": {}},
        "required": ["b", 5],
        "anyOf": [{"properties": {"x": {}}}, True],
    }
    assert stream.cursor_field == ["a"] and "a" in stream.stream.json_schema["properties"]
