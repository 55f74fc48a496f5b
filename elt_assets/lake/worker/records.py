"""The decoding of lines: of a block at once; if it is refused, of its chunks, then their lines, then values.

Used by `blocks`.

A line that is no record of the stream is foreign, and fails the segment. A record that is not readable is
rejected.

1. A block is decoded into typed objects, one for each line.
2. If the decoder refuses it, chunks of its lines are decoded, and the lines of a refused chunk one by one.
3. The fields of a refused line are decoded one by one, and a value of another type is converted alone. If
   the decoder refuses even the text of a line, its bad texts are repaired first (`json_texts.repair_line`).
4. A field that keeps having values of another type is taken as it stands in the line from then on, so that
   whole blocks are decoded again; its values are converted in their column.

Each way gives the same values, so that a record's row does not depend on the lines beside it.
`tests/lake/test_parsing.py::test_a_row_does_not_depend_on_its_neighbours`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from elt_assets.lake.worker.columns import Converter, decode_nothing
from elt_assets.lake.worker.envelopes import Envelope
from elt_assets.lake.worker.inference import merge_fields
from elt_assets.lake.worker.job import (
    MAX_NAMES,
    ROWS,
    Extra,
    ParseJob,
    count_names,
    describe_extra,
    find_undeclared,
    has_variant,
    rename_fields,
)
from elt_assets.lake.worker.json_texts import Marks, repair_line
from elt_assets.lake.worker.kinds import DECODING_ERRORS, object_type
from elt_assets.lake.worker.values import WHOLE_RECORD, BlockChanges

UNREADABLE = "not a readable JSON object"
_HIDDEN = "\ufdd0"
"""The name, for the decoder, of the field with the undeclared ones: a source may have one of its name."""
_CHUNK = 16
"""Lines that are decoded together where their block was refused."""
_FEW, _SHARE = 4, 20_000
"""A field is taken as it stands if it had more than `_FEW` misfits and more than one in `_SHARE` lines."""


@dataclass
class BlockRecords:
    """The records of a block, in the order of their lines."""

    changes: BlockChanges  # of the records' values
    # Numbers that become doubles stand as in the line, in lines that are decoded at once.
    keeps_number_texts: bool
    # The decoded lines, with their envelopes; None for a line without a record.
    lines: list[Any] = field(default_factory=list)
    # The reasons for which lines have no row, by the position of the line.
    rejected: dict[int, str] = field(default_factory=dict)
    # The positions of lines that are no record of the stream.
    foreign_lines: list[int] = field(default_factory=list)
    # How many records have each undeclared field.
    undeclared: Counter[str] = field(default_factory=Counter)
    # Their schemas by their names, if they are inferred.
    inferred: dict[str, Any] = field(default_factory=dict)


class RecordReader:
    """Reads the lines of one stream in one form.

    Attributes:
        raw_fields: the converters of the fields that are taken as they stand in the line, by the numbers of
            the fields.
    """

    def __init__(self, job: ParseJob, form: str, envelope: Envelope):
        self._job, self._form, self._envelope = job, form, envelope
        self.raw_fields: dict[int, Converter] = {}
        self._converters = {
            number: Converter(field) for number, field in enumerate(job.fields) if field.is_read
        }
        self._decoders: dict[tuple[bool, bool], Callable[[bytes], list[Any]]] = {}
        self._has_undeclared = job.is_reopened
        self._seen = 0
        self._whole = msgspec.json.Decoder(envelope.line_type(Raw)).decode
        self._fields = msgspec.json.Decoder(dict[str, Raw]).decode
        numbers = {field.source: number for number, field in enumerate(job.fields)}
        self._extra = f"f{numbers[job.extra]}" if job.extra in numbers else None

    def read(self, block: bytes, count: int, *, keeps_number_texts: bool) -> BlockRecords:
        """Return the records of a block of `count` lines.

        Args:
            keeps_number_texts: numbers that become doubles are taken as they stand in the line.
        """
        self._seen += count
        records = BlockRecords(BlockChanges(self._job.key_paths), keeps_number_texts)
        if self._read_lines(block, count, records):
            return records
        # One line may be why the block was refused: chunks without it are still decoded at once.
        lines = _lines(block)
        for start in range(0, count, _CHUNK):
            chunk = lines[start : start + _CHUNK]
            if self._read_lines(b"\n".join(chunk) + b"\n", len(chunk), records):
                continue
            for position, line in enumerate(chunk, start):
                if not self._read_lines(line + b"\n", 1, records):
                    records.lines.append(self._read_alone(line, position, records))
        return records

    def _read_lines(self, block: bytes, count: int, records: BlockRecords) -> bool:
        """Decode whole lines at once; return whether the decoder accepts all of them."""
        if not _is_whole(block, count):
            return False
        try:
            if not block.isascii():
                block.decode()  # the decoder does not check texts that it skips, or returns as `Raw`
            lines = self._decode(block, records.keeps_number_texts)
        except DECODING_ERRORS:
            return False
        # Two objects in a line, or one in two lines, are lines to the decoder.
        if len(lines) != count:
            return False
        first = len(records.lines)
        records.lines += lines
        if self._has_undeclared:
            for position, line in enumerate(_lines(block), first):
                self._read_undeclared(line, position, records)
        return True

    def _decode(self, block: bytes, keeps_number_texts: bool) -> list[Any]:
        # Few streams have undeclared fields. A decoder that refuses them costs nothing, while to look for
        # them costs a second decoding of each line; so that begins with the first one, for good.
        if not self._has_undeclared:
            try:
                return self._decoder(keeps_number_texts, is_closed=True)(block)
            except msgspec.ValidationError as error:
                if "unknown field" not in str(error):
                    raise
                self._has_undeclared = True
        return self._decoder(keeps_number_texts, is_closed=False)(block)

    def _decoder(self, keeps_number_texts: bool, is_closed: bool) -> Callable[[bytes], list[Any]]:
        decoder = self._decoders.get((keeps_number_texts, is_closed))
        if decoder is None:
            fields = [
                replace(field, source=_HIDDEN) if field.source == self._job.extra else field
                for field in self._job.fields
            ]
            try:
                data = object_type(
                    fields,
                    frozenset(self.raw_fields),
                    is_closed=is_closed,
                    keeps_number_texts=keeps_number_texts,
                )
                decoder = msgspec.json.Decoder(self._envelope.line_type(data)).decode_lines
            except ValueError:
                decoder = decode_nothing
            self._decoders[keeps_number_texts, is_closed] = decoder
        return decoder

    def _read_alone(self, line: bytes, position: int, records: BlockRecords) -> Any:
        """Return a decoded line, each of its values decoded alone; None if it has no record."""
        try:
            whole, data, marks = self._open_line(line)
        except DECODING_ERRORS:
            if self._form == ROWS:
                records.rejected[position] = UNREADABLE
            else:
                records.foreign_lines.append(position)
            return None
        try:
            values = self._fields(data)
        except DECODING_ERRORS:
            records.rejected[position] = UNREADABLE
            return None
        values = self._split(values, data, marks, records)
        if marks is not None:
            values = marks.unmark_names(values)
        change = partial(records.changes.add, position)
        tree = tuple(
            converter.convert(values.get(name), WHOLE_RECORD.child(number, name), change, marks)
            for number, converter in self._converters.items()
            for name in (converter.field.source,)
        )
        self._envelope.put_data(whole, tree)
        self._take_raw()
        return whole

    def _take_raw(self) -> None:
        """Take the fields with many misfits as they stand from now on.

        The decoder refuses a block with a misfit, and its lines are decoded once more. The values of a raw
        field are decoded apart, which all lines pay for; so a few misfits cost less.
        """
        limit = max(_FEW, self._seen // _SHARE)
        for number, converter in self._converters.items():
            if converter.misfits > limit and number not in self.raw_fields:
                self.raw_fields[number] = converter
                # The decoder does not look into a raw field, so that it would not refuse an object there
                # for an undeclared field: each line is searched for these from now on.
                self._has_undeclared |= converter.field.source in self._job.declared.objects
                self._decoders.clear()  # their types name the raw fields

    def _open_line(self, line: bytes) -> tuple[Any, bytes, Marks | None]:
        """Return a line with its data as text, and the marks with which it was repaired."""
        marks = None
        try:
            line.decode()
            whole = self._whole(line)
        except DECODING_ERRORS:
            line, marks = repair_line(line)
            whole = self._whole(line)
            self._envelope.unmark(whole, marks)
        return whole, bytes(self._envelope.data(whole)), marks

    def _split(
        self, values: dict[str, Raw], data: bytes, marks: Marks | None, records: BlockRecords
    ) -> dict[str, Raw]:
        """Return the fields by their declared names; the undeclared ones as one field, if they are kept."""
        declared = self._job.declared
        if values.keys() <= declared.names and not declared.objects:
            return values
        value, plain = Raw(data), Raw(data if marks is None else marks.remove_from(data))
        extra = find_undeclared(plain, declared)
        if extra is not None and has_variant(extra, declared):
            value, plain = rename_fields(value, declared), rename_fields(plain, declared)
            values, extra = self._fields(value), find_undeclared(plain, declared)
        if extra is None:
            return values
        self._note(extra, records)
        return values if self._extra is None else {**values, str(self._job.extra): _encode(extra)}

    def _read_undeclared(self, line: bytes, position: int, records: BlockRecords) -> None:
        """Count and keep the undeclared fields of a decoded line; read it alone if fields were renamed."""
        extra = find_undeclared(self._envelope.data(self._whole(line)), self._job.declared)
        if extra is None:
            return
        if has_variant(extra, self._job.declared):
            records.lines[position] = self._read_alone(line, position, records)
            return
        self._note(extra, records)
        if self._extra is not None:
            setattr(self._envelope.data(records.lines[position]), self._extra, _encode(extra))

    def _note(self, extra: Extra, records: BlockRecords) -> None:
        """Count the undeclared fields of a record, and infer their types if a job asks for them."""
        count_names(records.undeclared, extra)
        if self._job.infers and len(records.inferred) <= MAX_NAMES:
            fields = describe_extra(extra).get("properties", {})
            records.inferred = merge_fields(records.inferred, fields)


def _encode(extra: Extra) -> Raw:
    return Raw(msgspec.json.encode(extra))


def _lines(block: bytes) -> list[bytes]:
    return block.split(b"\n")[:-1]


def _is_whole(block: bytes, count: int) -> bool:
    """Return whether each line of a block begins with a brace and ends with one: then the decoder cannot take
    parts of two lines for an object."""
    if count == 1:
        return block[:1] == b"{" and block[-2:] == b"}\n"
    octets = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(octets == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    return bool((octets[ends - 1] == ord("}")).all() and (octets[starts] == ord("{")).all())
