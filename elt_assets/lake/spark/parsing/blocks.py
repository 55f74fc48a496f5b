"""The parse of blocks of lines: rows where every line is provably clean, and the numbers of the other lines.

pyarrow parses a block under an explicit schema and refuses what does not fit. What it does not refuse is
checked here. A line is clean only if the exact parse (`lake.parse.conform`) certainly makes the same row of
it. If pyarrow refuses a block, it is parsed again without the line that the error names, and without those
with such a value in the same field (`refusals`). If it still refuses it, its lines are tested one by one, and
the rest of them is parsed again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from elt_assets.lake.spark.parsing.columns import Columns, parsed_fields, read_block
from elt_assets.lake.spark.parsing.envelopes import Envelope, Head, envelope_of
from elt_assets.lake.spark.parsing.job import UNREAD, Job, Part
from elt_assets.lake.spark.parsing.lines import Found, LineReader
from elt_assets.lake.spark.parsing.refusals import Refusals, without
from elt_assets.lake.spark.parsing.stamp import stamped
from elt_assets.lake.spark.parsing.undeclared import add

WIDE = 100
"""Scalars of a schema from which only fields that occur in a block are declared."""
_NAME = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:')
_HIDDEN_NAME = re.compile(r"\s*:")
_ROUNDS = 3
"""Maximum number of parses of a block, each without the lines that the last one refused."""
_STRIDE = 50
_MAX_DIGITS = 20 * _STRIDE


class BlockParser:
    """Parses the blocks of one part.

    Attributes:
        batches: the rows of clean lines, which the caller takes.
        unclean: the numbers of all other lines.
        undeclared: how many clean lines have each undeclared field.
        changed: the number of clean lines with changes that the source has reported.
    """

    def __init__(self, job: Job, part: Part):
        self.batches: list[pa.RecordBatch] = []
        self.unclean: list[int] = []
        self.undeclared: Counter[str] = Counter()
        self.changed = 0
        self._job, self._part = job, part
        self._envelope: Envelope = envelope_of(job, part)
        self._columns = Columns()
        self._parsed = [each for each in job.fields if not each.has_raw]
        self._has_raw = len(self._parsed) < len(job.fields)
        self._has_undeclared = False
        self._is_wide = sum(each.leaves for each in self._parsed) > WIDE
        self._reader: LineReader | None = None
        self._refusals = Refusals()
        self._error: str | None = None  # of pyarrow, at the last attempt
        self._options: dict[tuple[frozenset[str] | None, bool], pj.ParseOptions] = {}

    def parse(self, block: bytes, numbers: np.ndarray) -> None:
        """Parse a block of whole lines.

        Args:
            numbers: the numbers of its lines.
        """
        rows = self._refusals.rows(block)
        for _ in range(_ROUNDS):
            block, numbers = self._without(block, numbers, rows)
            if not len(numbers) or self._attempt(block, numbers):
                return
            rows = self._refusals.rows_of_error(block, self._error or "")
            if not len(rows):
                break
        lines = block.split(b"\n")[:-1]
        fits = np.fromiter(self._lines.fits(lines), bool, len(lines))
        self.unclean += numbers[~fits].tolist()
        self._halve([lines[n] for n in np.flatnonzero(fits)], numbers[fits])

    def _without(
        self, block: bytes, numbers: np.ndarray, rows: np.ndarray
    ) -> tuple[bytes, np.ndarray]:
        if not len(rows):
            return block, numbers
        self.unclean += numbers[rows].tolist()
        return without(block, rows), np.delete(numbers, rows)

    @property
    def _lines(self) -> LineReader:
        """The reader of lines, made when it is first needed."""
        if self._reader is None:
            self._reader = LineReader(self._job, self._part)
        return self._reader

    def _halve(self, lines: Sequence[bytes], numbers: np.ndarray) -> None:
        if not lines or self._attempt(b"\n".join(lines) + b"\n", numbers):
            return
        if len(lines) == 1:
            self.unclean += numbers.tolist()
            return
        half = len(lines) // 2
        self._halve(lines[:half], numbers[:half])
        self._halve(lines[half:], numbers[half:])

    def _attempt(self, block: bytes, numbers: np.ndarray) -> bool:
        """Parse a block; return whether pyarrow accepts it. Lines that it accepts wrongly are set aside."""
        self._error = None
        if not self._is_whole(block, len(numbers)):
            return False
        bad: set[int] = set()
        try:
            table = self._read(block)
            if table.num_rows != len(numbers):
                return False
            head = self._envelope.head(table, numbers, bad)
            found = self._read_lines(block, table.num_rows, bad)
            columns = self._all_columns(head, found, bad)
        except pa.ArrowException as error:
            self._error = str(error)
            return False
        self._keep(head, columns, found, numbers, bad)
        return True

    def _is_whole(self, block: bytes, lines: int) -> bool:
        """Return whether each line is an object from its first byte to its last, and all of it is text."""
        if block.count(b"}\n{") != lines - 1 or block[:1] != b"{" or block[-2:] != b"}\n":
            return False
        if not block.isascii():
            try:
                block.decode()
            except UnicodeDecodeError:
                return False
        return len(block) <= _MAX_DIGITS or not _has_long_number(block)

    def _read(self, block: bytes) -> pa.Table:
        ignores = self._has_raw or self._has_undeclared
        names = _names(block) if self._is_wide else None
        if not ignores:
            try:
                return read_block(block, self._parse_options(names, ignores=False))
            except pa.ArrowInvalid as error:
                if "unexpected field" not in str(error):
                    raise
                self._has_undeclared = True
        return read_block(block, self._parse_options(names, ignores=True))

    def _parse_options(self, names: frozenset[str] | None, *, ignores: bool) -> pj.ParseOptions:
        found = self._options.get((names, ignores))
        if found is None:
            wants = _wants(names)
            schema = self._envelope.schema(parsed_fields(self._parsed, wants))
            found = pj.ParseOptions(
                explicit_schema=schema,
                unexpected_field_behavior="ignore" if ignores else "error",
            )
            self._options = {**self._options, (names, ignores): found}
            if len(self._options) > 8:
                self._options = {(names, ignores): found}
        return found

    def _read_lines(self, block: bytes, count: int, bad: set[int]) -> Found | None:
        if not self._has_raw and not self._has_undeclared:
            return None
        found = self._lines.read(block, count)
        bad.update(found.bad)
        return found

    def _all_columns(self, head: Head, found: Found | None, bad: set[int]) -> list[Any]:
        """Return the columns of the stream."""
        columns: list[Any] = []
        for number, each in enumerate(self._job.fields):
            if each.has_raw:
                assert found is not None
                name = f"f{number}"
                values = [None if o is None else getattr(o, name) for o in found.objects]
                columns.append(self._columns.from_objects(each, values, bad.update))
                continue
            parsed = None if each.kind == UNREAD else head.data.get(each.source)
            if parsed is None:
                columns.append(self._columns.nulls.array(each.type, head.rows))
            else:
                columns.append(self._columns.from_parsed(each, parsed, bad.update))
        return columns

    def _keep(
        self,
        head: Head,
        columns: list[Any],
        found: Found | None,
        numbers: np.ndarray,
        bad: set[int],
    ) -> None:
        """Keep the rows of the clean lines, and what is known of them."""
        names = [each.name for each in self._job.fields]
        types = [each.type for each in self._job.fields]
        schema = pa.schema([*map(pa.field, names, types), *self._job.metadata])
        batch = pa.RecordBatch.from_arrays([*columns, *stamped(self._job, head)], schema=schema)
        if self._job.key:
            lacks = _lacks_key(batch, self._job.key)
            if pc.any(lacks, min_count=0).as_py():
                bad.update(np.flatnonzero(lacks.to_numpy(zero_copy_only=False)).tolist())
        if bad:
            mask = np.ones(len(numbers), bool)
            mask[list(bad)] = False
            self.unclean += numbers[~mask].tolist()
            batch = batch.filter(pa.array(mask))
        if found is not None:
            for number, extra in found.extras.items():
                if number not in bad:
                    add(self.undeclared, extra)
        self.changed += sum(1 for row in head.changed if row not in bad)
        if len(batch):
            self.batches.append(batch)


def _lacks_key(batch: pa.RecordBatch, key: Sequence[Sequence[str]]) -> Any:
    """Return whether all parts of a row's key are null, or an object that has a part is."""
    is_null = reduce(pc.and_, (_at(batch, path).is_null() for path in key))
    objects = (_at(batch, path[:-1]).is_null() for path in key if len(path) > 1)
    return reduce(pc.or_, objects, is_null)


def _at(batch: pa.RecordBatch, path: Sequence[str]) -> Any:
    values = batch.column(path[0])
    for name in path[1:]:
        values = pc.struct_field(values, name)
    return values


def _names(block: bytes) -> frozenset[str]:
    """Return all names of the objects in a block, at any depth, and perhaps other texts."""
    found = set(_NAME.findall(block))
    names = {name.decode() for name in found if b"\\" not in name}
    for name in found:
        if b"\\" in name:
            try:
                names.add(msgspec.json.decode(b'"%b"' % name, type=str))
            except msgspec.MsgspecError:
                continue
    return frozenset(names)


def _wants(names: frozenset[str] | None) -> Any:
    if names is None:
        return lambda _: True
    # `_names` may miss a name that begins with a colon.
    return lambda name: name in names or _HIDDEN_NAME.match(name) is not None


def _has_long_number(block: bytes) -> bool:
    """Return whether a block may contain a number of a thousand digits: other readers refuse it."""
    sample = np.frombuffer(block, np.uint8)[::_STRIDE]
    ends = np.flatnonzero((sample < ord("0")) | (sample > ord("9")))
    gaps = np.diff(np.concatenate([[-1], ends, [len(sample)]]))
    return bool(gaps.max() >= _MAX_DIGITS // _STRIDE - 1)
