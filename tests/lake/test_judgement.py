"""What is said of a key that the source and the table have differently, while the source changes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.lake.read.row_hashes import KeyValues, StoredRow
from elt_assets.pipeline.differing_columns import name_columns
from elt_assets.pipeline.judgement import (
    DIFFERENCES,
    Moment,
    SourceRow,
    Verdict,
    is_greater,
    judge,
    parse_value,
    wins_by_cursor,
    write_value,
)
from elt_assets.pipeline.sampled_ranges import choose_ranges, make_ranges
from elt_assets.protocol.catalog import StreamId


@dataclass
class Source:
    """Rows and their changes: a log gives each a number, and a cursor is the number of the last change."""

    clock: int = 0
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)  # value and number, by key
    log: list[tuple[int, int, int | None]] = field(default_factory=list)  # number, key, value

    def change(self, key: int, value: int | None) -> None:
        self.clock += 1
        self.log.append((self.clock, key, value))
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = (value, self.clock)

    def ask(self) -> tuple[int, dict[int, SourceRow]]:
        return self.clock, {k: SourceRow(value, number) for k, (value, number) in self.rows.items()}


@dataclass
class Table:
    rows: dict[int, list[StoredRow]] = field(default_factory=dict)
    position: int = 0

    def sync(self, source: Source) -> None:
        for number, key, value in source.log:
            if number > self.position:
                present = self.rows.get(key, [])
                if any(row.cursor is not None and row.cursor > number for row in present):
                    continue
                gone = value is None
                hashes = frozenset({-1 if value is None else value})
                self.rows[key] = [StoredRow(hashes, number, False, gone)]
        self.position = source.clock

    def damage(self, random_: random.Random) -> int | None:
        """Damage a row, and return its key; None if there is none."""
        present = [k for k, rows in self.rows.items() if any(not r.is_deleted for r in rows)]
        if not present:
            return None
        key = random_.choice(present)
        row = self.rows[key][0]
        other = StoredRow(frozenset({-7}), row.cursor, False)
        newer = StoredRow(row.hashes, self.position + 10**6, False)
        self.rows[key] = random_.choice([[], [row, row], [other], [newer]])
        return key


def steps(source: Source, random_: random.Random, count: int) -> None:
    for _ in range(random_.randrange(count)):
        value = random_.choice([None, random_.randrange(5), random_.randrange(5)])
        source.change(random_.randrange(6), value)


@pytest.mark.parametrize("seeds", [range(300), pytest.param(range(20_000), marks=pytest.mark.long)])
def test_no_alarm_while_a_source_changes(seeds: range) -> None:
    """A table with a log: only damaged rows differ, and each is found, unless its row changes meanwhile."""
    detected = 0
    for seed in seeds:
        random_, source, table = random.Random(seed), Source(), Table()
        steps(source, random_, 20)
        table.sync(source)
        damaged = table.damage(random_) if seed % 2 else None
        began = source.clock
        steps(source, random_, 5)
        position, rows = source.ask()
        steps(source, random_, 5)
        table.sync(source)
        steps(source, random_, 3)
        later, again = source.ask()
        moment = Moment(position)
        differing = {}
        for key in {*rows, *table.rows}:
            verdict = judge(rows.get(key), table.rows.get(key, []), moment)
            if verdict is Verdict.CHANGED:
                second = Moment(position, ceiling=later)
                verdict = judge(again.get(key), table.rows.get(key, []), second)
            if verdict in DIFFERENCES:
                differing[key] = verdict
        assert set(differing) <= {damaged}, seed
        changed = {key for number, key, _ in source.log if number > began}
        if damaged is not None and damaged not in changed:
            assert damaged in differing, seed
            detected += 1
    assert detected


def test_rows_beyond_the_cursor_are_of_the_next_sync() -> None:
    old, new = StoredRow(frozenset({1}), 5, False), SourceRow(2, 9)
    assert judge(new, [old], Moment(until=5)) is Verdict.CHANGED
    assert judge(new, [], Moment(until=5)) is Verdict.CHANGED
    assert judge(new, [], Moment(until=9)) is Verdict.MISSING
    assert judge(new, [], Moment(until=9, is_open=True)) is Verdict.CHANGED
    assert judge(new, [], Moment(is_open=True)) is Verdict.CHANGED
    assert judge(SourceRow(2, None), [], Moment(is_open=True)) is Verdict.MISSING
    assert judge(None, [old], Moment(until=5)) is Verdict.SURPLUS
    assert judge(new, [old, old], Moment(until=5)) is Verdict.DIFFERENT
    assert judge(new, [StoredRow(frozenset({2}), 9, False)], Moment(until=5)) is Verdict.EQUAL


def test_a_row_with_a_changed_value_is_excused() -> None:
    nulled = StoredRow(frozenset({1}), None, True)
    assert judge(SourceRow(2), [nulled], Moment()) is Verdict.NULLED
    assert judge(None, [nulled], Moment()) is Verdict.SURPLUS
    assert judge(SourceRow(1), [nulled], Moment()) is Verdict.EQUAL


@pytest.mark.parametrize(
    ("cursor", "stored", "wins"),
    [(5, 5, False), (5, 6, True), (None, 1, True), (5, None, False), ("a", 1, True)],
)
def test_a_row_wins_that_is_newer_by_its_cursor(cursor: Any, stored: Any, wins: bool) -> None:
    row = StoredRow(frozenset({1}), stored, False)
    assert wins_by_cursor(SourceRow(2, cursor), [row], Moment()) is wins


def test_texts_are_ordered_by_their_bytes() -> None:
    assert is_greater("\U0001f600", "\uff61")
    assert is_greater("b", "a")


KEY_VALUES = (
    st.integers()
    | st.text()
    | st.booleans()
    | st.binary()
    | st.dates()
    | st.decimals(allow_nan=False, allow_infinity=False)
)


@given(KEY_VALUES)
def test_values_of_keys_come_back(value: Any) -> None:
    assert parse_value(write_value(value)) == value


@given(
    st.integers(0, 9),
    st.dictionaries(st.integers(1, 5), st.sets(st.integers(0, 8)), max_size=5),
)
def test_columns_that_differ_are_found_by_halves(count: int, rows: dict[int, set[int]]) -> None:
    """Only the columns of these keys are asked for, and no column twice as often as there are halves."""
    columns = [f"c{number}" for number in range(count)]
    expected = {(key,): [c for c in columns if int(c[1:]) in rows[key]] for key in rows}
    asked: list[list[str]] = []

    def find_differing(part: Sequence[str]) -> list[KeyValues]:
        asked.append(list(part))
        return [*(key for key, names in expected.items() if {*names} & {*part}), (99,)]

    assert name_columns(expected, columns, find_differing) == expected
    assert len(asked) <= max(2 * count, 1)


@given(
    st.sets(st.tuples(st.integers(-9, 9), st.text(st.characters(codec="utf-8"), max_size=2))),
    st.floats(0.01, 1),
    st.randoms(),
)
def test_ranges_that_are_chosen_have_no_gap(
    keys: set[tuple[int, str]], share: float, random_: random.Random
) -> None:
    ranges = make_ranges(StreamId("t"), keys)
    assert len(ranges) == len(keys) + 1
    assert (ranges[0].after, ranges[-1].until) == (None, None)
    assert [r.until for r in ranges[:-1]] == [r.after for r in ranges[1:]]
    numbers = choose_ranges(len(ranges), share, random_)
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= set(range(len(ranges)))
    assert abs(len(numbers) - share * len(ranges)) <= 1
