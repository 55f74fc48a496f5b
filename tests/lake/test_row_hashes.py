"""Hashes of a table's rows by ranges of their key, as a source has them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elt_assets.lake.worker.row_hashes import HashJob, Listing, make_listing, make_sums
from tests.connectors.row_hashes import hash_row, order

UTC = dt.timezone.utc
KINDS = {
    "id": "int64",
    "name": "string",
    "day": "date32",
    "at": "timestamp[us, tz=UTC]",
    "price": "decimal128(12, 2)",
    "paid": "bool",
    "weight": "double",
    "data": "binary",
}
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "price": pa.decimal128(38, 9),
        "paid": pa.bool_(),
        "weight": pa.float64(),
        "data": pa.binary(),
    }
)
DATES = st.dates(dt.date(1600, 1, 1), dt.date(2900, 1, 1))
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "id": st.integers(-9, 9) | st.integers(-(2**63), 2**63 - 1),
    "name": st.text(st.characters(codec="utf-8"), max_size=3),
    "day": DATES,
    "at": st.datetimes(timezones=st.just(UTC)),
    "price": st.decimals(-(10**9), 10**9, places=2),
    "paid": st.booleans(),
    "weight": st.floats(allow_nan=False),
    "data": st.binary(max_size=3),
}
KEYS = st.sampled_from([["id"], ["name"], ["day"], ["at", "id"], ["name", "paid", "price"]])
MANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[dict[str, Any]]], list[list[Any]]]:
    """A key, the rows of some files, and the ends of ranges."""
    key = draw(KEYS)
    row = st.fixed_dictionaries(
        {name: values if name in key else st.none() | values for name, values in VALUES.items()}
    )
    files = draw(st.lists(st.lists(row, max_size=6), min_size=1, max_size=3))
    more = draw(st.lists(st.tuples(*(VALUES[name] for name in key)), max_size=3))
    present = [tuple(row[name] for name in key) for file in files for row in file]
    ends = {tuple(order(end)): list(end) for end in [*more, *present[::2]]}
    return key, files, [ends[place] for place in sorted(ends)]


def write(
    folder: Path,
    files: Sequence[Sequence[Mapping[str, Any]]],
    key: Sequence[str],
    untils: Sequence[Sequence[Any]] = (),
    values: Mapping[str, str | None] | None = None,
    **more: Any,
) -> HashJob:
    """Write rows to files, and return the job of them."""
    groups = []
    for number, rows in enumerate(files):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], SCHEMA), path)
        groups.append([(str(path), values or {})])
    columns = [name for name in KINDS if name not in key]
    kinds = [[(name, KINDS[name]) for name in names] for names in (key, columns)]
    return HashJob(pafs.LocalFileSystem(), groups, SCHEMA, kinds[0], kinds[1], untils, **more)


def hash_of(row: Mapping[str, Any], key: Sequence[str]) -> int:
    names = [*key, *(name for name in KINDS if name not in key)]
    return hash_row([row[name] for name in names], [KINDS[name] for name in names])


def add_up(job: HashJob) -> dict[int, tuple[int, int]]:
    sums: dict[int, tuple[int, int]] = {}
    for number in range(len(job.groups)):
        for part, rows, hashes in make_sums(job)(number):
            before = sums.get(part, (0, 0))
            sums[part] = (before[0] + rows, (before[1] + hashes) % 2**64)
    return sums


@MANY
@given(tables())
def test_sums_are_those_of_a_model(
    tmp_path: Path, table: tuple[list[str], list[list[dict[str, Any]]], list[list[Any]]]
) -> None:
    key, files, untils = table
    job = write(tmp_path, files, key, untils)
    expected: dict[int, tuple[int, int]] = {}
    listed = []
    for row in (row for file in files for row in file):
        own = order([row[name] for name in key])
        part = sum(order(until) < own for until in untils)
        before = expected.get(part, (0, 0))
        hashed = hash_of(row, key)
        expected[part] = (before[0] + 1, (before[1] + hashed) % 2**64)
        if part == 1:
            listed.append(([row[name] for name in key], hashed))
    assert add_up(job) == expected
    pairs = [
        (key, hashed)
        for number in range(len(job.groups))
        for key, hashed, *_ in make_listing(job, Listing([1]))(number)
    ]
    assert sorted(pairs, key=lambda pair: pair[1]) == sorted(listed, key=lambda pair: pair[1])


ROW: dict[str, Any] = {
    "id": 1,
    "name": "a",
    "day": dt.date(2026, 1, 1),
    "at": dt.datetime(2026, 1, 1, tzinfo=UTC),
    "price": Decimal("1.50"),
    "paid": None,
    "weight": 0.5,
    "data": b"",
}


def test_a_number_that_the_source_cannot_have_is_not_that_of_a_null(tmp_path: Path) -> None:
    damaged = {**ROW, "price": Decimal("1.505")}
    job = write(tmp_path, [[damaged, ROW, {**ROW, "price": None}]], ["id"])
    hashes = [hashed for _, hashed, *_ in make_listing(job, Listing([0]))(0)]
    assert hashes[1:] == [hash_of(ROW, ["id"]), hash_of({**ROW, "price": None}, ["id"])]
    assert hashes[0] not in hashes[1:]


def test_rows_have_the_partition_that_readers_see(tmp_path: Path) -> None:
    job = write(tmp_path, [[ROW]], ["id"], values={"day": "2026-01-02", "region": "eu"})
    moved = {**ROW, "day": dt.date(2026, 1, 2)}
    assert add_up(job) == {0: (1, hash_of(moved, ["id"]))}


def test_an_empty_text_of_a_partition_column_is_what_its_null_stands_for(tmp_path: Path) -> None:
    job = write(tmp_path, [[{**ROW, "name": None}]], ["id"])
    ((_, own, other, *_),) = make_listing(job, Listing([0], emptied=frozenset({"name"})))(0)
    assert {own, other} == {hash_of({**ROW, "name": text}, ["id"]) for text in (None, "")}


def test_rows_do_not_count_that_the_source_does_not_count(tmp_path: Path) -> None:
    rows = [{**ROW, "id": n, "weight": w} for n, w in enumerate([1.0, 2.0, None, 3.0])]
    job = write(tmp_path, [rows], ["id"], left_out=[("weight", "equal", 2.0)])
    assert add_up(job)[0][0] == 3
    both = [("weight", "equal", 2.0), ("weight", "greater", 2.0)]
    assert add_up(write(tmp_path, [rows], ["id"], left_out=both))[0][0] == 2
    assert add_up(write(tmp_path, [rows], ["id"], current="paid")) == {}


def test_a_row_that_is_newer_than_any_can_be_has_another_hash(tmp_path: Path) -> None:
    job = write(tmp_path, [[ROW]], ["id"], ceiling=("weight", 0.5))
    assert add_up(job) == {0: (1, hash_of(ROW, ["id"]))}
    job = write(tmp_path, [[ROW]], ["id"], ceiling=("weight", 0.4))
    assert add_up(job) != {0: (1, hash_of(ROW, ["id"]))}
