"""The decoding of lines: blocks of them at once, and what does not fit value by value.

1. A block is decoded into typed objects, one for each line.
2. If the decoder refuses it, chunks of its lines are decoded, and the lines of a refused chunk one by one.
3. The fields of a refused line are decoded one by one, and a value of another type is converted alone. If
   the decoder refuses even the text of a line, its bad texts are repaired first (`types.repair`).
4. A field that keeps having values of another type is taken as it stands in the line from then on, so that
   whole blocks are decoded again; its values are converted in their column.

Each way gives the same values, so that a record's row does not depend on the lines beside it.
`tests/lake/test_parsing.py::test_a_row_does_not_depend_on_its_neighbours`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from elt_assets.lake.spark.parsing.envelopes import Envelope
from elt_assets.lake.spark.parsing.job import ROWS, Job
from elt_assets.lake.spark.parsing.rounding import Rounding
from elt_assets.lake.spark.parsing.undeclared import Extra, add, has_variant, renamed, undeclared
from elt_assets.lake.spark.types.changes import RECORD, Changes
from elt_assets.lake.spark.types.conversion import Converter
from elt_assets.lake.spark.types.decoders import (
    DECODING_ERRORS,
    has_supported_names,
    is_read,
    object_type,
)
from elt_assets.lake.spark.types.repair import Marks, repaired

UNREADABLE = "not a readable JSON object"
_HIDDEN = "\ufdd0"
"""The name, for the decoder, of the field with the undeclared ones: a source may have one of its name."""
_CHUNK = 16
"""Lines that are decoded together where their block was refused."""
_FEW, _SHARE = 4, 20_000
"""A field is taken as it stands if it had more than `_FEW` misfits and more than one in `_SHARE` lines."""


@dataclass
class Records:
    """The records of a block, in the order of their lines.

    Attributes:
        changes: of the records' values.
        lines: the decoded lines, with their envelopes; None for a line without a record.
        rejected: the reasons for which lines have no row, by the position of the line.
        foreign: the positions of lines that are no record of the stream.
        undeclared: how many records have each undeclared field.
    """

    changes: Changes
    lines: list[Any] = field(default_factory=list)
    rejected: dict[int, str] = field(default_factory=dict)
    foreign: list[int] = field(default_factory=list)
    undeclared: Counter[str] = field(default_factory=Counter)


class RecordReader:
    """Reads the lines of one stream in one form."""

    def __init__(self, job: Job, form: str, envelope: Envelope):
        self._job, self._form, self._envelope = job, form, envelope
        self.converter = Converter(job.fields)
        self._is_supported = all(map(has_supported_names, job.fields))
        self._has_undeclared = False
        self._raw: frozenset[int] = frozenset()
        self._misfits: Counter[int] = Counter()
        self._seen = 0
        self._whole = msgspec.json.Decoder(envelope.type_of(Raw)).decode
        self._fields = msgspec.json.Decoder(dict[str, Raw]).decode
        numbers = {each.source: number for number, each in enumerate(job.fields)}
        self._extra = f"f{numbers[job.extra]}" if job.extra in numbers else None
        if self._is_supported:
            self._make_decoders()

    def _make_decoders(self) -> None:
        fields = [
            replace(each, source=_HIDDEN) if each.source == self._job.extra else each
            for each in self._job.fields
        ]
        make = partial(object_type, fields, raw=self._raw)
        self._closed = msgspec.json.Decoder(self._envelope.type_of(make(is_closed=True)))
        self._open = msgspec.json.Decoder(self._envelope.type_of(make()))
        self._rounding = Rounding(self._job.fields, self._envelope, self._raw)

    def check_small(self, block: bytes, records: Records) -> None:
        """Add the changes of numbers that are too small for a double, in the lines that were decoded."""
        if self._is_supported:  # else all values were converted alone
            self._rounding.check_small(_lines(block), records.changes)

    @property
    def raw(self) -> frozenset[int]:
        """The numbers of the fields that are taken as they stand in the line."""
        return self._raw

    def read(self, block: bytes, count: int) -> Records:
        """Return the records of a block of `count` lines."""
        self._seen += count
        records = Records(Changes(self._job.key_paths))
        if not self._is_supported:
            records.lines = [self._alone(line, n, records) for n, line in enumerate(_lines(block))]
        elif _is_whole(block) and _is_utf8(block):
            if not self._read_lines(block, count, records):
                self._read_chunks(_lines(block), records)
        else:
            self._read_odd(_lines(block), records)
        return records

    def _read_lines(self, block: bytes, count: int, records: Records) -> bool:
        """Decode whole lines at once; return whether the decoder accepts all of them."""
        try:
            lines = self._decode(block)
        except DECODING_ERRORS:
            return False
        if len(lines) != count:
            return False
        first = len(records.lines)
        records.lines += lines
        self._rounding.check(block, first, records.changes)
        if self._has_undeclared:
            for number, line in enumerate(_lines(block), first):
                self._read_undeclared(line, number, records)
        return True

    def _decode(self, block: bytes) -> list[Any]:
        if not self._has_undeclared:
            try:
                return self._closed.decode_lines(block)
            except msgspec.ValidationError as error:
                if "unknown field" not in str(error):
                    raise
                self._has_undeclared = True
        return self._open.decode_lines(block)

    def _read_chunks(self, lines: Sequence[bytes], records: Records) -> None:
        """Decode chunks of lines, and the lines of a refused chunk one by one."""
        for start in range(0, len(lines), _CHUNK):
            chunk = lines[start : start + _CHUNK]
            if not self._read_lines(b"\n".join(chunk) + b"\n", len(chunk), records):
                for number, line in enumerate(chunk, start):
                    if not self._read_lines(line + b"\n", 1, records):
                        records.lines.append(self._alone(line, number, records))

    def _read_odd(self, lines: Sequence[bytes], records: Records) -> None:
        """Decode the lines of a block one by one: some are no objects from their first byte to their last."""
        for number, line in enumerate(lines):
            whole = line + b"\n"
            is_plain = _is_whole(whole) and _is_utf8(whole)
            if not (is_plain and self._read_lines(whole, 1, records)):
                records.lines.append(self._alone(line, number, records))

    def _alone(self, line: bytes, number: int, records: Records) -> Any:
        """Return a decoded line, each of its values converted alone; None if it has no record."""
        try:
            whole, data, marks = self._opened(line)
        except DECODING_ERRORS:
            if self._form == ROWS:
                records.rejected[number] = UNREADABLE
            else:
                records.foreign.append(number)
            return None
        try:
            values = self._fields(data) if data[:1] == b"{" else None
        except DECODING_ERRORS:
            values = None
        if values is None:
            records.rejected[number] = UNREADABLE
            return None
        values = self._split(values, data, marks, records)
        change = partial(records.changes.add, number)
        fields = self._job.fields
        tree = self.converter.record(fields, values, RECORD, change, marks)
        self._learn(values)
        self._envelope.put(whole, tree)
        return whole

    def _opened(self, line: bytes) -> tuple[Any, bytes, Marks | None]:
        """Return a line with its data as text, and the marks with which it was repaired."""
        marks = None
        try:
            if not _is_utf8(line):
                raise ValueError
            whole = self._whole(line)
        except DECODING_ERRORS:
            line, marks = repaired(line)
            whole = self._whole(line)
            self._envelope.unmark(whole, marks)
        return whole, bytes(self._envelope.data(whole)), marks

    def _split(
        self, values: dict[str, Raw], data: bytes, marks: Marks | None, records: Records
    ) -> dict[str, Raw]:
        """Return the fields by their declared names; the undeclared ones as one field, if they are kept."""
        declared = self._job.declared
        if values.keys() <= declared.names and not declared.objects:
            return values
        value, plain = Raw(data), Raw(data if marks is None else marks.without(data))
        extra = undeclared(plain, declared)
        if extra is not None and has_variant(extra, declared):
            value, plain = renamed(value, declared), renamed(plain, declared)
            values, extra = self._fields(value), undeclared(plain, declared)
        if extra is None:
            return values
        add(records.undeclared, extra)
        return values if self._extra is None else {**values, str(self._job.extra): _encoded(extra)}

    def _read_undeclared(self, line: bytes, number: int, records: Records) -> None:
        """Count and keep the undeclared fields of a decoded line; read it alone if fields were renamed."""
        extra = undeclared(self._envelope.data(self._whole(line)), self._job.declared)
        if extra is None:
            return
        if has_variant(extra, self._job.declared):
            records.lines[number] = self._alone(line, number, records)
            return
        add(records.undeclared, extra)
        if self._extra is not None:
            setattr(self._envelope.data(records.lines[number]), self._extra, _encoded(extra))

    def _learn(self, values: Mapping[str, Raw]) -> None:
        """Count the fields of a line that are not clean; take those with many as they stand from now on."""
        for number, each in enumerate(self._job.fields):
            raw = values.get(each.source)
            if raw is None or number in self._raw or not is_read(each):
                continue
            if not self.converter.is_clean(number, raw):
                self._misfits[number] += 1
        limit = max(_FEW, self._seen // _SHARE)
        often = {number for number, count in self._misfits.items() if count > limit}
        if self._is_supported and not often <= self._raw:
            self._raw |= often
            self._make_decoders()


def _encoded(extra: Extra) -> Raw:
    return Raw(msgspec.json.encode(extra))


def _lines(block: bytes) -> list[bytes]:
    return block.split(b"\n")[:-1]


def _is_whole(block: bytes) -> bool:
    """Return whether each line of a block begins with a brace and ends with one: then the decoder cannot take
    parts of two lines for an object."""
    octets = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(octets == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    return bool((octets[ends - 1] == ord("}")).all() and (octets[starts] == ord("{")).all())


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
