"""Singer's lines as this project's messages, and states there and back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.errors import ConfigError, SystemFailure
from elt_assets.protocol.messages import (
    GlobalState,
    Message,
    PlainText,
    RawRecord,
    State,
    UndecodedLine,
)
from elt_assets.protocol.singer import Encoding, Translator, bookmarks, json_schema, state_value


def translate(*lines: Any, **options: Any) -> list[RawRecord | Message]:
    """Return the messages of a tap's lines; objects become JSON."""
    translator = Translator(**options)
    encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return [message for line in encoded for message in translator.messages(line)]


def translate_one(*lines: Any, **options: Any) -> Message:
    [message] = translate(*lines, **options)
    assert isinstance(message, Message)
    return message


def record(**more: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "users", "record": {"id": 1}, **more}


def schema(*, stream: str = "users", **more: Any) -> dict[str, Any]:
    properties = {"type": "object", "properties": {"id": {"type": "integer"}}}
    return {
        "type": "SCHEMA",
        "stream": stream,
        "schema": properties,
        "key_properties": ["id"],
        **more,
    }


def state(value: Any) -> dict[str, Any]:
    return {"type": "STATE", "value": value}


def test_a_record_keeps_its_bytes() -> None:
    line = b'{"type": "RECORD", "stream": "users", "record": { "id" : 1.0,"x":1e400}, "y": 5}'
    [received] = translate(line)
    assert isinstance(received, RawRecord)
    assert (received.stream, received.namespace, received.emitted_at) == ("users", None, None)
    assert bytes(received.data) == b'{ "id" : 1.0,"x":1e400}'


@pytest.mark.parametrize(
    ("time", "milliseconds"),
    [
        ("2026-01-02T03:04:05.678901+00:00", 1767323045679),
        ("2026-01-02T03:04:05.678Z", 1767323045678),
        ("2026-01-02T03:04:05+02:00", 1767315845000),
        ("2026-01-02T03:04:05", 1767323045000),
        ("1969-12-31T23:59:59Z", -1000),
        ("yesterday", None),
        (5, None),
        (None, None),
        ({"at": 1}, None),
    ],
)
def test_the_extraction_time_of_a_record_is_read(time: Any, milliseconds: float | None) -> None:
    [received] = translate(record(time_extracted=time))
    assert isinstance(received, RawRecord) and received.emitted_at == milliseconds


def test_similar_extraction_times_are_read_correctly() -> None:
    times = [
        "2026-01-02T03:04:05.678901+00:00",
        "2026-01-02T03:04:05.678001+00:00",
        "2026-01-02T03:04:05.678901+01:00",
        "2026-01-02T03:04:05.679901+01:00",
        "2026-01-02T03:04:05+02:00",
        "2026-01-02T03:04:05+02:30",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:05.678901+00:00",
    ]
    messages = translate(*(record(time_extracted=text) for text in times))
    emitted = [row.emitted_at or 0 for row in messages if isinstance(row, RawRecord)]
    gaps = [emitted[0] - milliseconds for milliseconds in emitted]
    assert [abs(gap) > 10 for gap in gaps] == [False, False, True, True, True, True, True, False]
    assert emitted[4] - emitted[5] == 30 * 60 * 1000


def test_a_stream_is_named_by_its_tap_stream_id() -> None:
    names = {"users": "public-users"}
    messages = translate(
        schema(), record(version=1), state({"bookmarks": {"users": {}}}), names=names
    )
    catalog, generation, row, moved = messages
    assert isinstance(catalog, Message) and catalog.catalog is not None
    assert catalog.catalog.streams[0].name == "public-users"
    assert isinstance(generation, Message) and generation.generation is not None
    assert generation.generation.stream_descriptor.name == "public-users"
    assert isinstance(row, RawRecord) and row.stream == "public-users"
    # The key of a bookmark is the id already.
    assert isinstance(moved, Message) and moved.state is not None and moved.state.stream is not None
    assert moved.state.stream.stream_descriptor.name == "users"


# --- lines that are no messages -----------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"RECORD","stream":"users","record":{"id"',
        b'{"stream":"users","record":{"id":1},"ty',
        b'{"type":"RECORD","stream":"users"}',
        b'{"type":"RECORD","record":{}}',
        b'{"type":"RECORD","stream":"users","record":{},"version":"new"}',
        b'{"type":"RECORD","stream":"users","record":{"a":\xff}}',
        b'{"type":"SCHEMA","stream":"users"}',
        b'{"type":"SCHEMA","stream":"users","schema":[]}',
        b'{"type":"STATE"}',
        b'{"value":{"bookmarks"',
        b'{"type":"ACTIVATE_VERSION","stream":"users"}',
        b'{"type":"BATCH","stream":"users","manifest":["file:///x"]}',
        b'{"type":"RECORD","stream":"users","record":' + b"[" * 100_000,
    ],
)
def test_a_malformed_message_is_an_error(line: bytes) -> None:
    with pytest.raises(SystemFailure, match=r"malformed|too deeply"):
        translate(line)


@pytest.mark.parametrize("line", [b"hello", b"5", b'{"level":"INFO"}', b'{"type":5}', b"\xff\x00"])
def test_a_line_that_is_not_a_message_is_plain_text(line: bytes) -> None:
    assert isinstance(translate_one(line), PlainText)


def test_an_unknown_message_is_a_warning() -> None:
    message = translate_one({"type": "ACTIVATE", "stream": "users"})
    assert isinstance(message, UndecodedLine) and message.log is not None
    assert "unknown type 'ACTIVATE'" in message.log.message


FRAGMENTS = st.sampled_from(
    [
        *(b'{"type":"%b",' % kind for kind in (b"RECORD", b"SCHEMA", b"STATE", b"BATCH", b"X")),
        *(b'"stream":"a",', b'"record":{}', b'"schema":{}', b'"value":', b'{"bookmarks":{"a":{}}}'),
        *(b'"version":1', b'"manifest":[]', b'"encoding":{"format":"jsonl"}', b"}", b",", b"NaN"),
    ]
)


@given(st.binary(max_size=60) | st.lists(FRAGMENTS, max_size=6).map(b"".join))
def test_any_line_is_decoded_or_is_a_known_error(line: bytes) -> None:
    try:
        messages = translate(line)
    except (SystemFailure, ConfigError):
        return
    assert all(isinstance(message, (RawRecord, Message)) for message in messages)


# --- schemas --------------------------------------------------------------------------------------


def test_a_catalog_is_sent_only_if_the_schema_changes() -> None:
    wider = schema(schema={"properties": {"id": {"type": "integer"}, "x": {}}})
    messages = translate(schema(), record(), schema(), wider, wider, schema(key_properties=[]))
    catalogs = [message.catalog for message in messages if isinstance(message, Message)]
    streams = [catalog.streams[0] for catalog in catalogs if catalog is not None]
    assert len(streams) == 3
    assert streams[0].json_schema == schema()["schema"]
    assert [stream.source_defined_primary_key for stream in streams] == [[["id"]], [["id"]], None]
    assert list(streams[1].json_schema["properties"]) == ["id", "x"]


@pytest.mark.parametrize(
    ("properties", "cursor"),
    [(["at"], ["at"]), (["a", "b"], None), ([], None), (None, None), ("at", None), ([5], None)],
)
def test_a_single_bookmark_property_becomes_the_cursor_field(
    properties: Any, cursor: list[str] | None
) -> None:
    catalog = translate_one(schema(bookmark_properties=properties)).catalog
    assert catalog is not None and catalog.streams[0].default_cursor_field == cursor


def test_references_within_a_schema_are_resolved() -> None:
    declared = {
        "definitions": {
            "a/b~c": {"type": ["null", "string"], "format": "date-time"},
            "tree": {"type": "object", "properties": {"kids": {"items": {"$ref": "#/definitions/tree"}}}},
        },
        "properties": {
            "at": {"$ref": "#/definitions/a~1b~0c", "description": "when"},
            "tree": {"$ref": "#/definitions/tree"},
            "lost": {"$ref": "#/definitions/nowhere"},
            "known": {"$ref": "WellKnownTypes.json#/definitions/Date"},
            "$ref": {"type": "integer"},
        },
    }  # fmt: skip
    assert json_schema(declared) == {
        **declared,
        "properties": {
            "at": {"type": ["null", "string"], "format": "date-time", "description": "when"},
            "tree": {"$ref": "#/definitions/tree"},
            "lost": {"$ref": "#/definitions/nowhere"},
            "known": {"$ref": "WellKnownTypes.json#/definitions/Date"},
            "$ref": {"type": "integer"},
        },
    }


def test_exponential_references_are_resolved_in_limited_time() -> None:
    doubling = {
        f"d{n}": {"properties": {x: {"$ref": f"#/definitions/d{n + 1}"} for x in "abcd"}}
        for n in range(40)
    }
    start = time.monotonic()
    resolved = json_schema({"definitions": doubling, "$ref": "#/definitions/d0"})
    assert time.monotonic() - start < 20
    assert set(resolved["properties"]) == set("abcd")


def _make_deep_schema(properties: bytes) -> bytes:
    """Return a line with a SCHEMA that has more levels than the decoder reads."""
    nested = b'{"items":' * 5_000 + b"{}" + b"}" * 5_000
    return (
        b'{"type":"SCHEMA","stream":"users","key_properties":["id"],'
        b'"schema":{"properties":{%b,"nested":%b}}}' % (properties, nested)
    )


@pytest.mark.parametrize("bad_text", [rb"\ud83d", b"\xff"], ids=["half pair", "no UTF-8"])
def test_a_deep_schema_may_have_a_name_that_is_no_text(bad_text: bytes) -> None:
    line = _make_deep_schema(b'"id":{"type":"integer"},"name %b":{"type":"string"}' % bad_text)
    catalog = translate_one(line).catalog
    assert catalog is not None
    assert list(catalog.streams[0].json_schema["properties"]) == ["id", "name \ufffd", "nested"]


def test_a_deep_schema_that_is_no_object_is_malformed() -> None:
    line = b'{"type":"SCHEMA","stream":"users","schema":%b}' % (b"[" * 5_000 + b"]" * 5_000)
    with pytest.raises(SystemFailure, match="malformed SCHEMA"):
        translate(line)


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ({"type": ["null", "string"], "format": "singer.decimal"}, "big_number"),
        ({"type": ["null", "number"], "multipleOf": 0.01}, "big_number"),
        ({"type": "number", "multipleOf": 1e-09}, "big_number"),
        ({"type": "number", "multipleOf": 1}, "big_integer"),
        ({"type": "number", "multipleOf": 1e-38}, None),
        ({"type": "number", "multipleOf": 0}, None),
        ({"type": "number", "multipleOf": "x"}, None),
        ({"type": "number"}, None),
        ({"type": "integer", "maximum": 18446744073709551615}, "big_integer"),
        ({"type": "integer", "maximum": 2147483647}, None),
        ({"type": "string"}, None),
    ],
)
def test_decimal_types_are_recognized(declared: dict[str, Any], kind: str | None) -> None:
    converted = json_schema({"properties": {"x": declared}})["properties"]["x"]
    assert converted.get("airbyte_type") == kind
    assert ("string" in converted["type"]) == (declared == {"type": "string"})


# --- versions -------------------------------------------------------------------------------------


@pytest.mark.spec("singer.25")
def test_a_version_becomes_a_generation() -> None:
    activate = {"type": "ACTIVATE_VERSION", "stream": "users", "version": 2}
    rows = [record(version=1), record(version=1), record(version=2), record()]
    messages = translate(record(), *rows, activate, record(version=2))
    generations = [
        (message.generation.generation_id, message.generation.complete)
        if isinstance(message, Message) and message.generation is not None
        else "record"
        for message in messages
    ]
    assert generations == [
        *("record", (1, False), "record", "record", (2, False), "record", "record"),
        *((2, True), "record"),
    ]


def test_a_tap_without_versions_has_no_generations() -> None:
    messages = translate(schema(), record(), record(version=None), state({}))
    assert all(message.generation is None for message in messages if isinstance(message, Message))


# --- states ---------------------------------------------------------------------------------------


def states(messages: list[RawRecord | Message]) -> list[State]:
    return [
        message.state
        for message in messages
        if isinstance(message, Message) and message.state is not None
    ]


@pytest.mark.spec("sdk.1", "sdk.5", "sdk.10", "sdk.11", "singer.8")
def test_bookmarks_are_split_by_stream_byte_for_byte() -> None:
    line = (
        b'{"type":"STATE","value":{"currently_syncing":"b","bookmarks":'
        b'{"a":{ "n": 1.0 },"b":{"n":1e2,"t":"\\u00e9"}}}}'
    )
    sent_states = states(translate(line))
    assert [sent_state.type for sent_state in sent_states] == ["STREAM", "STREAM"]
    streams = [sent_state.stream for sent_state in sent_states if sent_state.stream is not None]
    assert [(s.stream_descriptor.name, bytes(s.stream_state or b"")) for s in streams] == [
        ("a", b'{ "n": 1.0 }'),
        ("b", b'{"n":1e2,"t":"\\u00e9"}'),
    ]


@pytest.mark.spec("sdk.3")
def test_only_changed_bookmarks_are_sent() -> None:
    first = {"bookmarks": {"a": {"n": 1}, "b": {"n": 1}}}
    second = {"bookmarks": {"a": {"n": 1}, "b": {"n": 2}}, "currently_syncing": "b"}
    third = {"bookmarks": {"b": {"n": 2}}}
    sent_states = states(translate(state(first), state(second), state(second), state(third)))
    bookmarks = [
        (s.stream_descriptor.name, s.stream_state and json.loads(bytes(s.stream_state)))
        for s in (sent_state.stream for sent_state in sent_states)
        if s is not None
    ]
    assert bookmarks == [("a", {"n": 1}), ("b", {"n": 1}), ("b", {"n": 2}), ("a", None)]


def test_an_unchanged_bookmark_is_sent_again_if_it_covers_new_records() -> None:
    marks = state({"bookmarks": {"users": {"n": 1}, "idle": {"n": 1}}})
    sent_states = states(translate(record(), marks, record(), marks, marks, record(), marks))
    names = [
        sent_state.stream.stream_descriptor.name
        for sent_state in sent_states
        if sent_state.stream is not None
    ]
    assert names == ["users", "idle", "users", "users"]


def test_the_bookmark_of_a_parent_covers_the_records_of_its_child() -> None:
    """A child stream that has no bookmark resumes after that of its parent."""
    state = {"type": "STATE", "value": {"bookmarks": {"parents": {"n": 1}}}}
    record = {"type": "RECORD", "stream": "children", "record": {"id": 1}}
    translator = Translator(streams=["children"])

    counts = [
        sum(
            isinstance(message, Message)
            for message in translator.messages(json.dumps(line).encode())
        )
        for line in (state, record, record, state, state, record, state)
    ]

    assert counts == [1, 0, 0, 1, 0, 0, 1]


@pytest.mark.spec("singer.9")
@pytest.mark.parametrize(
    "value",
    [
        b'{"n": 1.0}', b"{}", b"5", b'"x"', b"[1, 2]", b'{"currently_syncing":"a"}',
        b'{"bookmarks":{"a":5}}', b'{"bookmarks":[]}', b'{"bookmarks":{"a":{}},"more":1}',
    ],
)  # fmt: skip
def test_any_other_state_is_a_legacy_state_byte_for_byte(value: bytes) -> None:
    [sent_state] = states(translate(b'{"type":"STATE","value":' + value + b"}"))
    assert sent_state.type == "LEGACY" and bytes(sent_state.data or b"") == value
    assert state_value([State.from_json(sent_state.to_json())]) == value


def test_an_empty_or_null_state_has_no_value() -> None:
    assert state_value([]) is None
    [null] = states(translate(state(None)))
    assert state_value([State.from_json(null.to_json())]) is None


def test_a_global_state_is_refused() -> None:
    with pytest.raises(ConfigError, match="GLOBAL"):
        state_value([State(type="GLOBAL", global_=GlobalState(stream_states=[]))])


BLOBS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
OBJECTS = st.dictionaries(st.text(max_size=4), BLOBS, max_size=3)
STANDARD = st.dictionaries(st.text(max_size=4), OBJECTS, max_size=4).map(lambda b: {"bookmarks": b})
VALUES = st.lists(STANDARD | STANDARD | OBJECTS, min_size=1, max_size=5)


@pytest.mark.spec("sdk.4", "singer.7")
@given(VALUES, st.sampled_from([(",", ":"), (", ", " : ")]), st.booleans())
def test_the_value_of_a_tap_can_be_rebuilt_from_its_states(
    values: list[Any], separators: tuple[str, str], ascii_only: bool
) -> None:
    encoded = [json.dumps(v, separators=separators, ensure_ascii=ascii_only) for v in values]
    lines = [b'{"type":"STATE","value":%b}' % value.encode() for value in encoded]
    stored_states = [State.from_json(sent.to_json()) for sent in states(translate(*lines))]
    rebuilt = state_value(stored_states)
    last = encoded[-1].encode()
    marks = bookmarks(last)
    if marks is None:
        assert rebuilt == last
    elif not marks:
        assert (
            rebuilt is None or bookmarks(rebuilt) == {}
        )  # with either, a tap starts from the beginning
    else:
        assert rebuilt is not None and bookmarks(rebuilt) == marks


NUMBERED = st.integers(1, 3).map(lambda n: {"n": n})
MARKS = st.dictionaries(st.sampled_from(["a", "b", "parent", "other"]), st.just({}) | NUMBERED)


@pytest.mark.spec("sdk.6")
@given(st.lists(MARKS.map(lambda marks: {"bookmarks": marks}), min_size=1))
def test_bookmarks_of_streams_that_are_not_read_are_kept(values: list[Any]) -> None:
    stored_states: dict[str, State] = {}
    for sent_state in states(translate(*map(state, values), streams={"a", "b"})):
        copied = State.from_json(sent_state.to_json())
        assert copied.stream is not None
        stored_states[copied.stream.stream_descriptor.name] = copied
    rebuilt = bookmarks(state_value(list(stored_states.values())) or b'{"bookmarks":{}}') or {}
    rebuilt_marks = {name: json.loads(mark) for name, mark in rebuilt.items()}
    last_marks = values[-1]["bookmarks"]
    assert {name: mark for name, mark in rebuilt_marks.items() if mark} == {
        name: mark for name, mark in last_marks.items() if mark
    }


@pytest.mark.spec("sdk.7")
def test_a_bookmark_that_differs_between_two_states_is_omitted() -> None:
    """A run ended between the two commits, so which of the bookmarks is older is unknown."""
    first = states(
        translate(state({"bookmarks": {"a": {}, "b": {}, "parent": {"n": 1}}}), streams="ab")
    )
    later = states(
        translate(state({"bookmarks": {"a": {}, "b": {}, "parent": {"n": 2}}}), streams="ab")
    )
    value = state_value(
        [State.from_json(sent_state.to_json()) for sent_state in (first[0], later[1])]
    )
    assert bookmarks(value or b"") == {"a": b"{}", "b": b"{}"}


# --- batches --------------------------------------------------------------------------------------

GZIPPED = {"format": "jsonl", "compression": "gzip"}


def batch(*files: str, **more: Any) -> dict[str, Any]:
    body = {"stream": "users", "encoding": GZIPPED, "manifest": list(files), **more}
    return {"type": "BATCH", **body}


def test_a_batch_is_read_as_the_records_of_its_files() -> None:
    requests = []

    def read(url: str, encoding: Encoding) -> Iterator[bytes]:
        requests.append((url, encoding))
        yield from (b'{"id": 1.0}', b'{"id":NaN}')

    messages = translate(batch("file:///a", "file:///b"), names={"users": "u"}, read_file=read)
    rows = [
        (message.stream, bytes(message.data))
        for message in messages
        if isinstance(message, RawRecord)
    ]
    assert rows == [("u", b'{"id": 1.0}'), ("u", b'{"id":NaN}')] * 2
    assert requests == [(url, Encoding("jsonl", "gzip")) for url in ("file:///a", "file:///b")]


@pytest.mark.parametrize("line", [b'{"id":1', b"{\xff}", b"", b"x", b"[" * 100_000])
def test_a_malformed_record_in_a_file_is_an_error(line: bytes) -> None:
    with pytest.raises(SystemFailure, match=r"file:///a contains a malformed record|too deeply"):
        translate(batch("file:///a"), read_file=lambda url, encoding: iter([line]))


def test_a_batch_is_refused_if_no_folder_is_allowed() -> None:
    with pytest.raises(ConfigError, match=r"sent a BATCH.*\n.*batch_config\.storage\.root"):
        translate(batch("file:///a"))
