"""The columns that a rule is about, and the values of the rule as values of their types."""

from __future__ import annotations

import datetime as dt
import difflib
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from elt_assets.connection.rules import AcceptedValues, Range, Rule, Unique
from elt_assets.connection.stream_model import Stream
from elt_assets.errors import ConfigError
from elt_assets.lake.schema import from_json_schema
from elt_assets.lake.schema.logical_types import (
    JSONS,
    TIMES,
    Column,
    LogicalType,
    Scalar,
    Unread,
    describe_type,
)
from elt_assets.lake.write.write_spec import column_at, column_path
from elt_assets.protocol.airbyte.catalog import ConfiguredStream

_TEXTS = frozenset({Scalar.TEXT, *TIMES})
_INTEGERS = frozenset({Scalar.INTEGER, Scalar.INTEGER_TEXT, Scalar.BIG_INTEGER})
_NUMBERS = frozenset({Scalar.NUMBER, Scalar.NUMBER_TEXT, Scalar.INTEGER_IN_DOUBLE})
_MAX_NAMES = 20
"""Maximum number of names that an error lists."""
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
                for value in values_of(rule) or [None]:
                    as_text(value, column.kind)
            except ValueError as error:
                yield f"{name!r}: {error}"


def has_columns(rule: Rule, columns: Sequence[Column]) -> bool:
    """Return whether a stream has all columns that a rule is about."""
    return all(column_at(columns, path) is not None for path in rule.paths)


def cluster_columns(settings: Stream, landed: ConfiguredStream) -> list[list[str]]:
    """Return the columns that maintenance sorts the table of a stream by.

    Args:
        landed: the stream as its table stores it.

    Raises:
        ConfigError: there is no such column, or its values have no order.
    """
    columns, problems = from_json_schema.columns(landed.stream.json_schema), list[str]()
    paths = settings.cluster_by or []
    for path in paths:
        name, column = ".".join(path), column_at(columns, path)
        if column is None:
            problems.append(f"there is no column {name!r}; {describe_near_names(path, columns)}")
        elif not isinstance(column.kind, Scalar) or column.kind in (*JSONS, Scalar.BINARY):
            problems.append(f"{name!r}: its values ({describe_type(column.kind)}) cannot be sorted")
    if problems:
        raise ConfigError(
            "\n".join(f"stream {str(landed.id)!r}: cluster_by: {text}" for text in problems),
            guidance="name columns of the stream with plain values",
        )
    return [column_path(columns, path) or [] for path in paths]


def values_of(rule: Rule) -> list[Any]:
    """Return the values that a rule compares with."""
    if isinstance(rule, AcceptedValues):
        return rule.values
    if isinstance(rule, Range):
        return [bound for bound in (rule.min, rule.max) if bound is not None]
    return []


def as_text(value: Any, kind: LogicalType) -> str:
    """Return a value of a rule as a text that Spark can cast to the type of a column.

    None is not converted: only the type of the column is checked.

    Raises:
        ValueError: the column has no plain values, or the value is not of its type.
    """
    if not isinstance(kind, Scalar | Unread) or kind in JSONS or kind is Scalar.BINARY:
        raise ValueError(f"its values ({describe_type(kind)}) cannot be compared")
    if value is None:
        return ""
    text = _convert(value, kind)
    if text is None:
        article = {"bigint": "an integer", "string": "a text; write it in quotes"}
        name = describe_type(kind)
        raise ValueError(f"{value!r} is not {article.get(name, f'a value of type {name}')}")
    return text


def _convert(value: Any, kind: LogicalType) -> str | None:
    """Return a value as text; None if it is not of the type."""
    if kind is Scalar.BOOLEAN:
        return str(value).lower() if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if kind in _TEXTS:
        return value if isinstance(value, str) else None
    if kind in _INTEGERS:
        bits = 63 if kind is not Scalar.BIG_INTEGER else 126
        return str(value) if isinstance(value, int) and abs(value) < 1 << bits else None
    if kind in _NUMBERS:
        return str(value) if isinstance(value, int | float) and math.isfinite(value) else None
    if kind is Scalar.BIG_NUMBER:
        return _decimal(value)
    if kind in (Scalar.DATE, Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ):
        return _moment(value, kind)
    return str(value)


def _decimal(value: Any) -> str | None:
    """Return a number as text if a decimal column stores it exactly."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    if not number.is_finite():
        return None
    exponent = number.normalize().as_tuple().exponent
    return f"{number:f}" if isinstance(exponent, int) and -exponent <= _SCALE else None


def _moment(value: Any, kind: LogicalType) -> str | None:
    """Return a date or a time as text. A time without a zone is in UTC."""
    text = value.isoformat() if isinstance(value, dt.date) else value
    try:
        moment = dt.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    if kind is Scalar.DATE:
        return moment.date().isoformat() if moment == _midnight(moment) else None
    if kind is Scalar.TIMESTAMP_NTZ:
        return moment.isoformat() if moment.tzinfo is None else None
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)).isoformat()


def _midnight(moment: dt.datetime) -> dt.datetime:
    return dt.datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001 - it has no zone


def describe_near_names(path: Sequence[str], columns: Sequence[Column]) -> str:
    names = [column.source for column in columns]
    if len(path) > 1 and (parent := column_at(columns, path[:-1])) is not None:
        names = [column.source for column in getattr(parent.kind, "fields", ())]
    near = difflib.get_close_matches(path[-1], names, n=1)
    if near:
        return f"did you mean {'.'.join([*path[:-1], *near])!r}?"
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"there are {', '.join(names[:_MAX_NAMES])}{more}"
