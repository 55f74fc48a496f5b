"""Runs of lines in a session: it commits what it would commit of single records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elt_assets.errors import SystemFailure, TransientError
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.codec import decode
from elt_assets.protocol.messages import Form, Message, Received, RecordLines
from elt_assets.protocol.routing import airbyte_runs
from elt_assets.sync import segments
from elt_assets.sync.field_selection import FieldSelection
from elt_assets.sync.record_filter import RecordFilter
from elt_assets.sync.segments import Segment, SegmentWriter, records, refuse_foreign
from elt_assets.sync.session import Threshold
from tests.sync.doubles import MemorySink, Sync, catalog, staged

SPACED, COMPACT, ODD = range(3)


def line(number: int, stream: str = "a", form: int = COMPACT) -> bytes:
    body = {"stream": stream, "data": {"n": number}, "emitted_at": 1_700_000_000_000 + number}
    message: dict[str, Any] = {"type": "RECORD", "record": body}
    if form == ODD:
        message = {"record": body, "type": "RECORD"}
    separators = (", ", ": ") if form == SPACED else (",", ":")
    return json.dumps(message, separators=separators).encode() + b"\n"


def state(value: int, stream: str = "a", records: int | None = None) -> bytes:
    stream_state = {"stream_descriptor": {"name": stream}, "stream_state": value}
    stats = {} if records is None else {"sourceStats": {"recordCount": records}}
    body = {"type": "STREAM", "stream": stream_state, **stats}
    return json.dumps({"type": "STATE", "state": body}).encode() + b"\n"


def run(count: int, stream: str = "a", first: int = 0) -> RecordLines:
    lines = b"".join(line(number, stream) for number in range(first, first + count))
    return RecordLines(Form.AIRBYTE, stream, None, stream, lines, count)


def written(writer: SegmentWriter, *, start: int = 0) -> tuple[Segment, list[int]]:
    """The closed segment, and the numbers of its records, which are in their places."""
    segment = writer.close()
    records = staged(segment)
    assert [record.place for record in records] == list(range(start, start + len(records)))
    return segment, [record.data["n"] for record in records]


def test_a_run_is_staged_as_it_was_received(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "s", 5)
    assert writer.append_run(run(3)) is None
    assert writer.append_run(run(2, first=3)) is None
    segment, numbers = written(writer, start=5)
    assert segment.path.read_bytes() == run(5).lines
    assert (numbers, [piece.form for piece in segment.pieces]) == ([*range(5)], [Form.AIRBYTE])


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("limit", [4, 5, 9])
def test_a_run_is_split_where_the_segment_is_full(tmp_path: Path, limit: int, before: int) -> None:
    for limits in ((limit, 1 << 30), (1 << 30, len(run(limit).lines) - 3)):
        writer = SegmentWriter(tmp_path / "s", 0, limits)
        writer.append_run(run(before)) if before else None
        rest = writer.append_run(run(9 - before, first=before))
        assert rest is not None
        assert written(writer)[1] == list(range(limit))
        assert [json.loads(bytes(each.data))["n"] for each in records(rest)] == [*range(limit, 9)]


def test_a_segment_of_runs_and_records_is_cut_to_its_mark(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "s", 0)
    [record] = records(run(1, first=90))
    writer.append_run(run(2))
    writer.append(record)
    writer.append_run(run(100, first=100))
    writer.mark()
    writer.append_run(run(100, first=200))
    writer.append(record)
    assert not writer.at_mark
    writer.cut_to_mark()
    writer.append_run(run(100, first=300))
    segment, numbers = written(writer)
    assert numbers == [0, 1, 90, *range(100, 200), *range(300, 400)]
    assert [piece.form.name for piece in segment.pieces] == ["AIRBYTE", "ROWS", "AIRBYTE"]
    assert [piece.records for piece in segment.pieces] == [2, 1, 200]


def test_large_runs_make_pieces_that_tasks_can_share(tmp_path: Path) -> None:
    writer, block = SegmentWriter(tmp_path / "s", 0), run(5_000)
    for _ in range(30):
        writer.append_run(block)
    segment, numbers = written(writer)
    assert len(numbers) == 150_000
    assert max(piece.size for piece in segment.pieces) <= 4 << 20
    assert len(segment.pieces) < segment.size / (2 << 20)


def test_single_records_among_runs_do_not_multiply_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_MAX_PIECES", 20)
    writer = SegmentWriter(tmp_path / "s", 0)
    for _ in range(50):
        for block in (run(64), run(63)):
            writer.append_run(block)
            writer.append(*records(run(1)))
    segment, numbers = written(writer)
    assert (len(numbers), len(segment.pieces)) == (50 * 129, 20)


def test_a_line_that_names_its_stream_twice_ends_the_sync(tmp_path: Path) -> None:
    twice = line(0).replace(b',"emitted_at"', b',"stream":"b","emitted_at"')
    writer = SegmentWriter(tmp_path / "s", 0)
    writer.append_run(RecordLines(Form.AIRBYTE, "a", None, "a", line(0) + twice, 2))
    with pytest.raises(SystemFailure, match="twice"):
        refuse_foreign(writer.close(), 0, 1)


def test_no_line_of_a_filtered_stream_reaches_the_disk(tmp_path: Path) -> None:
    sink, keep = MemorySink(), RecordFilter(FieldSelection(exclude=(("n",),)))
    text = b"".join(line(number) for number in range(9)) + state(1)
    sync = Sync(tmp_path, {"a": sink}, filters={StreamId("a"): keep})
    sync.run(airbyte_runs().messages(text))
    assert (len(sink.rows), sync.acknowledged()) == (9, [1])
    assert all("n" not in row for row in sink.rows)
    assert {piece.form for each in sink.segments for piece in each.pieces} == {Form.ROWS}


def test_ignored_records_are_counted(tmp_path: Path) -> None:
    text = line(0) * 3 + line(0, "c") * 5 + state(1)
    sync = Sync(tmp_path, {"a": MemorySink()}).run(airbyte_runs().messages(text))
    assert "ignored 5 records of stream 'c'" in sync.logs()


numbered = st.integers(0, 9)
streams = st.sampled_from("ab")
lines = st.builds(
    lambda number, stream, form, times: line(number, stream, form) * times,
    numbered,
    streams,
    st.sampled_from([SPACED, COMPACT, COMPACT, COMPACT, ODD]),
    st.sampled_from([1, 2, 70, 300]),
)
states = st.builds(state, numbered, streams, st.none() | st.just(3))
parts = st.lists(lines | states, max_size=15)


def by_line(block: bytes) -> Iterator[Received]:
    return map(decode, block.split(b"\n")[:-1])


Outcome = tuple[list[Any], str | None, list[str]]


def outcome(
    messages: Callable[[bytes], Iterable[Received]],
    blocks: list[bytes],
    threshold: Threshold,
    failure: Exception | None,
) -> Outcome:
    def sent() -> Iterator[Received]:
        for block in blocks:
            yield from messages(block)
        if failure is not None:
            raise failure

    sinks = {name: MemorySink() for name in "ab"}
    with TemporaryDirectory() as folder:
        configured = catalog(list(sinks))
        sync = Sync(Path(folder), sinks, threshold, configured).run(sent())
        assert sync.left_behind() == []
    events = [
        (
            sink.rows,
            sink.state,
            [len(commit.states) for commit in sink.commits],
            [segment.records for segment in sink.segments],
            sync.acknowledged(name),
        )
        for name, sink in sinks.items()
    ]
    return events, str(sync.failure), sorted(sync.logs().splitlines())


@settings(deadline=None)
@given(
    parts,
    st.sampled_from([1, 3, 64, 100, 1_000]),
    st.integers(1, 20_000),
    st.none() | st.just(TransientError("the source failed")),
)
def test_runs_are_committed_like_their_records(
    parts: list[bytes], limit: int, size: int, failure: Exception | None
) -> None:
    text = b"".join(parts)
    ends = [text.find(b"\n", at) + 1 for at in range(size, len(text), size)]
    blocks = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True) if a < b]
    threshold = Threshold(rows=limit)
    expected = outcome(by_line, blocks, threshold, failure)
    assert outcome(airbyte_runs().messages, blocks, threshold, failure) == expected


def test_messages_between_runs_are_messages() -> None:
    found = list(airbyte_runs().messages(line(0) * 2 + state(1)))
    assert [isinstance(each, Message) for each in found] == [False, False, True]
