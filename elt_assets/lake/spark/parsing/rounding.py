"""Numbers of which a double does not keep all digits, among values that the decoder has made doubles.

The decoder rounds without a word. Only a number of 16 characters or more can be rounded, or one with a large
negative exponent, which then is almost zero. A block that may have one is decoded again, with its numbers as
they stand in the lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from elt_assets.lake.spark.parsing.envelopes import Envelope
from elt_assets.lake.spark.types.changes import RECORD, Changes, Place
from elt_assets.lake.spark.types.columns import transposed
from elt_assets.lake.spark.types.decoders import (
    DECODING_ERRORS,
    has_double,
    is_read,
    object_type,
)
from elt_assets.lake.spark.types.fields import ARRAY, STRUCT, UNREAD, Field
from elt_assets.lake.spark.types.numbers import has_small_number, may_round, record_digits


class Rounding:
    """Finds the rounded numbers of blocks of lines.

    Args:
        raw: the numbers of fields that are not decoded to doubles.
    """

    def __init__(self, fields: Sequence[Field], envelope: Envelope, raw: frozenset[int]):
        self._envelope = envelope
        self._fields = [
            replace(each, kind=UNREAD, inner=()) if number in raw else _only_doubles(each)
            for number, each in enumerate(fields)
        ]
        self._has_doubles = any(map(is_read, self._fields))
        data = object_type(self._fields, lambda _: Raw)
        self._decode = msgspec.json.Decoder(envelope.type_of(data)).decode_lines

    def check(self, block: bytes, first: int, changes: Changes) -> None:
        """Add the changes of rounded numbers. `first`: the position of the block's first line."""
        if self._has_doubles and _has_long_number(block):
            self._check(block, first, changes)

    def check_small(self, lines: Sequence[bytes], changes: Changes) -> None:
        """Add the changes of numbers that are too small for a double."""
        for number, line in enumerate(lines):
            if has_small_number(line):
                with suppress(*DECODING_ERRORS):  # the values of this line were converted alone
                    self._check(line, number, changes)

    def _check(self, lines: bytes, first: int, changes: Changes) -> None:
        objects = [self._envelope.data(line) for line in self._decode(lines)]
        rows = range(first, first + len(objects))
        for number, values in _columns(self._fields, objects):
            field = self._fields[number]
            _check(field, values, RECORD.field(number, field.source), rows, changes)


def _only_doubles(field: Field) -> Field:
    if not has_double(field):
        return replace(field, kind=UNREAD, inner=())
    return replace(field, inner=tuple(map(_only_doubles, field.inner)))


def _columns(fields: Sequence[Field], objects: Sequence[Any]) -> Any:
    numbers = [number for number, each in enumerate(fields) if is_read(each)]
    return zip(numbers, transposed(objects, len(numbers)), strict=True)


def _check(
    field: Field, values: Sequence[Any], place: Place, rows: Sequence[int], changes: Changes
) -> None:
    present = [(value, row) for value, row in zip(values, rows, strict=True) if value is not None]
    if field.kind == STRUCT:
        owners = [row for _, row in present]
        for number, own in _columns(field.inner, [value for value, _ in present]):
            inner = field.inner[number]
            _check(inner, own, place.field(number, inner.source), owners, changes)
    elif field.kind == ARRAY:
        items = [(item, row) for value, row in present for item in value]
        flat, owners = [item for item, _ in items], [row for _, row in items]
        _check(field.inner[0], flat, place.items, owners, changes)
    else:
        for value, row in present:
            text = bytes(value)
            if may_round(text):
                record_digits(text, float(text), partial(changes.add, int(row), place))


def _has_long_number(block: bytes) -> bool:
    """Return whether a block may have a number of 16 characters or more."""
    sample = np.frombuffer(block, np.uint8)[::2]
    run = (sample - np.uint8(ord("."))) < 12  # a digit, a point or a slash
    for shift in (1, 2, 4):
        run = run[shift:] & run[:-shift]
    return bool(run.any())
