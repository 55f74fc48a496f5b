"""Rows of a text result set, as columns of Arrow, without a Python object for any value.

Each value of the protocol is the text that the server makes of it (ProtocolText::ResultsetRow), so nothing is
converted before Arrow casts a whole column. The packets of a block stay where they came in; numpy reads the
lengths of a column's values, and Arrow copies the values.

Spec: MySQL client/server protocol, Text Resultset; Sending more than 16 MB.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

BLOCK_BYTES = 8 << 20
"""About the bytes of the rows in a batch. A larger row is a batch of its own."""
_READ_BYTES = 1 << 20
_HEADER = struct.Struct("<I")
_LARGEST = 0xFFFFFF
"""The length of a packet whose payload goes on in the next one."""
_NULL, _END, _ERROR = 0xFB, 0xFE, 0xFF
_LONG = ((0xFC, 2), (0xFD, 3), (0xFE, 8))
"""First bytes of lengths that have more bytes, and how many."""
_END_LENGTH = 9
"""A packet of the end is shorter; a row that begins with the same byte is not."""

Read = Callable[[int], bytes]
Block = tuple[bytes, "np.ndarray"]
"""Bytes, and where each row begins in them."""


class RefusedRead(Exception):
    """The error packet with which the server ends a result set."""

    def __init__(self, payload: bytes):
        super().__init__("the server has ended the result set")
        self.payload = payload


class Cut(Exception):
    """The end of the connection within a result set."""


def read_columns(read: Read, count: int) -> Iterator[list[pa.Array]]:
    """Yield the values of each column, as binary arrays, block by block.

    Args:
        read: returns bytes of the connection as soon as there are any, up to a number of them.
        count: the number of columns.

    Raises:
        RefusedRead: the server reports an error in place of more rows.
        Cut: the connection ends before the result set does.
    """
    for data, starts in _Packets(read).blocks():
        yield _split(data, starts, count)


class _Packets:
    """The packets of a result set after those that describe its columns."""

    def __init__(self, read: Read):
        self._read = read
        self._buffer = bytearray()

    def blocks(self) -> Iterator[Block]:
        is_open = True
        while is_open:
            starts, end, is_open = self._find_rows()
            if starts:
                yield bytes(memoryview(self._buffer)[:end]), np.array(starts, np.int64)
            del self._buffer[:end]
            if is_open and self._has_large_row():
                yield self._take_payload(), np.zeros(1, np.int64)

    def _find_rows(self) -> tuple[list[int], int, bool]:
        """Return where rows begin, where the last of them ends, and whether more follow."""
        starts: list[int] = []
        position, unpack, buffer = 0, _HEADER.unpack_from, self._buffer
        while True:
            size = len(buffer)
            while position + 4 < size:
                length = unpack(buffer, position)[0] & _LARGEST
                end = position + 4 + length
                first = buffer[position + 4]
                if length == _LARGEST:
                    return starts, position, True
                if end > size:
                    break
                if first >= _END:
                    if first == _ERROR:
                        raise RefusedRead(bytes(buffer[position + 4 : end]))
                    if length < _END_LENGTH:
                        return starts, position, False
                starts.append(position + 4)
                position = end
            if position >= BLOCK_BYTES:
                return starts, position, True
            self._receive()

    def _has_large_row(self) -> bool:
        while len(self._buffer) < 4:
            self._receive()
        return bool(_HEADER.unpack_from(self._buffer)[0] & _LARGEST == _LARGEST)

    def _take_payload(self) -> bytes:
        """Remove a row of several packets from the buffer, and return its payload."""
        payload = bytearray()
        length = _LARGEST
        while length == _LARGEST:
            while len(self._buffer) < 4:
                self._receive()
            length = _HEADER.unpack_from(self._buffer)[0] & _LARGEST
            while len(self._buffer) < 4 + length:
                self._receive()
            payload += memoryview(self._buffer)[4 : 4 + length]
            del self._buffer[: 4 + length]
        return bytes(payload)

    def _receive(self) -> None:
        piece = self._read(_READ_BYTES)
        if not piece:
            raise Cut
        self._buffer += piece


def _split(data: bytes, starts: np.ndarray, count: int) -> list[pa.Array]:
    """Return the columns of a block."""
    view, buffer = np.frombuffer(data, np.uint8), pa.py_buffer(data)
    position = starts
    columns = []
    for _ in range(count):
        begin, end, is_null = _find_values(view, position)
        columns.append(_take(buffer, begin, end, is_null))
        position = end
    return columns


def _find_values(
    view: np.ndarray, position: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the values begin and end whose lengths are at these positions, and which are null."""
    head = view[position]
    is_null = head == _NULL
    length = np.where(is_null, 0, head).astype(np.int64)
    begin = position + 1
    for mark, width in _LONG:
        rows = np.flatnonzero(head == mark)
        if rows.size:
            first = begin[rows]
            length[rows] = sum(view[first + n].astype(np.int64) << (8 * n) for n in range(width))
            begin[rows] += width
    return begin, begin + length, is_null


def _take(buffer: pa.Buffer, begin: np.ndarray, end: np.ndarray, is_null: np.ndarray) -> pa.Array:
    """Return the values between positions of a buffer.

    The buffer as an array has values at even places, and what is between them at odd ones.
    """
    offsets = np.empty(2 * len(begin), np.int32)
    offsets[0::2], offsets[1::2] = begin, end
    mixed = pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), buffer]
    )
    places = np.arange(0, len(offsets), 2, dtype=np.int32)
    return mixed.take(pa.array(places, mask=is_null if is_null.any() else None))
