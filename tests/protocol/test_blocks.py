"""Blocks of lines: read as each line is, whatever stands in them, however they are cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.errors import SystemFailure
from elt_assets.protocol.codec import decode_blocks, decode_line
from elt_assets.protocol.lines import BLOCK, MAX_LINE, ReadInto, blocks, split
from elt_assets.protocol.messages import Message, RawRecord

RECORD = b'{"type":"RECORD","record":{"stream":"a","data":{"n":1},"emitted_at":1}}'
LINES = [
    RECORD,
    b' {"record":{"data":[1,2],"stream":"\xc3\xa9"},"type":"RECORD"}\r',
    b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"a"}}}}',
    b'{"type":"LOG","log":{"level":"INFO","message":"x"}}',
    b'{"type":"RECORD","record":{"stream":"a","data":{"n":NaN}}}',
    b'{"type":"UNHEARD_OF"}',
    b"plain text",
    b"",
    b"  ",
    b"{}",
    b"[1]",
    RECORD + b" " + RECORD,
    b'{"type":"RECORD","record":{"stream":"a","data":{"n":"\xff"}}}',
    b'{"type":"RECORD","record":{"stream":"a","da',
    b'{"type":',
    b'"RECORD"}',
]

Said = list[tuple[str, object]]


def collect(messages: Iterator[RawRecord | Message]) -> tuple[Said, str | None]:
    """Return the messages that were read, in a form that can be compared, and the error at the end."""
    outcomes: Said = []
    try:
        for message in messages:
            if isinstance(message, RawRecord):
                outcomes.append((message.stream, msgspec.structs.asdict(message)))
            else:
                outcomes.append((message.type, message.to_json()))
    except SystemFailure as failure:
        return outcomes, str(failure)
    return outcomes, None


def reader(chunks: Iterable[bytes]) -> ReadInto:
    """A reader that returns one chunk, or what fits of it, at a time; an empty chunk: nothing for now."""
    waiting = iter(chunks)
    rest = b""

    def read(buffer: memoryview, has_lines: bool) -> int | None:
        nonlocal rest
        chunk = rest or next(waiting, None)
        if not chunk:
            return None if chunk is not None else 0
        count = min(len(chunk), len(buffer))
        buffer[:count] = chunk[:count]
        rest = chunk[count:]
        return count

    return read


def decode_by_line(text: bytes) -> Iterator[RawRecord | Message]:
    return chain.from_iterable(map(decode_line, filter(None, text.split(b"\n"))))


@pytest.mark.spec("airbyte.27")
@given(st.lists(st.sampled_from(LINES), max_size=12), st.integers(1, 200))
def test_a_block_is_decoded_like_its_lines(lines: list[bytes], size: int) -> None:
    text = b"\n".join(lines)
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    assert collect(decode_blocks(blocks(reader(chunks), MAX_LINE))) == collect(decode_by_line(text))


@pytest.mark.spec("protocol.20")
@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\r", b"\n"))))
def test_lines_do_not_depend_on_the_chunks(chunks: list[bytes]) -> None:
    text = b"".join(chunks)
    assert list(split(blocks(reader(chunks), MAX_LINE))) == list(filter(None, text.split(b"\n")))
    passed_blocks = list(blocks(reader(chunks), MAX_LINE))
    assert b"".join(passed_blocks) == text
    whole = list(filter(None, passed_blocks))[
        :-1
    ]  # only the last line of the input may have no newline
    assert all(block.endswith(b"\n") for block in whole)


@pytest.mark.parametrize("size", [1, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1, 40 * BLOCK])
def test_a_line_may_be_longer_than_the_buffer(size: int) -> None:
    lines = [b"x" * size, b"y", b"z" * size, b""]
    text = b"\n".join(lines)
    chunks = [text[start : start + BLOCK] for start in range(0, len(text), BLOCK)]
    assert list(split(blocks(reader(chunks), MAX_LINE))) == lines[:-1]


def test_lines_are_passed_on_while_no_more_input_is_available() -> None:
    chunks = [b"a\nb", b"", b"", b"\nc"]
    assert list(blocks(reader(chunks), MAX_LINE)) == [b"a\n", b"", b"b\nc"]


def test_the_error_of_a_line_that_is_too_long_names_its_stream() -> None:
    with pytest.raises(SystemFailure, match="of stream 'a'"):
        list(blocks(reader([RECORD[:60], RECORD[60:] * 9]), 100))
