"""The rules that people write for the rows of a stream: which apply, their texts in Spark SQL, their outcome.

`connection.checks` has the models of the rules; `validation` checks them against the columns, and
`orchestration.checks` has them evaluated. First the columns that a rule is about, and its values as values of
their types; then the rules.

Values of rows are in no text; examples are primary keys, or the ids of rows if the stream has no key or
stores it as a hash.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from elt_assets.connection.checks import (
    RULES,
    AcceptedValues,
    NotNull,
    Query,
    Range,
    RowCount,
    Rule,
    Unique,
)
from elt_assets.lake.columns import from_json_schema
from elt_assets.lake.columns.logical_types import (
    JSONS,
    TIMES,
    Column,
    LogicalType,
    Scalar,
    Unread,
    describe_type,
)
from elt_assets.lake.columns.metadata_columns import RAW_ID
from elt_assets.lake.delta.table import Table
from elt_assets.lake.read.row_tests import (
    TABLE,
    ColumnPath,
    Failures,
    RowTest,
    TestedRows,
    find_kind,
    run_tests,
)
from elt_assets.lake.write.sync_columns import column_at, column_path, columns_of, key_of
from elt_assets.pipeline.stream import ConnectionStream, describe_near_names
from elt_assets.sync.field_selection import lies_in

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


@dataclass(frozen=True)
class RuleOutcome:
    """The result of a rule."""

    passed: bool
    text: str
    rows: int = 0
    """The number of rows that were checked."""
    failed: int = 0
    """The number of rows that break it; for `unique`, of values that several rows have."""
    examples: Sequence[Mapping[str, str]] = ()
    """Keys of rows that break it."""


def list_rules(stream: ConnectionStream) -> list[Rule]:
    """Return the rules of a stream: its own, and under other keys those of its connection.

    A rule of the connection applies to the streams that have its columns.
    """
    own, general = stream.settings.checks, stream.connection.checks
    if not (own.rules or general.rules):
        return []
    columns = _list_columns(stream)
    rules: list[Rule] = []
    for key in RULES:
        if key in own.model_fields_set:
            rules += getattr(own, key)
        else:
            rules += [rule for rule in getattr(general, key) if has_columns(rule, columns)]
    return rules


def find_rule_problems(stream: ConnectionStream) -> Iterator[str]:
    """Yield what is not valid in the rules of a stream."""
    rules = list_rules(stream)
    if rules and stream.connection.destination is not None:
        yield (
            f"checks: {rules[0].kind}: only tables of the lake can be checked, and the connection has "
            "another `destination`; leave it out"
        )
        return
    columns, names = _list_columns(stream) if rules else [], set[str]()
    for rule in rules:
        if rule.check_name in names:
            yield (
                f"checks: {rule.kind}: there is another check of the name {rule.check_name!r}; give it "
                "another `name`"
            )
        names.add(rule.check_name)
        for problem in find_column_problems(rule, columns):
            yield f"checks: {rule.kind}: {problem}"


def find_unused_rules(streams: Sequence[ConnectionStream]) -> Iterator[str]:
    """Yield the rules of a connection whose columns none of its streams has."""
    general = streams[0].connection.checks if streams else None
    if general is None or not general.rules:
        return
    columns = [_list_columns(stream) for stream in streams]
    for rule in general.rules:
        if not any(has_columns(rule, declared) for declared in columns):
            names = ", ".join(repr(".".join(path)) for path in rule.paths)
            yield f"checks: {rule.kind}: no stream of the connection has the column {names}"


def _list_columns(stream: ConnectionStream) -> list[Column]:
    """Return the columns that the catalog declares for the table."""
    return from_json_schema.columns(stream.make_stored_stream().stream.json_schema)


def evaluate_rules(
    stream: ConnectionStream, rules: Sequence[Rule], rows: TestedRows
) -> Iterator[tuple[Rule, RuleOutcome]]:
    """Evaluate rules of a stream, and yield each with its outcome."""
    table = rows.table
    if not table.exists:
        yield from ((rule, RuleOutcome(True, "the table does not exist yet")) for rule in rules)
        return
    stored = stream.make_stored_stream()
    hashed = () if stream.fields is None else stream.fields.hashed
    is_shown = not any(lies_in(tuple(part), hashed) for part in stream.stream.key)
    keys = (key_of(stored, table) if is_shown else []) or [[RAW_ID]]
    columns = columns_of(stored, table.schema)
    for scope in dict.fromkeys(rule.over for rule in rules):
        total, members = rows.count(scope), [rule for rule in rules if rule.over == scope]
        prepared = [_prepare(rule, columns, rows.table, keys, total) for rule in members]
        tests = {
            rule.check_name: test
            for rule, test in zip(members, prepared, strict=True)
            if isinstance(test, RowTest)
        }
        failures = run_tests(rows, scope, tests, keys) if tests else {}
        for rule, outcome in zip(members, prepared, strict=True):
            if isinstance(outcome, RowTest):
                yield rule, _describe(rule, failures[rule.check_name], total)
            else:
                yield rule, outcome


def _prepare(
    rule: Rule, columns: Sequence[Column], table: Table, keys: Sequence[ColumnPath], total: int
) -> RowTest | RuleOutcome:
    """Return the test of a rule, or the outcome if no row need be read.

    Args:
        columns: of the table, with the names of their fields in the stream.
        keys: the columns of examples.
        total: the number of rows.
    """
    if isinstance(rule, RowCount):
        passed = rule.min <= total and (rule.max is None or total <= rule.max)
        return RuleOutcome(passed, rule.fill(rule.failure, rows=total), total)
    paths = []
    for path in rule.paths:
        names = column_path(columns, path)
        if names is None or names[0] not in table.schema.names:
            return RuleOutcome(False, f"the table has no column {'.'.join(path)!r}", total)
        paths.append(names)
    if not total:
        return RuleOutcome(True, "there are no rows to check")
    try:
        return _compile(rule, [(quote_path(path), find_kind(table, path)) for path in paths], keys)
    except ValueError as error:  # a column has another type than the values of the rule
        return RuleOutcome(False, str(error), total)


def _describe(rule: Rule, failures: Failures, total: int) -> RuleOutcome:
    text = rule.fill(rule.failure, failed=failures.count, rows=total)
    if failures.error is not None:
        text = f"the query cannot be run: {failures.error}"
    passed = not failures.count and failures.error is None
    return RuleOutcome(passed, text, total, failures.count, failures.examples)


def _compile(
    rule: Rule, columns: Sequence[tuple[str, LogicalType]], keys: Sequence[ColumnPath]
) -> RowTest:
    """Return what breaks a rule, in Spark SQL. `columns`: those of the rule, with their types.

    Raises:
        ValueError: a column has another type than the values of the rule.
    """
    if isinstance(rule, Query):
        return RowTest(rule.query, is_query=True, may_fail=True)
    if isinstance(rule, Unique):
        group = ", ".join(column for column, _ in columns)
        is_whole = " AND ".join(f"{column} IS NOT NULL" for column, _ in columns)
        firsts = ", ".join(f"first({quote_path(k)}) AS {quote_path(['.'.join(k)])}" for k in keys)
        query = (
            f"SELECT {firsts} FROM {TABLE} WHERE {is_whole} GROUP BY {group} HAVING count(*) > 1"  # noqa: S608 - quoted
        )
        return RowTest(query, is_query=True)
    ((column, kind),) = columns
    if isinstance(rule, NotNull):
        return RowTest(f"{column} IS NULL")
    if isinstance(rule, AcceptedValues):
        values = ", ".join(quote_value(value, kind) for value in rule.values)
        return RowTest(f"{column} NOT IN ({values})")
    assert isinstance(rule, Range)
    bounds = {"<": rule.min, ">": rule.max}
    tests = [
        f"{column} {sign} {quote_value(v, kind)}" for sign, v in bounds.items() if v is not None
    ]
    if describe_type(kind) in ("double", "float"):
        tests.append(f"isnan({column})")
    return RowTest(" OR ".join(tests))


def quote_path(path: ColumnPath) -> str:
    """Return a column, or a field nested in one, in SQL. Names may contain dots and backticks."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)
