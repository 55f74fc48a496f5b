"""The reader of CSV is not far ahead of the rows that are used, also if they need large blocks."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from connectors.sdk.files.formats.blocks import BlockStream

BLOCK = 1 << 16
BLOCKS = 60


class CountedStream:
    """A stream that counts the bytes that were read."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)
        self.count = 0

    def read_buffer(self, size: int) -> Any:
        data = self._file.read(size)
        self.count += len(data)
        return pa.py_buffer(data)


@pytest.mark.parametrize("bad_rows", [False, True])
def test_blocks_are_read_when_they_are_wanted(bad_rows: bool) -> None:
    """Also blocks of which no row is good."""
    row = b"1," + b"2" * 500 + b"\n" if bad_rows else b"1\n"
    data = b"n\n" + b"0\n" * BLOCK + row * (BLOCK * (BLOCKS - 2) // len(row))
    stream = CountedStream(data)
    blocks = BlockStream(stream)
    reader = pacsv.open_csv(
        pa.PythonFile(blocks, mode="r"),
        read_options=pacsv.ReadOptions(use_threads=False, block_size=BLOCK),
        parse_options=pacsv.ParseOptions(invalid_row_handler=lambda _: "skip"),
    )
    with blocks.allow_reads():
        rows = len(reader.read_next_batch())
    assert stream.count < len(data) // 4
    while True:
        with blocks.allow_reads():
            batch = next(reader, None)
        if batch is None:
            break
        rows += len(batch)
    assert stream.count == len(data)
    assert rows == BLOCK + (0 if bad_rows else (data.count(b"\n") - BLOCK - 1))
