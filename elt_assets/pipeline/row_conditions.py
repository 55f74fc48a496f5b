"""Conditions on the records of a stream (its `filter`), compiled for the types of its fields.

Used by `stream`, for the filter that `sync.record_filter` applies.

A field is read as its column would have it (`lake.worker.kinds`), and compared exactly: numbers as
decimals, times as instants. A value that does not fit the type of its field is null, as in the table. As in
SQL, a comparison with null is not met, whatever the operator. All conditions must be met.

A delete marker meets every condition, because its other fields are often null: else the row that it deletes
would stay.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.connection.stream import OF_NULL, Condition
from elt_assets.errors import ConfigError
from elt_assets.lake.columns import from_json_schema
from elt_assets.lake.columns.logical_types import Array, LogicalType, Scalar
from elt_assets.lake.worker.kinds import KINDS
from elt_assets.lake.worker.values import BecomesNull
from elt_assets.lake.write.sync_columns import column_at
from elt_assets.protocol.catalog import DELETE_MARKERS, ConfiguredStream
from elt_assets.protocol.wire import read
from elt_assets.sync.field_selection import join_path

_NUMBERS = {
    Scalar.INTEGER, Scalar.INTEGER_TEXT, Scalar.BIG_INTEGER,
    Scalar.NUMBER, Scalar.NUMBER_TEXT, Scalar.BIG_NUMBER,
}  # fmt: skip
_TIMES = {Scalar.DATE, Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ}
_OPENINGS: Mapping[Scalar, bytes] = {
    Scalar.JSON: b"",
    Scalar.JSON_OBJECT: b"{",
    Scalar.JSON_ARRAY: b"[",
}
"""The first byte of the values that fit a type of JSON text."""
_EXACT_DIGITS = 15
"""Digits of a number in YAML that its parser keeps, whatever they are."""
_EQUALITY = ("=", "!=", "in", "not in", *OF_NULL)
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
_NULL, _OBJECT = b"n", ord("{")

Test = Callable[[Raw | None], bool]
"""Returns whether the JSON value of a field meets a condition; None: the record has no such field."""


@dataclass(frozen=True)
class RowCondition:
    """What a record must meet to be stored: all of the tests of its fields."""

    tests: Sequence[tuple[Sequence[str], Test]]  # each with the path of its field
    deletes: bool  # a record with a delete marker is stored, whatever its fields are

    def __call__(self, fields: Mapping[str, Raw]) -> bool:
        if self.deletes and any(_is_set(fields.get(marker)) for marker in DELETE_MARKERS):
            return True
        return all(test(_value_at(fields, path)) for path, test in self.tests)


def compile_conditions(
    conditions: Sequence[Condition], stream: ConfiguredStream, *, deletes: bool
) -> RowCondition:
    """Return the function that tests the records of a stream.

    Args:
        stream: as its source describes it.
        deletes: whether the sync applies delete markers.

    Raises:
        ConfigError: an operator or a value does not fit the type of its field.
    """
    columns = from_json_schema.columns(stream.stream.json_schema)
    tests = []
    for condition in conditions:
        column = column_at(columns, condition.field)
        place = f"stream {str(stream.id)!r}: filter: {join_path(tuple(condition.field))!r}"
        if column is None:
            raise ConfigError(
                f"{place} is no field of an object that the catalog declares",
                guidance="name a field at the top level or in objects; arrays have no filter",
            )
        tests.append((condition.field, _compile(condition, column.kind, place)))
    return RowCondition(tests, deletes)


def _compile(condition: Condition, kind: LogicalType, place: str) -> Test:
    if condition.operator in OF_NULL:
        meets_null = condition.operator == "is null"
        return lambda raw: (_read(kind, raw) is None) is meets_null
    if kind not in {*_NUMBERS, *_TIMES, Scalar.TEXT, Scalar.BOOLEAN}:
        raise ConfigError(
            f"{place}: values of its type cannot be compared",
            guidance='only `"is null"` and `"is not null"` are for times of day, binary data, arrays, '
            "objects and fields of several types",
        )
    if kind is Scalar.BOOLEAN and condition.operator not in _EQUALITY:
        raise ConfigError(
            f"{place}: true and false have no order", guidance='write the operator "=" or "!="'
        )
    values = [_parse(value, kind, place) for value in condition.values]
    return _make_comparison(condition.operator, values, kind)


def _make_comparison(name: str, values: Sequence[Any], kind: LogicalType) -> Test:
    order = _ORDERS.get(name)
    is_equality, members = name in ("=", "in"), frozenset(values)

    def test(raw: Raw | None) -> bool:
        value = _read(kind, raw)
        if value is None:
            return False
        if order is None:
            return (value in members) is is_equality
        return not _is_nan(value) and order(value, values[0])

    return test


def _is_nan(value: Any) -> bool:
    return isinstance(value, Decimal) and value.is_nan()


def _parse(value: Any, kind: LogicalType, place: str) -> Any:
    """Return a value of `defs.yaml` as the values of a field are read."""
    form = _describe(kind)
    error = ConfigError(
        f"{place}: the value {value!r} is not {form}", guidance=f"write {form} as `value`"
    )
    if isinstance(value, bool) is not (kind is Scalar.BOOLEAN):
        raise error
    if isinstance(value, bool):
        return value
    if kind in _NUMBERS:
        return _parse_number(value, place, error)
    if not isinstance(value, str) or not isinstance(kind, Scalar):
        raise error
    parsed = value if kind is Scalar.TEXT else _convert(kind, _encode(value), exactly=True)
    if parsed is None:
        raise error
    return parsed


def _parse_number(value: str | float, place: str, error: ConfigError) -> Decimal:
    """Return a number exactly: one in quotes, or one of which YAML has kept all digits."""
    if isinstance(value, float) and len(Decimal(repr(value)).as_tuple().digits) > _EXACT_DIGITS:
        raise ConfigError(
            f"{place}: YAML may not keep all digits of {value!r}", guidance="write it in quotes"
        )
    number: Decimal | None = _convert(Scalar.NUMBER_TEXT, str(value).encode())
    if number is None:
        raise error
    return number


def _describe(kind: LogicalType) -> str:
    if kind in _NUMBERS:
        return "a number"
    texts = {
        Scalar.BOOLEAN: "true or false",
        Scalar.TEXT: "a text in quotes",
        Scalar.DATE: "a date, as 2026-01-31, in quotes",
    }
    time = "a time to the microsecond, as 2026-01-31T10:00:00Z, in quotes"
    return texts.get(kind, time) if isinstance(kind, Scalar) else time


def _value_at(fields: Mapping[str, Raw], path: Sequence[str]) -> Raw | None:
    """Return the value of a field, by the rule for names that differ in case only (`lake.columns.names`)."""
    for name in path[:-1]:
        value = _find(fields, name)
        if value is None or memoryview(value)[0] != _OBJECT:
            return None
        fields = read(_decode_object, value)
    return _find(fields, path[-1])


def _find(fields: Mapping[str, Raw], name: str) -> Raw | None:
    if name in fields:
        return fields[name]
    others = [other for other in fields if other.lower() == name.lower()]
    return fields[others[0]] if len(others) == 1 else None


def _read(kind: LogicalType, raw: Raw | None) -> Any:
    """Return the value of a field as its column would have it, but exactly; None if that is null."""
    text = b"null" if raw is None else bytes(raw)
    if text[:1] == _NULL:
        return None
    opening: bytes | None = b"[" if isinstance(kind, Array) else b"{"
    if isinstance(kind, Scalar):
        opening = _OPENINGS.get(kind)
        if opening is None:
            return _convert(kind, text)
    return text if text.startswith(opening or b"") else None


def _convert(kind: Scalar, text: bytes, *, exactly: bool = False) -> Any:
    """Return a JSON value as its column would have it; None if it does not fit.

    Args:
        exactly: a value of which the column would keep only a part does not fit.
    """
    changes: list[str] = []
    row = KINDS[kind.name]
    try:
        if kind is Scalar.TEXT and text.startswith(b'"'):
            return read(_decode_text, text)
        value = row.read(text, lambda change, _: changes.append(change))
        if row.form is not None:
            decoded = bytes(value) if row.decoded is Raw else value
            value = row.form.finish(decoded, lambda change, _: changes.append(change))
        if kind in _NUMBERS:
            return Decimal(text.strip(b'"').decode())
    except (BecomesNull, msgspec.MsgspecError, UnicodeDecodeError, ArithmeticError):
        return None
    return None if exactly and changes else value


def _is_set(raw: Raw | None) -> bool:
    return raw is not None and memoryview(raw)[0] != _NULL[0]
