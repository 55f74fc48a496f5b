"""Staged lines: the source's bytes, and what is known of them."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.protocol.messages import NULL, RawRecord
from elt_assets.sync.segments import OpenFiles, Segment, SegmentWriter


def staged(folder: Path, *records: tuple[bytes, bytes | None]) -> list[bytes]:
    writer = SegmentWriter(folder / "s.jsonl", 7)
    for data, meta in records:
        writer.append(RawRecord("a", Raw(data), 1234.0, meta=NULL if meta is None else Raw(meta)))
    segment = writer.close()
    lines = segment.path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert (len(lines), segment.path.stat().st_size) == (segment.records, segment.size)
    return lines


def test_a_line_has_the_data_byte_for_byte(tmp_path: Path) -> None:
    [line] = staged(tmp_path, (b'{"a":  1.50, "b":"\\u2028"}', None))
    assert line == b'{"data":{"a":  1.50, "b":"\\u2028"},"emitted_at":1234}'


@pytest.mark.parametrize("data", [b"{}", b"{ }", b"5", b'"{}"', b"[1, 2]", b"null", b'{"data":1}'])
def test_any_data_is_kept(tmp_path: Path, data: bytes) -> None:
    plain, with_meta = staged(tmp_path, (data, None), (data, b'{"changes":[]}'))
    assert json.loads(plain) == {"data": json.loads(data), "emitted_at": 1234}
    assert json.loads(with_meta) == {**json.loads(plain), "meta": {"changes": []}}


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
    assert [line["data"]["a"] for line in found] == [1, 3]
    assert [(piece.first, piece.records) for piece in segment.pieces] == [(0, 2)]
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


@pytest.mark.spec("protocol.127")
def test_a_record_without_a_time_gets_the_current_time(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "s", 0)
    before = time.time() * 1000 - 1
    writer.append(RawRecord("a", Raw(b'{"id":1}')))
    writer.append(RawRecord("a", Raw(b"{}")))
    writer.append(RawRecord("a", Raw(b'{"id":1}'), emitted_at=1.7e18))  # in nanoseconds
    for line in writer.close().path.read_text().splitlines():
        assert before <= json.loads(line)["emitted_at"] <= time.time() * 1000
