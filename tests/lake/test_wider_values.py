"""Values of a table whose types become wider."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from elt_assets.lake.columns.evolution import plan
from elt_assets.lake.columns.from_json_schema import columns
from elt_assets.lake.columns.logical_types import column_of
from elt_assets.lake.worker.kinds import Field
from elt_assets.lake.worker.widening import Unfit, widen_values
from elt_assets.lake.write.parsing import field_of
from tests.lake.conforming import Conformer, changes
from tests.lake.staging import (
    BIG_INTEGER,
    BIG_NUMBER,
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    JSON,
    NTZ,
    NUMBER,
    STRING,
    TIMESTAMP,
    array,
    stage,
    struct,
)

AT = datetime(2024, 1, 2, 3, 4, 5, 678900, tzinfo=timezone.utc)
LOCAL = datetime(2024, 1, 2, 3, 4, 5)  # noqa: DTZ001 - a timestamp without zone
OBJECT = struct(**{"a b": INTEGER, "any": JSON, "at": TIMESTAMP})
CASES: list[tuple[Any, Any, Any, Any]] = [
    (INTEGER, BIG_INTEGER, 2**63 - 1, Decimal(2**63 - 1)),
    (INTEGER, NUMBER, 2**53 + 2, 2.0**53 + 2),
    (INTEGER, NUMBER, -(2**63), -(2.0**63)),
    (INTEGER, BIG_NUMBER, -5, Decimal(-5)),
    (BIG_INTEGER, BIG_NUMBER, Decimal(10**28), Decimal(10**28)),
    (DATE, NTZ, date(2024, 1, 2), datetime(2024, 1, 2)),  # noqa: DTZ001
    (DATE, TIMESTAMP, date(2024, 1, 2), datetime(2024, 1, 2, tzinfo=timezone.utc)),
    (NTZ, TIMESTAMP, LOCAL, LOCAL.replace(tzinfo=timezone.utc)),
    (INTEGER, STRING, -5, "-5"),
    (NUMBER, STRING, 1.5, "1.5"),
    (NUMBER, STRING, 5.0, "5"),
    (NUMBER, STRING, -0.0, "0"),
    (NUMBER, STRING, 1e22, "10000000000000000000000"),
    (NUMBER, STRING, 1e-5, "0.00001"),
    (NUMBER, STRING, 5e-324, "5e-324"),
    (NUMBER, STRING, float("-inf"), "-Infinity"),
    (BOOLEAN, STRING, True, "true"),
    (BIG_INTEGER, STRING, Decimal(10**37), str(10**37)),
    (BIG_NUMBER, STRING, Decimal("1.5"), "1.5"),
    (BIG_NUMBER, STRING, Decimal("1e3"), "1000"),
    (DATE, STRING, date(2024, 1, 2), "2024-01-02"),
    (DATE, STRING, date(1, 1, 1), "0001-01-01"),
    (TIMESTAMP, STRING, AT, "2024-01-02T03:04:05.678900Z"),
    (TIMESTAMP, STRING, AT.replace(microsecond=120_000), "2024-01-02T03:04:05.120Z"),
    (TIMESTAMP, STRING, AT.replace(microsecond=0), "2024-01-02T03:04:05Z"),
    (NTZ, STRING, LOCAL, "2024-01-02T03:04:05"),
    (NTZ, STRING, LOCAL.replace(microsecond=1000), "2024-01-02T03:04:05.001"),
    (BINARY, STRING, b"abc" * 60, "YWJj" * 60),
    (STRING, JSON, 'say "x"', '"say \\"x\\""'),
    (INTEGER, JSON, 5, "5"),
    (NUMBER, JSON, 1e6, "1000000"),
    (NUMBER, JSON, float("nan"), '"NaN"'),
    (BIG_NUMBER, JSON, Decimal("0.50"), "0.5"),
    (BOOLEAN, JSON, False, "false"),
    (DATE, JSON, date(2024, 1, 2), '"2024-01-02"'),
    (TIMESTAMP, JSON, AT, '"2024-01-02T03:04:05.678900Z"'),
    (BINARY, JSON, b"hi", '"aGk="'),
    (array(DATE), JSON, [date(2024, 1, 2), None], '["2024-01-02",null]'),
    (array(array(NUMBER)), JSON, [[1.0], [], None, [2.5, None]], "[[1],[],null,[2.5,null]]"),
    (
        OBJECT,
        JSON,
        {"a_b": 5, "any": '{"y": 1.50, "x": [1]}', "at": AT},
        '{"a b":5,"any":{"x":[1],"y":1.5},"at":"2024-01-02T03:04:05.678900Z"}',
    ),
    (OBJECT, JSON, {"any": "no JSON"}, '{"any":"no JSON"}'),
    (array(INTEGER), array(NUMBER), [1, None], [1.0, None]),
    (
        array(struct(a=NUMBER)),
        array(struct(b=DATE, a=STRING)),
        [{"a": 1}, None],
        [{"a": "1", "b": None}, None],
    ),
    (struct(o=struct(l=array(DATE))), struct(o=struct(l=array(STRING))), {"o": None}, {"o": None}),
]
"""The table's type, the declared one, a value there, the value after."""


def fields(was: Any, now: Any) -> tuple[Field, Field]:
    """The column that a field has in a table, and the one that the table gets."""
    [column] = columns({"properties": {"v": was}})
    wider = plan(t.StructType([column.field]), columns({"properties": {"v": now}}), "evolve")
    return field_of(column_of(column.field)), field_of(column_of(wider.schema["v"]))


@pytest.mark.unit
@pytest.mark.parametrize(("was", "now", "value", "expected"), CASES)
def test_a_value_is_the_same_in_the_wider_type(
    was: Any, now: Any, value: Any, expected: Any
) -> None:
    before, after = fields(was, now)
    values = pa.array([None, value, None, value], before.type)
    for part in (values, values.slice(1, 2)):
        found = widen_values(part, before, after)
        assert found.type == after.type
        is_valid = part.is_valid().to_pylist()
        assert found.to_pylist() == [expected if each else None for each in is_valid]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("was", "now", "value", "path"),
    [
        (INTEGER, NUMBER, 2**53 + 1, "v"),
        (INTEGER, NUMBER, 2**63 - 1, "v"),
        (BIG_INTEGER, BIG_NUMBER, Decimal(10**29), "v"),
        (array(struct(n=INTEGER)), array(struct(n=NUMBER)), [{"n": 2**53 + 1}], "v[].n"),
        (struct(n=INTEGER, s=STRING), struct(n=NUMBER, s=STRING), {"n": 2**53 + 1}, "v.n"),
        (DATE, TIMESTAMP, 2**31 - 1, "v"),
        (DATE, STRING, 3_000_000, "v"),
        (TIMESTAMP, STRING, -(2**60), "v"),
    ],
)
def test_a_value_that_a_wider_type_does_not_hold_is_found(
    was: Any, now: Any, value: Any, path: str
) -> None:
    before, after = fields(was, now)
    values = pa.array([value], pa.int64() if isinstance(value, int) else before.type)
    if values.type != before.type:
        values = values.cast(pa.int32() if was is DATE else pa.int64()).cast(before.type)
    with pytest.raises(Unfit, match=f"^{re.escape(path)}$"):
        widen_values(values, before, after, "v")


# Properties

Sent = tuple[Any, st.SearchStrategy[str]]
"""A schema, and the JSON of its values as a source sends them."""


def object_text(fields: dict[str, str]) -> str:
    inner = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return f"{{{inner}}}"


def iso(time: datetime, unit: int) -> str:
    """The text of a time in whole units of so many microseconds."""
    time = time.replace(microsecond=time.microsecond // unit * unit)
    form = "microseconds" if time.microsecond % 1000 else "milliseconds"
    return time.isoformat(timespec=form if time.microsecond else "seconds")


def lists_of(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=3).map(lambda each: f"[{', '.join(each)}]")


texts = st.text(st.characters(codec="utf-8"), max_size=5).map(json.dumps)
doubles = st.floats(allow_nan=False, allow_infinity=False).map(json.dumps)
times = st.builds(
    iso,
    st.datetimes(min_value=datetime(1000, 1, 1)),  # noqa: DTZ001
    st.sampled_from([1, 1000, 10**6]),
)
any_json = st.recursive(
    texts | doubles | st.integers().map(str) | st.just("null"),
    lambda inner: lists_of(inner) | st.dictionaries(texts, inner, max_size=3).map(object_text),
    max_leaves=4,
)
SCALARS: list[Sent] = [
    (BOOLEAN, st.sampled_from(["true", "false"])),
    (INTEGER, st.integers(-(2**63), 2**63 - 1).map(str)),
    (NUMBER, doubles | st.integers(-(2**53), 2**53).map(str)),
    (BIG_INTEGER, st.integers(-(10**38) + 1, 10**38 - 1).map(str)),
    (
        BIG_NUMBER,
        st.builds("{}.{:09}".format, st.integers(-(10**28), 10**28), st.integers(0, 10**9 - 1)),
    ),
    (DATE, st.dates(min_value=date(1000, 1, 1)).map(lambda day: f'"{day}"')),
    (TIMESTAMP, times.map(lambda time: f'"{time}Z"')),
    (NTZ, times.map(lambda time: f'"{time}"')),
    (BINARY, st.binary(max_size=9).map(lambda value: f'"{b64encode(value).decode()}"')),
    (STRING, texts),
    (JSON, any_json.filter(lambda text: text != "null")),
]


def nested(inner: st.SearchStrategy[Sent]) -> st.SearchStrategy[Sent]:
    def object_of(parts: dict[str, Sent]) -> Sent:
        values = {json.dumps(name): each for name, (_, each) in parts.items()}
        sent = st.fixed_dictionaries({}, optional=values).map(object_text)
        return struct(**{name: kind for name, (kind, _) in parts.items()}), sent

    names = st.sampled_from(["a", "b c", "é", ""])
    return inner.map(lambda part: (array(part[0]), lists_of(part[1] | st.just("null")))) | (
        st.dictionaries(names, inner, min_size=1, max_size=3).map(object_of)
    )


@st.composite
def sent_values(draw: st.DrawFn) -> tuple[Any, list[str]]:
    """A schema, and JSON values of it."""
    kind, values = draw(st.recursive(st.sampled_from(SCALARS), nested, max_leaves=4))
    return kind, draw(st.lists(values, min_size=1, max_size=10))


def column(conformer: Conformer, schema: Any, values: list[str]) -> pa.Array:
    """The column that the parse makes of values of one field."""
    lines = [b'{"v":%b}' % value.encode() for value in values]
    rows, _ = conformer.parse(stage(conformer.folder, lines), {"v": schema})
    assert not any(map(changes, rows)), (schema, values)
    (file,) = conformer.results[0].files
    return pq.read_table(Path(conformer.folder, "rows", file[0])).column("v").combine_chunks()


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@example((NUMBER, ["0.0001", "10000000000", "5", "1E-7", "-0.0"]))
@example((TIMESTAMP, ['"2024-01-01T00:00:00Z"', '"2024-01-01T00:00:00.500Z"']))
@given(sent_values())
def test_a_value_has_the_text_that_the_parse_gives_it(
    conformer: Conformer, sent: tuple[Any, list[str]]
) -> None:
    """A row from before a change of the type is equal to the row of the same value after it."""
    was, values = sent
    present = column(conformer, was, values)
    is_scalar = was.get("type") not in ("array", "object", None)
    for now in [JSON, STRING] if is_scalar else [JSON]:
        before, after = fields(was, now)
        assert (
            widen_values(present, before, after).to_pylist()
            == column(conformer, now, values).to_pylist()
        )
