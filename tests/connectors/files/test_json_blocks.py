"""Blocks of JSON lines become records as each line by itself does."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from connectors.sdk.files.formats.json_lines import join_objects

HEADS = st.sampled_from(
    [b"{", b'{"_file_path":"a\\n{b","_file_modified_at":"2026-01-01T00:00:00Z",']
)
OBJECTS = st.dictionaries(
    st.text(max_size=4),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
        max_leaves=6,
    ),
    max_size=3,
)


@given(st.lists(OBJECTS, min_size=1, max_size=8), HEADS, st.booleans())
def test_each_line_is_a_record(
    objects: list[dict[str, object]], head: bytes, ascii_only: bool
) -> None:
    lines = [json.dumps(fields, ensure_ascii=ascii_only).encode() for fields in objects]
    joined = join_objects(b"".join(line + b"\n" for line in lines), head)
    if all(objects):
        assert joined is not None
        assert joined.to_pylist() == [head + line[1:] for line in lines]
    else:
        assert joined is None


PIECES = st.sampled_from(
    ['{"a":', '{"a":{}}', "{}", "{", "}", "[", "]", ",", ":", '"a"', "1", "\n", "\r", " "]
)


@given(st.lists(PIECES, max_size=12))
def test_a_value_over_several_lines_is_no_record(pieces: list[str]) -> None:
    block = f"{''.join(pieces)}\n".encode()
    try:
        values = msgspec.json.Decoder(Raw).decode_lines(block)
    except msgspec.DecodeError:
        return
    if len(values) != block.count(b"\n"):
        return
    joined = join_objects(block, b"{")
    if joined is not None:
        assert joined.to_pylist() == [bytes(value) for value in values]
        assert all(isinstance(json.loads(record), dict) for record in joined.to_pylist())
