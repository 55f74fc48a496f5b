"""Packets of a binary result set, as blocks of whole rows.

The packets of a block stay where they came in, in one buffer; `connectors.mysql.rows` takes the columns out
of it. Python does one thing for each row: it adds the length of the packet, to find the next one.

Spec: MySQL client/server protocol, Binary Protocol Resultset; Sending more than 16 MB.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

BLOCK_BYTES = 4 << 20
"""Few enough for the caches of a core, and enough that the cost of each block is small beside it."""
MARGIN = 16
"""Bytes after the rows of a block, which may be read, but mean nothing."""
_HEADER = struct.Struct("<I")
_LARGEST = 0xFFFFFF
"""The length of a packet whose payload goes on in the next one."""
_ROW, _ERROR = 0x00, 0xFF
"""First bytes of packets; that of the end is another one."""

ReadInto = Callable[[memoryview], int]


@dataclass(frozen=True)
class Block:
    """Rows. `data`: bytes, which are those of the next block later; `starts`: where the payload of each row
    begins in them; `end`: where that of the last one ends."""

    data: bytearray
    starts: np.ndarray
    end: int

    @property
    def ends(self) -> np.ndarray:
        """Where the payloads end: before the header of the next one."""
        return np.append(self.starts[1:] - _HEADER.size, self.end)


class RefusedRead(Exception):
    """The error packet with which the server ends a result set."""

    def __init__(self, payload: bytes):
        super().__init__("the server has ended the result set")
        self.payload = payload


class Cut(Exception):
    """The end of the connection within a result set."""


class Packets:
    """The packets of a result set after those that describe its columns.

    Args:
        first: the bytes that have come in before; fewer than those of a block.
        read_into: puts bytes of the connection into memory, as soon as there are any, and returns how many.
        block_bytes: the bytes of the rows in a block at most; a larger row is a block of its own.
    """

    def __init__(self, first: bytes, read_into: ReadInto, block_bytes: int = BLOCK_BYTES):
        self._read_into = read_into
        self._size = block_bytes
        self._buffer = bytearray(block_bytes + MARGIN)
        self._filled = len(first)
        self._buffer[: len(first)] = first

    def blocks(self) -> Iterator[Block]:
        """Yield the rows, block by block.

        Raises:
            RefusedRead: the server reports an error in place of more rows.
            Cut: the connection ends before the result set does.
        """
        is_open = True
        while is_open:
            starts, end, is_open = self._find_rows()
            if starts:
                yield Block(self._buffer, np.array(starts, np.int64), end)
                self._remove(end)
            elif is_open:
                row = self._take_row()
                yield Block(row, np.zeros(1, np.int64), len(row) - MARGIN)

    def _find_rows(self) -> tuple[list[int], int, bool]:
        """Return where rows begin, where the last of them ends, and whether more follow.

        There is no row if the first one is larger than the buffer.
        """
        starts: list[int] = []
        position, unpack, buffer, append = 0, _HEADER.unpack_from, self._buffer, starts.append
        while True:
            size = self._filled
            while position + 4 < size:
                append(position + 4)
                position += 4 + (unpack(buffer, position)[0] & _LARGEST)
            if position > size:
                position = starts.pop() - 4
            elif position == size and starts and buffer[starts[-1]] != _ROW:
                # No packet follows that of the end, so it is the last one that has come in.
                first = starts.pop()
                if buffer[first] == _ERROR:
                    raise RefusedRead(bytes(buffer[first:size]))
                return starts, first - 4, False
            if size == self._size:
                return starts, position, True
            self._filled += self._receive(memoryview(buffer)[size : self._size])

    def _take_row(self) -> bytearray:
        """Remove a row of any size, whose packet is the first in the buffer."""
        payload = bytearray()
        length = _LARGEST
        while length == _LARGEST:
            length = _HEADER.unpack(self._take(_HEADER.size))[0] & _LARGEST
            payload += self._take(length)
        payload += bytes(MARGIN)
        return payload

    def _take(self, count: int) -> bytearray:
        """Remove bytes from the start of what has come in, or comes."""
        data = bytearray(count)
        view, taken = memoryview(data), min(count, self._filled)
        view[:taken] = memoryview(self._buffer)[:taken]
        self._remove(taken)
        while taken < count:
            taken += self._receive(view[taken:])
        return data

    def _remove(self, count: int) -> None:
        rest = self._buffer[count : self._filled]
        self._filled = len(rest)
        self._buffer[: self._filled] = rest

    def _receive(self, place: memoryview) -> int:
        count = self._read_into(place)
        if not count:
            raise Cut
        return count
