"""Rows whose columns are not just those of the schema: rounded, too long, strict, unread, renamed."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from elt_assets.lake.columns.from_json_schema import columns, kind_of
from elt_assets.lake.columns.logical_types import Column, Scalar, Struct, Unread
from elt_assets.lake.columns.metadata_columns import table_schema
from elt_assets.lake.worker.columns import MAX_BYTES as MAX_VALUE_BYTES
from tests.lake.conforming import STAMP, Conformer, change_triples, changed, changes
from tests.lake.staging import (
    BIG_NUMBER,
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    NUMBER,
    STRING,
    TIMESTAMP,
    array,
    struct,
)


@pytest.mark.spec("protocol.62")
def test_a_version_1_number_may_be_nan(conformer: Conformer) -> None:
    [row] = conformer.rows(
        {"n": {"$ref": "WellKnownTypes.json#/definitions/Number"}}, [{"n": "NaN"}]
    )
    assert math.isnan(row["n"]) and changes(row) == []


ROUNDED = [
    ("0.1234567891", "0.123456789"),
    ("0.1234567895", "0.123456790"),
    ("1e-10", "0E-9"),
    ("1.5e-9", "0.000000002"),
    ('"12345678901234567890.0000000001"', "12345678901234567890"),
]
EXACT = ["0.1234567890000", "1.5", "1.5e-8", "1e3", '"1.5"', "12345678901234567890123456789.5"]


def test_a_decimal_that_is_rounded_is_recorded(conformer: Conformer) -> None:
    lines = [f'{{"n": {text}}}'.encode() for text in [*(sent for sent, _ in ROUNDED), *EXACT]]
    found = conformer.rows({"n": BIG_NUMBER}, lines)
    assert [row["n"] for row in found[: len(ROUNDED)]] == [Decimal(n) for _, n in ROUNDED]
    cut = [("n", "TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION")]
    assert [change_triples(row) for row in found] == [cut] * len(ROUNDED) + [[]] * len(EXACT)
    assert [row["n"] for row in found[len(ROUNDED) :]] == [Decimal(n.strip('"')) for n in EXACT]


def test_a_number_that_is_rounded_in_an_object_or_array_is_recorded(conformer: Conformer) -> None:
    properties = {"s": struct(n=BIG_NUMBER, m=NUMBER), "l": array(BIG_NUMBER)}
    long, misfit = "1.2345678901", '"x"'  # a misfit beside it: the line is not decoded at once
    objects = [f'"n": {long}', f'"n": {long}, "m": {misfit}', '"m": 0.12345678901234567890']
    lines = [f'{{"s": {{{fields}}}}}'.encode() for fields in objects]
    lines += [f'{{"l": [1.5, {long}]}}'.encode(), f'{{"l": [{misfit}, {long}]}}'.encode()]
    rows = conformer.rows(properties, lines)
    rounded = ("TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION")
    nulled = ("NULLED", "DESTINATION_TYPECAST_ERROR")
    assert [change_triples(row) for row in rows] == [
        [("s.n", *rounded)],
        [("s.n", *rounded), ("s.m", *nulled)],
        [("s.m", *rounded)],
        [("l", *rounded)],
        [("l", *nulled), ("l", *rounded)],
    ]
    expected = Decimal("1.234567890")
    assert [row["s"] and row["s"]["n"] for row in rows] == [expected, expected, None, None, None]
    assert [row["l"] for row in rows[3:]] == [[Decimal("1.5"), expected], [None, expected]]


def test_a_value_that_is_too_long_becomes_null_and_is_recorded(conformer: Conformer) -> None:
    properties = {"text": STRING, "any": {}, "bytes": BINARY, "s": struct(text=STRING)}
    long, longest = "ä" * (MAX_VALUE_BYTES // 2 + 1), "A" * MAX_VALUE_BYTES
    data = [
        {"text": long},
        {"text": longest},
        {"any": [longest]},
        {"bytes": longest + "AAAA" * 2**21},
    ]
    first, second, third, fourth = conformer.rows(properties, [*data[:3], {"bytes": 2 * longest}])
    size = "DESTINATION_FIELD_SIZE_LIMITATION"
    assert (first["text"], change_triples(first)) == (None, [("text", "NULLED", size)])
    assert (len(second["text"]), change_triples(second)) == (MAX_VALUE_BYTES, [])
    assert (third["any"], change_triples(third)) == (None, [("any", "NULLED", size)])
    assert (fourth["bytes"], change_triples(fourth)) == (None, [("bytes", "NULLED", size)])


STRICT = {"age": INTEGER, "at": TIMESTAMP, "s": struct(n=NUMBER), "l": array(BOOLEAN), "free": DATE}


def test_a_strict_column_rejects_values_that_do_not_fit(conformer: Conformer) -> None:
    good: list[Any] = [
        {"age": 5.0, "s": {"n": 1}, "l": [True, None]},
        {"at": "2024-01-02T03:04:05Z", "free": "x"},
    ]
    bad = [
        ({"age": "x"}, "field 'age' does not fit its column's type, bigint"),
        ({"at": "x"}, "field 'at' does not fit its column's type, timestamp"),
        ({"s": {"n": "x"}}, "field 's' does not fit its column's type, struct<n:double>"),
        ({"l": [1]}, "field 'l' does not fit its column's type, array<boolean>"),
    ]
    strict = ["age", "at", "s", "l"]
    data = [*good, *(record for record, _ in bad), b"5"]
    kept, nulled = conformer.rows(STRICT, data, strict=strict)
    assert kept["age"] == 5 and changes(kept) == []
    assert changed(nulled) == ["free"]
    reasons = Counter(reason for _, reason in conformer.rejects(STRICT, data, strict=strict))
    assert reasons == Counter(["not a readable JSON object", *(reason for _, reason in bad)])


def test_rows_of_a_partition_have_its_key(conformer: Conformer) -> None:
    [row] = conformer.rows({"n": INTEGER}, [{"n": 1}], partition="2024-01-02")
    expected = table_schema(columns({"properties": {"n": INTEGER}}), partitioned=True)
    assert list(row) == expected.names
    assert row["_elt_partition"] == "2024-01-02"


def test_a_column_that_no_field_fills_is_null(conformer: Conformer) -> None:
    gone = Unread(kind_to_type(INTEGER))
    inner = Struct((Column("a", "a", Scalar.INTEGER), Column("b", "b", gone)))
    found = [
        Column("o", "o", inner),
        Column("gone", "gone", gone),
        Column("n", "n", Scalar.INTEGER),
    ]
    [row] = conformer.rows(found, [{"o": {"a": 1, "b": 2}, "gone": 3, "n": 4}])
    assert (row["o"], row["gone"], row["n"]) == ({"a": 1, "b": None}, None, 4)
    assert changes(row) == []


def test_large_integers_in_a_column_of_doubles_are_recorded_as_rounded(
    conformer: Conformer,
) -> None:
    found = [Column("n", "n", Scalar.INTEGER_IN_DOUBLE)]
    data = [{"n": 2**53}, {"n": 2**53 + 2}, {"n": 2**53 + 1}, {"n": "x"}]
    small, exact, rounded, odd = conformer.rows(found, data)
    assert (small["n"], change_triples(small)) == (2.0**53, [])
    assert (exact["n"], change_triples(exact)) == (2.0**53 + 2, [])
    assert change_triples(rounded) == [("n", "TRUNCATED", "DESTINATION_FIELD_SIZE_LIMITATION")]
    assert odd["n"] is None and changed(odd) == ["n"]


def test_reserved_and_colliding_names_are_read(conformer: Conformer) -> None:
    names = ["id", "ID", "a b", "a-b", "_airbyte_raw_id", "_airbyte_meta", "../../etc", "n" * 300]
    [row] = conformer.rows(dict.fromkeys(names, INTEGER), [{n: i for i, n in enumerate(names)}])
    found = {column.source: column.name for column in columns({"properties": dict.fromkeys(names)})}
    assert [row[found[name]] for name in names] == list(range(len(names)))
    assert row["_airbyte_meta"]["sync_id"] == STAMP.sync_id


@pytest.mark.parametrize("bad", [b"\\ud83d", b"\xff", b"\\uDE00"])
def test_a_name_that_is_no_text_is_that_of_the_schema(conformer: Conformer, bad: bytes) -> None:
    """A catalog has U+FFFD in the place of what is not a character. So the values of the field are found."""
    properties = {"a\ufffd": STRING, "s": struct(**{"\ufffd": INTEGER})}
    record = b'{"a%b": "b%b", "s": {"%b": 5}}' % (bad, bad, bad)
    [row] = conformer.rows(properties, [record])
    assert (row["a_"], row["s"]) == ("b\ufffd", {"_": 5})
    assert change_triples(row) == [("a\ufffd", "TRUNCATED", "DESTINATION_SERIALIZATION_ERROR")]


def kind_to_type(schema: Any) -> Any:
    return Column("x", "x", kind_of(schema)).type
