"""Strict casts: a value is accepted only if it is meant as a value of its logical type.

Spark's JSON reader accepts too many values for some types, and Spark's casts accept even more. For those
types (the *checked* ones) the reader parses a less strict type, and this module checks and casts the value. A
value has three forms: as the reader returns it (`reader_type`), with JSON as text (`json_as_text`), and in
the type of its column (`converted`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.schema import logical_types
from elt_assets.lake.schema.logical_types import (
    JSONS,
    TIMES,
    Array,
    Column,
    LogicalType,
    Scalar,
    Struct,
    Unread,
)

_READER_TYPES: Mapping[Scalar, t.DataType] = {
    Scalar.BOOLEAN: t.BooleanType(),
    Scalar.INTEGER: t.LongType(),
    Scalar.NUMBER: t.DoubleType(),
    Scalar.INTEGER_IN_DOUBLE: t.DoubleType(),
    Scalar.BINARY: t.BinaryType(),
    # A string column would accept any value as its text, but without the quotes of a string: "5" and 5
    # would be equal. A VARIANT keeps them apart, and keeps integers and decimals of up to 38 digits exact.
    # A number with an exponent or with more digits becomes a double; `rounds` reports one of 1e38 or more.
    # (Spark returns no exact text with quotes: when it writes JSON, each number with a point is a double.)
    # Field names of objects are sorted; of equal names, the last one wins.
    **dict.fromkeys(JSONS, t.VariantType()),
}
"""Types for Spark's JSON reader. All other logical types are read as text: either the reader accepts too much
(the time 03:04 as a timestamp), or the text shows what the type cannot (that a decimal was rounded)."""

# Java's regular expressions: unlike `\z`, `$` would allow a newline after the match.
_NUMBER = r"-?\d+(\.\d+)?([eE][+-]?\d+)?"
_INFINITE = r"NaN|-?Infinity"
_INTEGER = r"^-?\d+(\.0+)?\z"
_EXPONENT = r"^-?(\d(\.\d{1,18})?|\d+)[eE]\+?\d+\z"
_DAY = r"^\d{4}-\d{2}-\d{2}"
_DATE = _DAY + r"([T ]00:00(:00(\.0+)?)?(Z|[+-]\d{2}:?\d{2})?)?\z"
"""A day, or a day at midnight: many sources append the midnight, and it carries no information."""
_TIMESTAMP = r"^\d{4}(-\d{2}-\d{2}([Tt ]|\z)|\d{4}[Tt])"
"""The start of a timestamp. A cast also accepts a year or a time of today, which are not meant as
timestamps."""
_ISO = (
    r"^(\d{4})-?(\d{2})-?(\d{2})[Tt ](\d{2}):?(\d{2}):?(\d{2})(?:[.,](\d+))?"
    r"\s*([Zz]|[+-]\d{2}(?::?\d{2})?)?\s*\z"
)
"""A day and a time to the second, in the extended or basic format of ISO 8601."""
_CANONICAL = "$1-$2-$3T$4:$5:$6.$7$8"
"""The text of an `_ISO` match that a cast accepts. Its parts have fixed positions up to the decimal point."""
_ENDS_AT_MINUTES = r"^([\d-]{8,10}[Tt ]\d{2}:?\d{2})(?=\s*([Zz+-]|\z))"
_END_OF_DAY = r"(?<=T)24(?=:00:00\.0*([Z+-]|\z))"
_LEAP_SECOND = r"(?<=:59:)60"
_BEYOND_MICROSECONDS = r"59:60|[Tt ]\d{2}:?5960|[.,]\d{6}\d*[1-9]"
"""A leap second, or a digit beyond the microsecond, anywhere in a timestamp."""
_TRUNCATED = {
    Scalar.TIMESTAMP: _BEYOND_MICROSECONDS,
    Scalar.TIMESTAMP_NTZ: rf"^[\d-]++[Tt ][\d:.,]++\s*+\S|{_BEYOND_MICROSECONDS}",
}
"""Parts of a time that its column cannot hold. In a column without time zone, a zone is such a part."""
_MAX_EXACT_LENGTH = 22
"""Length of a timestamp, in characters, up to which it has no digit beyond the microsecond."""
_HOUR = r"(?:[01]\d|2[0-3])"
_CLOCK = (
    rf"(?:{_HOUR}:[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?"
    rf"|{_HOUR}:59:60(?:[.,]\d+)?|24:00(?::00(?:[.,]0+)?)?)"
)
_ZONE = r"(?:[Zz]|[+-](?:0\d|1[0-8])(?::?[0-5]\d)?)"
_LOCAL_TIME = rf"^({_CLOCK}){_ZONE}?\z"
_MATCHING = {
    Scalar.TIME: rf"^{_CLOCK}{_ZONE}?\z",
    Scalar.TIME_WITH_TIMEZONE: rf"^{_CLOCK}{_ZONE}\z",
    Scalar.TIME_WITHOUT_TIMEZONE: _LOCAL_TIME,
    Scalar.NUMBER_TEXT: rf"^({_NUMBER}|{_INFINITE})\z",
    Scalar.BIG_NUMBER: rf"^{_NUMBER}\z",
    Scalar.DATE: _DATE,
    Scalar.TIMESTAMP: _TIMESTAMP,
    Scalar.TIMESTAMP_NTZ: _TIMESTAMP,
}
_OPENING = {Scalar.JSON_OBJECT: "{", Scalar.JSON_ARRAY: "["}
_CHECKED = frozenset(
    {*_MATCHING, *JSONS, Scalar.BIG_INTEGER, Scalar.INTEGER_TEXT, Scalar.NUMBER}
) | {Scalar.INTEGER_IN_DOUBLE}
_ROUNDED = frozenset(
    {*_TRUNCATED, *JSONS, Scalar.BIG_NUMBER, Scalar.INTEGER_IN_DOUBLE, Scalar.TIME_WITHOUT_TIMEZONE}
)
_HUGE = r"\dE(3[89]|[4-9]\d|\d{3})"

SAFE_INTEGER = float(2**53)
"""Up to this number, a double represents every integer exactly."""


def reader_type(kind: LogicalType) -> t.DataType:
    """Return the type that Spark's JSON reader parses. `Unread` fields of an object are left out."""
    if isinstance(kind, Array):
        return t.ArrayType(reader_type(kind.items))
    if isinstance(kind, Struct):
        return t.StructType(
            [t.StructField(c.source, reader_type(c.kind)) for c in read_columns(kind.fields)]
        )
    assert isinstance(kind, Scalar)
    return _READER_TYPES.get(kind, t.StringType())


def read_columns(fields: Sequence[Column]) -> list[Column]:
    """Return the columns that are read from a record: all except the `Unread` ones."""
    return [column for column in fields if not isinstance(column.kind, Unread)]


def json_as_text(value: Expression, kind: LogicalType) -> Expression:
    """Return a parsed value with its JSON as text."""
    if JSONS.isdisjoint(logical_types.scalars(kind)):
        return value
    if isinstance(kind, Array):
        return f.transform(value, lambda item: json_as_text(item, kind.items))
    if isinstance(kind, Struct):
        inner = [
            json_as_text(value.getField(c.source), c.kind).alias(c.source)
            for c in read_columns(kind.fields)
        ]
        return f.when(value.isNotNull(), f.struct(*inner))
    return _variant_as_text(value)


def _variant_as_text(value: Expression) -> Expression:
    """Return a VARIANT as JSON text; empty if it contains a number that is too large for a VARIANT."""
    text = f.to_json(value)  # used twice, but Spark computes it once: one use is unconditional
    beyond = text.contains('Infinity"') & f.schema_of_variant(value).rlike("DOUBLE|VARIANT")
    return f.when(beyond, "").when(~f.is_variant_null(value), text)


def converted(value: Expression, kind: LogicalType) -> Expression:
    """Return a value cast to the type of its column, null if it is not a value of that type.

    Args:
        value: as `json_as_text` returns it.

    Returns:
        the value; its objects keep the source's field names if `is_converted` is false for the type.
    """
    if not is_converted(kind):
        return value
    if isinstance(kind, Array):
        return f.transform(value, lambda item: converted(item, kind.items))
    if isinstance(kind, Struct):
        inner = [
            f.lit(None).cast(c.type).alias(c.name)
            if isinstance(c.kind, Unread)
            else converted(value.getField(c.source), c.kind).alias(c.name)
            for c in kind.fields
        ]
        return f.when(value.isNotNull(), f.struct(*inner))
    assert isinstance(kind, Scalar)
    return _converted(value, kind)


def is_converted(kind: LogicalType) -> bool:
    """Return whether `converted` changes values of this type."""
    if isinstance(kind, Array):
        return is_converted(kind.items)
    if isinstance(kind, Struct):
        return any(is_converted(column.kind) for column in kind.fields)
    return isinstance(kind, Unread) or kind in _CHECKED


def _converted(value: Expression, kind: Scalar) -> Expression:
    if kind in (Scalar.NUMBER, Scalar.INTEGER_IN_DOUBLE):
        return f.when(_is_finite(value), value)
    if kind in JSONS:
        return f.when(value.startswith(_OPENING.get(kind, "")) & (value != ""), value)
    if kind in (Scalar.BIG_INTEGER, Scalar.INTEGER_TEXT):
        return _integer(value).try_cast(logical_types.column_type(kind))
    if kind is Scalar.TIME_WITHOUT_TIMEZONE:
        return f.nullif(f.regexp_extract(value, _LOCAL_TIME, 1), f.lit(""))
    fits = value.rlike(_MATCHING[kind])
    if kind in TIMES:
        return f.when(fits, value)
    result = value.cast(logical_types.column_type(kind))
    if kind in _TRUNCATED:
        result = f.coalesce(result, _from_iso(value, kind))
    if kind is Scalar.NUMBER_TEXT:
        fits &= _is_finite(result) | value.rlike(_INFINITE)
    return f.when(fits, result)


def _from_iso(text: Expression, kind: Scalar) -> Expression:
    """Return a timestamp from a form of ISO 8601 that a cast refuses, such as a zone right after minutes."""
    to_second = f.regexp_replace(text, _ENDS_AT_MINUTES, "$1:00")
    full = f.upper(f.regexp_replace(to_second, _ISO, _CANONICAL))
    known = f.regexp_replace(f.regexp_replace(full, _END_OF_DAY, "00"), _LEAP_SECOND, "59")
    days, seconds = (full.rlike(each).cast("int") for each in (_END_OF_DAY, _LEAP_SECOND))
    rest = f.make_dt_interval(days=days, secs=seconds.cast("decimal(18,6)"))
    return known.cast(logical_types.column_type(kind)) + rest


def _is_finite(number: Expression) -> Expression:
    return f.abs(number) != f.lit(float("inf"))  # the reader parses 1e400 as Infinity


def _integer(text: Expression) -> Expression:
    """Return the text of a number without a fraction as decimal(38,0)."""
    exact = t.DecimalType(38, 0)
    # Below 10^20, decimal(38,18) holds all decimals of such a number; from 10^20 on it has none.
    fine = text.cast(t.DecimalType(38, 18))
    power = f.when(fine.isNull(), text.cast(exact)).when(fine % 1 == 0, fine.cast(exact))
    return f.when(text.rlike(_INTEGER), text.cast(exact)).when(text.rlike(_EXPONENT), power)


def can_lose(kind: LogicalType) -> bool:
    """Return whether `loses` can be true for this type."""
    return _contains(kind, _CHECKED)


def loses(value: Expression, result: Expression, kind: LogicalType) -> Expression:
    """Return whether `converted` made something null in a value of a checked type.

    Args:
        result: what `converted` returned for the value.
    """
    return _is_anywhere(value, result, kind, _CHECKED, _is_lost)


def can_round(kind: LogicalType) -> bool:
    """Return whether `rounds` can be true for this type."""
    return _contains(kind, _ROUNDED)


def rounds(value: Expression, result: Expression, kind: LogicalType) -> Expression:
    """Return whether `converted` rounded or truncated something, or the reader may have done so before."""
    return _is_anywhere(value, result, kind, _ROUNDED, _is_truncated)


def any_of(conditions: Sequence[Expression]) -> Expression:
    """Return whether one of the conditions holds, as a balanced tree: Spark walks an expression by recursion,
    and a chain for a thousand columns overflows its stack."""
    if len(conditions) <= 1:
        return conditions[0] if conditions else f.lit(False)
    half = len(conditions) // 2
    return any_of(conditions[:half]) | any_of(conditions[half:])


def _contains(kind: LogicalType, scalars: frozenset[Scalar]) -> bool:
    return not scalars.isdisjoint(logical_types.scalars(kind))


def _is_anywhere(
    value: Expression,
    result: Expression,
    kind: LogicalType,
    scalars: frozenset[Scalar],
    holds: Callable[[Expression, Expression, Scalar], Expression],
) -> Expression:
    """Return whether `holds` is true for a value of one of the scalars, at any depth of `value`."""
    if isinstance(kind, Array):
        items = kind.items
        found = f.exists(
            value,
            lambda item: _is_anywhere(item, converted(item, items), items, scalars, holds),
        )
        return f.coalesce(found, f.lit(False))
    if isinstance(kind, Struct):
        inner = (
            _is_anywhere(value.getField(c.source), result.getField(c.name), c.kind, scalars, holds)
            for c in kind.fields
            if _contains(c.kind, scalars)
        )
        return any_of(list(inner))
    assert isinstance(kind, Scalar)
    return holds(value, result, kind)


def _is_lost(value: Expression, result: Expression, _kind: Scalar) -> Expression:
    return value.isNotNull() & result.isNull()


def _is_truncated(value: Expression, result: Expression, kind: Scalar) -> Expression:
    if kind in JSONS:  # a number of more than 38 digits, or at least 1e38
        return f.coalesce(result.contains("E") & result.rlike(_HUGE), f.lit(False))
    if kind in _TRUNCATED:
        found = result.isNotNull() & value.rlike(_TRUNCATED[kind])
        if kind is Scalar.TIMESTAMP:  # a cheap test first: a pattern costs more
            found = ((f.length(value) > _MAX_EXACT_LENGTH) | value.contains("60")) & found
        return f.coalesce(found, f.lit(False))
    if kind is Scalar.TIME_WITHOUT_TIMEZONE:
        return f.coalesce(value != result, f.lit(False))
    if kind is Scalar.BIG_NUMBER:
        return f.coalesce(_has_more_decimals(value, result), f.lit(False))
    return f.coalesce(f.abs(result) > f.lit(SAFE_INTEGER), f.lit(False))


def _has_more_decimals(text: Expression, result: Expression) -> Expression:
    """Return whether a number has more than nine decimals. With an exponent, this needs arithmetic, in as
    many decimals as there is room for."""
    is_long = text.rlike(r"\.\d{9}0*[1-9]")
    fine, coarse = t.DecimalType(38, 28), t.DecimalType(38, 18)
    lost = f.coalesce(
        result.cast(fine) != text.cast(fine), result.cast(coarse) != text.cast(coarse)
    )
    return f.when(result.isNull(), f.lit(False)).when(text.rlike("[eE]"), lost).otherwise(is_long)
