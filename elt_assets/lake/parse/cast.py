"""What is a value of a kind: the strict half of the conversion.

Spark's JSON reader takes more for a value than is meant as one, and casts take more still. For the
kinds where it does (the *checked* ones) the reader is asked for less, and the value judged here.
A value passes three forms: as the reader gives it (`parsed_as`), with JSON as text (`texted`), of its
column's type (`converted`).
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

_PARSED: Mapping[Scalar, t.DataType] = {
    Scalar.BOOLEAN: t.BooleanType(),
    Scalar.INTEGER: t.LongType(),
    Scalar.NUMBER: t.DoubleType(),
    Scalar.INTEGER_IN_DOUBLE: t.DoubleType(),
    Scalar.BINARY: t.BinaryType(),
    # A string column would take any value as its text, but drop a string's quotes, so that "5" and 5
    # were one. A VARIANT knows them apart, and keeps whole numbers and decimals to 38 digits as they
    # are; a number with an exponent, or of more digits, it keeps as a double, which `rounds` tells where
    # it is that large. (Spark gives no exact text with the quotes: where it writes JSON again, every
    # number with a point is a double.) Names are sorted; of equal ones the last wins.
    **dict.fromkeys(JSONS, t.VariantType()),
}
"""All others are read as text: where Spark's reader takes too much for a value of the type (the time
03:04 for a timestamp), or where text says more than the type can (that a decimal was rounded)."""

# Java: `$` would let a newline follow.
_NUMBER = r"-?\d+(\.\d+)?([eE][+-]?\d+)?"
_INFINITE = r"NaN|-?Infinity"
_WHOLE = r"^-?\d+(\.0+)?\z"
_POWER = r"^-?(\d(\.\d{1,18})?|\d+)[eE]\+?\d+\z"
_DAY = r"^\d{4}-\d{2}-\d{2}"
_DATE = _DAY + r"([T ]00:00(:00(\.0+)?)?(Z|[+-]\d{2}:?\d{2})?)?\z"
"""A day; the midnight that many sources append to one loses nothing."""
_TIMESTAMP = r"^\d{4}(-\d{2}-\d{2}([Tt ]|\z)|\d{4}[Tt])"
"""What a cast takes for a time beyond this (a year, a time of today) is not meant as one."""
_ISO = (
    r"^(\d{4})-?(\d{2})-?(\d{2})[Tt ](\d{2}):?(\d{2}):?(\d{2})(?:[.,](\d+))?"
    r"\s*([Zz]|[+-]\d{2}(?::?\d{2})?)?\s*\z"
)
"""A day and a time to the second, in ISO 8601's extended or basic format."""
_CANONICAL = "$1-$2-$3T$4:$5:$6.$7$8"
"""What `_ISO` matches, as a cast takes it; its parts have fixed places up to the seconds' point."""
_ENDS_AT_MINUTES = r"^([\d-]{8,10}[Tt ]\d{2}:?\d{2})(?=\s*([Zz+-]|\z))"
_END_OF_DAY = r"(?<=T)24(?=:00:00\.0*([Z+-]|\z))"
_LEAP_SECOND = r"(?<=:59:)60"
_TOO_FINE = r"59:60|[Tt ]\d{2}:?5960|[.,]\d{6}\d*[1-9]"
"""Found in a timestamp with a leap second, or with digits beyond the microsecond."""
_CUT = {
    Scalar.TIMESTAMP: _TOO_FINE,
    Scalar.TIMESTAMP_NTZ: rf"^[\d-]++[Tt ][\d:.,]++\s*+\S|{_TOO_FINE}",
}
"""Found in a time that says more than the column holds; where that has no zone, a zone is more, too."""
_PLAIN = 22
"""Characters of a timestamp up to which no digit is beyond the microsecond."""
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
    {*_CUT, *JSONS, Scalar.BIG_NUMBER, Scalar.INTEGER_IN_DOUBLE, Scalar.TIME_WITHOUT_TIMEZONE}
)
_HUGE = r"\dE(3[89]|[4-9]\d|\d{3})"

SAFE_INTEGER = float(2**53)
"""Up to here a double tells integers apart."""


def parsed_as(kind: LogicalType) -> t.DataType:
    """What Spark's reader is asked for. What is `Unread` inside an object is left out."""
    if isinstance(kind, Array):
        return t.ArrayType(parsed_as(kind.items))
    if isinstance(kind, Struct):
        return t.StructType([t.StructField(c.source, parsed_as(c.kind)) for c in read(kind.fields)])
    assert isinstance(kind, Scalar)
    return _PARSED.get(kind, t.StringType())


def read(fields: Sequence[Column]) -> list[Column]:
    """The fields that are looked for in a record."""
    return [column for column in fields if not isinstance(column.kind, Unread)]


def texted(value: Expression, kind: LogicalType) -> Expression:
    """A value as parsed, its JSON as text."""
    if JSONS.isdisjoint(logical_types.scalars(kind)):
        return value
    if isinstance(kind, Array):
        return f.transform(value, lambda item: texted(item, kind.items))
    if isinstance(kind, Struct):
        inner = [
            texted(value.getField(c.source), c.kind).alias(c.source) for c in read(kind.fields)
        ]
        return f.when(value.isNotNull(), f.struct(*inner))
    return _json(value)


def _json(value: Expression) -> Expression:
    """A VARIANT as JSON; empty where a number in it is beyond what a VARIANT holds."""
    text = f.to_json(
        value
    )  # once: it is evaluated in any case, so Spark remembers it for the second
    beyond = text.contains('Infinity"') & f.schema_of_variant(value).rlike("DOUBLE|VARIANT")
    return f.when(beyond, "").when(~f.is_variant_null(value), text)


def converted(value: Expression, kind: LogicalType) -> Expression:
    """A value as parsed, JSON as text → of the column's type, if perhaps with the source's names;
    null where it is none."""
    if not is_changed(kind):
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


def is_changed(kind: LogicalType) -> bool:
    """Whether `converted` does anything."""
    if isinstance(kind, Array):
        return is_changed(kind.items)
    if isinstance(kind, Struct):
        return any(is_changed(column.kind) for column in kind.fields)
    return isinstance(kind, Unread) or kind in _CHECKED


def _converted(value: Expression, kind: Scalar) -> Expression:
    if kind in (Scalar.NUMBER, Scalar.INTEGER_IN_DOUBLE):
        return f.when(_is_finite(value), value)
    if kind in JSONS:
        return f.when(value.startswith(_OPENING.get(kind, "")) & (value != ""), value)
    if kind in (Scalar.BIG_INTEGER, Scalar.INTEGER_TEXT):
        return _whole(value).try_cast(logical_types.column_type(kind))
    if kind is Scalar.TIME_WITHOUT_TIMEZONE:
        return f.nullif(f.regexp_extract(value, _LOCAL_TIME, 1), f.lit(""))
    fits = value.rlike(_MATCHING[kind])
    if kind in TIMES:
        return f.when(fits, value)
    result = value.cast(logical_types.column_type(kind))
    if kind in _CUT:
        result = f.coalesce(result, _from_iso(value, kind))
    if kind is Scalar.NUMBER_TEXT:
        fits &= _is_finite(result) | value.rlike(_INFINITE)
    return f.when(fits, result)


def _from_iso(text: Expression, kind: Scalar) -> Expression:
    """A timestamp in a form of ISO 8601 that a cast refuses, as it does a zone right after the minutes."""
    to_second = f.regexp_replace(text, _ENDS_AT_MINUTES, "$1:00")
    full = f.upper(f.regexp_replace(to_second, _ISO, _CANONICAL))
    known = f.regexp_replace(f.regexp_replace(full, _END_OF_DAY, "00"), _LEAP_SECOND, "59")
    days, seconds = (full.rlike(each).cast("int") for each in (_END_OF_DAY, _LEAP_SECOND))
    rest = f.make_dt_interval(days=days, secs=seconds.cast("decimal(18,6)"))
    return known.cast(logical_types.column_type(kind)) + rest


def _is_finite(number: Expression) -> Expression:
    return f.abs(number) != f.lit(float("inf"))  # 1e400 parses, to Infinity


def _whole(text: Expression) -> Expression:
    """The text of a number without a fraction as decimal(38,0)."""
    exact = t.DecimalType(38, 0)
    # Below 10^20 all decimals of such a text have room; beyond it has none.
    fine = text.cast(t.DecimalType(38, 18))
    power = f.when(fine.isNull(), text.cast(exact)).when(fine % 1 == 0, fine.cast(exact))
    return f.when(text.rlike(_WHOLE), text.cast(exact)).when(text.rlike(_POWER), power)


def is_checked(kind: LogicalType) -> bool:
    """Whether `loses` may find something."""
    return _is_one_of(kind, _CHECKED)


def loses(value: Expression, result: Expression, kind: LogicalType) -> Expression:
    """Whether `converted` made null of something in a value of a checked kind; `result` is what it
    made."""
    return _is_anywhere(value, result, kind, _CHECKED, _is_lost)


def is_rounded(kind: LogicalType) -> bool:
    """Whether `rounds` may find something."""
    return _is_one_of(kind, _ROUNDED)


def rounds(value: Expression, result: Expression, kind: LogicalType) -> Expression:
    """Whether `converted` rounded or cut something, or the reader may have before it."""
    return _is_anywhere(value, result, kind, _ROUNDED, _is_cut)


def any_of(conditions: Sequence[Expression]) -> Expression:
    """Whether one of them holds; half by half, since Spark goes down an expression by recursion, and a
    chain of a thousand columns overflows its stack."""
    if len(conditions) <= 1:
        return conditions[0] if conditions else f.lit(False)
    half = len(conditions) // 2
    return any_of(conditions[:half]) | any_of(conditions[half:])


def _is_one_of(kind: LogicalType, scalars: frozenset[Scalar]) -> bool:
    return not scalars.isdisjoint(logical_types.scalars(kind))


def _is_anywhere(
    value: Expression,
    result: Expression,
    kind: LogicalType,
    scalars: frozenset[Scalar],
    holds: Callable[[Expression, Expression, Scalar], Expression],
) -> Expression:
    """Whether `holds` is true of a value of one of the scalars, or of one within an array or object."""
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
            if _is_one_of(c.kind, scalars)
        )
        return any_of(list(inner))
    assert isinstance(kind, Scalar)
    return holds(value, result, kind)


def _is_lost(value: Expression, result: Expression, _kind: Scalar) -> Expression:
    return value.isNotNull() & result.isNull()


def _is_cut(value: Expression, result: Expression, kind: Scalar) -> Expression:
    if kind in JSONS:  # a number of more than 38 digits, or one that is as large
        return f.coalesce(result.contains("E") & result.rlike(_HUGE), f.lit(False))
    if kind in _CUT:
        cut = result.isNotNull() & value.rlike(_CUT[kind])
        if kind is Scalar.TIMESTAMP:  # quickly told of most, for a pattern costs more
            cut = ((f.length(value) > _PLAIN) | value.contains("60")) & cut
        return f.coalesce(cut, f.lit(False))
    if kind is Scalar.TIME_WITHOUT_TIMEZONE:
        return f.coalesce(value != result, f.lit(False))
    if kind is Scalar.BIG_NUMBER:
        return f.coalesce(_has_more_decimals(value, result), f.lit(False))
    return f.coalesce(f.abs(result) > f.lit(SAFE_INTEGER), f.lit(False))


def _has_more_decimals(text: Expression, result: Expression) -> Expression:
    """Than nine. With an exponent that takes arithmetic, in as many decimals as there is room for."""
    told = text.rlike(r"\.\d{9}0*[1-9]")
    fine, coarse = t.DecimalType(38, 28), t.DecimalType(38, 18)
    lost = f.coalesce(
        result.cast(fine) != text.cast(fine), result.cast(coarse) != text.cast(coarse)
    )
    return f.when(result.isNull(), f.lit(False)).when(text.rlike("[eE]"), lost).otherwise(told)
