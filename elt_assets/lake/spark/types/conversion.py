"""Conversion of values from their texts as they stand in the line.

These are the values that the decoder refuses, those of fields that keep misfitting, and doubles of which all
digits count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.lake.spark.types.changes import (
    MISFIT,
    OVERSIZE,
    REPLACED,
    BecomesNull,
    FieldPath,
    Report,
)
from elt_assets.lake.spark.types.fields import ARRAY, DECODING_ERRORS, STRUCT, Field, value_type
from elt_assets.lake.spark.types.kinds import KINDS, Kind
from elt_assets.lake.spark.types.numbers import may_round, may_round_any, report_lost_digits
from elt_assets.lake.spark.types.repair import Marks, is_too_deep

_CHUNK = 64
_OPENINGS = {STRUCT: b"{", ARRAY: b"["}
AddChange = Callable[[int, FieldPath, str, str], object]
"""Adds a change of the record at a position."""
ReportAt = Callable[[FieldPath, str, str], object]
"""Reports a change of the value at a path."""


class Converter:
    """Converts the values of a field to what the decoder returns for clean ones; objects become tuples of
    the values of their fields that are read.

    Attributes:
        misfits: the number of single values that the decoder did not take.
    """

    def __init__(self, field: Field) -> None:
        self.field, self._has_double = field, field.has_double
        self._fields = msgspec.json.Decoder(dict[str, Raw]).decode
        self._items = msgspec.json.Decoder(list[Raw]).decode
        self.misfits = 0
        try:
            type_ = value_type(field)
            self._decode = msgspec.json.Decoder(type_).decode
            self._decode_all = msgspec.json.Decoder(list[type_]).decode  # type: ignore[valid-type]
        except ValueError:
            self._decode = self._decode_all = decode_nothing

    def convert_column(
        self, values: Sequence[Any], path: FieldPath, positions: Sequence[int], add: AddChange
    ) -> list[Any]:
        """Return values of which those that are taken as they stand are converted.

        Clean ones are decoded, a chunk of them at once. Values that do not fit are often the same text again
        and again (`""`, `"unknown"`), so that each text of a block is converted once.

        Args:
            positions: the positions of the values' records.
        """
        result: list[Any] = []
        conversions: dict[bytes, tuple[Any, list[tuple[FieldPath, str, str]]]] = {}
        for start in range(0, len(values), _CHUNK):
            chunk, owners = values[start : start + _CHUNK], positions[start : start + _CHUNK]
            try:
                result += self._decode_clean(chunk, path, owners, add)
                continue
            except (*DECODING_ERRORS, TypeError):  # a misfit, or a value that is converted already
                pass
            for value, position in zip(chunk, owners, strict=True):
                if type(value) is Raw:
                    text = bytes(value)
                    if text not in conversions:
                        changes: list[tuple[FieldPath, str, str]] = []
                        converted = self.convert(value, path, lambda *c, to=changes: to.append(c))
                        conversions[text] = (converted, changes)
                    converted, changes = conversions[text]
                    for change in changes:
                        add(position, *change)
                    result.append(converted)
                else:
                    result.append(value)
        return result

    def _decode_clean(
        self, values: Sequence[Any], path: FieldPath, positions: Sequence[int], add: AddChange
    ) -> Sequence[Any]:
        """Return clean values that are decoded at once; raise an error if they are not all clean."""
        # `has_long_number` looks at every second byte: a comma alone would join two numbers into a long one.
        text = b"[%b]" % b", ".join([b"null" if value is None else value for value in values])
        decoded: list[Any] = self._decode_all(text)
        if len(decoded) != len(values):
            raise ValueError("a value is not one JSON value")
        if self._has_double and may_round_any(text):
            if self.field.inner:
                raise ValueError("a number in a value may be rounded")
            for raw, number, position in zip(values, decoded, positions, strict=True):
                if number is not None and may_round(bytes(raw)):
                    report_lost_digits(bytes(raw), number, partial(add, position, path))
        return decoded

    def convert(
        self, raw: Raw | None, path: FieldPath, add: ReportAt, marks: Marks | None = None
    ) -> Any:
        """Return a value, null if it does not fit; its changes are added.

        Args:
            marks: those with which the line was repaired.
        """
        if raw is None:
            return None
        if marks is None and not (self._has_double and may_round(bytes(raw))):
            try:
                return self._decode(raw)
            except DECODING_ERRORS:
                self.misfits += 1
        return self._convert_value(self.field, raw, path, add, marks)

    def _convert_value(
        self, field: Field, raw: Raw | None, path: FieldPath, add: ReportAt, marks: Marks | None
    ) -> Any:
        text = b"null" if raw is None else bytes(raw)
        if text == b"null":
            return None
        if not text.startswith(_OPENINGS.get(field.kind, b"")):
            add(path, *MISFIT)
            return None
        try:
            if field.kind == STRUCT:
                values = self._fields(text)
                if marks is not None:
                    values = marks.unmark_names(values)
                return tuple(
                    self._convert_value(
                        own, values.get(own.source), path.child(number, own.source), add, marks
                    )
                    for number, own in enumerate(field.inner)
                    if own.is_read
                )
            if field.kind == ARRAY:
                return [
                    self._convert_value(field.inner[0], item, path.items, add, marks)
                    for item in self._items(text)
                ]
            return _convert_scalar(KINDS[field.kind], text, partial(add, path), marks)
        except BecomesNull as reason:
            add(path, *reason.args)
            return None


def _convert_scalar(kind: Kind, text: bytes, report: Report, marks: Marks | None) -> Any:
    is_replaced = False
    if marks is not None and not text.isascii():
        if marks.value in text:
            raise BecomesNull(*OVERSIZE)
        is_replaced = marks.text in text
        text = text.replace(marks.text, b"")
    if kind.is_sized and is_too_deep(text):
        raise BecomesNull(*OVERSIZE)
    value = kind.read(text, report)
    if is_replaced and kind.is_sized:  # in a value of any other type, it is a misfit
        report(*REPLACED)
    return value


def decode_nothing(_: object) -> Any:
    """Decode nothing, in place of a decoder that does not support a name.

    Raises:
        ValueError: always.
    """
    raise ValueError("the decoder does not support a name")
