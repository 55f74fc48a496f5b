"""One line, one message; and what of the hostile lines that are neither."""

from __future__ import annotations

import json
import time
import tracemalloc
import types
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec import structs as msgspec_structs

from elt_assets.errors import SystemFailure
from elt_assets.protocol.codec import decode, decode_blocks, encode
from elt_assets.protocol.lines import MAX_LOG_CHARACTERS
from elt_assets.protocol.message_rules import FileReference, add_stored_reference, parse_reference
from elt_assets.protocol.messages import Log, Message, RawRecord, State
from elt_assets.protocol.wire import MAX_TEXT, Wire

BODIES = {
    "RECORD": "record",
    "STATE": "state",
    "LOG": "log",
    "SPEC": "spec",
    "CONNECTION_STATUS": "connectionStatus",
    "CATALOG": "catalog",
    "TRACE": "trace",
    "CONTROL": "control",
    "DESTINATION_CATALOG": "destination_catalog",
    "NEWS": "news",
    "PARTITION": "partition",
    "COMPARISON": "comparison",
    "RANGE": "range",
}
VITAL = (
    *("RECORD", "STATE", "CATALOG", "SPEC", "CONNECTION_STATUS", "CONTROL", "PARTITION"),
    *("COMPARISON", "RANGE"),
)
NUMBERS = ["0", "-0", "1", "1.0", "1E5", "-0.0", "1e400", "0.1000000000000000000001", "9" * 400]


def quote(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(json.dumps, texts, ensure_ascii=st.booleans())


def join(items: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in items.items()) + "}"


def texts_of_json() -> st.SearchStrategy[str]:
    """Any JSON as text, where `1` and `1.0` are two things."""
    leaves = st.sampled_from(["null", "true", "false", '"\\u2028"', "{}", *NUMBERS])
    return st.recursive(
        leaves | quote(st.text(max_size=5)),
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
            | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(join)
        ),
        max_leaves=4,
    )


ANYTHING = texts_of_json()
NO_NULL = ANYTHING.filter(lambda text: text != "null")
PLAIN: dict[Any, st.SearchStrategy[str]] = {
    str: quote(st.text(max_size=5)),
    bool: st.sampled_from(["true", "false"]),
    int: st.integers(-(2**63), 2**63 - 1).map(str),
    Raw: NO_NULL,
    dict[str, str]: st.just('{"a":"b"}'),
    int | float: st.sampled_from(["0", "2000", "2000.0", "1700000000000.5"]),
    dict[str, Any]: st.just('{"type":"object","maximum":1.0,"n":1,"x":99999999999999999999}'),
}


def texts_of(hint: Any) -> st.SearchStrategy[str]:
    """Values that a property of this type may have on the wire."""
    members = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    if hint in PLAIN:
        return PLAIN[hint]
    if typing.get_origin(hint) is list:
        return st.lists(texts_of(members[0]), max_size=2).map(lambda items: f"[{','.join(items)}]")
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return texts_of(members[0] if len(members) == 1 else int | float)
    return texts_of_wire(hint)


@st.composite
def texts_of_wire(draw: st.DrawFn, cls: type[Wire]) -> str:
    """A JSON object of this struct: known properties set, null or absent, and unknown ones."""
    hints, properties = typing.get_type_hints(cls), {}
    names = set()
    for field in msgspec_structs.fields(cls):
        if field.name == "extra":
            continue
        names.add(field.encode_name)
        shape = "set" if field.required else draw(st.sampled_from(["set", "null", "absent"]))
        if shape != "absent":
            text = draw(texts_of(hints[field.name])) if shape == "set" else "null"
            properties[field.encode_name] = text
    unknown = st.sampled_from(["extra", "global_", "id", ""]) | st.text(max_size=3)
    strangers = draw(st.dictionaries(unknown, ANYTHING, max_size=2))
    properties |= {key: text for key, text in strangers.items() if key not in names}
    return join(properties)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(sorted(BODIES)))
    cls = typing.get_args(typing.get_type_hints(Message)[BODIES[kind]])[0]
    properties = {"type": json.dumps(kind), BODIES[kind]: draw(texts_of_wire(cls))}
    return join(properties | draw(st.sampled_from([{}, {"x": "1.0"}, {"y": "null"}]))).encode()


def exact(text: bytes | str) -> Any:
    """JSON compared to the letter of its numbers, but not by the order of its properties."""
    return json.loads(text, parse_int=lambda n: ("number", n), parse_float=lambda n: ("number", n))


def decode_log(line: bytes) -> Log:
    message = decode(line)
    assert isinstance(message, Message) and message.log is not None
    assert message.type == "LOG"
    return message.log


def record(data: bytes, **properties: Any) -> bytes:
    head = json.dumps({"stream": "users", "emitted_at": 1, **properties})[1:-1].encode()
    return b'{"type":"RECORD","record":{%b,"data":%b}}' % (head, data)


def raw(line: bytes) -> RawRecord:
    message = decode(line)
    assert type(message) is RawRecord
    return message


@pytest.mark.spec("protocol.48", "protocol.49", "protocol.121", "protocol.133")
@given(lines())
def test_a_message_is_encoded_without_loss(line: bytes) -> None:
    again = encode(Message.from_json(line))
    assert again.endswith(b"\n") and again.count(b"\n") == 1
    assert exact(again) == exact(line)


@given(lines())
def test_decoding_a_line_gives_the_same_message(line: bytes) -> None:
    message = decode(line)
    if isinstance(message, RawRecord):
        whole = Message.from_json(line).record
        assert whole is not None
        assert (message.stream, message.namespace) == (whole.stream, whole.namespace)
        assert bytes(message.data) == bytes(whole.data)
    else:
        assert message == Message.from_json(line)


@pytest.mark.spec("protocol.126")
@given(ANYTHING)
def test_record_data_is_kept_byte_for_byte(data: str) -> None:
    assert bytes(raw(record(data.encode())).data) == data.encode()


@pytest.mark.spec("protocol.26", "airbyte.16")
@given(NO_NULL, NO_NULL)
def test_state_blobs_are_kept_byte_for_byte(blob: str, shared: str) -> None:
    stream_state = f'{{"stream_descriptor":{{"name":""}},"stream_state":{blob}}}'
    state = (
        f'{{"type":"GLOBAL","global":{{"shared_state":{shared},"stream_states":[{stream_state}]}}}}'
    )
    again = State.from_json(state).to_json()
    assert blob.encode() in again and shared.encode() in again


def test_an_indented_message_is_encoded_as_one_line() -> None:
    state = State.from_json('{"data": {\n "a":\r\n 1},\n "new": [\n1.0]}')
    assert state.to_json().count(b"\n") == 0
    assert exact(state.to_json()) == exact('{"data": {"a": 1}, "new": [1.0]}')


def test_a_new_value_replaces_a_null_that_was_received() -> None:
    state = State.from_json('{"type": null}')
    assert state.to_json() == b'{"type":null}'
    state.type = "STREAM"
    assert state.to_json() == b'{"type":"STREAM"}'


@pytest.mark.spec("protocol.125")
@pytest.mark.parametrize("namespace", [None, "", "public"])
@pytest.mark.parametrize("stream", ["", "users", "../x'\"", "日本\u2028"])
def test_records_name_their_stream_and_namespace(stream: str, namespace: str | None) -> None:
    received = raw(record(b"{}", stream=stream, namespace=namespace))
    assert (received.stream, received.namespace) == (stream, namespace)


def test_emitted_at_may_be_a_float_and_unknown_properties_are_ignored() -> None:
    received = raw(record(b"{}", emitted_at=1700000000000.5, new={"x": 1}, file_reference=None))
    assert received.emitted_at == 1700000000000.5


@pytest.mark.spec("protocol.79")
def test_a_record_keeps_its_reference_to_a_file() -> None:
    sent = {"staging_file_url": "/tmp/x", "file_size_bytes": 1, "new": [1]}
    line = record(b"{}", file_reference=sent)
    reference = parse_reference(raw(line).file_reference, "users")
    assert reference == FileReference("/tmp/x", None, 1)
    (_, received) = decode_blocks([record(b"{}") + b"\n" + line])
    assert isinstance(received, RawRecord)
    assert json.loads(bytes(received.file_reference)) == sent
    message = decode(line, whole=True)
    assert isinstance(message, Message)
    assert json.loads(encode(message))["record"]["file_reference"] == sent


@pytest.mark.spec("protocol.79")
@pytest.mark.parametrize("reference", [{}, [], "x", {"staging_file_url": None}, {"url": "/tmp/x"}])
def test_a_reference_that_cannot_be_read_is_an_error(reference: Any) -> None:
    with pytest.raises(SystemFailure, match="`file_reference` of a record of stream 'users'"):
        parse_reference(raw(record(b"{}", file_reference=reference)).file_reference, "users")


@pytest.mark.spec("protocol.79")
@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text()), st.booleans())
def test_a_stored_reference_is_a_field_of_the_record(data: dict[str, Any], is_spaced: bool) -> None:
    text = json.dumps(data, indent=1 if is_spaced else None).encode()
    stored = add_stored_reference(Raw(text), FileReference("/tmp/x", "a/é.txt", 1), "_files/x", 7)
    place = {
        "path": "_files/x",
        "source_file_relative_path": "a/é.txt",
        "file_size_bytes": 7,
    }
    assert json.loads(bytes(stored)) == {**data, "file_reference": place}


def test_record_counts_may_be_doubles() -> None:
    line = (
        b'{"type":"STATE","state":{"sourceStats":{"recordCount":2000.0,"rejectedRecordCount":1}}}'
    )
    message = decode(line)
    assert isinstance(message, Message) and message.state and message.state.sourceStats
    assert message.state.sourceStats.recordCount == 2000
    assert encode(message) == line + b"\n"


@pytest.mark.spec("protocol.18", "protocol.141")
@pytest.mark.parametrize(
    "line",
    [
        b"plain text",
        b"value is NaN",
        b"\xef\xbb\xbfplain",
        b"\xff\xfe no text",
        b"null",
        b"[1]",
        b"[" * 100_000,
        b'"RECORD"',
        b"{}",
        b'{"type": 7}',
        b'{"level": "INFO", "message": "a log of its own"}',
        b'{"record": {"id": 7}}',
        b'{"typ',
    ],
)
def test_a_line_that_is_not_a_message_is_logged(line: bytes) -> None:
    log = decode_log(line)
    assert log.level == "INFO"
    assert log.message == line.decode("utf-8", "replace")[:MAX_LOG_CHARACTERS]


@pytest.mark.spec("protocol.124")
@pytest.mark.parametrize("body", ['"body": {}', '"record": 7', '"record": {"id": 7}'])
def test_an_unknown_type_is_logged_as_a_warning(body: str) -> None:
    log = decode_log(f'{{"type": "NEWER", {body}}}'.encode())
    assert log.level == "WARN"
    assert "'NEWER'" in log.message


@pytest.mark.spec("protocol.123")
@pytest.mark.parametrize("kind", sorted(BODIES))
@pytest.mark.parametrize(
    "end", ["", ',"{}":null', ',"{}":7', ',"{}":{{"x":NaN}}', ',"{}":"\udcff"', ',"{}":[}}']
)
def test_a_malformed_message_is_never_treated_as_another_one(kind: str, end: str) -> None:
    text = f'{{"type":"{kind}"{end.format(BODIES[kind])}}}'
    line = text.encode("utf-8", "surrogateescape")
    if kind in VITAL and not ("NaN" in end and kind == "STATE"):  # no property of a state is needed
        with pytest.raises(SystemFailure, match=kind):
            decode(line)
    elif kind == "LOG":
        log = decode_log(line)
        assert log.level == "WARN" and f"malformed {kind}" in log.message
    elif kind == "TRACE":
        message = decode(line)
        assert isinstance(message, Message) and message.reported_error is not None


@given(lines(), st.integers(min_value=20))
def test_a_truncated_message_is_not_treated_as_text(line: bytes, cut: int) -> None:
    kind = json.loads(line)["type"]
    torn = line[: max(len(f'{{"type": "{kind}"'), cut % len(line))]
    if kind in VITAL:
        with pytest.raises(SystemFailure, match=f"malformed {kind}"):
            decode(torn)
    else:
        message = decode(torn)
        assert isinstance(message, Message)
        assert decode_log(torn).level == "WARN" if kind != "TRACE" else message.log or message.trace


@pytest.mark.parametrize(
    "torn",
    [
        b'{ "type" : "RECORD", "record": {"str',
        b'{"record":{"stream":"users","data":{}},"type":"REC',
        b'{"state": {"data": {}',
        b'{"type":"RECORD","record":{"stream":"users","data":{}}}{"type":"RECORD","record":{}}',
    ],
)
def test_a_malformed_message_in_any_notation_is_an_error(torn: bytes) -> None:
    with pytest.raises(SystemFailure):
        decode(torn)


def test_a_message_after_a_byte_order_mark_is_decoded() -> None:
    assert raw(b"\xef\xbb\xbf" + record(b'{"x":1}')).stream == "users"


@pytest.mark.parametrize(
    "data",
    [
        '{"x":"\u2028\u2029\u0085"}'.encode(),
        b'{"x":"\\u2028\\u0085\\u000b\\u0000"}',
        b'{"x":1,"x":2}',
        b'{"x":%b}' % (b"9" * 5000),
        b'{"x":1e400}',
        b"[1]",
        b"null",
        b'"text"',
    ],
)
def test_unusual_but_valid_data_is_kept_unchanged(data: bytes) -> None:
    assert bytes(raw(record(data)).data) == data


@pytest.mark.parametrize(
    "data", [b'{"x":01}', b"{\"x\":'a'}", b'{"x":"\\u00"}', b'{"x":nan}', b'{"\xff":\xff}']
)
def test_invalid_data_is_an_error(data: bytes) -> None:
    with pytest.raises(SystemFailure, match="malformed RECORD"):
        decode(record(data))


def test_the_last_of_duplicate_keys_is_used() -> None:
    line = b'{"type":"RECORD","record":{"stream":"a","stream":"b","data":{}},"type":"RECORD"}'
    assert raw(line).stream == "b"
    assert State.from_json('{"type":"LEGACY","type":"STREAM","new":1,"new":2}').to_json() == (
        b'{"new":2,"type":"STREAM"}'
    )


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("kind", ["RECORD", "STATE", "CATALOG", "TRACE"])
@pytest.mark.parametrize("strange", [b"", b'"x":NaN,'])
def test_deep_nesting_fails_quickly_with_a_short_error(
    opening: bytes, kind: str, strange: bytes
) -> None:
    line = b'{"type":"%b",%b"%b":{"x":' % (kind.encode(), strange, BODIES[kind].encode())
    start = time.monotonic()
    with pytest.raises(SystemFailure, match="nested too deeply") as failure:
        decode(line + opening * 100_000)
    assert time.monotonic() - start < 2
    assert len(str(failure.value)) < MAX_LOG_CHARACTERS + 200


def test_nesting_near_the_limit_has_no_other_error() -> None:
    for depth in range(900, 1000):
        schema = b"[" * depth + b"]" * depth
        stream = b'{"name":"a","json_schema":{"a":%b}}' % schema
        try:
            decode(b'{"type":"CATALOG","catalog":{"streams":[%b]}}' % stream)
        except SystemFailure as failure:
            assert "nested too deeply" in str(failure)  # noqa: PT017


@pytest.mark.parametrize(
    "line", [b'"' + b'\\"' * 500_000, b'"' * 500_001, b"NaN" * 300_000, b'"' + b"\\" * 500_001]
)
def test_hostile_text_is_decoded_in_linear_time(line: bytes) -> None:
    start = time.monotonic()
    assert len(decode_log(line).message) == MAX_LOG_CHARACTERS
    assert time.monotonic() - start < 2


@given(st.binary(max_size=200) | st.binary(max_size=50).map(lambda b: b'{"type":"TRACE",' + b))
def test_any_bytes_give_a_message_or_a_failure(line: bytes) -> None:
    try:
        decode(line)
    except SystemFailure as failure:
        assert len(str(failure)) < MAX_LOG_CHARACTERS + 1000  # noqa: PT017


@pytest.mark.parametrize("unit", ['"', "\\", "\n", "é", "\U0001f600", "x", "\x01"])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("shift", [0, 1, 3, 5, 6, 11])
def test_a_long_text_is_cut_within_no_character(unit: str, ascii_only: bool, shift: int) -> None:
    text = "a" * shift + unit * (MAX_TEXT // len(json.dumps(unit)[1:-1].encode()) + 20)
    line = json.dumps(
        {"type": "LOG", "log": {"level": "INFO", "message": text}}, ensure_ascii=ascii_only
    )
    message = decode_log(line.encode()).message
    assert MAX_TEXT // 12 <= len(message) <= MAX_TEXT
    assert text.startswith(message.rstrip("?"))


def test_a_long_error_costs_little_memory() -> None:
    """The decoding of a TRACE of 64 MB: memory beside the line itself."""
    error = b'{"message":"%b","stream_descriptor":{"name":"a"}}' % (b"x\\n" * (64_000_000 // 3))
    line = b'{"type":"TRACE","trace":{"type":"ERROR","error":%b}}' % error
    tracemalloc.start()
    message = decode(line)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16_000_000
    assert isinstance(message, Message) and message.reported_error is not None
    assert message.reported_error.stream_descriptor is not None
