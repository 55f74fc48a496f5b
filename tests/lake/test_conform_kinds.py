"""Kinds of value beyond the plain ones: unions, times, version 1's numbers, what is too long or strict."""

from __future__ import annotations

import json
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from elt_assets.lake.schema.from_json_schema import columns, kind_of
from elt_assets.lake.schema.logical_types import Column, Scalar, Struct, Unread
from elt_assets.lake.schema.metadata_columns import table_schema
from elt_assets.lake.spark.types.columns import MAX_BYTES as MAX_VALUE_BYTES
from tests.lake.conforming import STAMP, Conformer, Row, change_triples, changed, changes
from tests.lake.staging import (
    BIG_INTEGER,
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


def v1(name: str) -> dict[str, str]:
    return {"$ref": f"WellKnownTypes.json#/definitions/{name}"}


TIME = {"type": "string", "format": "time"}
UNION = {"type": ["integer", "string", "object", "array"]}
PROPERTIES: dict[str, Any] = {
    "any": UNION,
    "object": {"type": "object"},
    "array": {"type": "array"},
    "anys": array(UNION),
    "s": struct(any={"oneOf": [INTEGER, STRING]}, n=INTEGER),
    "ss": array(struct(any=UNION, n=INTEGER)),
    "time": TIME,
    "zoned": {**TIME, "airbyte_type": "time_with_timezone"},
    "local": {**TIME, "airbyte_type": "time_without_timezone"},
    "v1n": v1("Number"),
    "v1i": v1("Integer"),
    "v1ns": array(v1("Number")),
    "v1t": v1("TimeWithTimezone"),
    "v1b": v1("BinaryData"),
    "big": BIG_INTEGER,
    "bigs": array(BIG_INTEGER),
    "ints": array(INTEGER),
    "bytes": BINARY,
    "bytess": array(BINARY),
    "deep": array(array(struct(l=array(INTEGER), d=DATE, odd=struct(**{"a.b'\"`\n": BOOLEAN})))),
}
ODD = "a.b'\"`\n"
KEPT: list[tuple[str, str, Any]] = [
    ("any", '"abc"', '"abc"'),
    ("any", "5", "5"),
    ("any", '"5"', '"5"'),
    ("any", "null", None),
    ("any", '"null"', '"null"'),
    ("any", "true", "true"),
    ("any", '"a\\"\\u0000\\n"', '"a\\"\\u0000\\n"'),
    ("any", '{"b": "x", "a": [1, null]}', '{"a":[1,null],"b":"x"}'),
    ("any", "12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
    ("any", "0.1234567890123456789", "0.1234567890123456789"),
    ("any", '"Infinity"', '"Infinity"'),
    ("any", '["Infinity", 5]', '["Infinity",5]'),
    ("any", "1e400", "1e+400"),
    ("any", "9" * 39, "9" * 39),
    ("any", '{"n": 1.50, "m": 1e3, "o": 5.0, "p": 1e-7}', '{"m":1000,"n":1.5,"o":5,"p":1e-7}'),
    ("object", '{"x": "1"}', '{"x":"1"}'),
    ("object", "{}", "{}"),
    ("array", "[]", "[]"),
    ("array", '["a", {"b": 1}]', '["a",{"b":1}]'),
    ("anys", '["a", 1, null, [2]]', ['"a"', "1", None, "[2]"]),
    ("s", '{"any": "7", "n": 5.0}', {"any": '"7"', "n": 5}),
    ("ss", '[{"any": 7, "n": 5.0}, null]', [{"any": "7", "n": 5}, None]),
    ("time", '"23:59:59"', "23:59:59"),
    ("time", '"12:34:56.789+01:30"', "12:34:56.789+01:30"),
    ("time", '"12:34:56,789Z"', "12:34:56,789Z"),
    ("time", '"24:00:00"', "24:00:00"),
    ("zoned", '"23:59:60Z"', "23:59:60Z"),
    ("zoned", '"12:34:56Z"', "12:34:56Z"),
    ("local", '"12:34"', "12:34"),
    ("v1n", '"1.5"', 1.5),
    ("v1n", "1.5", 1.5),
    ("v1n", '"-1e-3"', -0.001),
    ("v1n", '"Infinity"', math.inf),
    ("v1n", '"-Infinity"', -math.inf),
    ("v1i", '"5"', 5),
    ("v1i", '"5.0"', 5),
    ("v1i", "7", 7),
    ("v1i", '"-9223372036854775808"', -(2**63)),
    ("v1ns", '["1", 2, "Infinity"]', [1.0, 2.0, math.inf]),
    ("v1b", '"aGk="', b"hi"),
    ("big", "1e3", Decimal(1000)),
    ("big", "-5.140730312209775e+16", Decimal(-51407303122097750)),
    ("big", "1e37", Decimal(10**37)),
    ("big", "1.5e20", Decimal(15 * 10**19)),
    ("bigs", '[1, "2", 9007199254740993.0]', [1, 2, 9007199254740993]),
    ("bytes", '"true"', b"\xb6\xbb\x9e"),
    ("bytes", '"1234"', b"\xd7m\xf8"),
    ("bytes", '"aGk"', b"hi"),
    ("deep", '[[{"l": [5.0], "d": "2024-01-02T00:00:00Z"}], null]', None),
]
"""Field, value as sent, value in the table (None: only that nothing was changed)."""
NULLED = [
    ("object", "5"),
    ("object", "[]"),
    ("object", '"{}"'),
    ("array", "{}"),
    ("array", '"[]"'),
    ("time", '"24:00:01"'),
    ("time", '"23:58:60"'),
    ("time", '"12:60:00"'),
    ("time", '"12:34:56 "'),
    ("time", '"12:34:56\\n"'),
    ("time", '"noon"'),
    ("time", "12"),
    ("zoned", '"12:34:56"'),
    ("zoned", '"12:34:56+25:00"'),
    ("local", '"12:34:56 Z"'),
    ("v1n", '"nan"'),
    ("v1n", '"1e400"'),
    ("v1n", '" 1"'),
    ("v1n", '"1d"'),
    ("v1n", "true"),
    ("v1i", '"1.5"'),
    ("v1i", '"NaN"'),
    ("v1i", '"9223372036854775808"'),
    ("v1t", '"12:34:56"'),
    ("v1b", '"!"'),
    ("big", '"1234567890123456789012345678901234.5"'),
    ("big", '" 12"'),
    ("big", "1e-12"),
    ("big", "1.00000000000001e1"),
    ("big", "1e38"),
    ("v1i", "1e-12"),
    ("bytes", "true"),
    ("bytes", "1234"),
    ("bytes", '["aGk="]'),
]
PARTLY: list[tuple[str, str, list[str], Any]] = [
    ("s", '{"any": "7", "n": "x"}', ["s.n"], {"any": '"7"', "n": None}),
    ("ss", '[{"any": "7", "n": "x"}, 5]', ["ss"], [{"any": '"7"', "n": None}, None]),
    ("bytess", '["aGk=", "!", 5]', ["bytess"], [b"hi", None, None]),
    ("v1ns", '["1", "x"]', ["v1ns"], [1.0, None]),
    ("ints", "[1e3, 1e-12, 5.140730312209775e+16]", ["ints"], [1000, None, 51407303122097750]),
    (
        "deep",
        f'[[{{"l": [1, "x", 2.0], "d": "x", "odd": {{{json.dumps(ODD)}: true}}}}], 5]',
        ["deep"],
        [[{"l": [1, None, 2], "d": None, "odd": {"a_b____": True}}], None],
    ),
]
SENT = [
    *((field, sent) for field, sent, _ in KEPT),
    *NULLED,
    *((field, sent) for field, sent, *_ in PARTLY),
]


@pytest.fixture(scope="module")
def conformer(tmp_path_factory: pytest.TempPathFactory) -> Conformer:
    return Conformer(tmp_path_factory.mktemp("segments"))


@pytest.fixture(scope="module")
def judged(conformer: Conformer) -> dict[tuple[str, str], Row]:
    """Every value above, each in a record of its own."""
    lines = [f'{{"{field}": {value}}}'.encode() for field, value in SENT]
    return dict(zip(SENT, conformer.rows(PROPERTIES, lines), strict=True))


@pytest.mark.parametrize(("field", "sent", "expected"), KEPT)
def test_a_value_that_fits_its_type_is_kept(
    judged: Any, field: str, sent: str, expected: Any
) -> None:
    row = judged[field, sent]
    assert changes(row) == []
    assert row[field] == expected or (expected is None and sent != "null")


@pytest.mark.parametrize(("field", "sent"), NULLED)
def test_a_value_that_does_not_fit_becomes_null_and_is_recorded(
    judged: Any, field: str, sent: str
) -> None:
    row = judged[field, sent]
    assert row[field] is None
    assert changed(row) == [field]


@pytest.mark.parametrize(("field", "sent", "where", "expected"), PARTLY)
def test_only_the_parts_that_do_not_fit_are_lost(
    judged: Any, field: str, sent: str, where: list[str], expected: Any
) -> None:
    assert judged[field, sent][field] == expected
    assert changed(judged[field, sent]) == where


def test_a_version_1_number_may_be_nan(conformer: Conformer) -> None:
    [row] = conformer.rows({"n": v1("Number")}, [{"n": "NaN"}])
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
