"""Decoder of pgoutput, the form in which the server writes changes: of a batch, all rows of a table at once.

A message is one row of the slot's result. The rows of a batch that belong to one table have their values at
different places, but the same columns: so they are walked column by column, for all of them in one step of
numpy. Values are the server's texts.

Spec: PostgreSQL, Logical Replication Message Formats (version 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from elt_assets.errors import SystemFailure

INSERT, UPDATE, DELETE = ord("I"), ord("U"), ord("D")
_BEGIN, _RELATION, _TRUNCATE = ord("B"), ord("R"), ord("T")
_NEW, _TEXT, _UNCHANGED = ord("N"), ord("t"), ord("u")
_MESSAGE_KINDS = np.array([code in b"BCIUDRTOYM" for code in range(256)])
"""The kinds of messages. Commits, origins, types and what programs write to the log tell nothing of rows."""
NULL, UNCHANGED = -1, -2
"""Lengths that stand for a null, and for a large value that the server leaves out since it did not change."""
EPOCH = 946_684_800_000_000
"""2000-01-01 in microseconds since 1970."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Relation:
    """A table as the log describes it.

    Attributes:
        oid: its number, which stays when it is renamed.
        columns: their names, as `types` are the numbers (OID) of their types.
        identity: the columns that the log has of a row before a change; all for the replica identity FULL.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]
    types: tuple[int, ...]
    identity: frozenset[str]


@dataclass(frozen=True)
class Values:
    """The places of a column's values in a batch. `lengths`: in bytes, or `NULL`, or `UNCHANGED`."""

    offsets: Numbers
    lengths: Numbers

    def take(self, rows: Any) -> Values:
        return Values(self.offsets[rows], self.lengths[rows])

    def replace(self, is_replaced: Flags, other: Values) -> Values:
        """Return them with others where `is_replaced`."""
        offsets = np.where(is_replaced, other.offsets, self.offsets)
        return Values(offsets, np.where(is_replaced, other.lengths, self.lengths))


@dataclass(frozen=True)
class Changes:
    """The changes of one table in a batch.

    Attributes:
        relation: the table, in the form that it had.
        operations: `INSERT`, `UPDATE` or `DELETE`.
        messages: their positions in the batch.
        lsns, times, transactions: of the commit: its position, its time in microseconds since 1970, and 32
            bits of the number of the transaction.
        old, new: the values of each column before and after; those that a change does not have are null.
        has_old: which changes have values of before: those of a key that has changed, or of a deleted row.
        data: the bytes of the batch.
    """

    relation: Relation
    operations: Bytes
    messages: Numbers
    lsns: Numbers
    times: Numbers
    transactions: Numbers
    old: Sequence[Values]
    new: Sequence[Values]
    has_old: Flags
    data: Bytes


@dataclass(frozen=True)
class Truncation:
    """A table whose rows were all removed.

    `transaction`: 32 bits of its number; `lsn`, `time`: of its commit, as those of `Changes`.
    """

    relation: Relation
    transaction: int
    lsn: int
    time: int


@dataclass
class MessageDecoder:
    """Decodes the batches of one read of a slot, in their order.

    Attributes:
        tables: the numbers (OID) of the tables whose changes are decoded. A name may be that of another table
            meanwhile.
        begin: the last message with which a transaction begins.
    """

    tables: frozenset[int]
    _relations: dict[int, Relation] = field(default_factory=dict)
    begin: bytes = b""

    def decode(self, batch: pa.BinaryArray) -> Iterator[Changes | Truncation]:
        """Yield the changes of a batch of messages: for each table and form, in the order of the log.

        Raises:
            SystemFailure: a message is of an unknown kind.
        """
        data, starts = _open(batch)
        kinds = data[starts[:-1]]
        if not _MESSAGE_KINDS[kinds].all():
            code = int(kinds[~_MESSAGE_KINDS[kinds]][0])
            raise SystemFailure(
                f"the slot has a message of the unknown kind {bytes([code])!r}",
                guidance="this is a defect of this project, or the server is newer than it: report it",
            )
        begins = self._find_begins(data, starts, kinds)
        first = 0
        for position in np.flatnonzero((kinds == _RELATION) | (kinds == _TRUNCATE)).tolist():
            yield from self._decode_rows(data, starts, kinds, begins, first, position)
            message = data[starts[position] : starts[position + 1]].tobytes()
            if kinds[position] == _RELATION:
                self._add_relation(message)
            else:
                yield from self._list_truncations(message, begins, position)
            first = position + 1
        yield from self._decode_rows(data, starts, kinds, begins, first, len(kinds))

    def _find_begins(self, data: Bytes, starts: Numbers, kinds: Bytes) -> _Begins:
        """Return where transactions begin. A batch may start in the middle of one."""
        positions = np.flatnonzero(kinds == _BEGIN)
        heads = [self.begin] if self.begin else []
        heads += [data[starts[n] : starts[n + 1]].tobytes() for n in positions]
        if heads:
            self.begin = heads[-1]
        had_begun = len(heads) > len(positions)
        table = np.frombuffer(b"".join(heads), _HEAD)
        return _Begins(np.concatenate([[-1], positions]) if had_begun else positions, table)

    def _add_relation(self, message: bytes) -> None:
        number = int.from_bytes(message[1:5], "big")
        schema, name, rest = message[5:].split(b"\0", 2)
        count = int.from_bytes(rest[1:3], "big")
        columns, types, identity, place = [], [], [], 3
        for _ in range(count):
            end = rest.index(b"\0", place + 1)
            columns.append(rest[place + 1 : end].decode())
            types.append(int.from_bytes(rest[end + 1 : end + 5], "big"))
            if rest[place]:
                identity.append(columns[-1])
            place = end + 9
        # The server writes no schema for pg_catalog.
        names = (schema.decode() or "pg_catalog", name.decode())
        self._relations[number] = Relation(
            number, *names, tuple(columns), tuple(types), frozenset(identity)
        )

    def _list_truncations(
        self, message: bytes, begins: _Begins, position: int
    ) -> Iterator[Truncation]:
        head = begins.table[begins.find(np.array([position]))][0]
        commit = int(head["transaction"]), int(head["lsn"]), int(head["time"]) + EPOCH
        numbers = np.frombuffer(message[6:], ">u4")
        for number in numbers:
            if int(number) in self.tables:
                yield Truncation(self._relations[int(number)], *commit)

    def _decode_rows(
        self,
        data: Bytes,
        starts: Numbers,
        kinds: Bytes,
        begins: _Begins,
        first: int,
        end: int,
    ) -> Iterator[Changes]:
        """Yield the changes of some messages, between which no table changes its form."""
        part = kinds[first:end]
        rows = first + np.flatnonzero((part == INSERT) | (part == UPDATE) | (part == DELETE))
        if not len(rows):
            return
        numbers = _read_numbers(data, starts[rows] + 1)
        for number in np.unique(numbers):
            if int(number) in self.tables:
                relation = self._relations[int(number)]
                chosen = rows[numbers == number]
                yield _decode_table(relation, data, starts[chosen], kinds[chosen], chosen, begins)


_HEAD = np.dtype([("kind", "u1"), ("lsn", ">i8"), ("time", ">i8"), ("transaction", ">u4")])


@dataclass(frozen=True)
class _Begins:
    """The transactions of a batch. `positions`: of their first messages; -1 for one that began before it."""

    positions: Numbers
    table: np.ndarray[Any, Any]

    def find(self, messages: Numbers) -> Numbers:
        """Return the numbers of the transactions of messages."""
        return np.searchsorted(self.positions, messages, side="right") - 1


def _decode_table(
    relation: Relation,
    data: Bytes,
    starts: Numbers,
    operations: Bytes,
    messages: Numbers,
    begins: _Begins,
) -> Changes:
    """Return the changes of one table. `starts`: of its messages; after the kind and the table's number comes
    what kind of values follows."""
    count = len(relation.columns)
    tags = data[starts + 5]
    has_old = tags != _NEW
    nothing = Values(np.zeros(len(starts), np.int64), np.full(len(starts), NULL))
    old = [nothing] * count
    places = starts + 6
    if has_old.any():
        walked, ends = _walk(data, places[has_old], count)
        old = [_scatter(values, has_old) for values in walked]
        places[has_old] = ends + 1
    has_new = operations != DELETE
    if has_new.all():
        new, _ = _walk(data, places, count)
    elif has_new.any():
        walked, _ = _walk(data, places[has_new], count)
        new = [_scatter(values, has_new) for values in walked]
    else:
        new = [nothing] * count
    heads = begins.table[begins.find(messages)]
    return Changes(
        relation=relation,
        operations=operations,
        messages=messages,
        lsns=heads["lsn"].astype(np.int64),
        times=heads["time"].astype(np.int64) + EPOCH,
        transactions=heads["transaction"].astype(np.int64),
        old=old,
        new=new,
        has_old=has_old,
        data=data,
    )


def _walk(data: Bytes, places: Numbers, count: int) -> tuple[list[Values], Numbers]:
    """Return the values of rows, and where each row ends. `places`: of the rows, which begin with the number
    of their columns."""
    columns = []
    place = places + 2
    for _ in range(count):
        kinds = data[place]
        has_text = kinds == _TEXT
        lengths = np.where(kinds == _UNCHANGED, UNCHANGED, NULL)
        lengths[has_text] = _read_numbers(data, place[has_text] + 1)
        columns.append(Values(place + 5, lengths))
        place = place + np.where(has_text, 5 + lengths, 1)
    return columns, place


def _scatter(values: Values, rows: Flags) -> Values:
    """Return values of some rows as those of all rows; the others are null."""
    offsets, lengths = np.zeros(len(rows), np.int64), np.full(len(rows), NULL)
    offsets[rows], lengths[rows] = values.offsets, values.lengths
    return Values(offsets, lengths)


def _read_numbers(data: Bytes, places: Numbers) -> Numbers:
    """Return the numbers, of four bytes, that begin at some places."""
    # A number at each place of the data, without a copy: they overlap.
    overlapping = np.ndarray((max(len(data) - 3, 0),), ">u4", data, strides=(1,))
    numbers: Numbers = overlapping[places].astype(np.int64)
    return numbers


def _open(batch: pa.BinaryArray) -> tuple[Bytes, Numbers]:
    """Return the bytes of a batch of messages, and where each begins, and the last one ends."""
    buffers = batch.buffers()
    starts = np.frombuffer(buffers[1], np.int32)[batch.offset : batch.offset + len(batch) + 1]
    return np.frombuffer(buffers[2], np.uint8), starts.astype(np.int64)


def gather(data: Bytes, values: Values) -> pa.StringArray:
    """Return the texts of values; nulls and unchanged ones are null."""
    count = len(values.lengths)
    is_null = values.lengths < 0
    ends = np.where(is_null, 0, values.offsets + values.lengths)
    ends = np.maximum.accumulate(ends)
    # The texts, and between two of them what is no text: every other one is taken.
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = np.where(is_null, ends, values.offsets)
    bounds[1::2] = np.where(is_null, ends, values.offsets + values.lengths)
    pieces = pa.StringArray.from_buffers(
        max(2 * count - 1, 0), pa.py_buffer(bounds), pa.py_buffer(data)
    )
    return pieces.take(pa.array(np.arange(0, 2 * count, 2), mask=is_null))
