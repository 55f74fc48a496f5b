"""The conversion of single values, from their texts as they stand in the line: those that are not clean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.lake.spark.types.changes import (
    MISFIT,
    OVERSIZE,
    RECORD,
    REPLACED,
    Misfit,
    Place,
    Record,
)
from elt_assets.lake.spark.types.decoders import (
    DECODING_ERRORS,
    has_double,
    has_supported_names,
    is_read,
    value_type,
)
from elt_assets.lake.spark.types.fields import ARRAY, STRUCT, Field
from elt_assets.lake.spark.types.kinds import KINDS, Kind
from elt_assets.lake.spark.types.numbers import may_round
from elt_assets.lake.spark.types.repair import Marks, is_too_deep

_CHUNK = 64
Add = Callable[[int, Place, str, str], object]
"""Adds a change of the record at a position."""
RecordAt = Callable[[Place, str, str], object]
"""Records a change at a place."""
Conversions = dict[bytes, tuple[Any, list[tuple[Place, str, str]]]]
"""The values that texts of a field were converted to, with their changes."""
Values = Mapping[str, Raw]
Tree = tuple[Any, ...]
"""An object, as the values of its fields that are read."""


class Converter:
    """Converts values to what the decoder returns for clean ones; objects become tuples of their values."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._all = fields
        self._fields = msgspec.json.Decoder(dict[str, Raw]).decode
        self._items = msgspec.json.Decoder(list[Raw]).decode
        self._clean = [
            msgspec.json.Decoder(value_type(each)).decode
            if is_read(each) and has_supported_names(each)
            else None
            for each in fields
        ]
        self._clean_lists = [
            msgspec.json.Decoder(list[value_type(each)]).decode  # type: ignore[misc]
            if is_read(each) and has_supported_names(each)
            else None
            for each in fields
        ]
        self._doubles = list(map(has_double, fields))

    def is_clean(self, number: int, raw: Raw) -> bool:
        """Return whether the decoder takes a value of a field."""
        try:
            self._decoded(number, raw)
        except DECODING_ERRORS:
            return False
        return True

    def _decoded(self, number: int, raw: Raw) -> Any:
        decode = self._clean[number]
        if decode is None:
            raise ValueError("the decoder does not support a name in this field")
        return decode(raw)

    def column(
        self, number: int, values: Sequence[Any], rows: Sequence[int], add: Add
    ) -> Sequence[Any]:
        """Return the values of a field of the record, those that are taken as they stand converted.

        Clean ones are decoded, a chunk of them at once.

        Args:
            rows: the positions of the values' records.
        """
        field = self._all[number]
        result: list[Any] = []
        place = RECORD.field(number, field.source)
        conversions: Conversions = {}
        for start in range(0, len(values), _CHUNK):
            chunk = values[start : start + _CHUNK]
            decoded = self._chunk(number, chunk)
            if decoded is None:
                places = zip(chunk, rows[start : start + _CHUNK], strict=True)
                decoded = [
                    self._remember(number, value, place, partial(add, row), conversions)
                    if type(value) is Raw
                    else value
                    for value, row in places
                ]
            result += decoded
        return result

    def _chunk(self, number: int, values: Sequence[Any]) -> list[Any] | None:
        decode = self._clean_lists[number]
        if self._doubles[number] or decode is None or not all(type(each) is Raw for each in values):
            return None
        try:
            decoded = decode(b"[%b]" % b",".join(values))
        except DECODING_ERRORS:
            return None
        return decoded if len(decoded) == len(values) else None

    def _remember(
        self,
        number: int,
        raw: Raw,
        place: Place,
        add: RecordAt,
        conversions: Conversions,
    ) -> Any:
        """Return a value as `_top_value` does. Values that do not fit are often the same text again and again
        (`""`, `"unknown"`), so that each text of a block is converted once."""
        text = bytes(raw)
        if text not in conversions:
            changes: list[tuple[Place, str, str]] = []
            value = self._top_value(number, raw, place, lambda *change: changes.append(change))
            conversions[text] = (value, changes)
        value, changes = conversions[text]
        for change in changes:
            add(*change)
        return value

    def _top_value(self, number: int, raw: Raw, place: Place, add: RecordAt) -> Any:
        if not self._doubles[number] or not may_round(bytes(raw)):
            try:
                return self._decoded(number, raw)
            except DECODING_ERRORS:
                pass
        return self.value(self._all[number], raw, place, add)

    def record(
        self,
        fields: Sequence[Field],
        values: Values,
        place: Place,
        add: RecordAt,
        marks: Marks | None,
    ) -> Tree:
        """Return the values of an object's fields."""
        if marks is not None:
            values = marks.named(values)
        return tuple(
            self.value(each, values.get(each.source), place.field(number, each.source), add, marks)
            for number, each in enumerate(fields)
            if is_read(each)
        )

    def value(
        self, field: Field, raw: Raw | None, place: Place, add: RecordAt, marks: Marks | None = None
    ) -> Any:
        """Return a value, null if it does not fit its field; its changes are added."""
        text = b"null" if raw is None else bytes(raw)
        if text == b"null":
            return None
        try:
            if field.kind == STRUCT:
                return self.record(field.inner, self._fields_of(text), place, add, marks)
            if field.kind == ARRAY:
                return [
                    self.value(field.inner[0], each, place.items, add, marks)
                    for each in self._items_of(text)
                ]
            return _scalar(KINDS[field.kind], text, lambda *what: add(place, *what), marks)
        except Misfit as misfit:
            add(place, *misfit.args)
            return None

    def _fields_of(self, text: bytes) -> Values:
        if text[:1] != b"{":
            raise Misfit(*MISFIT)
        return self._fields(text)

    def _items_of(self, text: bytes) -> list[Raw]:
        if text[:1] != b"[":
            raise Misfit(*MISFIT)
        return self._items(text)


def _scalar(kind: Kind, text: bytes, record: Record, marks: Marks | None) -> Any:
    is_replaced = False
    if marks is not None and not text.isascii():
        if marks.value in text:
            raise Misfit(*OVERSIZE)
        is_replaced = marks.text in text
        text = text.replace(marks.text, b"")
    if kind.is_sized and is_too_deep(text):
        raise Misfit(*OVERSIZE)
    value = kind.read(text, record)
    if is_replaced and kind.is_sized:  # in a value of any other type, it is a misfit
        record(*REPLACED)
    return value
