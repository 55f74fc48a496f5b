"""The columns that a rule is about, and the values of the rule as values of their types."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from elt_assets.connection.rules import AcceptedValues, Range, Rule, Unique
from elt_assets.lake.schema.logical_types import (
    JSONS,
    TIMES,
    Column,
    LogicalType,
    Scalar,
    Unread,
    describe_type,
)
from elt_assets.lake.write.write_spec import column_at
from elt_assets.pipeline.partition_columns import describe_near_names

_TEXTS = frozenset({Scalar.TEXT, *TIMES})
_INTEGERS = frozenset({Scalar.INTEGER, Scalar.INTEGER_TEXT, Scalar.BIG_INTEGER})
_NUMBERS = frozenset({Scalar.NUMBER, Scalar.NUMBER_TEXT, Scalar.INTEGER_IN_DOUBLE})
_DATES = frozenset({Scalar.DATE, Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ})
_SCALE = 9
"""Digits after the point of a decimal column."""


def find_column_problems(rule: Rule, columns: Sequence[Column]) -> Iterator[str]:
    """Yield why a rule cannot be checked for a stream with these columns."""
    for path in rule.paths:
        name = ".".join(path)
        column = column_at(columns, path)
        if column is None:
            yield f"there is no column {name!r}; {describe_near_names(path, columns)}"
            continue
        if isinstance(rule, Unique | AcceptedValues | Range):
            try:
                refuse_structures(column.kind)
                for value in rule.compared_values:
                    quote_value(value, column.kind)
            except ValueError as error:
                yield f"{name!r}: {error}"


def has_columns(rule: Rule, columns: Sequence[Column]) -> bool:
    """Return whether a stream has all columns that a rule is about."""
    return all(column_at(columns, path) is not None for path in rule.paths)


def quote_value(value: Any, kind: LogicalType) -> str:
    """Return a value of a rule as a value of the type of a column, in Spark SQL.

    Raises:
        ValueError: the column has no plain values, or the value is not of its type.
    """
    refuse_structures(kind)
    name, text = describe_type(kind), _convert(value, kind)
    if text is None:
        article = {"bigint": "an integer", "string": "a text; write it in quotes"}
        raise ValueError(f"{value!r} is not {article.get(name, f'a value of type {name}')}")
    # The bytes are written, since settings of a session decide how it reads quotes.
    return f"CAST(CAST(X'{text.encode().hex()}' AS STRING) AS {name})"


def refuse_structures(kind: LogicalType) -> None:
    """Refuse the type of a column that has no plain values.

    Raises:
        ValueError: it is such a type.
    """
    if not isinstance(kind, Scalar | Unread) or kind in JSONS or kind is Scalar.BINARY:
        raise ValueError(f"its values ({describe_type(kind)}) cannot be compared")


def _convert(value: Any, kind: LogicalType) -> str | None:
    """Return a value as text; None if it is not of the type."""
    if isinstance(value, bool) or kind is Scalar.BOOLEAN:
        is_boolean = isinstance(value, bool) and kind is Scalar.BOOLEAN
        return str(value).lower() if is_boolean else None
    if kind in _TEXTS:
        return value if isinstance(value, str) else None
    if kind in _INTEGERS:
        bits = 63 if kind is not Scalar.BIG_INTEGER else 126
        return str(value) if isinstance(value, int) and abs(value) < 1 << bits else None
    if kind in _NUMBERS:
        return str(value) if isinstance(value, int | float) and math.isfinite(value) else None
    try:
        if kind is Scalar.BIG_NUMBER:
            number = Decimal(str(value))
            exponent = number.normalize().as_tuple().exponent
            is_exact = isinstance(exponent, int) and -exponent <= _SCALE
            return f"{number:f}" if is_exact else None
        if kind in _DATES:
            return _convert_moment(value, kind)
    except (TypeError, ValueError, ArithmeticError):
        return None
    return str(value)


def _convert_moment(value: Any, kind: LogicalType) -> str | None:
    """Return a date or a time as text. A time without a zone is in UTC."""
    moment = dt.datetime.fromisoformat(value.isoformat() if isinstance(value, dt.date) else value)
    if kind is Scalar.DATE:
        is_day = moment.tzinfo is None and moment.time() == dt.time()
        return moment.date().isoformat() if is_day else None
    if kind is Scalar.TIMESTAMP_NTZ:
        return moment.isoformat() if moment.tzinfo is None else None
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)).isoformat()
