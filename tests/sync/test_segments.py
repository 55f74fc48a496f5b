"""Staged lines: the source's bytes, and three properties of ours."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.protocol.airbyte.messages import NULL, RawRecord
from elt_assets.sync.open_files import OpenFiles
from elt_assets.sync.segments import (
    EXTRACTED_AT,
    META,
    NOT_AN_OBJECT,
    PLACE,
    SEQUENCE,
    Segment,
    SegmentWriter,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def staged(folder: Path, *records: tuple[bytes, bytes | None]) -> list[bytes]:
    writer = SegmentWriter(folder / "s.jsonl", 7)
    for data, meta in records:
        writer.append(RawRecord("a", Raw(data), 1234.0, meta=NULL if meta is None else Raw(meta)))
    segment = writer.close()
    lines = segment.path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert (len(lines), segment.path.stat().st_size) == (segment.records, segment.size)
    return lines


def test_a_line_has_the_data_byte_for_byte_and_our_properties_at_its_end(tmp_path: Path) -> None:
    [line] = staged(tmp_path, (b'{"a":  1.50, "b":"\\u2028"}', None))
    ours = f',"{EXTRACTED_AT}":1234,"{SEQUENCE}":7}}'
    assert line == b'{"a":  1.50, "b":"\\u2028"' + ours.encode()


@pytest.mark.parametrize("data", [b"{}", b"{ }", b"{\t\r }", b"{" + b" " * 40 + b"}"])
def test_an_object_without_properties_is_a_record(tmp_path: Path, data: bytes) -> None:
    plain, with_meta = staged(tmp_path, (data, None), (data, b'{"changes":[]}'))
    assert json.loads(plain) == {EXTRACTED_AT: 1234, SEQUENCE: 7}
    assert json.loads(with_meta) == {META: {"changes": []}, EXTRACTED_AT: 1234, SEQUENCE: 8}


@pytest.mark.parametrize("data", [b"5", b'"{}"', b"[1, 2]", b"null", b"true"])
def test_data_that_is_not_an_object_is_kept_without_a_sequence(tmp_path: Path, data: bytes) -> None:
    lines = staged(tmp_path, (data, None), (b'{"a":1}', None))
    assert json.loads(lines[0]) == {NOT_AN_OBJECT: json.loads(data), PLACE: 7}
    assert json.loads(lines[1])[SEQUENCE] == 8  # it has its place all the same


def test_a_property_of_the_source_does_not_replace_our_property(tmp_path: Path) -> None:
    [line] = staged(tmp_path, (f'{{"{SEQUENCE}": 99}}'.encode(), None))
    assert json.loads(line)[SEQUENCE] == 7


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.text(), values, max_size=4),
    st.none() | st.just({"changes": [{"field": "x"}]}),
    st.sampled_from([None, 1]),
)
def test_any_object_is_read_back_completely(
    tmp_path: Path, data: dict[str, Any], meta: Any, indent: int | None
) -> None:
    encoded = json.dumps(data, indent=indent).replace("\n", " ").encode()
    [line] = staged(tmp_path, (encoded, None if meta is None else json.dumps(meta).encode()))
    ours = {EXTRACTED_AT: 1234, SEQUENCE: 7} | ({} if meta is None else {META: meta})
    assert json.loads(line) == {**data, **ours}


def test_a_segment_can_be_truncated_to_its_mark_and_continued(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "s.jsonl", 0)
    for text in (b'{"a":1}', b'{"a":2}'):
        writer.append(RawRecord("a", Raw(text)))
        if writer.records == 1:
            writer.mark()
    states = [writer.at_mark]
    writer.cut_to_mark()
    assert [*states, writer.at_mark] == [False, True]
    writer.append(RawRecord("a", Raw(b'{"a":3}')))
    segment = writer.close()
    found = [json.loads(line) for line in segment.path.read_bytes().splitlines()]
    assert [(line["a"], line[SEQUENCE]) for line in found] == [(1, 0), (3, 1)]
    assert segment.size == segment.path.stat().st_size


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["append", "mark", "cut"]))))
def test_writers_that_are_paused_write_the_same_segments(
    steps: list[tuple[int, str]],
) -> None:
    def run(folder: Path, limit: int) -> list[tuple[bytes, Segment]]:
        files = OpenFiles(limit)
        writers = [SegmentWriter(folder / str(n), 0, open_files=files) for n in range(4)]
        for number, (who, step) in enumerate(steps):
            writer = writers[who]
            if step == "append":
                writer.append(RawRecord("a", Raw(b'{"a":%d}' % number), 1.0))
            elif step == "mark":
                writer.mark()
            else:
                writer.cut_to_mark()
        segments = [writer.close() for writer in writers]
        return [(s.path.read_bytes(), replace(s, path=Path())) for s in segments]

    with TemporaryDirectory() as few, TemporaryDirectory() as many:
        assert run(Path(few), 1) == run(Path(many), 9)


def test_a_discarded_segment_is_removed(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "s.jsonl", 0)
    writer.append(RawRecord("a", Raw(b'{"a":1}')))
    writer.discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_segment_can_be_removed_after_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").symlink_to("/dev/full")
    writer = SegmentWriter(tmp_path / "s.jsonl", 0)
    with pytest.raises(OSError, match="space"):
        writer.append(RawRecord("a", Raw(b'{"a":"' + b"x" * (2 << 20) + b'"}')))
    writer.append(RawRecord("a", Raw(b'{"a":1}')))
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_record_without_a_time_gets_the_current_time(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "s", 0)
    before = time.time() * 1000 - 1
    writer.append(RawRecord("a", Raw(b'{"id":1}')))
    writer.append(RawRecord("a", Raw(b"{}")))
    writer.append(RawRecord("a", Raw(b'{"id":1}'), emitted_at=1.7e18))  # in nanoseconds
    for line in writer.close().path.read_text().splitlines():
        assert before <= json.loads(line)[EXTRACTED_AT] <= time.time() * 1000
