"""Rows of a table whose types widen."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from elt_assets.lake.schema.evolution import lossless, plan, rewrite
from elt_assets.lake.schema.from_json_schema import columns
from tests.lake.staging import (
    BIG_INTEGER,
    BIG_NUMBER,
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    NTZ,
    NUMBER,
    STRING,
    TIMESTAMP,
    array,
    struct,
)

JSON: dict[str, Any] = {}
AT = datetime(2024, 1, 2, 3, 4, 5, 678900, tzinfo=timezone.utc)
LOCAL = datetime(2024, 1, 2, 3, 4, 5)  # noqa: DTZ001 - a timestamp without zone
OBJECT = struct(**{"a b": INTEGER, "any": JSON, "at": TIMESTAMP})
CASES: list[tuple[Any, Any, Any, Any]] = [
    (INTEGER, BIG_INTEGER, 2**63 - 1, Decimal(2**63 - 1)),
    (INTEGER, NUMBER, 2**53, 2.0**53),
    (INTEGER, BIG_NUMBER, -5, Decimal(-5)),
    (BIG_INTEGER, BIG_NUMBER, Decimal(10**28), Decimal(10**28)),
    (DATE, NTZ, date(2024, 1, 2), datetime(2024, 1, 2)),  # noqa: DTZ001
    (DATE, TIMESTAMP, date(2024, 1, 2), datetime(2024, 1, 2, tzinfo=timezone.utc)),
    (NTZ, TIMESTAMP, LOCAL, LOCAL.replace(tzinfo=timezone.utc)),
    (INTEGER, STRING, 5, "5"),
    (NUMBER, STRING, 1.5, "1.5"),
    (BOOLEAN, STRING, True, "true"),
    (BIG_NUMBER, STRING, Decimal("1.5"), "1.500000000"),
    (DATE, STRING, date(2024, 1, 2), "2024-01-02"),
    (TIMESTAMP, STRING, AT, "2024-01-02T03:04:05.6789Z"),
    (NTZ, STRING, LOCAL, "2024-01-02T03:04:05"),
    (BINARY, STRING, b"abc" * 60, "YWJj" * 60),
    (STRING, JSON, 'say "x"', '"say \\"x\\""'),
    (INTEGER, JSON, 5, "5"),
    (NUMBER, JSON, 1.5, "1.5"),
    (DATE, JSON, date(2024, 1, 2), '"2024-01-02"'),
    (TIMESTAMP, JSON, AT, '"2024-01-02T03:04:05.678900Z"'),
    (BINARY, JSON, b"hi", '"aGk="'),
    (array(DATE), JSON, [date(2024, 1, 2), None], '["2024-01-02",null]'),
    (
        OBJECT,
        JSON,
        (5, '{"x":[1]}', AT),
        '{"a b":5,"any":{"x":[1]},"at":"2024-01-02T03:04:05.678900Z"}',
    ),
    (array(INTEGER), array(NUMBER), [1, None], [1.0, None]),
    (array(struct(a=INTEGER)), array(struct(b=DATE, a=STRING)), [(1,), None], [("1", None), None]),
    (struct(o=struct(l=array(DATE))), struct(o=struct(l=array(NTZ))), (None,), (None,)),
]
"""The table's type, the declared one, a value there, the value after."""


@pytest.fixture(scope="module")
def widened(spark: SparkSession) -> dict[str, Row]:
    """One table with a column for each of the above: its one row, and a row of nulls."""
    before = {f"c{number}": was for number, (was, *_) in enumerate(CASES)}
    after = {f"c{number}": now for number, (_, now, *_) in enumerate(CASES)}
    was = t.StructType([column.field for column in columns({"properties": before})])
    own = t.StructType([*was.fields, t.StructField("_airbyte_raw_id", t.StringType())])
    found = plan(was, columns({"properties": {**after, "new": INTEGER}}), "evolve")
    values = [value for _, _, value, _ in CASES]
    rows = spark.createDataFrame([(*values, "id"), (*[None] * len(values), "none")], own)
    made = rewrite(rows, found)
    # The driver would show instants in the machine's zone.
    shown = [
        f.col(n).cast("timestamp_ntz") if d == "timestamp" else f.col(n) for n, d in made.dtypes
    ]
    condition = lossless(found)
    assert condition is not None and rows.where(condition).count() == 2
    assert made.drop("_airbyte_raw_id").schema.simpleString() == found.schema.simpleString()
    aliased = [column.alias(name) for column, name in zip(shown, made.columns, strict=True)]
    return {row["_airbyte_raw_id"]: row for row in made.select(*aliased).collect()}


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_value_is_the_same_in_the_wider_type(widened: dict[str, Row], number: int) -> None:
    expected = CASES[number][3]
    if isinstance(expected, datetime):
        expected = expected.replace(tzinfo=None)
    assert widened["id"][f"c{number}"] == expected
    assert widened["none"][f"c{number}"] is None


def test_a_new_column_is_null_in_existing_rows(widened: dict[str, Row]) -> None:
    assert widened["id"]["new"] is None


@pytest.mark.parametrize(
    ("was", "now", "good", "bad"),
    [
        (INTEGER, NUMBER, 2**53 + 2, 2**53 + 1),
        (INTEGER, NUMBER, -(2**63), 2**63 - 1),
        (BIG_INTEGER, BIG_NUMBER, Decimal(10**28), Decimal(10**29)),
        (array(struct(n=INTEGER)), array(struct(n=NUMBER)), [(1,), None], [(1,), (2**53 + 1,)]),
        (struct(n=INTEGER, s=STRING), struct(n=NUMBER, s=STRING), (None, "x"), (2**53 + 1, "x")),
    ],
)
def test_a_value_that_a_widening_would_change_is_found(
    spark: SparkSession, was: Any, now: Any, good: Any, bad: Any
) -> None:
    [column] = columns({"properties": {"x": was}})
    found = plan(t.StructType([column.field]), columns({"properties": {"x": now}}), "evolve")
    condition = lossless(found)
    assert condition is not None
    schema = t.StructType([column.field, t.StructField("fits", t.BooleanType())])
    rows = spark.createDataFrame([(good, True), (bad, False), (None, True)], schema)
    assert rows.where(condition != f.col("fits")).count() == 0
    assert [one.path.startswith("x") for one in found.widened] == [True]


@pytest.mark.usefixtures("spark")
def test_a_lossless_widening_needs_no_check_of_values() -> None:
    was = t.StructType([c.field for c in columns({"properties": {"x": DATE, "l": array(INTEGER)}})])
    now = columns({"properties": {"x": STRING, "l": array(BIG_INTEGER)}})
    assert lossless(plan(was, now, "evolve")) is None


def test_a_column_widened_to_json_has_valid_json(widened: dict[str, Row]) -> None:
    for number, (_, now, _, expected) in enumerate(CASES):
        if now is JSON:
            assert json.loads(widened["id"][f"c{number}"]) == json.loads(expected)
