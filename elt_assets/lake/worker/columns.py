"""The columns of the rows of a block, made from its decoded records; for the other modules of the parse.

Most decoded values are those of the column. Texts of a type that has a form are cast at once, and what has
another form is read alone. JSON values are written as texts, all of a column at once (`ColumnBuilder`).

`Converter` reads single values from their texts as they stand in the line: those that the decoder refuses,
those of fields that keep misfitting, and doubles of which all digits count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from elt_assets.lake.worker.json_texts import MAX_DEPTH, JsonTexts, Marks, is_too_deep
from elt_assets.lake.worker.kinds import (
    ARRAY,
    DECODING_ERRORS,
    KINDS,
    STRUCT,
    Field,
    Form,
    Kind,
    Reader,
    value_type,
)
from elt_assets.lake.worker.values import (
    MISFIT,
    OVERSIZE,
    REPLACED,
    BecomesNull,
    FieldPath,
    Report,
    may_round,
    may_round_any,
    report_lost_digits,
)

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


MAX_BYTES = 16 << 20
"""Size limit of a text, JSON or binary value, in bytes. A longer value becomes null: engines begin to fail
there."""

_TINY = np.finfo(np.float64).smallest_normal
_DOUBLE = Field("", "", "NUMBER", pa.float64())


class ColumnBuilder:
    """Makes the columns of a block.

    Args:
        add: gets the changes of values.
        has_long_values: a value may be longer than `MAX_BYTES`.
        keeps_number_texts: numbers that become doubles stand as in the line.

    Attributes:
        has_tiny: a double is zero, or so small that a number may have been rounded to it.
    """

    def __init__(self, add: AddChange, *, has_long_values: bool, keeps_number_texts: bool):
        self._add, self._has_long_values = add, has_long_values
        self._texts = JsonTexts()
        self._doubles = Converter(_DOUBLE) if keeps_number_texts else None
        self.has_tiny = False

    def build(
        self,
        fields: Sequence[Field],
        objects: Sequence[Any],
        path: FieldPath,
        positions: Sequence[int],
        raw_fields: Mapping[int, Converter] = MappingProxyType({}),
    ) -> list[pa.Array]:
        """Return the columns of the fields of objects, none of which is null.

        Args:
            objects: decoded ones, or tuples of their values.
            positions: the positions of the objects' records.
            raw_fields: converters for the fields that are taken as they stand, by the numbers of the fields.
        """
        read = [number for number, field in enumerate(fields) if field.is_read]
        to_tuple = msgspec.structs.astuple
        tuples = [item if type(item) is tuple else to_tuple(item) for item in objects]
        # Of objects, only the fields that are read have a value; the columns of the others are null.
        columns = zip(*tuples, strict=True) if tuples else [()] * len(read)
        values: dict[int, Sequence[Any]] = dict(zip(read, columns, strict=True))
        for number, converter in raw_fields.items():
            field_path = path.child(number, fields[number].source)
            values[number] = converter.convert_column(
                values[number], field_path, positions, self._add
            )
        return [
            self._column(
                field, values.get(number, objects), path.child(number, field.source), positions
            )
            for number, field in enumerate(fields)
        ]

    def _column(
        self, field: Field, values: Sequence[Any], path: FieldPath, positions: Sequence[int]
    ) -> pa.Array:
        if not field.is_read:
            return pa.nulls(len(values), field.type)
        if field.kind == STRUCT:
            return self._struct(field, values, path, positions)
        if field.kind == ARRAY:
            return self._list(field, values, path, positions)
        kind, reader = KINDS[field.kind], _ValueReader(self._add, path, positions)
        if self._doubles is not None and kind.is_double:
            values = self._doubles.convert_column(values, path, positions, self._add)
        elif kind.opening is not None:
            values = self._json(kind.opening, values, reader)
        if kind.form is None:
            column = pa.array(values, field.type)
        else:
            column = _cast_texts(kind, kind.form, field.type, values, reader)
        # The decoder rounds a number such as 1e-400 to zero without an error.
        if kind.is_double and not self.has_tiny:
            numbers = np.abs(column.to_numpy(zero_copy_only=False))
            self.has_tiny = bool((numbers < _TINY).any())
        if kind.is_sized and self._has_long_values:
            is_long = pc.fill_null(pc.greater(pc.binary_length(column), MAX_BYTES), False)
            for number in _find_positions(is_long):
                reader.add(number, *OVERSIZE)
            column = pc.if_else(is_long, pa.scalar(None, field.type), column)
        return column

    def _struct(
        self, field: Field, values: Sequence[Any], path: FieldPath, positions: Sequence[int]
    ) -> pa.Array:
        mask = None
        if None in values:
            # Each field has a value of each object, also where there is no object.
            nothing = (None,) * sum(inner.is_read for inner in field.inner)
            mask = pa.array([value is None for value in values], pa.bool_())
            values = [nothing if value is None else value for value in values]
        children = self.build(field.inner, values, path, positions)
        return pa.StructArray.from_arrays(children, fields=list(field.type), mask=mask)

    def _list(
        self, field: Field, values: Sequence[Any], path: FieldPath, positions: Sequence[int]
    ) -> pa.Array:
        mask = None
        if None in values:
            mask = pa.array([value is None for value in values], pa.bool_())
            values = [() if value is None else value for value in values]
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        # The items of all lists are one column: they are converted together, at every depth.
        flat = [item for value in values for item in value]
        owners = np.repeat(np.asarray(positions), sizes).tolist()
        items = self._column(field.inner[0], flat, path.items, owners)
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, items, type=field.type, mask=mask)

    def _json(
        self, opening: bytes, values: Sequence[Any], reader: _ValueReader
    ) -> list[str | None]:
        raw = [b"null" if value is None else bytes(value) for value in values]
        fits = not opening or all(v.startswith(opening) or v == b"null" for v in raw)
        # A level of nesting takes two brackets, so a short text cannot be too deep.
        if fits and max(map(len, raw), default=0) <= 2 * MAX_DEPTH:
            with suppress(*DECODING_ERRORS):
                return [None if text == "null" else text for text in self._texts.normalize(raw)]
        read = partial(self._json_text, opening)
        return [reader.read(read, value, number) for number, value in enumerate(raw)]

    def _json_text(self, opening: bytes, raw: bytes, _: Report) -> str | None:
        if raw == b"null":
            return None
        if not raw.startswith(opening):
            raise BecomesNull(*MISFIT)
        try:
            if not is_too_deep(raw):
                return self._texts.normalize([raw])[0]
        except DECODING_ERRORS:  # a number of too many digits
            pass
        raise BecomesNull(*OVERSIZE)


class _ValueReader:
    """Reads values of one column alone, and adds their changes."""

    def __init__(self, add: AddChange, path: FieldPath, positions: Sequence[int]):
        self._add, self._path, self._positions = add, path, positions

    def add(self, number: int, change: str, reason: str) -> None:
        self._add(self._positions[number], self._path, change, reason)

    def read(self, read: Reader, value: Any, number: int) -> Any:
        """Return a value that is read alone; null if it does not fit."""
        if value is None:
            return None
        try:
            return read(value, partial(self.add, number))
        except BecomesNull as reason:
            self.add(number, *reason.args)
            return None


def _cast_texts(
    kind: Kind, form: Form, type_: pa.DataType, values: Sequence[Any], reader: _ValueReader
) -> pa.Array:
    """Return the column of values that have the form of their type, or another one."""
    if kind.decoded is Raw:
        raw = [None if value is None else bytes(value) for value in values]
        values = [None if value == b"null" else value for value in raw]
    # Nearly all texts are clean, and a cast of a whole column is faster by far than one value after another.
    texts = pa.array(values, pa.string())
    fits = pc.fill_null(pc.match_substring_regex(texts, form.pattern), True)
    all_fit = pc.all(fits, min_count=0).as_py()
    try:
        clean = form.cast(
            texts if all_fit else pc.if_else(fits, texts, pa.scalar(None, pa.string())), type_
        )
    except pa.ArrowInvalid:  # a day that its month does not have
        clean, all_fit, fits = pa.nulls(len(texts), type_), False, texts.is_null()
    if all_fit:
        return clean
    is_odd = pc.invert(fits)
    odd = [reader.read(form.finish, values[number], number) for number in _find_positions(is_odd)]
    return pc.replace_with_mask(clean, is_odd, pa.array(odd, type_))


def _find_positions(flags: pa.Array) -> list[int]:
    return list(np.flatnonzero(flags.to_numpy(zero_copy_only=False)).tolist())
