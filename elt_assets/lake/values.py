"""What is a value of a type: the strict half of the conversion.

Spark's JSON reader takes more for a value than is meant as one, and casts take more still. For the
types where it does (the *checked* ones) the reader is asked for less, and the value judged here.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import functions as f
from pyspark.sql import types as t

_BIG_INTEGER = t.DecimalType(38, 0)
_DAY = r"^\d{4}-\d{2}-\d{2}"
_DATE = _DAY + r"([T ]00:00(:00(\.0+)?)?(Z|[+-]\d{2}:?\d{2})?)?$"
"""A day; the midnight that many sources append to one loses nothing."""
_TIMESTAMP = _DAY + "([T ]|$)"
"""What a cast takes for a time beyond this (a year, a time of today) is not meant as one."""


def parsed_as(kind: t.DataType) -> t.DataType:
    """What Spark's reader is asked for. Where it takes too much for a value of the type (the time
    03:04 for a timestamp, 1.5 for an integer), or fails the whole line for it (text that is not
    base64), that is text, for `converted` to judge."""
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(parsed_as(kind.elementType))
    if isinstance(kind, t.StructType):
        return t.StructType([t.StructField(e.name, parsed_as(e.dataType)) for e in kind.fields])
    return t.StringType() if _is_text(kind) else kind


def _is_text(kind: t.DataType) -> bool:
    return kind == _BIG_INTEGER or isinstance(
        kind, t.DateType | t.TimestampType | t.TimestampNTZType | t.BinaryType
    )


def is_checked(kind: t.DataType) -> bool:
    """Whether `converted` may find something that is no value of the type."""
    if isinstance(kind, t.ArrayType):
        return is_checked(kind.elementType)
    if isinstance(kind, t.StructType):
        return any(is_checked(field.dataType) for field in kind.fields)
    return isinstance(kind, t.DoubleType) or _is_text(kind)


def converted(value: Expression, kind: t.DataType) -> Expression:
    """A value as parsed → of its type; null where it is none."""
    if not is_checked(kind):
        return value
    if isinstance(kind, t.ArrayType):
        return f.transform(value, lambda item: converted(item, kind.elementType))
    if isinstance(kind, t.StructType):
        inner = [
            converted(value.getField(field.name), field.dataType).alias(field.name)
            for field in kind.fields
        ]
        return f.when(value.isNotNull(), f.struct(*inner))
    return _converted_scalar(value, kind)


def _converted_scalar(value: Expression, kind: t.DataType) -> Expression:
    if isinstance(kind, t.DoubleType):
        return f.when(f.abs(value) != f.lit(float("inf")), value)  # 1e400 parses, to Infinity
    if isinstance(kind, t.BinaryType):
        return f.try_to_binary(value, f.lit("base64"))
    if isinstance(kind, t.DateType):
        return f.when(value.rlike(_DATE), value.cast(kind))
    if isinstance(kind, t.DecimalType):
        fraction = value.cast(t.DecimalType(38, 9)) % 1 != 0
        return f.when(~f.coalesce(fraction, f.lit(False)), value.cast(kind))
    return f.when(value.rlike(_TIMESTAMP), value.cast(kind))


def loses(value: Expression, kind: t.DataType) -> Expression:
    """Whether `converted` makes null of something in a value of a checked type."""
    if isinstance(kind, t.ArrayType):
        lost = f.exists(value, lambda item: loses(item, kind.elementType))
        return f.coalesce(lost, f.lit(False))
    if isinstance(kind, t.StructType):
        checked = [field for field in kind.fields if is_checked(field.dataType)]
        inner = (loses(value.getField(field.name), field.dataType) for field in checked)
        return reduce(lambda a, b: a | b, inner)
    return value.isNotNull() & _converted_scalar(value, kind).isNull()
