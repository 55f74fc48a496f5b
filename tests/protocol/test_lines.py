"""Messages that share their line with other text: none is lost without an error; quoted JSON is text."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.errors import EltError, SystemFailure
from elt_assets.protocol.codec import decode, decode_blocks, decode_line
from elt_assets.protocol.lines import split
from elt_assets.protocol.messages import Message, PlainText, RawRecord, RecordLines
from elt_assets.protocol.routing import airbyte_runs, singer_runs
from elt_assets.protocol.singer import Translator, decode_record
from elt_assets.sync.segments import records

Sent = RawRecord | Message


def text(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def record(number: int, **more: Any) -> bytes:
    data = {"n": number, "t": 'O\'Brien wrote {"type":"STATE","state":{}}', **more}
    return text({"type": "RECORD", "record": {"stream": "a", "data": data, "emitted_at": 1}})


def singer_record(number: int) -> bytes:
    return text({"type": "RECORD", "stream": "a", "record": {"n": number, "t": "it's"}})


STATE = text(
    {
        "type": "STATE",
        "state": {"type": "STREAM", "stream": {"stream_descriptor": {"name": "a"}}},
    }
)
ERROR = text({"type": "TRACE", "trace": {"type": "ERROR", "error": {"message": "x"}}})
CONTROL = text(
    {"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "connectorConfig": {"config": {}}}}
)
FIRST_RECORD, SECOND_RECORD = record(1), record(2)
LOG = b'{"type":"LOG","log":{"level":"INFO","message":"part'
SORTED = json.dumps(json.loads(FIRST_RECORD), sort_keys=True).encode()


def kinds(messages: Iterable[Sent]) -> list[str]:
    return [
        "RECORD"
        if isinstance(message, RawRecord)
        else "text"
        if isinstance(message, PlainText)
        else message.type
        for message in messages
    ]


def json_of(line: bytes) -> Raw:
    message = decode(line)
    assert isinstance(message, RawRecord)
    return message.data


def read_log_text(message: Sent) -> str:
    assert isinstance(message, Message) and message.log is not None
    return message.log.message


@pytest.mark.spec("protocol.20")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"warn: " + FIRST_RECORD, ["text", "RECORD"]),
        (b"progress 2\r" + FIRST_RECORD + b"\r", ["text", "RECORD"]),
        (b"\x1b[0m" + FIRST_RECORD, ["text", "RECORD"]),
        (b"\xe2\x80\x8b" + FIRST_RECORD, ["RECORD"]),
        (b"\0\0" + FIRST_RECORD, ["RECORD"]),
        (b"\xff" + FIRST_RECORD, ["text", "RECORD"]),
        (b"x \xef\xbb\xbf" + FIRST_RECORD.replace(b"O'", b"\xff"), ["text", "RECORD"]),
        (b"a {b} \" ' [" + SORTED, ["text", "RECORD"]),
        (b'{"level":"INFO","context":{"a":1}}' + FIRST_RECORD, ["text", "RECORD"]),
        (b'x {"id":1,"type":"RECORD","record":{"stream":"a","data":{}}}', ["text", "RECORD"]),
        (LOG + FIRST_RECORD, ["LOG", "RECORD"]),
        (b"done. " + ERROR, ["text", "TRACE"]),
        (b"saved " + STATE, ["text", "STATE"]),
        (b"x" * 2_000_000 + FIRST_RECORD, ["text", "RECORD"]),
    ],
)
def test_a_message_at_the_end_of_a_line_is_taken(line: bytes, expected: list[str]) -> None:
    messages = decode_line(line)
    assert kinds(messages) == expected
    *_, sent = messages
    if isinstance(sent, RawRecord):
        assert bytes(sent.data) in line
    with pytest.raises(SystemFailure, match=r"beside other text|malformed"):
        decode(b"x " + line)


def test_the_text_before_a_message_is_logged() -> None:
    text, _ = decode_line(b"retrying (2 of 3): " + FIRST_RECORD)
    assert read_log_text(text) == "retrying (2 of 3): "
    cut, _ = decode_line(LOG + FIRST_RECORD)
    assert read_log_text(cut).endswith(LOG.decode())


@pytest.mark.spec("airbyte.27", "protocol.20")
@pytest.mark.parametrize(
    "line",
    [
        # other text is behind the message, or around it
        FIRST_RECORD + b" done",
        b"\x1b[0m" + FIRST_RECORD + b"\x1b[0m",
        b"sent '" + FIRST_RECORD + b"' to stdout",
        b'sent "' + FIRST_RECORD + b'" to stdout',
        b"sent `" + FIRST_RECORD + b"`",
        b"line b'" + FIRST_RECORD + b"\\n'",
        # several messages are on the line, or one within another one
        FIRST_RECORD + SECOND_RECORD,
        FIRST_RECORD + b" " + STATE + ERROR + CONTROL,
        b"[" + FIRST_RECORD + b", " + SECOND_RECORD + b"]",
        b'{"severity":"INFO","payload":' + FIRST_RECORD + b"}",
        b'{"type":"NEWER","messages":[' + FIRST_RECORD + b"]}",
        LOG + FIRST_RECORD + b'ial"}}',
        LOG[:-4] + FIRST_RECORD + b'"}}',
        LOG + b"'" + FIRST_RECORD + b"'\"}}",
        FIRST_RECORD[:50] + SECOND_RECORD + FIRST_RECORD[50:],
        b"x " + FIRST_RECORD + SECOND_RECORD[:60],
        # a part of it is there
        b"warn: " + FIRST_RECORD[:60],
        b"warn: " + SORTED[:40],
        LOG + FIRST_RECORD[:60],
        LOG + b"'" + FIRST_RECORD[:60] + b"'",
        b"sent '" + FIRST_RECORD[:60] + b"...' to stdout",
        b"x" * 2_000_000 + FIRST_RECORD[:-1],
        # it is written in another way
        json.dumps(json.loads(FIRST_RECORD), indent=2).encode(),
        FIRST_RECORD.replace(b'"RECORD"', b'"record"'),
        FIRST_RECORD.replace(b'"type"', b'"ty\0pe"'),
        b"\x1b[1m" + FIRST_RECORD.replace(b'"', b'\x1b[32m"\x1b[0m'),
        FIRST_RECORD.decode().encode("utf-16-le"),
        b'x {"type":"RECORD","record":{"stream":7}}',
    ],
)
def test_any_other_line_that_shows_a_record_is_an_error(line: bytes) -> None:
    with pytest.raises(SystemFailure, match="malformed RECORD") as failure:
        list(decode_blocks([line]))
    assert "each message must be on its own line" in str(failure.value.guidance)


@pytest.mark.parametrize(
    "kind", ["STATE", "CONTROL", "CATALOG", "CONNECTION_STATUS", "SPEC", "SLICE", "BARRIER"]
)
def test_a_line_that_shows_another_vital_message_is_an_error(kind: str) -> None:
    with pytest.raises(SystemFailure, match=f"malformed {kind}"):
        decode_line(b'{"type":"%b","x":{}} done' % kind.encode())


def test_the_error_names_the_stream_of_a_record() -> None:
    with pytest.raises(SystemFailure, match="malformed RECORD message, of stream 'a'"):
        decode_line(FIRST_RECORD + b" done")


def test_a_failure_beside_other_text_is_a_failure() -> None:
    for line in (ERROR + b" done", ERROR + ERROR, b"x " + ERROR[:-2]):
        message = decode_line(line)[0]
        assert isinstance(message, Message) and message.reported_error is not None


@pytest.mark.spec("protocol.141")
@pytest.mark.parametrize(
    "line",
    [
        b"sent " + json.dumps(FIRST_RECORD.decode()).encode(),
        text({"level": "debug", "msg": "sent " + FIRST_RECORD.decode()}),
        b'message \'xyz\' {"type": "RECORD"...}',
        b'message {"type": "RECORD", ...}',
        b'expected "type": "RECORD", but got "type": "STATE"',
        b"{'type': 'RECORD', 'record': {}}",
        b'{"message":"saved","state":{"cursor":5}}',
        b'INFO METRIC: {"type": "timer", "value": 0.5}',
    ],
)
def test_quoted_json_is_text(line: bytes) -> None:
    assert kinds(decode_line(line)) == ["text"]
    assert kinds(Translator().messages(line)) == ["text"]


def test_a_message_of_a_tap_at_the_end_of_a_line_is_taken() -> None:
    line = b"warn: " + singer_record(1)
    assert kinds(Translator().messages(line)) == ["text", "RECORD"]
    with pytest.raises(SystemFailure, match="beside other text"):
        decode_record(line)


@pytest.mark.parametrize(
    "line",
    [
        singer_record(1) + b'{"type":"STATE","value":1}',
        b'{"type":"STATE","value":{"x":"a' + singer_record(1) + b'b"}}',
        b"[" + singer_record(1) + b"," + singer_record(2) + b"]",
        b"x " + singer_record(1)[:-2],
        singer_record(1).replace(b"type", b"ty\0pe"),
        singer_record(1).lower(),
    ],
)
def test_any_other_line_that_shows_a_taps_record_is_an_error(line: bytes) -> None:
    with pytest.raises(SystemFailure, match=r"malformed (RECORD|STATE)"):
        list(Translator().messages(line))


# --- any bytes ------------------------------------------------------------------------------------

TEXTS = [b"", b"\n", b"\r", b"warn: ", b"{", b"}", b"[", b",", b'{"a":', b"\\", b"\0", b"\xff"]
JSON = [b'{"type":"X",', b'{"a":1}', b'"}}', b'{"type":"LOG"}', LOG, b"\x1b[0m", b"\xe2\x80\x8b"]
FILLINGS = st.sampled_from(TEXTS + JSON) | st.binary(max_size=6)


def numbers(route: Callable[[bytes], Iterable[Any]], sent: bytes) -> list[int] | None:
    """The numbers of the records that a routing found; None if it failed."""
    record_numbers: list[int] = []
    try:
        for message in route(sent):
            lines = records(message) if isinstance(message, RecordLines) else [message]
            record_numbers += [
                json.loads(bytes(line.data))["n"] for line in lines if isinstance(line, RawRecord)
            ]
    except EltError:
        return None
    return record_numbers


@pytest.mark.spec("protocol.20")
@settings(deadline=None)
@given(
    st.lists(FILLINGS, min_size=2, max_size=6), st.sampled_from([b"", b"\n"]), st.integers(0, 70)
)
@pytest.mark.parametrize(
    ("runs", "a_record"),
    [
        (airbyte_runs, record),
        (lambda: singer_runs(Translator()), singer_record),
    ],
)
def test_bytes_around_and_between_messages_lose_none(
    runs: Callable[[], Any],
    a_record: Callable[[int], bytes],
    fillings: list[bytes],
    end: bytes,
    before: int,
) -> None:
    """The lines before teach the routing the head of the stream's lines."""
    sent = b"".join(a_record(n) + b"\n" for n in range(before))
    for number, filling in enumerate(fillings[:-1]):
        sent += filling + a_record(before + number) + end
    record_numbers = numbers(runs().messages, sent + fillings[-1])
    assert record_numbers is None or record_numbers == list(range(before + len(fillings) - 1))


def survives(messages: Callable[[bytes], Iterable[Sent]], sent: bytes, kind: str) -> bool:
    """Return whether a message of a kind is found, or what is left of it is a failure."""
    try:
        received = [message for line in split([sent]) for message in messages(line)]
    except EltError:
        return True
    errors = [m for m in received if isinstance(m, Message) and m.reported_error is not None]
    return kind in kinds(received) or bool(errors)


@pytest.mark.spec("airbyte.27")
@given(
    st.sampled_from([FIRST_RECORD, SORTED, STATE, ERROR, CONTROL]),
    FILLINGS,
    st.integers(1),
    st.booleans(),
)
def test_bytes_inside_a_message_do_not_hide_it(
    message: bytes, filling: bytes, place: int, ends: bool
) -> None:
    place %= len(message)
    sent = b"x " * ends + message[:place] + filling + message[place:]
    assert survives(decode_line, sent, json.loads(message)["type"]), sent


@pytest.mark.spec("protocol.20")
@given(
    st.sampled_from([FIRST_RECORD, SORTED, STATE, CONTROL]),
    st.sampled_from(
        [SECOND_RECORD, STATE, ERROR, LOG + b'"}}', b"a print, without the end of a line"]
    ),
    st.lists(st.tuples(st.booleans(), st.integers(20, 80)), max_size=6),
)
def test_two_threads_that_write_at_a_time_lose_no_message(
    message: bytes, other: bytes, turns: list[tuple[bool, int]]
) -> None:
    """Each thread writes a line in pieces, in the order of the turns. A piece is longer than what shows a
    message: one that is cut twice within it cannot be known."""
    lines, sent = [message + b"\n", other + b"\n" * other.startswith(b"{")], b""
    for is_other, size in [*turns, (False, 1 << 20), (True, 1 << 20)]:
        sent += lines[is_other][:size]
        lines[is_other] = lines[is_other][size:]
    for line in (message, other):
        if line.startswith(b"{") and not line.startswith(LOG):
            assert survives(decode_line, sent, json.loads(line)["type"]), sent


@given(FILLINGS, st.integers(1), st.booleans())
def test_bytes_inside_a_taps_record_do_not_hide_it(filling: bytes, place: int, ends: bool) -> None:
    message = singer_record(1)
    place %= len(message)
    sent = b"x " * ends + message[:place] + filling + message[place:]
    assert survives(Translator().messages, sent, "RECORD"), sent


@pytest.mark.parametrize(
    "line",
    [
        b'x {"a":' * 20_000 + FIRST_RECORD,
        b'{"type":"LOG",' * 50_000,
        b'{"type":"LOG","a":' * 50_000 + b"1",
        b"x " + b"{" * 300_000 + FIRST_RECORD,
        b"'{" * 100_000 + FIRST_RECORD,
        b'{"a":[' * 500 + FIRST_RECORD * 50,
        b"x " + b'{"a":{"b":1},' * 300_000 + b'"type":' + b"}",
    ],
)
def test_a_hostile_line_is_searched_in_limited_time(line: bytes) -> None:
    start = time.process_time()
    try:
        decode_line(line)
    except SystemFailure as failure:
        assert "malformed" in str(failure) or "nested too deeply" in str(failure)  # noqa: PT017
    assert time.process_time() - start < 4
