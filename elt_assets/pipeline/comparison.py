"""The comparison of a stream's table with its source, range by range of the key, for `elt verify` and checks.

`orchestration.verifying` runs it, and has what it finds corrected (`correction`).

Sums are compared first: those of the source, of one snapshot in its database, with those of the table, of one
version. Of ranges that differ, the keys of both sides are compared, and `judgement` says of each what it
means. So a table that has what the source has costs one pass on each side, and no row is moved.

There is no false alarm while the source changes:

- The table is opened before the source is asked, so each of its rows is older than the position that the
  source says.
- What is found then, of a stream with a log, may be a change that the table does not have yet. So the stream
  is synced, which brings the table to a later position than that of the source's keys, and the same keys are
  looked at again. Rows that are newer are excused. If the sync may not run, or fails, the keys are not
  decided.
- Excused rows are compared with the source once more. Those that are newer than it can be are damaged.

Test: `tests/cli/test_verify_log.py::test_no_false_alarm_while_the_source_changes`
"""

from __future__ import annotations

import copy
import json
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Raw

from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.lake.read.row_hashes import (
    HashedRows,
    KeyValues,
    RowText,
    StoredRow,
    list_some_keys,
)
from elt_assets.lake.session import SparkProvider
from elt_assets.lake.write.companions import StreamTables
from elt_assets.pipeline.compared_columns import (
    find_compared_columns,
    find_stored_column,
    find_unfit,
    refuse_incomparable,
    refuse_unready,
)
from elt_assets.pipeline.differing_columns import name_columns
from elt_assets.pipeline.judgement import (
    DIFFERENCES,
    Moment,
    SourceRow,
    Verdict,
    judge,
    normalize,
    order_key,
    parse_value,
    wins_by_cursor,
    write_value,
)
from elt_assets.pipeline.sampled_ranges import choose_ranges, make_ranges
from elt_assets.pipeline.stream import ConnectionStream
from elt_assets.protocol.catalog import INCREMENTAL, ConfiguredCatalog, ConfiguredStream
from elt_assets.protocol.messages import COMPARE, Comparison, KeyRange, State
from elt_assets.runner.connector import Connector

ROWS_OF_A_RANGE = 1_000
MAX_KEYS = 20
"""Maximum number of keys that an answer shows."""
_RANGES_AT_ONCE = 1_000
"""Ranges whose keys are in memory at the same time."""
OpenTables = Callable[[], StreamTables]
"""Opens the tables of a stream at their newest version."""


@dataclass(frozen=True)
class ComparisonOptions:
    """What is compared. `columns`: names of fields; none for the keys alone, None for all that can be."""

    columns: Sequence[str] | None = None
    settled: float = 0  # rows whose cursor is a time within so many seconds are left out
    sample: float = 1  # the share of the rows that is looked at
    # Whether it is said of the first keys that are different in which columns: by more questions.
    names_columns: bool = True


@dataclass(frozen=True)
class JudgedKey:
    """A key whose rows are not the same in the source and in the table."""

    key: KeyValues
    verdict: Verdict
    # A row of the table, or a deleted one, is newer by its cursor than the row of the source.
    wins: bool = False
    is_in_history: bool = False  # only the history has it differently
    columns: Sequence[
        str
    ] = ()  # the fields whose values differ, of the first keys that are different


@dataclass
class Findings:
    """What a comparison has found."""

    comparison: Comparison
    left_out: Mapping[str, str] = field(
        default_factory=dict
    )  # fields that are not compared, and why
    version: int = -1  # of the table
    rows: int = 0  # of the source
    stored_rows: int = 0  # of the table, without those that have stayed after their delete
    ranges: int = 0
    ranges_listed: int = 0  # whose keys were compared
    differences: list[JudgedKey] = field(default_factory=list)
    excused: Counter[Verdict] = field(default_factory=Counter)
    undecided: int = 0
    why_undecided: str | None = None

    def keep_only(self, verdict: Verdict) -> None:
        """Forget the differences of other kinds."""
        self.differences = [key for key in self.differences if key.verdict is verdict]

    @property
    def counts(self) -> dict[str, int]:
        """The number of differences of each kind."""
        counts = Counter(difference.verdict for difference in self.differences)
        return {verdict.value: counts[verdict] for verdict in DIFFERENCES}


class SourceSide:
    """What the source says of a stream, each time in a process of its own."""

    def __init__(
        self,
        connector: Connector,
        stream: ConfiguredStream,
        state: str | None,
        options: ComparisonOptions,
    ):
        self._connector = connector
        self._stream = stream
        self._states = [] if state is None else [State.from_json(state)]
        self._options = options

    def ask(
        self, fields: Sequence[str], ranges: Sequence[KeyRange] | None = None
    ) -> tuple[Comparison, Generator[KeyRange, None, None]]:
        """Return what a source says of a stream, and its ranges; they end the process.

        Args:
            ranges: those whose keys are asked for; None for the sums of all.
        """
        request: dict[str, Any] = {"columns": list(fields), "rows": ROWS_OF_A_RANGE}
        if self._options.settled:
            request["settled"] = self._options.settled
        if ranges is not None:
            request["ranges"] = [{"after": r.after, "until": r.until} for r in ranges]
        stream = copy.copy(self._stream)
        stream.extra = {**stream.extra, COMPARE: Raw(msgspec.json.encode(request))}
        answers = self._connector.compare(ConfiguredCatalog(streams=[stream]), self._states)
        first = next(answers, None)
        if not isinstance(first, Comparison):
            answers.close()
            raise SystemFailure(
                f"the source did not say how it compares stream {str(self._stream.id)!r}",
                guidance="report it to the maintainer of the connector",
            )
        return first, _list_ranges(answers)


def _list_ranges(
    answers: Generator[Comparison | KeyRange, None, None],
) -> Generator[KeyRange, None, None]:
    with closing(answers):
        yield from (answer for answer in answers if isinstance(answer, KeyRange))


def compare(
    asset: ConnectionStream,
    open_tables: OpenTables,
    connector: Connector,
    spark: SparkProvider,
    options: ComparisonOptions,
    sync: Callable[[], None] | None = None,
) -> Findings:
    """Compare the table of a stream with its source.

    Args:
        sync: syncs the stream; None if it may not be synced.

    Raises:
        ConfigError: the stream cannot be compared; or a key is not unique in the source.
        EltError: the source cannot be read.
    """
    refuse_incomparable(asset)
    tables = open_tables()
    refuse_unready(asset, tables)
    return _Run(asset, open_tables, connector, spark, options, tables).execute(sync)


class _Run:
    """One comparison."""

    def __init__(
        self,
        asset: ConnectionStream,
        open_tables: OpenTables,
        connector: Connector,
        spark: SparkProvider,
        options: ComparisonOptions,
        tables: StreamTables,
    ):
        self._asset, self._open_tables, self._spark = asset, open_tables, spark
        self._tables, self._options = tables, options
        self._columns = find_compared_columns(asset, tables.main, options.columns)
        is_incremental = asset.stream.sync_mode == INCREMENTAL
        state = tables.metadata.state if is_incremental else None
        requested = asset.make_requested_stream()
        self._source = SourceSide(connector, requested, state, options)
        self._ranges: list[KeyRange] = []
        self._untils: list[KeyValues] = []

    def execute(self, sync: Callable[[], None] | None) -> Findings:
        is_sample = self._options.sample < 1
        if is_sample:
            self._ranges = self._make_ranges()
        comparison, ranges = self._ask_for_sums(self._ranges[:1] if is_sample else None)
        self._ranges = self._ranges or ranges
        self._untils = _read_untils(self._asset, self._ranges)
        findings = Findings(
            comparison,
            left_out={**self._columns.left_out, **comparison.left_out},
            version=self._tables.main.version,
            rows=sum(part.rows for part in self._ranges),
            stored_rows=self._tables.main.records,
            ranges=len(self._ranges),
        )
        if is_sample:
            differing = choose_ranges(len(self._ranges), self._options.sample, random.Random())
        else:
            differing = self._find_differing(comparison, findings)
        findings.ranges_listed = len(differing)
        for start in range(0, len(differing), _RANGES_AT_ONCE):
            self._judge_ranges(findings, differing[start : start + _RANGES_AT_ONCE], sync)
        if self._options.names_columns:
            self._name_columns(findings)
        return findings

    def _make_ranges(self) -> list[KeyRange]:
        """Return ranges of the table's key."""
        names = [self._columns.key[part[0]] for part in self._asset.stream.key]
        keys = list_some_keys(self._spark, self._tables.main, names, ROWS_OF_A_RANGE)
        return make_ranges(self._asset.stream.id, (tuple(map(normalize, key)) for key in keys))

    def _ask_for_sums(
        self, only: Sequence[KeyRange] | None = None
    ) -> tuple[Comparison, list[KeyRange]]:
        """Return the sums of the source, over columns that have the same values in the table.

        Args:
            only: ranges; None for all.
        """
        comparison, ranges = self._source.ask(list(self._columns.others), only)
        unfit = find_unfit(self._asset, self._tables.main, self._columns, comparison)
        if unfit:
            ranges.close()
            self._columns = self._columns.leave_out(unfit)
            comparison, ranges = self._source.ask(list(self._columns.others), only)
        return comparison, list(ranges)

    def _find_differing(self, comparison: Comparison, findings: Findings) -> list[int]:
        """Return the numbers of the ranges whose sums are not those of the table, or of its history."""
        expected = [(part.rows, int(part.hash)) for part in self._ranges]
        differing: set[int] = set()
        for side in self._open_sides(comparison):
            sums = side.add_up(self._untils)
            if side.keeps_deleted:
                findings.stored_rows = sum(rows for rows, _ in sums.values())
            differing |= {
                number for number, own in enumerate(expected) if sums.get(number, (0, 0)) != own
            }
        return sorted(differing)

    def _open_sides(self, comparison: Comparison) -> list[HashedRows]:
        """Return the present rows of the table, and of its history if that follows it."""
        text, tables = self._make_text(comparison), self._tables
        sides = [HashedRows(self._spark, tables.main, text)]
        if tables.history is not None and tables.is_history_current:
            sides.append(HashedRows(self._spark, tables.history, text, is_history=True))
        return sides

    def _make_text(self, comparison: Comparison) -> RowText:
        moment, names = _read_moment(comparison), {**self._columns.key, **self._columns.others}
        types = zip(comparison.key, comparison.key_types, strict=True)
        functions = [
            *(["equal"] if moment.is_open else []),
            *(["greater"] if self._options.settled else []),
        ]
        return RowText(
            [(names[name], kind) for name, kind in types],
            [(names[column.name], column.type) for column in comparison.columns],
            self._find_cursor(comparison),
            functions if moment.until is not None else (),
            moment.until,
            moment.greatest,
        )

    def _find_cursor(self, comparison: Comparison) -> str | None:
        """Return the column of the cursor; None if the table does not have it.

        Raises:
            ConfigError: the table does not have that of the log.
        """
        if comparison.cursor is None:
            return None
        column, table = find_stored_column(self._asset, comparison.cursor), self._tables.main
        if column in table.schema.names:
            return column
        if comparison.position is not None:
            raise ConfigError(
                f"{self._asset.name} cannot be compared with its source: its table does not have the column "
                f"{comparison.cursor!r} of the log",
                guidance="discover the source again (`elt discover`), and refresh the stream",
            )
        return None

    def _judge_ranges(
        self, findings: Findings, numbers: Sequence[int], sync: Callable[[], None] | None
    ) -> None:
        """Compare the keys of some ranges, and add what is found."""
        comparison, source = self._ask_for_keys(numbers)
        moment = _read_moment(comparison)
        if self._options.sample < 1:
            findings.rows += len(source)
        # The table was opened before the source was asked, so no row of it is newer.
        at_first = replace(moment, ceiling=moment.greatest)
        judged = self._judge_keys(source, comparison, numbers, at_first)
        differences = sum(key.verdict in DIFFERENCES for key in judged.values())
        if moment.position is not None and differences:
            problem = self._bring_up_to_date(sync)
            if problem is not None:
                findings.undecided += differences
                findings.why_undecided = problem
                return
            judged = self._judge_keys(source, comparison, numbers, moment)
            judged = self._look_again(judged, numbers, moment)
            findings.version = self._tables.main.version
        for key in judged.values():
            if key.verdict in DIFFERENCES:
                findings.differences.append(key)
            else:
                findings.excused[key.verdict] += 1

    def _name_columns(self, findings: Findings) -> None:
        """Say of the keys that an answer shows in which columns their rows differ."""
        first_keys = findings.differences[:MAX_KEYS]
        keys = {key.key for key in first_keys if key.verdict is Verdict.DIFFERENT}
        if not keys:
            return
        ends = list(map(order_key, self._untils))
        numbers = sorted({bisect_left(ends, order_key(key)) for key in keys})
        columns = name_columns(
            keys, list(self._columns.others), partial(self._find_differing_keys, numbers)
        )
        findings.differences[: len(first_keys)] = [
            replace(key, columns=columns.get(key.key, ())) for key in first_keys
        ]

    def _find_differing_keys(self, numbers: Sequence[int], names: Sequence[str]) -> set[KeyValues]:
        """Return the keys of some ranges whose row in the table has other values in some columns."""
        comparison, source = self._ask_for_keys(numbers, names)
        differing = set[KeyValues]()
        for side in self._open_sides(comparison):
            for key, rows in side.list_rows(self._untils, numbers).items():
                row = source.get(tuple(map(normalize, key)))
                present = [other for other in rows if not other.is_deleted]
                if row is not None and len(present) == 1 and row.hash not in present[0].hashes:
                    differing.add(tuple(map(normalize, key)))
        return differing

    def _bring_up_to_date(self, sync: Callable[[], None] | None) -> str | None:
        """Sync the stream, and open its tables again; return why that is not possible."""
        if sync is None:
            return "the table may be behind the log, and no sync was allowed"
        try:
            sync()
        except EltError as error:
            return f"the table may be behind the log, and the sync failed: {error.message}"
        self._tables = self._open_tables()
        return None

    def _ask_for_keys(
        self, numbers: Sequence[int], names: Sequence[str] | None = None
    ) -> tuple[Comparison, dict[KeyValues, SourceRow]]:
        """Return the source's rows of some ranges, by their keys. `names`: the fields; None for all."""
        asked = [self._ranges[number] for number in numbers]
        fields = list(self._columns.others) if names is None else names
        comparison, answers = self._source.ask(fields, asked)
        rows: dict[KeyValues, SourceRow] = {}
        repeated: dict[KeyValues, None] = {}
        for answer in answers:
            for key, text, cursor in _decode(answer.keys) or ():
                values = tuple(map(parse_value, key))
                if values in rows:
                    repeated[values] = None
                rows[values] = SourceRow(int(text), parse_value(cursor))
        if repeated:
            self._refuse_repeated(list(repeated))
        return comparison, rows

    def _refuse_repeated(self, keys: Sequence[KeyValues]) -> None:
        names = ", ".join(self._columns.key)
        examples = "; ".join(json.dumps([write_value(v) for v in key]) for key in keys[:3])
        raise ConfigError(
            f"{self._asset.name}: the key {names} is not unique in the source: {len(keys):,} of its values "
            f"are in several rows, such as {examples}",
            guidance="write columns that tell the rows apart as `primary_key`; or correct the source",
        )

    def _judge_keys(
        self,
        source: Mapping[KeyValues, SourceRow],
        comparison: Comparison,
        numbers: Sequence[int],
        moment: Moment,
    ) -> dict[KeyValues, JudgedKey]:
        """Return the keys of some ranges that are not equal, by a difference before what is excused."""
        judged: dict[KeyValues, JudgedKey] = {}
        deleted: dict[KeyValues, list[StoredRow]] = {}
        for side in self._open_sides(comparison):
            stored = {
                tuple(map(normalize, key)): rows
                for key, rows in side.list_rows(self._untils, numbers).items()
            }
            if not side.is_history:
                deleted = {k: [r for r in rows if r.is_deleted] for k, rows in stored.items()}
            for key in {**source, **stored}:
                rows = stored.get(key, [])
                if side.is_history:
                    rows = [*rows, *deleted.get(key, ())]
                row = source.get(key)
                verdict = judge(row, rows, moment)
                before = judged.get(key)
                wins = wins_by_cursor(row, rows, moment)
                if before and before.verdict in DIFFERENCES:
                    # The history may have a newer row than the table, which would stay current.
                    is_newer = before.wins or (verdict in DIFFERENCES and wins)
                    judged[key] = replace(before, wins=is_newer)
                    continue
                if verdict is Verdict.EQUAL:
                    continue
                judged[key] = JudgedKey(key, verdict, wins, side.is_history)
        return judged

    def _look_again(
        self, judged: dict[KeyValues, JudgedKey], numbers: Sequence[int], moment: Moment
    ) -> dict[KeyValues, JudgedKey]:
        """Compare the keys that have changed meanwhile once more: with a source that is asked after the table
        was opened, so that a row that is newer still is damaged."""
        newer = [key for key, value in judged.items() if value.verdict is Verdict.CHANGED]
        if not newer:
            return judged
        comparison, source = self._ask_for_keys(numbers)
        later = replace(moment, ceiling=_read_moment(comparison).greatest)
        again = self._judge_keys(source, comparison, numbers, later)
        unchanged = {key: value for key, value in judged.items() if key not in set(newer)}
        return {**unchanged, **{key: again[key] for key in newer if key in again}}


def _decode(raw: Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


def _read_moment(comparison: Comparison) -> Moment:
    position, until = (parse_value(_decode(raw)) for raw in (comparison.position, comparison.until))
    return Moment(position, None, until, bool(comparison.is_open))


def _read_untils(asset: ConnectionStream, ranges: Sequence[KeyRange]) -> list[KeyValues]:
    """Return the keys with which ranges end, but for the last one.

    Raises:
        SystemFailure: the ranges have gaps, or are not in the order of keys.
    """
    is_whole = bool(ranges) and ranges[0].after is None and ranges[-1].until is None
    bounds = [(_decode(part.after), _decode(part.until)) for part in ranges]
    if not is_whole or any(a[1] is None or a[1] != b[0] for a, b in pairwise(bounds)):
        raise SystemFailure(
            f"{asset.name}: the ranges of the source have gaps",
            guidance="report it to the maintainer of the connector",
        )
    untils = [tuple(map(parse_value, until)) for _, until in bounds[:-1]]
    if any(order_key(a) >= order_key(b) for a, b in pairwise(untils)):
        raise SystemFailure(
            f"{asset.name}: the source orders keys otherwise than by their values, or by the bytes of texts",
            guidance="report it to the maintainer of the connector: it has to order texts by their bytes",
        )
    return untils
