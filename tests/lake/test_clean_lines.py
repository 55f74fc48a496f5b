"""The parse of clean lines in tasks makes the same rows as the exact parse; all other lines are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession

from elt_assets.lake.spark.parsing import task
from elt_assets.protocol.airbyte.messages import Form
from tests.lake.clean_lines import both, encoded, segment
from tests.lake.conforming import Row
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
from tests.lake.test_conform_any import ODD_NAMES, cases

FORMS = [Form.ROWS, Form.AIRBYTE, Form.SINGER]
WELL_KNOWN = "WellKnownTypes.json#/definitions/"

PROPERTIES: dict[str, Any] = {
    "i": INTEGER,
    "d": NUMBER,
    "b": BOOLEAN,
    "s": STRING,
    "t": TIMESTAMP,
    "ntz": NTZ,
    "dt": DATE,
    "tm": {"type": "string", "format": "time"},
    "tz": {"type": "string", "format": "time", "airbyte_type": "time_with_timezone"},
    "tn": {"type": "string", "format": "time", "airbyte_type": "time_without_timezone"},
    "n": BIG_NUMBER,
    "bi": BIG_INTEGER,
    "it": {"$ref": f"{WELL_KNOWN}Integer"},
    "nt": {"$ref": f"{WELL_KNOWN}Number"},
    "x": BINARY,
    "j": {},
    "jo": {"type": "object"},
    "ja": {"type": "array"},
    "o": struct(a=INTEGER, b=STRING),
    "l": array(INTEGER),
    "m": struct(
        j={}, l=array(struct(n=BIG_NUMBER, t=DATE)), k=array(INTEGER), q=array(array(TIMESTAMP))
    ),
}
NUMBERS = """
0 -0 -0.0 0.0 5 -5 5.0 5.5 5e0 1E5 01 true 1e22 1e400 1e-400 0.1e-7 0.1 1.10 2.50 0.30000000000000004
9007199254740993 9007199254740992 9223372036854775807 9223372036854775808 -9223372036854775809
123456789012345678901234567890 1234567890123456789012345678901234567890 NaN Infinity -Infinity
1e+300 1e-12 1e+30 -2.5e-07
1.7976931348623157e308 1.7976931348623159e308 4.9e-324 2.2250738585072011e-308 12345678.123456789
1.1234567891 12345678901234567890123456789.123456789 0.00001 0.0001 1e3 100000000000000000 1. .5
""".split()  # noqa: SIM905
TEXTS = [
    *("5", "x", "", "1.5", " 1.5", "1.5 ", "+1.5", ".5", "5.", "1_0", "0x10", "1e2", "-1.5", "007"),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "true",
        "null",
        "{}",
        "[1]",
        "AAEC",
        "A!EC",
        "AAE=",
        "AB==",
        "AA==",
    ),
    *(
        "1E40",
        "a\\u0000b",
        "a\\ud800b",
        "\\udc00",
        "\\ud83d\\ude00",
        "é",
        "😀",
        "\\u00e9",
        "\\u001f",
        "\\/",
    ),
    *(
        "2024-02-30",
        "2023-02-29",
        "2024-01-02T00:00:00Z",
        "2024-01-02T05:00:00Z",
        "2024/01/02",
        "2024-1-2",
    ),
    *(
        "epoch",
        "infinity",
        "20240102",
        "2024-01-02T03:04:05Z junk",
        "2024-01-02 03:04:05 Europe/Paris",
    ),
    *(
        "2016-12-31T23:59:60Z",
        "2024-01-02T24:00:00Z",
        "10000-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
    ),
    *("12:00", "12:00:00", "12:00:00.123", "24:00", "23:59:60", "12:00:00Z", "12:00+02:00", "7:00"),
    *("2024-01-02t03:04:05z", "\x7f", "\x01", "a\\u2028b", "\\x"),
]
TIMES = [
    f"{day}{zone}"
    for zone in ("Z", "+00:00", "-05:30", "+0530", "+05", "", " Z", "z", "+18:00", "+19:00")
    for day in (
        *(
            "2024-01-02T03:04:05",
            "2024-01-02 03:04:05",
            "2024-01-02T03:04",
            "2024-01-02",
            "2024-02-29",
        ),
        *("0000-01-01T00:00:00", "1582-10-10T00:00:00", "9999-12-31T23:59:59.999999", "1900-01-01"),
        *("2024-01-02T03:04:05.1", "2024-01-02T03:04:05.1234567", "2024-01-02T03:04:05,5"),
        *("-2024-01-02T03:04:05", "2023-02-29T00:00:00", "1500-02-29T00:00:00"),
    )
]
SHAPES = [
    *(
        '{"a": 1}',
        "[1, 2]",
        '{"a":1,"b":"x","zz":9}',
        '{"a":"x","b":"y"}',
        '{"a":1,"a":2}',
        "{}",
        "[]",
    ),
    *('[1,"x",3]', "[1,null]", "[null]", "[[1]]", '["Infinity",5]', '[1,2.5,"a"]', "null"),
    *(
        '{"b": 1, "a": [1, 2.50, {"z": null}]}',
        '{"b":1,"a":[1,2.5,{"z":null}]}',
        '{"\\u00e9":1,"z":2}',
    ),
    *(
        '{"\\ud83d\\ude00":1,"\\uffee":2}',
        '{"j":[1,{"q":"é"}],"l":[{"n":1.5,"t":"2024-01-02"},null]}',
    ),
    *(
        '{"j":1.10,"l":[{"n":"x"}]}',
        '{"l":[{"t":"2024-02-30"}]}',
        '{"zz":1,"l":[{"zz":1}]}',
        '{"l":{}}',
        '{"k":[1,null],"q":[["2024-01-02T03:04:05Z",null],null,[]]}',
        '{"k":[1,"x"]}',
        '{"k":5}',
        '{"q":["x"]}',
        '{"q":[["x"]]}',
    ),
]
WHOLE = [
    *(
        b"{}",
        b"5",
        b"null",
        b"[]",
        b'"x"',
        b'{"i":1,"i":2}',
        b'{"i":1,"i":"x"}',
        b'{"I":7,"i":1}',
        b'{"I":7}',
    ),
    *(
        b'{"\\u0069":4}',
        b'{"i":1,"zz":{"deep":[1]}}',
        b'{"i": 1 , "s" : "a" }',
        b'{"i":1,}',
        b"{'i':1}",
    ),
    b'{"i":1,"zz":' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"j":' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"i":1,"zz":' + b"9" * 2000 + b"}",
    b'{"d":0.' + b"1" * 2000 + b"}",
    *(
        b'{"s":"a\xff\xfeb"}',
        b'{"s":"\xc0\x80"}',
        b'{"s":"\xed\xa0\x80"}',
        b'{"zz":"\xff"}',
        b'{"j":"\xff"}',
    ),
    *(b'{"_elt:sequence":3}', b'{"_elt:meta":{"changes":[]}}', b'{"_airbyte_not_an_object":1}'),
    b'{"j":1,"j":{"b":2}}',
    b'{"zz":NaN}',
    b'{"zz":1e999}',
    b'{"zz":"\\ud800"}',
]


def odd_data() -> list[bytes]:
    """Every odd value in every column, and odd records."""
    values = [*NUMBERS, *(f'"{text}"' for text in TEXTS), *SHAPES]
    found = [f'{{"{column}":{value}}}'.encode() for column in PROPERTIES for value in values]
    times = ("t", "ntz", "dt")
    found += [f'{{"{column}":"{time}"}}'.encode() for column in times for time in TIMES]
    return [*found, *WHOLE]


UNSUPPORTED = json.dumps(ODD_NAMES[-3])[1:-1]
"""A name with a quotation mark: a stream with it in a nested object may take the exact way as a whole."""
PLAIN = {name: PROPERTIES[name] for name in ("i", "d", "b", "s", "t", "ntz", "dt", "x", "o", "l")}
"""The schema without a column whose values are taken as they stand in the line."""


@pytest.mark.parametrize(
    ("form", "properties"),
    [
        (Form.AIRBYTE, PROPERTIES),
        pytest.param(Form.ROWS, PROPERTIES, marks=pytest.mark.long),
        pytest.param(Form.SINGER, PROPERTIES, marks=pytest.mark.long),
        pytest.param(Form.AIRBYTE, PLAIN, marks=pytest.mark.long),
    ],
)
def test_odd_values_get_the_same_row_or_are_named(
    spark: SparkSession, tmp_path: Path, form: Form, properties: dict[str, Any]
) -> None:
    data = odd_data()
    found = both(spark, tmp_path, properties, segment(tmp_path, form, encoded(form, data)))
    assert found.fast.keys() == found.exact.keys()
    differing = [
        (data[int(name[24:], 16) - 7], row, found.exact[name])
        for name, row in found.fast.items()
        if found.exact[name] != row
    ]
    assert differing == []
    assert found.counts[0] == found.counts[1]
    assert len(found.fast) > len(data) / 10


def test_clean_values_of_every_type_take_the_fast_way(spark: SparkSession, tmp_path: Path) -> None:
    record = {
        "i": 5,
        "d": 1.5,
        "b": True,
        "s": "é",
        "t": "2024-01-02T03:04:05+02:00",
        "dt": "2024-01-02",
        "ntz": "2024-01-02 03:04:05.1",
        "tm": "12:00:00",
        "tz": "12:00Z",
        "tn": "12:00",
        "n": "-1.5",
        "bi": 10**30,
        "it": "5",
        "nt": 2.5,
        "x": "AAEC",
        "j": {"b": [1], "a": None},
        "jo": {},
        "ja": [{"z": 1.25}],
        "o": {"a": 1},
        "l": [1, None],
        "m": {
            "j": 5,
            "l": [{"n": 1.5, "t": "2024-01-02"}, None],
            "k": [1, None],
            "q": [["2024-01-02T03:04:05Z"], None],
        },
    }
    data = [json.dumps(record).encode(), b"{}"]
    for form in FORMS:
        found = both(spark, tmp_path, PROPERTIES, segment(tmp_path, form, encoded(form, data)))
        assert found.unclean == []
        assert list(found.fast.values()) == list(found.exact.values())


@pytest.mark.parametrize("odd", [[0], [200], [299], [150, 250], [5, 6, 7, 298]])
@pytest.mark.parametrize("value", [b'"x"', b"5.0", b"9223372036854775808"])
def test_only_the_lines_that_do_not_fit_are_named(
    spark: SparkSession, tmp_path: Path, odd: list[int], value: bytes
) -> None:
    data = [b'{"i":%b,"s":"a"}' % (value if n in odd else b"%d" % n) for n in range(300)]
    lines = encoded(Form.AIRBYTE, data)
    found = both(spark, tmp_path, PLAIN, segment(tmp_path, Form.AIRBYTE, lines))
    assert sorted(found.unclean) == odd
    assert found.fast == found.exact


def test_lines_like_a_refused_one_get_the_same_row_or_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two blocks: misfits in a field, and values like them, which fit, in a field of the same name."""
    properties = {**PLAIN, "o": struct(i=STRING)}
    odd = [n for n in range(12_000) if n % 997 == 5]
    like = [n for n in range(12_000) if n % 500 == 0]
    data = [
        b'{"i":%b,"s":"a","o":{%b}}'
        % (b'"x"' if n in odd else b"%d" % n, b'"i":"y"' if n in like else b"")
        for n in range(12_000)
    ]
    lines = encoded(Form.AIRBYTE, data)
    assert sum(map(len, lines)) > 2 * task.BLOCK
    found = both(spark, tmp_path, properties, segment(tmp_path, Form.AIRBYTE, lines))
    assert {*odd} <= {*found.unclean} <= {*odd, *like}
    assert found.fast == found.exact


@settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(cases())
def test_any_record_of_any_schema_gets_the_same_row_or_is_named(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, case: tuple[Any, list[Row]]
) -> None:
    properties, records = json.loads(json.dumps(case).replace(UNSUPPORTED, "x"))
    data = [json.dumps(record, separators=(",", ":")).encode() for record in records]
    for form in FORMS:
        folder = tmp_path_factory.mktemp("any")
        found = both(spark, folder, properties, segment(folder, form, encoded(form, data)))
        assert found.fast == found.exact
        assert found.counts[0] == found.counts[1]
