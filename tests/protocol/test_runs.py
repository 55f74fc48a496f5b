"""Routing of RECORD lines in blocks: it gives what decoding line by line gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.errors import EltError
from elt_assets.protocol import routing
from elt_assets.protocol.codec import decode_line
from elt_assets.protocol.lines import MAX_LINE, blocks, split
from elt_assets.protocol.messages import Message, RawRecord, Received, RecordLines
from elt_assets.protocol.routing import airbyte_runs, singer_runs
from elt_assets.protocol.singer import Translator
from elt_assets.sync.segments import records
from tests.protocol.test_blocks import reader

Lines = list[tuple[bytes, int]]
"""Lines, each with the number of times that it is sent in a row."""

DATA = [
    b'{"n":1}',
    b"{}",
    b'{"namespace":"in data","version":3}',
    b'{"text":"a \\"namespace\\" }}","data":{"stream":"b"}}',
    b'{ "n" : [ {}, {"emitted_at":5} ] }',
    b'{"n":NaN,"t":"a\tb"}',
    b'"text"',
    b"null",
]
AIRBYTE = [
    b'{"type":"RECORD","record":{"stream":"%s","data":%b,"emitted_at":%d}}',
    b'{"type":"RECORD","record":{"stream":"%s","data":%b,"emitted_at":%d,"namespace":"public"}}',
    b'{"type":"RECORD","record":{"stream":"%s","data":%b,"emitted_at":%d,"namespace":"other"}}',
    b'{"type":"RECORD","record":{"namespace":"public","stream":"%s","data":%b,"emitted_at":%d}}',
    b'{"type": "RECORD", "record": {"stream": "%s", "data": %b, "emitted_at": %d}}\r',
    b'{"type":"RECORD","record":{"stream":"%s","data":%b,"emitted_at":%d,"meta":{"changes":[]}}}',
    b'{"type":"RECORD","record":{"stream":"%s","data":%b,"namespace":"public","emitted_at":%d}}',
    b' {"record":{"stream":"%s","data":%b,"emitted_at":%d},"type":"RECORD"}',
    b'{"type":"RECORD","record":{"stream":"%s","data":%b,"emitted_at":%d,"file_reference":{"a":1}}}',
    b'{"type":"RECORD","record":{"stream":"%s","data":%b,"emitted_at":%d} }',
    b'\xef\xbb\xbf{"type":"RECORD","record":{"stream":"%s","data":%b,"emitted_at":%d}}',
]
OTHERS = [
    b'{"type":"STATE","state":{"type":"LEGACY","data":{"a":1}}}',
    b'{"type":"LOG","log":{"level":"INFO","message":"x"}}',
    b'{"type":"NEW"}',
    b"plain text",
    b"",
    b"\r",
    b"{}",
]
SINGER = [
    b'{"type":"RECORD","stream":"%s","record":%b}',
    b'{"type":"RECORD","stream":"%s","record":%b,"version":1,"time_extracted":"2026-01-01T00:00:00Z"}',
    b'{"type":"RECORD","stream":"%s","record":%b,"version":2,"time_extracted":"2026-01-02T00:00:00Z"}',
    b'{"type": "RECORD", "stream": "%s", "record": %b, "time_extracted": "2026-01-03T00:00:00Z"}',
    b'{"type": "RECORD", "record": %2$b, "stream": "%1$s"}',
    b'{"type":"RECORD","stream":"%s","record":%b,"version":3}\r',
]
SINGER_OTHERS = [
    b'{"type":"STATE","value":{"bookmarks":{"a":{"n":1}}}}',
    b'{"type":"STATE","value":{"bookmarks":{"a":{"n":2}}}}',
    b'{"type":"ACTIVATE_VERSION","stream":"a","version":1}',
    b'{"type":"ACTIVATE_VERSION","stream":"a","version":2}',
    b'{"type":"SCHEMA","stream":"a","schema":{"properties":{"n":{"type":"integer"}}},"key_properties":[]}',
    b"plain text",
    b"",
]
BROKEN = [
    b'{"type":"RECORD","record":{"stream":"a","data":{"n":1},"emitted_at":1}',
    b'{"type":"RECORD","record":{"stream":"a","data":{"n":"\xff"},"emitted_at":1}}',
    b'{"type":"RECORD","record":{"stream":"a","data":{"n":1 1},"emitted_at":1}}',
    b'{"type":"RECORD","record":{"stream":"a","data":{"x":{"n":1},"emitted_at":1}}',
]


def _airbyte(form: bytes, stream: bytes, data: bytes, emitted_at: int) -> bytes:
    return form % (stream, data, emitted_at)


def _singer(form: bytes, stream: bytes, data: bytes) -> bytes:
    if b"$" in form:
        return form.replace(b"%2$b", data).replace(b"%1$s", stream)
    return form % (stream, data)


streams = st.sampled_from([b"a", b"b", b"data", b"namespace", b"\xc3\xa9", b'\\"q'])
times = st.sampled_from([1, 2, 3, 200])
airbyte_records = st.builds(
    _airbyte, st.sampled_from(AIRBYTE), streams, st.sampled_from(DATA), st.sampled_from([7, 12345])
)
singer_records = st.builds(_singer, st.sampled_from(SINGER), streams, st.sampled_from(DATA))
airbyte_lines = st.lists(st.tuples(airbyte_records | st.sampled_from(OTHERS), times), max_size=12)
singer_lines = st.lists(
    st.tuples(singer_records | st.sampled_from(SINGER_OTHERS), times), max_size=12
)


def text_of(lines: Lines, *, ends: bool = True) -> bytes:
    text = b"".join(line + b"\n" for line, times in lines for _ in range(times))
    return text if ends else text[:-1]


def split_in_blocks(text: bytes, size: int) -> Iterator[bytes]:
    return blocks(
        reader([text[start : start + size] for start in range(0, len(text), size)]), MAX_LINE
    )


def route(runs: Callable[[bytes], Iterable[Received]], parts: Iterable[bytes]) -> Iterator[Any]:
    for block in parts:
        for message in runs(block):
            if isinstance(message, RecordLines):
                assert message.lines.count(b"\n") == message.count
                yield from records(message)
            else:
                yield message


Story = tuple[list[tuple[str, bytes]], dict[str, list[tuple[str, bytes]]], str | None]


def story(messages: Iterator[RawRecord | Message]) -> Story:
    """The messages that are no records; by stream, its records among these messages; and the failure."""
    others: list[tuple[str, bytes]] = []
    by_stream: dict[str, list[tuple[str, bytes]]] = {}
    failure = None
    try:
        for message in messages:
            if isinstance(message, RawRecord):
                body = msgspec.json.encode(
                    {**msgspec.structs.asdict(message), "others": len(others)}
                )
                name = f"{message.namespace}.{message.stream}"
                by_stream.setdefault(name, []).append((name, body))
            else:
                others.append((message.type, message.to_json()))
    except EltError as error:
        failure = str(error)
    return others, by_stream, failure


def decode_by_line(text: bytes) -> Iterator[RawRecord | Message]:
    return chain.from_iterable(map(decode_line, split([text])))


@settings(deadline=None)
@given(airbyte_lines, st.integers(1, 40_000), st.booleans())
def test_airbyte_lines_give_what_their_decoding_gives(lines: Lines, size: int, ends: bool) -> None:
    text = text_of(lines, ends=ends)
    size = max(size, len(text) // 1_000)
    outcome = story(route(airbyte_runs().messages, split_in_blocks(text, size)))
    assert outcome == story(decode_by_line(text))


@settings(deadline=None)
@given(singer_lines, st.integers(1, 40_000), st.booleans())
def test_singer_lines_give_what_their_translation_gives(
    lines: Lines, size: int, ends: bool
) -> None:
    text, names = text_of(lines, ends=ends), {"b": "db-b"}
    size = max(size, len(text) // 1_000)
    translate = Translator(names).messages
    expected = story(message for line in split([text]) for message in translate(line))
    runs = singer_runs(Translator(names)).messages
    assert story(route(runs, split_in_blocks(text, size))) == expected


@settings(deadline=None)
@given(airbyte_lines, st.sampled_from(BROKEN), airbyte_lines)
def test_a_broken_record_is_found_and_no_record_is_in_another_place(
    before: Lines, broken: bytes, after: Lines
) -> None:
    text = text_of([*before, (broken, 1), *after])
    _, records_by_stream, failure = story(route(airbyte_runs().messages, [text]))
    _, expected, expected_failure = story(decode_by_line(text))
    assert (failure is None) == (expected_failure is None)
    for name, sent in records_by_stream.items():
        expected_records = expected.get(name, [])
        assert sent[: len(expected_records)] == expected_records[: len(sent)]


def record(stream: str, number: int, **more: Any) -> bytes:
    body = {"stream": stream, "data": {"n": number}, "emitted_at": number, **more}
    return json.dumps({"type": "RECORD", "record": body}, separators=(",", ":")).encode() + b"\n"


def run_counts(messages: Iterable[Received]) -> list[tuple[str, int]]:
    return [
        (message.stream, message.count) if isinstance(message, RecordLines) else ("", 0)
        for message in messages
    ]


def test_lines_of_a_known_stream_are_not_decoded() -> None:
    runs = airbyte_runs()
    assert run_counts(runs.messages(record("a", 0) + record("b", 0))) == [("", 0)] * 2
    mixed = b"".join(record(name, number) for number in range(50) for name in "ab")
    assert run_counts(runs.messages(mixed)) == [("a", 50), ("b", 50)]
    alone = b"".join(record("b", number) for number in range(100))
    assert run_counts(runs.messages(alone)) == [("b", 100)]


def test_a_state_separates_the_runs_before_and_after_it() -> None:
    runs, line = airbyte_runs(), record("a", 1)
    list(runs.messages(line * 2))
    state = b'{"type":"STATE","state":{"type":"LEGACY","data":{}}}\n'
    counts = run_counts(runs.messages(line * 1_000 + state + line * 2_000))
    assert counts == [("a", 1_000), ("", 0), ("a", 2_000)]


@pytest.mark.parametrize("more", [{"namespace": "x"}, {"meta": {"changes": []}, "namespace": "x"}])
def test_lines_with_a_namespace_behind_the_data_are_not_decoded(more: dict[str, Any]) -> None:
    runs, lines = airbyte_runs(), b"".join(record("a", number, **more) for number in range(9))
    assert run_counts(runs.messages(lines)) == [("", 0), ("a", 8)]
    assert run_counts(runs.messages(record("a", 1) + lines)) == [("", 0)] * 10


def test_one_stream_in_two_forms_keeps_its_order() -> None:
    runs = airbyte_runs()
    compact, spaced = AIRBYTE[0] + b"\n", AIRBYTE[4].removesuffix(b"\r") + b"\n"
    text = b"".join(
        form % (b"a", b"{}", number) for number in range(20) for form in (compact, spaced)
    )
    assert story(route(runs.messages, [text, text])) == story(decode_by_line(text + text))


def test_a_line_without_a_namespace_is_not_of_the_namespace_of_others() -> None:
    runs = airbyte_runs()
    public, plain = (form % (b"a", b"{}", 1) + b"\n" for form in (AIRBYTE[1], AIRBYTE[0]))
    messages = list(route(runs.messages, [public * 3, plain * 3, public * 3, plain * 3]))
    assert [message.namespace for message in messages] == (["public"] * 3 + [None] * 3) * 2


def test_a_version_of_a_tap_is_present_again_after_another_was_activated() -> None:
    record = SINGER[1] % (b"a", b"{}") + b"\n"
    text = record * 3 + b'{"type":"ACTIVATE_VERSION","stream":"a","version":2}\n' + record * 3
    runs, translate = singer_runs(Translator()).messages, Translator().messages
    expected = story(message for line in split([text]) for message in translate(line))
    assert story(route(runs, [text])) == expected


def test_a_source_with_very_many_streams_does_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "MAX_HEADS", 10)
    runs = airbyte_runs()
    lines = [record(f"s{number}", number) for number in range(25)]
    assert run_counts(runs.messages(b"".join(lines))) == [("", 0)] * 25
    counts = run_counts(runs.messages(b"".join(reversed(lines))))
    assert counts[:5] == [(f"s{number}", 1) for number in reversed(range(20, 25))]
    assert counts[5:] == [("", 0)] * 20
