"""Any bytes in the texts of any message: each message is used as the table of docs/connectors.md says."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.protocol.codec import decode, decode_blocks, encode
from elt_assets.protocol.messages import Message, RawRecord, RecordLines, State
from elt_assets.protocol.routing import airbyte_runs, singer_runs
from elt_assets.protocol.singer import Translator, state_value
from elt_assets.protocol.wire import as_read, decode_for_output, read, repair
from tests.support.examples import examples


class Sent(NamedTuple):
    """JSON as it is sent, and what it means."""

    raw: bytes
    means: Any


PARTS = [
    *(Sent(b"cut \\ud83d", "cut \ufffd"), Sent(b"\\uDE00", "\ufffd"), Sent(b"\\ud83d\\ude00", "\U0001f600")),
    *(Sent(b"\\\\ud83d", "\\ud83d"), Sent(b"\\u0000", "\x00"), Sent(b'\\"', '"'), Sent(b"\xff", "\ufffd")),
    *(Sent(b"\xc3\xc3\xff", "\ufffd"), Sent(b"\t\r\x00", "\t\r\x00"), Sent("é😀".encode(), "é😀")),
    *(Sent(b"NaN", "NaN"), Sent("\ufdd0".encode(), "\ufdd0"), Sent(b"\\ufDD1", "\ufdd1")),
    *(Sent(b"u0041", "u0041"), Sent(b"}{,", "}{,")),
]  # fmt: skip


def text_of(parts: list[Sent]) -> Sent:
    """Return a string of these parts, each apart from its neighbours."""
    raw, means = b"-".join(part.raw for part in parts), "-".join(part.means for part in parts)
    return Sent(b'"%b"' % raw, means)


def list_of(items: list[Sent]) -> Sent:
    return Sent(b"[%b]" % b", ".join(item.raw for item in items), [item.means for item in items])


def object_of(fields: list[tuple[Sent, Sent]]) -> Sent:
    raw = b",".join(b"%b:%b" % (name.raw, value.raw) for name, value in fields)
    return Sent(b"{%b}" % raw, {name.means: value.means for name, value in fields})


TEXTS = st.lists(st.sampled_from(PARTS), max_size=3).map(text_of)
NUMBERS = st.sampled_from(
    [Sent(b"NaN", "NaN"), Sent(b"-Infinity", "-Infinity"), Sent(b"1", 1), Sent(b"null", None)]
)
VALUES = st.recursive(
    TEXTS | NUMBERS,
    lambda inner: (
        st.lists(inner, max_size=2).map(list_of)
        | st.lists(st.tuples(TEXTS, inner), max_size=2).map(object_of)
    ),
    max_leaves=4,
)
OBJECTS = st.lists(st.tuples(TEXTS, VALUES), max_size=3).map(object_of)
# Bytes that end no string and no line, and in which no backslash makes an escape that is none.
ANY = st.binary(max_size=12).map(lambda text: bytes(set(range(256)) & set(text) - set(b'"\\\n')))
MARKS = st.sampled_from([b"", b"\xef\xbb\xbf"])
CUT = Sent(b'{"a":"\\ud83d\xff"}', {"a": "\ufffd\ufffd"})


def airbyte_record(data: bytes, stream: bytes = b"users") -> bytes:
    return b'{"type":"RECORD","record":{"stream":"%b","data":%b}}' % (stream, data)


def singer_record(data: bytes) -> bytes:
    return b'{"type":"RECORD","stream":"users","record":%b}' % data


def singer(*lines: bytes) -> list[RawRecord | Message]:
    translator = Translator()
    return [message for line in lines for message in translator.messages(line)]


def decode_whole(line: bytes) -> Message:
    message = decode(line, whole=True)
    assert isinstance(message, Message)
    assert message.type != "LOG" or b'"LOG"' in line
    return message


@pytest.mark.spec("airbyte.28")
@settings(max_examples=examples(300), deadline=None)
@given(OBJECTS, OBJECTS, MARKS)
@example(CUT, CUT, b"")
def test_the_data_of_a_record_is_as_received(data: Sent, meta: Sent, mark: bytes) -> None:
    line = b'%b{"type":"RECORD","record":{"meta":%b,"data":%b,"stream":"users"}}' % (
        *(mark, meta.raw),
        data.raw,
    )
    record, whole = decode(line), decode_whole(line).record
    assert isinstance(record, RawRecord) and whole is not None and whole.meta is not None
    assert bytes(record.data) == bytes(whole.data) == data.raw
    assert bytes(record.meta) == bytes(whole.meta) == meta.raw
    [again, _] = decode_blocks([line + b"\n" + airbyte_record(b"{}") + b"\n"])
    assert again == record
    [received] = singer(mark + singer_record(data.raw))
    assert isinstance(received, RawRecord) and bytes(received.data) == data.raw
    [batch] = Translator(read_file=lambda _url, _encoding: iter([mark + data.raw])).messages(
        b'{"type":"BATCH","stream":"users","encoding":{"format":"jsonl"},"manifest":["file:///x"]}'
    )
    assert isinstance(batch, RawRecord) and read(loaded, batch.data) == data.means


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(OBJECTS | st.just(Sent(b'{"a":1}', None)), min_size=1, max_size=6), st.booleans())
def test_records_in_runs_are_as_received(sent: list[Sent], is_singer: bool) -> None:
    make = singer_record if is_singer else airbyte_record
    runs = singer_runs(Translator()) if is_singer else airbyte_runs()
    block = b"".join(make(part.raw) + b"\n" for part in sent)
    assert list(data_of([*runs.messages(block), *runs.messages(block)])) == 2 * [
        s.raw for s in sent
    ]


def data_of(messages: list[Any]) -> Iterator[bytes]:
    for message in messages:
        if isinstance(message, RecordLines):
            for line in message.lines.split(b"\n")[:-1]:
                received = decode(line) if b'"data"' in line[:60] else singer(line)[0]
                assert isinstance(received, RawRecord)
                yield bytes(received.data)
        else:
            yield bytes(message.data)


@pytest.mark.parametrize("name", [b"cut \\ud83d", b"\xff", b"a\tb"])
def test_a_name_that_is_no_text_gathers_no_lines(name: bytes) -> None:
    """The lake looks for the name in each line of a run."""
    line = airbyte_record(b"{}", name) + b"\n"
    runs = airbyte_runs()
    messages = [message for _ in range(3) for message in runs.messages(line)]
    assert all(isinstance(message, RawRecord) for message in messages)
    assert {message.stream for message in messages if isinstance(message, RawRecord)} == {
        name.replace(b"\\ud83d", b"\xff").decode("utf-8", "replace")
    }


@pytest.mark.spec("airbyte.28")
@settings(max_examples=examples(300), deadline=None)
@given(OBJECTS, OBJECTS, MARKS)
@example(CUT, CUT, b"")
def test_a_state_comes_back_byte_for_byte(blob: Sent, shared: Sent, mark: bytes) -> None:
    stream = b'{"stream_descriptor":{"name":"users"},"stream_state":%b}' % blob.raw
    bodies = [
        b'{"type":"STREAM","stream":%b}' % stream,
        b'{"type":"GLOBAL","global":{"stream_states":[%b],"shared_state":%b}}' % (stream, shared.raw),
        b'{"type":"LEGACY","data":%b}' % blob.raw,
    ]  # fmt: skip
    for body in bodies:
        message = decode_whole(b'%b{"type":"STATE","state":%b}' % (mark, body))
        assert message.state is not None
        assert message.state.to_json() == body
        assert encode(message) == b'{"type":"STATE","state":%b}\n' % body
        stored = message.state.text
        again = State.from_json(stored)
        assert again.text == stored == escape(body)
        assert read(loaded, again.to_json()) == read(loaded, stored)
        json.dumps(decode_for_output(stored), ensure_ascii=False, allow_nan=False).encode()
    [moved] = singer(b'{"type":"STATE","value":{"bookmarks":{"users":%b}}}' % blob.raw)
    assert isinstance(moved, Message) and moved.state is not None
    assert state_value([moved.state]) == b'{"bookmarks":{"users":%b}}' % blob.raw
    [legacy] = singer(b'{"type":"STATE","value":%b}' % blob.raw)
    assert isinstance(legacy, Message) and legacy.state is not None
    assert state_value([legacy.state]) == blob.raw


def escape(body: bytes) -> str:
    """Return a text with each byte that is not UTF-8 as the escape by which Python means it."""
    text = body.decode("utf-8", "surrogateescape")
    return "".join(f"\\u{ord(c):04x}" if "\udc80" <= c <= "\udcff" else c for c in text)


loaded = msgspec.json.Decoder().decode


@pytest.mark.spec("airbyte.28")
@settings(max_examples=examples(300), deadline=None)
@given(TEXTS, OBJECTS, MARKS)
@example(text_of(PARTS), CUT, b"")
def test_other_messages_have_the_replacement_character(
    text: Sent, config: Sent, mark: bytes
) -> None:
    log = decode_whole(
        mark + b'{"type":"LOG","log":{"level":"INFO","message":%b,"x":%b}}' % (text.raw, config.raw)
    ).log
    assert log is not None and log.message == text.means
    assert loaded(log.extra["x"]) == config.means
    error = b'{"message":%b,"stream_descriptor":{"name":%b}}' % (text.raw, text.raw)
    trace = decode_whole(
        mark + b'{"type":"TRACE","trace":{"type":"ERROR","error":%b}}' % error
    ).trace
    assert trace is not None and trace.error is not None and trace.error.stream_descriptor
    assert trace.error.message == trace.error.stream_descriptor.name == text.means
    control = b'{"type":"CONNECTOR_CONFIG","connectorConfig":{"config":%b}}' % config.raw
    update = decode_whole(mark + b'{"type":"CONTROL","control":%b}' % control).control
    assert update is not None and update.connectorConfig is not None
    assert update.connectorConfig.config == config.means
    spec = decode_whole(
        mark + b'{"type":"SPEC","spec":{"connectionSpecification":%b}}' % config.raw
    ).spec
    assert spec is not None and spec.connectionSpecification == config.means
    stream = b'{"name":%b,"json_schema":%b}' % (text.raw, config.raw)
    catalog = decode_whole(mark + b'{"type":"CATALOG","catalog":{"streams":[%b]}}' % stream).catalog
    assert catalog is not None and catalog.streams[0].name == text.means
    assert catalog.streams[0].json_schema == config.means
    [schema] = singer(
        mark + b'{"type":"SCHEMA","stream":%b,"schema":{"x":%b}}' % (text.raw, config.raw)
    )
    assert isinstance(schema, Message) and schema.catalog is not None
    assert schema.catalog.streams[0].name == text.means
    assert schema.catalog.streams[0].json_schema["x"] == config.means


@settings(max_examples=examples(300), deadline=None)
@given(VALUES, MARKS)
def test_json_of_any_texts_is_read_and_mended(value: Sent, mark: bytes) -> None:
    assert read(loaded, mark + value.raw) == loaded(as_read(mark + value.raw)) == value.means
    raw = read(msgspec.json.Decoder(Raw).decode, mark + value.raw)
    assert read(loaded, raw) == value.means
    assert read(loaded, repair(mark + value.raw)) == value.means


@given(ANY)
def test_any_bytes_in_a_text_are_kept(text: bytes) -> None:
    data = b'{"%b":"%b"}' % (text, text)
    record = decode(airbyte_record(data))
    assert isinstance(record, RawRecord) and bytes(record.data) == data
    assert isinstance(read(loaded, data), dict)


def test_a_text_with_every_mark_is_refused_as_malformed() -> None:
    every = "".join(map(chr, range(0xFDD0, 0xFDF0)))
    with pytest.raises(msgspec.DecodeError):
        read(loaded, f'"{every}\\ud83d"')
    assert read(loaded, f'"{every}"') == every


def test_a_repair_takes_linear_time_and_memory() -> None:
    """The decoding of strings full of control characters: processor time and memory."""

    def cost(size: int, body: bytes) -> tuple[float, int]:
        line = b'{"type":"LOG","log":{"level":"INFO","message":"%b"}}' % (
            body * (size // len(body))
        )
        tracemalloc.start()
        start = time.process_time()
        repaired = repair(line)
        spent, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        json.loads(repaired)
        return spent, peak

    for body in (b"\x01", b"\t", b"\x01\t", b'\\"\t'):
        cost(1 << 14, body)
        (half, _), (whole, peak) = cost(1 << 15, body), cost(1 << 16, body)
        assert whole < 4 * half + 0.2
        assert peak < 20 * (1 << 16)


@pytest.mark.parametrize(
    ("line", "repaired"),
    [
        (b'{"a":"\t\r\x01"}', b'{"a":"\\u0009\\u000d\\u0001"}'),
        (b'{"a":\t"\\\\",\r"b":"\t"}', b'{"a":\t"\\\\",\r"b":"\\u0009"}'),
        (b'{"a":"\\"\t","b":NaN,"c":"NaN"}', b'{"a":"\\"\\u0009","b":"NaN","c":"NaN"}'),
        (b'{"a":-Infinity,"b":[Infinity]}', b'{"a":"-Infinity","b":["Infinity"]}'),
        (b'\xef\xbb\xbf\xef\xbb\xbf{"a":1}', b'{"a":1}'),
        (b'{"a":"no end\t', b'{"a":"no end\\u0009'),
    ],
)
def test_a_repair_changes_nothing_else(line: bytes, repaired: bytes) -> None:
    assert repair(line) == repaired
