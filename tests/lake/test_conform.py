"""Raw records become typed rows; values that do not fit are recorded as changes."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.lake.conforming import (
    PREFIX,
    Conformer,
    Row,
    change_triples,
    changed,
    changes,
)
from tests.lake.staging import (
    BIG_INTEGER,
    BIG_NUMBER,
    BINARY,
    BOOLEAN,
    DATE,
    EMITTED_AT,
    INTEGER,
    NTZ,
    NUMBER,
    STRING,
    TIMESTAMP,
    array,
    stage,
    struct,
)

MISFIT = ("NULLED", "DESTINATION_TYPECAST_ERROR")
TYPECAST = dict(zip(("change", "reason"), MISFIT, strict=True))


def place(row: Row) -> int:
    return int(row["_airbyte_raw_id"].removeprefix(PREFIX), 16)


def v1(name: str) -> dict[str, str]:
    return {"$ref": f"WellKnownTypes.json#/definitions/{name}"}


TIME = {"type": "string", "format": "time"}
UNION = {"type": ["integer", "string", "object", "array"]}
ODD = "a.b'\"`\n"
PROPERTIES: dict[str, Any] = {
    "text": STRING,
    "flag": BOOLEAN,
    "integer": INTEGER,
    "number": NUMBER,
    "big": BIG_INTEGER,
    "decimal": BIG_NUMBER,
    "big_text": {"type": "string", "airbyte_type": "big_integer"},
    "decimal_text": {"type": ["null", "string"], "airbyte_type": "big_number"},
    "day": DATE,
    "at": TIMESTAMP,
    "local": NTZ,
    "bytes": BINARY,
    "list": array(INTEGER),
    "days": array(DATE),
    "numbers": array(NUMBER),
    "objects": array(struct(a=INTEGER)),
    "o": struct(a=INTEGER, b=NUMBER, d=DATE, p=struct(flag=BOOLEAN, i=INTEGER)),
    "any": UNION,
    "object": {"type": "object"},
    "array": {"type": "array"},
    "anys": array(UNION),
    "s": struct(any={"oneOf": [INTEGER, STRING]}, n=INTEGER),
    "ss": array(struct(any=UNION, n=INTEGER)),
    "time": TIME,
    "zoned": {**TIME, "airbyte_type": "time_with_timezone"},
    "clock": {**TIME, "airbyte_type": "time_without_timezone"},
    "v1n": v1("Number"),
    "v1i": v1("Integer"),
    "v1ns": array(v1("Number")),
    "v1t": v1("TimeWithTimezone"),
    "v1b": v1("BinaryData"),
    "bigs": array(BIG_INTEGER),
    "ints": array(INTEGER),
    "bytess": array(BINARY),
    "deep": array(array(struct(l=array(INTEGER), d=DATE, odd=struct(**{ODD: BOOLEAN})))),
}
WIDE = 2**53 + 1
KEPT: list[tuple[str, str, Any]] = [
    ("text", "null", None),
    ("text", '"a\\u0000b\\u2028"', "a\0b\u2028"),
    ("text", "1.12345678901234567890", "1.1234567890123456789"),
    ("text", '{"a": [1 ,2]}', '{"a": [1 ,2]}'),
    ("flag", "false", False),
    ("integer", "9223372036854775807", 2**63 - 1),
    ("integer", "5.0", 5),
    ("integer", "1e3", 1000),
    ("integer", "-0.0", 0),
    ("integer", "-0e400", 0),
    ("decimal", "0e-400", Decimal(0)),
    ("integer", "9007199254740993.0", 2**53 + 1),
    ("number", "1", 1.0),
    ("number", "-1.5e-3", -0.0015),
    ("big", "12345678901234567890123", Decimal(12345678901234567890123)),
    ("big", "5.0", Decimal(5)),
    ("big", '"12"', Decimal(12)),
    ("decimal", "1.5", Decimal("1.5")),
    ("day", '"2024-02-29"', date(2024, 2, 29)),
    ("day", '"2024-02-29T00:00:00.000Z"', date(2024, 2, 29)),
    ("day", '"2024-02-29t00:00:00z"', date(2024, 2, 29)),
    ("day", '"9999-12-31 00:00 EST"', date(9999, 12, 31)),
    ("at", '"9999-12-31T23:59:59-00:00"', datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)),
    ("at", '"2024-01-02T03:04:05Z"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
    ("at", '"2024-01-02 03:04:05+02:00"', datetime(2024, 1, 2, 1, 4, 5, tzinfo=timezone.utc)),
    ("at", '"2024-01-02T03:04:05"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
    ("big_text", '"12345678901234567890123"', Decimal(12345678901234567890123)),
    ("big_text", "12", Decimal(12)),
    ("decimal_text", '"1.5"', Decimal("1.5")),
    ("at", '"2024-01-02"', datetime(2024, 1, 2, tzinfo=timezone.utc)),
    ("local", '"2024-01-02T03:04:05"', datetime.fromisoformat("2024-01-02T03:04:05")),
    ("bytes", '"aGk="', b"hi"),
    ("bytes", '""', b""),
    ("list", "[1, null, 3]", [1, None, 3]),
    ("list", "[1, 5.0, null]", [1, 5, None]),
    ("list", f"[{WIDE}]", [WIDE]),
    ("list", "[]", []),
    ("o", "{}", {"a": None, "b": None, "d": None, "p": None}),
    ("o", '{"a": 5.0, "x": 1}', {"a": 5, "b": None, "d": None, "p": None}),
    ("o", '{"p": {"i": 2.0}}', {"a": None, "b": None, "d": None, "p": {"flag": None, "i": 2}}),
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
    ("clock", '"12:34"', "12:34"),
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
    (
        "deep",
        '[[{"l": [5.0], "d": "2024-01-02T00:00:00Z"}], null]',
        [[{"l": [5], "d": date(2024, 1, 2), "odd": None}], None],
    ),
]
"""Field, value as sent, value in the table."""
NULLED = {
    "flag": '"true", 1',
    "integer": '"7", 1.5, true, 9223372036854775808, 1e400, [1]',
    "number": '"7", "NaN", 1e400, -1e400, {}',
    "big": (
        "1.5, 100000000000000000000000000000000000000, true, "
        '"1234567890123456789012345678901234.5", " 12", 1e-12, 1.00000000000001e1, 1e38'
    ),
    "decimal": '100000000000000000000000000000, "x"',
    "big_text": '"12x", "100000000000000000000000000000000000000"',
    "decimal_text": '"NaN"',
    "day": '"2024-02-30", "20240102T00:00:00Z", "0000-12-31", "20107-05-10", "2024", 20240102',
    "at": (
        '"0000-12-30T00:00:00Z", "0001-01-01T00:00:00+01:00", '
        '"9999-12-31T23:59:59.5-00:01", "9999-12-31T23:59:60.0000001Z", "nope", '
        '"03:04:05", 1700000000, "2024-13-02T03:04:05Z", "2024-01-02T03:60Z", '
        '"2024-01-02T24:00:01Z", "2024-01-02T03:30:60Z", "2024-01-02T03:04+19:00", '
        '"20240102"'
    ),
    "local": '"9999-12-31T24:00:00", 1700000000',
    "bytes": '"a", "!!!!", 5, true, 1234, ["aGk="]',
    "list": "5, {}",
    "objects": '{"a": 1}',
    "o": '[1], "x"',
    "object": '5, [], "{}"',
    "array": '{}, "[]"',
    "time": r'"24:00:01", "23:58:60", "12:60:00", "12:34:56 ", "12:34:56\n", "noon", 12',
    "zoned": '"12:34:56", "12:34:56+25:00"',
    "clock": '"12:34:56 Z"',
    "v1n": '"nan", "1e400", " 1", "1d", true',
    "v1i": '"1.5", "NaN", "9223372036854775808", 1e-12',
    "v1t": '"12:34:56"',
    "v1b": '"!"',
}
"""Values of a field as sent, each null in the table, and recorded."""
PARTLY: list[tuple[str, str, list[str], Any]] = [
    ("o", '{"a": "7", "b": 1}', ["o.a"], {"a": None, "b": 1.0, "d": None, "p": None}),
    ("o", '{"a": 1, "b": 1e400}', ["o.b"], {"a": 1, "b": None, "d": None, "p": None}),
    ("o", '{"a": 1, "d": "x"}', ["o.d"], {"a": 1, "b": None, "d": None, "p": None}),
    ("o", '{"a": 1, "p": 5}', ["o.p"], {"a": 1, "b": None, "d": None, "p": None}),
    (
        "o",
        '{"p": {"flag": 1, "i": 2}}',
        ["o.p.flag"],
        {"a": None, "b": None, "d": None, "p": {"flag": None, "i": 2}},
    ),
    ("list", '[1, 5.0, "x", null]', ["list"], [1, 5, None, None]),
    ("list", "[1.5]", ["list"], [None]),
    ("numbers", '["NaN", 1]', ["numbers"], [None, 1.0]),
    ("objects", '[1, {"a": 5.0}]', ["objects"], [None, {"a": 5}]),
    ("days", '["2024-01-02", "x"]', ["days"], [date(2024, 1, 2), None]),
    ("numbers", "[1.5, 1e400]", ["numbers"], [1.5, None]),
    ("objects", '[{"a": 1}, {"a": "x"}]', ["objects"], [{"a": 1}, {"a": None}]),
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
"""Field, value as sent, changes, value in the table."""
MISFITS = [
    (field, bytes(sent).decode())
    for field, values in NULLED.items()
    for sent in msgspec.json.decode(f"[{values}]", type=list[msgspec.Raw])
]
SENT: list[tuple[str, str]] = [
    *((field, sent) for field, sent, _ in KEPT),
    *MISFITS,
    *((field, sent) for field, sent, *_ in PARTLY),
]


@pytest.fixture(scope="module")
def judged(conformer: Conformer) -> dict[tuple[str, str], Row]:
    """Every value above, each in a record of its own beside a good neighbour."""
    lines = [f'{{"neighbour": 1, "{field}": {value}}}'.encode() for field, value in SENT]
    found = conformer.rows({"neighbour": INTEGER, **PROPERTIES}, lines)
    assert [row["neighbour"] for row in found] == [1] * len(SENT)
    return dict(zip(SENT, found, strict=True))


@pytest.mark.spec("protocol.63")
@pytest.mark.parametrize(("field", "sent", "expected"), KEPT)
def test_a_value_that_fits_its_type_is_kept(
    judged: Any, field: str, sent: str, expected: Any
) -> None:
    row = judged[field, sent]
    assert row[field] == expected
    assert changes(row) == []


@pytest.mark.parametrize(("field", "sent"), MISFITS)
def test_a_value_that_does_not_fit_becomes_null_and_is_recorded(
    judged: Any, field: str, sent: str
) -> None:
    row = judged[field, sent]
    assert row[field] is None
    assert changed(row) == [field]


@pytest.mark.spec("protocol.40")
@pytest.mark.parametrize(("field", "sent", "where", "expected"), PARTLY)
def test_only_the_parts_that_do_not_fit_are_lost(
    judged: Any, field: str, sent: str, where: list[str], expected: Any
) -> None:
    row = judged[field, sent]
    assert row[field] == expected
    assert changed(row) == where


def test_row_ids_are_unique_and_ordered(conformer: Conformer) -> None:
    found = conformer.rows({"n": INTEGER}, [{"n": number} for number in range(300)])
    assert [row["n"] for row in found] == list(range(300))
    assert [place(row) for row in found] == list(range(300))
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", found[299]["_airbyte_raw_id"])


def test_every_row_has_its_extraction_time_generation_and_sync(conformer: Conformer) -> None:
    [row] = conformer.rows({"n": INTEGER}, [{"n": 1}])
    assert row["_airbyte_extracted_at"] == datetime.fromtimestamp(EMITTED_AT / 1000, timezone.utc)
    assert row["_airbyte_generation_id"] == 3
    assert row["_airbyte_meta"] == {"sync_id": 42, "changes": []}


@pytest.mark.spec("protocol.128")
def test_changes_reported_by_the_source_come_first(conformer: Conformer) -> None:
    own = {"field": "x", "change": "TRUNCATED", "reason": "SOURCE_FIELD_SIZE_LIMITATION"}
    good, bad = conformer.rows({"n": INTEGER}, [{"n": 1}, {"n": "x"}], meta={"changes": [own]})
    assert changes(good) == [own]
    assert changes(bad) == [own, {"field": "n", **TYPECAST}]


NO_CHANGE = {"field": None, "change": None, "reason": "SOURCE_META_MALFORMED"}


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({"changes": [{"field": 1, "change": "NULLED", "reason": ["x"]}]}, [NO_CHANGE]),
        ({"changes": [None, {"field": "n"}]}, [NO_CHANGE]),
        ({"changes": "NULLED"}, [NO_CHANGE]),
        ({"changes": 7}, [NO_CHANGE]),
        ([{"changes": []}], [NO_CHANGE]),
        ({"changes": [{}]}, [{"field": None, "change": None, "reason": None}]),
        ({"changes": None, "more": 1}, []),
        ({}, []),
    ],
)
def test_a_malformed_meta_is_recorded_and_its_record_stored(
    conformer: Conformer, meta: Any, expected: list[Any]
) -> None:
    [row] = conformer.rows({"n": INTEGER}, [{"n": 1}], meta=meta)
    assert (row["n"], changes(row)) == (1, expected)


@pytest.mark.spec("protocol.54")
def test_any_field_name_is_read_and_recorded_as_the_source_writes_it(conformer: Conformer) -> None:
    names = ["", "a.b", "c`d", "e'f\"g", "h\ni", "größe"]
    properties: Any = dict.fromkeys(names, INTEGER)
    good, bad = conformer.rows(properties, [dict.fromkeys(names, 1), dict.fromkeys(names, "x")])
    cleaned = ["_", "a_b", "c_d", "e_f_g", "h_i", "größe"]
    assert [good[name] for name in cleaned] == [1] * len(names)
    assert changed(bad) == names


def test_a_name_in_another_case_is_the_field_if_no_other_is(conformer: Conformer) -> None:
    data = [{"ID": 7}, {"ID": 7, "Id": 8}, {"ID": 7, "id": 8}]
    rows = conformer.rows({"id": INTEGER}, data)
    assert [row["id"] for row in rows] == [7, None, 8]
    assert not any(map(changes, rows))


UNREADABLE: list[Any] = [b"5", b'"text"', b"null", b"[1]", b'{"n":1, "x":tru}', b'{"n":1,}']


def test_each_unreadable_record_is_rejected_separately(conformer: Conformer) -> None:
    properties = {"n": INTEGER, "x": STRING}
    data = [{"n": 1}, *UNREADABLE, {"n": 2}]
    assert [row["n"] for row in conformer.rows(properties, data)] == [1, 2]
    reasons = Counter(reason for _, reason in conformer.rejects(properties, data))
    assert reasons == {"not a readable JSON object": len(UNREADABLE)}


OVERSIZE = ("NULLED", "DESTINATION_FIELD_SIZE_LIMITATION")
REPLACED = ("TRUNCATED", "DESTINATION_SERIALIZATION_ERROR")
DEEP = b"[" * 3000 + b"]" * 3000
EXTREME: list[tuple[bytes, Any, list[tuple[str, str]]]] = [
    (b'"n":1' + b"1" * 5000, None, [MISFIT]),
    (b'"any":' + b"1" * 5000, None, [OVERSIZE]),
    (b'"any":' + b"1" * 2000, "1" * 2000, []),
    (b'"any":' + DEEP, None, [OVERSIZE]),
    (b'"x":' + DEEP, None, [OVERSIZE]),
    (b'"undeclared":' + DEEP, None, []),
    (b'"x":"a\xffb"', "a\ufffdb", [REPLACED]),
    (b'"x":"cut \\ud83d"', "cut \ufffd", [REPLACED]),
    (b'"any":{"k":"\\ude00!"}', '{"k":"\ufffd!"}', [REPLACED]),
    (b'"x":"a\x01\tb"', "a\x01\tb", []),
    (b'"at":"2024\\ud83d"', None, [MISFIT]),
]
"""A field as sent, its value in the table, and the changes of the record."""


@pytest.mark.parametrize(("sent", "value", "recorded"), EXTREME, ids=range(len(EXTREME)))
def test_an_extreme_value_costs_no_more_than_itself(
    conformer: Conformer, sent: bytes, value: Any, recorded: list[tuple[str, str]]
) -> None:
    properties = {"id": INTEGER, "n": INTEGER, "x": STRING, "any": {}, "at": TIMESTAMP}
    name = sent.split(b'"')[1].decode()
    first, row = conformer.rows(properties, [b'{"id":1}', b'{"id":2,%b}' % sent])
    assert (first["id"], row["id"], changes(first)) == (1, 2, [])
    assert row.get(name) == value
    assert change_triples(row) == [(name, *entry) for entry in recorded]


def test_a_part_of_a_key_may_be_null_but_not_all(conformer: Conformer) -> None:
    properties = {"id": INTEGER, "o": struct(k=INTEGER)}
    key = [["id"], ["o", "k"]]
    good = [{"id": 1, "o": {"k": 2}}, {"id": None, "o": {"k": 2}}, {"id": 1, "o": {}}]
    bad = [
        {"id": None, "o": {}},
        {"id": 1},
        {"id": 1, "o": None},
        {"id": "x", "o": {"k": 2}},
        {"id": 1, "o": 5},
        {"id": 1, "o": {"k": "y"}},
        b"7",
    ]
    assert conformer.rows(properties, [*good, *bad], key=key) == conformer.rows(properties, good)
    own = {"field": "id", "change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}
    segment = stage(conformer.folder, bad[:1], meta={"changes": [own]})
    [dead] = conformer.parse(segment, properties, key=key)[1]
    assert dead["reason"] == "every field of the primary key is null"
    reasons = [reason for _, reason in conformer.rejects(properties, [*good, *bad], key)]
    assert Counter(reasons) == {
        "every field of the primary key is null": 1,
        "the object with field 'o.k' of the primary key is null or missing": 2,
        "field 'id' of the primary key does not fit its type, bigint": 1,
        "field 'o.k' of the primary key does not fit its type, bigint": 2,
        "not a readable JSON object": 1,
    }
