"""The rules that people write for the rows of a stream: which of them apply, and how they are checked.

Values of rows are in no text; examples are primary keys, or the ids of rows if the stream has no key or
stores it as a hash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from elt_assets.connection.checks import RULES
from elt_assets.connection.rules import (
    AcceptedValues,
    NotNull,
    Query,
    Range,
    RowCount,
    Rule,
    Scope,
    Unique,
)
from elt_assets.lake.admin.row_tests import (
    ColumnTest,
    Failures,
    TestedRows,
    find_kind,
    find_repeated_values,
    run_column_tests,
    run_query,
)
from elt_assets.lake.delta.files import DataFile
from elt_assets.lake.delta.table import Table
from elt_assets.lake.schema import from_json_schema
from elt_assets.lake.schema.logical_types import Column
from elt_assets.lake.schema.metadata_columns import RAW_ID
from elt_assets.lake.spark.session import SparkProvider
from elt_assets.lake.write.write_spec import column_path, columns_of, key_of
from elt_assets.pipeline.connection_stream import ConnectionStream
from elt_assets.pipeline.rule_columns import as_text, find_column_problems, has_columns
from elt_assets.pipeline.rule_texts import describe_failures, describe_row_count
from elt_assets.sync.selection.fields import lies_in


@dataclass(frozen=True)
class CheckedTable:
    """A table to be checked, at one snapshot.

    Attributes:
        files: the files of the run's commits; all files if a check runs without a sync.
        partitions: the partitions of the run; None for a stream without partitions, or without a sync.
    """

    table: Table
    files: Sequence[DataFile]
    partitions: Collection[str] | None
    spark: SparkProvider


@dataclass(frozen=True)
class RuleOutcome:
    """The result of a rule.

    Attributes:
        failed: the number of rows that break it; for `unique`, of values that several rows have.
        rows: the number of rows that were checked.
        examples: keys of rows that break it.
    """

    passed: bool
    text: str
    rows: int = 0
    failed: int = 0
    examples: Sequence[Mapping[str, str]] = field(default_factory=tuple)


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
    stream: ConnectionStream, rules: Sequence[Rule], checked: CheckedTable
) -> Iterator[tuple[Rule, RuleOutcome]]:
    """Evaluate rules of a stream, and yield each with its outcome."""
    if not checked.table.exists:
        yield from ((rule, RuleOutcome(True, "the table does not exist yet")) for rule in rules)
        return
    evaluation = _Evaluation(stream, checked)
    scopes: dict[Scope, list[Rule]] = {}
    for rule in rules:
        scopes.setdefault(rule.over, []).append(rule)
    for scope, members in scopes.items():
        yield from evaluation.evaluate(scope, members)


class _Evaluation:
    """Evaluation of rules against the rows of one table."""

    def __init__(self, stream: ConnectionStream, checked: CheckedTable):
        stored = stream.make_stored_stream()
        self._table = checked.table
        self._columns = columns_of(stored, checked.table.schema)
        hashed = () if stream.fields is None else stream.fields.hashed
        is_shown = not any(lies_in(tuple(part), hashed) for part in stream.stream.key)
        key = key_of(stored, checked.table) if is_shown else []
        self._rows = TestedRows(
            checked.table, checked.files, checked.partitions, checked.spark, key or [[RAW_ID]]
        )

    def evaluate(self, scope: Scope, rules: Sequence[Rule]) -> Iterator[tuple[Rule, RuleOutcome]]:
        """Evaluate rules that have the same scope."""
        total = self._rows.count(scope)
        tests: dict[str, ColumnTest] = {}
        for rule in rules:
            try:
                outcome = self._evaluate_alone(rule, total)
                if outcome is None:
                    tests[rule.check_name] = self._test(rule)
                    continue
            except ValueError as error:
                outcome = RuleOutcome(False, str(error), total)
            yield rule, outcome
        failures = run_column_tests(self._rows, scope, [*tests.values()]) if tests else {}
        for rule in rules:
            if rule.check_name in failures:
                yield rule, _describe(rule, failures[rule.check_name], total)

    def _evaluate_alone(self, rule: Rule, total: int) -> RuleOutcome | None:
        """Return the outcome of a rule; None if it is evaluated together with others."""
        if isinstance(rule, RowCount):
            passed = rule.min <= total and (rule.max is None or total <= rule.max)
            return RuleOutcome(passed, describe_row_count(rule, total), total)
        columns = [self._find(path) for path in rule.paths]
        if not total:
            return RuleOutcome(True, "there are no rows to check")
        if isinstance(rule, Query):
            return _describe(rule, run_query(self._rows, rule.over, rule.query), total)
        if isinstance(rule, Unique):
            return _describe(rule, find_repeated_values(self._rows, rule.over, columns), total)
        return None

    def _test(self, rule: Rule) -> ColumnTest:
        """Return the test of a rule about one column.

        Raises:
            ValueError: the column has another type than the values of the rule.
        """
        (path,) = rule.paths
        column, name = self._find(path), rule.check_name
        if isinstance(rule, NotNull):
            return ColumnTest(name, column, refuses_null=True)
        kind = find_kind(self._table, column)
        if isinstance(rule, AcceptedValues):
            return ColumnTest(name, column, accepted=[as_text(v, kind) for v in rule.values])
        assert isinstance(rule, Range)
        least, most = (
            None if bound is None else as_text(bound, kind) for bound in (rule.min, rule.max)
        )
        return ColumnTest(name, column, least=least, most=most)

    def _find(self, path: Sequence[str]) -> list[str]:
        """Return the path of a column of the table.

        Raises:
            ValueError: the table does not have it.
        """
        names = column_path(self._columns, path)
        if names is None or names[0] not in self._table.schema.names:
            raise ValueError(f"the table has no column {'.'.join(path)!r}")
        return names


def _describe(rule: Rule, failures: Failures, total: int) -> RuleOutcome:
    passed = not failures.count and failures.error is None
    text = describe_failures(rule, failures.count, total, failures.error)
    return RuleOutcome(passed, text, total, failures.count, failures.examples)
