"""Any record of any schema: it lands typed, is recorded as changed, or is rejected."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.lake.columns.from_json_schema import columns
from elt_assets.lake.columns.logical_types import JSONS, TIMES, Array, LogicalType, Scalar, Struct
from elt_assets.lake.columns.metadata_columns import table_schema
from tests.lake.conforming import Conformer, Row, changes
from tests.lake.staging import BIG_INTEGER, BIG_NUMBER, BINARY, DATE, NTZ, TIMESTAMP
from tests.support.examples import few

WELL_KNOWN = ["String", "BinaryData", "Number", "Integer", "Boolean", "TimeWithTimezone", "Nothing"]
ODD_NAMES = ["", "a", "A", "a.b", "a b", "_airbyte_meta", "x'\"`\n", "größe", "$ref"]
LEFT_OUT: dict[LogicalType, re.Pattern[str]] = {
    Scalar.TIMESTAMP_NTZ: re.compile(r"[+-]\d\d:\d\d$"),
    Scalar.DATE: re.compile(r"[T ][0:]*[1-9]"),
}
"""A zone or a time in a text, which the column does not hold."""
"""A time zone as in `scalars`; a column without one does not keep it."""
FIELDS = 12
"""Schemas in one: a Spark job for each would take minutes."""

plain = st.sampled_from(
    [
        *({"type": kind} for kind in ("string", "integer", "number", "boolean", "null", "any")),
        *(BIG_INTEGER, BIG_NUMBER, BINARY, DATE, NTZ, TIMESTAMP),
        {"type": "string", "format": "time"},
        *({"$ref": f"WellKnownTypes.json#/definitions/{name}"} for name in WELL_KNOWN),
    ]
)
malformed: Any = st.sampled_from(
    [
        *(True, None, 5, "x", {}, {"type": 7}, {"type": [[]]}, {"properties": 5}, {"oneOf": {}}),
        *({"items": [5]}, {"type": "array", "items": 7}, {"$ref": 5}, {"enum": ["a", None]}),
    ]
)
names = st.sampled_from(ODD_NAMES)


def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.dictionaries(names, inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda items: {"type": ["null", "array"], "items": items}, inner),
        st.builds(lambda properties: {"type": "object", "properties": properties}, objects),
        st.builds(lambda options: {"oneOf": options}, st.lists(inner, max_size=2)),
    )


schemas = st.recursive(plain | malformed, wider, max_leaves=6)
scalars = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 5, -1, 2**53 + 1, 2**63, -(2**63), 10**30, 10**38])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-5, 5).map(float)
    | st.sampled_from([0.1234567891, 1e-12, 1e30, 1e300, 2.0**63])
    | st.text(st.characters(codec="utf-8"), max_size=4)
    | st.sampled_from(["7", "7.5", "NaN", "aGk=", "2024-02-29", "2024-02-30", "1e3", "12:00:00Z"])
    | st.sampled_from(["2024-01-02T03:04:05", "2024-01-02 03:04:05.678+02:00", "{}", "[1]", "true"])
)
anything: Any = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=4,
)


def values_of(schema: Any) -> Any:
    """Values in the shape of the schema, though not of its types, so that nested fields are reached."""
    if not isinstance(schema, Mapping):
        return anything
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and properties:
        inner = {name: values_of(each) for name, each in properties.items()}
        return st.fixed_dictionaries({}, optional=inner) | anything
    if "array" in str(schema.get("type")) and "items" in schema:
        return st.lists(values_of(schema["items"]), max_size=3) | anything
    return anything


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[Row]]:
    """A schema whose properties are schemas, and records for it."""
    found = draw(st.lists(schemas, min_size=FIELDS, max_size=FIELDS))
    properties = {f"f{number}": schema for number, schema in enumerate(found)}
    inner: Any = {name: values_of(schema) for name, schema in properties.items()}
    records = st.fixed_dictionaries({}, optional=inner)
    return properties, draw(st.lists(records, min_size=30, max_size=60))


@few(4)
@given(cases())
def test_any_record_of_any_schema_is_typed_recorded_as_changed_or_rejected(
    conformer: Conformer, case: tuple[dict[str, Any], list[Row]]
) -> None:
    properties, records = case
    unreadable = [b"5", b'{"f0": tru}']
    found = conformer.rows(properties, [*records, *unreadable])
    assert len(found) == len(records)
    assert len(conformer.rejects(properties, [*records, *unreadable])) == len(unreadable)
    for column in columns({"properties": properties}):
        for sent, row in zip(records, found, strict=True):
            recorded = [e for e in changes(row) if e["field"].split(".")[0] == column.source]
            value = sent.get(column.source)
            where = (properties[column.source], json.dumps(value), row[column.name], recorded)
            fits = kept(column.kind, value, row[column.name])
            assert fits == (not recorded), where


def kept(kind: LogicalType, sent: Any, got: Any) -> bool:
    """Return whether a value was stored unchanged, as Python understands the types."""
    if sent is None or got is None:
        return sent is got
    if isinstance(kind, Array):
        pairs = zip(sent, got, strict=True) if isinstance(sent, list) else ()
        return isinstance(sent, list) and all(kept(kind.items, a, b) for a, b in pairs)
    if isinstance(kind, Struct):
        return isinstance(sent, dict) and all(kept_in(kind, sent, got))
    if kind in JSONS or (kind is Scalar.TEXT and not isinstance(sent, str)):
        return bool(exactly(got) == exactly(json.dumps(sent)))
    if kind is Scalar.TEXT or kind in TIMES:
        return bool(got == sent)
    if kind in LEFT_OUT:
        return isinstance(sent, str) and LEFT_OUT[kind].search(sent) is None
    if isinstance(got, bool) or isinstance(sent, bool):
        return got is sent
    if isinstance(got, int | Decimal):
        return Decimal(str(sent)) == got
    if isinstance(got, float):
        return float(sent) == got or math.isnan(got)
    return isinstance(got, date | datetime | bytes | bytearray) and isinstance(sent, str)


def exactly(text: str) -> Any:
    """A JSON value whose numbers keep all their digits."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def kept_in(kind: Struct, sent: dict[str, Any], got: Mapping[str, Any]) -> Iterator[bool]:
    """Yield whether each field was kept; it may have been renamed in case only."""
    declared = Counter(column.source.lower() for column in kind.fields)
    names = Counter(map(str.lower, sent))
    variants = {name.lower(): value for name, value in sent.items() if names[name.lower()] == 1}
    for column in kind.fields:
        name = column.source
        value = sent.get(name)
        if name not in sent and declared[name.lower()] == 1:
            value = variants.get(name.lower())
        yield kept(column.kind, value, got[column.name])


@pytest.mark.spec("protocol.52")
@given(st.dictionaries(st.text(max_size=3) | names, schemas, max_size=6), malformed)
def test_any_schema_can_be_converted_to_columns(properties: dict[str, Any], odd: Any) -> None:
    found = columns({"properties": properties})
    schema = table_schema(found)
    assert [column.source for column in found] == list(properties)
    assert len({name.casefold() for name in schema.names}) == len(schema.names)
    assert all(re.fullmatch(r"\w+", name) for name in schema.names)
    columns({"properties": odd})
