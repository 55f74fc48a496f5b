"""Segments of given lines, for the tests of their parse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from elt_assets.protocol.messages import Form
from elt_assets.sync.segments import Piece, Segment

RECEIVED_AT = 1_700_000_000_999
STREAM = "users"


def segment(folder: Path, form: Form, lines: Sequence[bytes]) -> Segment:
    """A segment of one piece; the lines have no newlines."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid4().hex}.jsonl"
    data = b"".join(line + b"\n" for line in lines)
    path.write_bytes(data)
    piece = Piece(form, 0, len(data), 7, len(lines), RECEIVED_AT, STREAM)
    return Segment(path, len(lines), len(data), [piece])


def airbyte(data: bytes, emitted_at: int = 1_700_000_000_123) -> bytes:
    return b'{"type":"RECORD","record":{"stream":"users","data":%b,"emitted_at":%d}}' % (
        data,
        emitted_at,
    )


def singer(data: bytes) -> bytes:
    return (
        b'{"type":"RECORD","stream":"users","record":%b,'
        b'"time_extracted":"2024-01-02T03:04:05.123456Z"}' % data
    )
