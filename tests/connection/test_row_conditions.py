"""Conditions of `filter`: what they keep, against a small model of SQL, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from elt_assets.connection.stream import Condition
from elt_assets.errors import ConfigError
from elt_assets.pipeline.row_conditions import compile_conditions
from elt_assets.protocol.catalog import DELETED_AT, AirbyteStream, ConfiguredStream
from tests.support.examples import examples

TYPES: dict[str, Any] = {
    "whole": {"type": ["null", "integer"]},
    "number": {"type": "number"},
    "big": {"type": "string", "airbyte_type": "big_number"},
    "text": {"type": "string"},
    "flag": {"type": "boolean"},
    "day": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "date-time"},
    "clock": {"type": "string", "format": "time"},
    "any": {"type": ["string", "integer"]},
    "list": {"type": "array", "items": {"properties": {"x": {"type": "string"}}}},
    "part": {"type": "object", "properties": {"x": {"type": "integer"}, "a.b": {"type": "string"}}},
}
STREAM = ConfiguredStream(stream=AirbyteStream(name="things", json_schema={"properties": TYPES}))


def keeps(data: str, *conditions: dict[str, Any], deletes: bool = False) -> bool:
    """Return whether a record is is_stored, by its data as JSON."""
    compiled = [Condition.model_validate(condition) for condition in conditions]
    fields = {name: Raw(json.dumps(value).encode()) for name, value in json.loads(data).items()}
    return compile_conditions(compiled, STREAM, deletes=deletes)(fields)


def refusal(field: Any, operator: str, *value: Any) -> str:
    condition = {"field": field, "operator": operator, **({"value": value[0]} if value else {})}
    with pytest.raises(ConfigError) as caught:
        keeps("{}", condition)
    return str(caught.value)


@pytest.mark.parametrize(
    ("field", "operator", "value", "data", "is_stored"),
    [
        ("number", "=", "0.1", '{"number": 0.10}', True),
        ("number", "=", 0.1, '{"number": 1e-1}', True),
        ("number", "<", "9007199254740993", '{"number": 9007199254740992}', True),
        ("whole", "=", "9007199254740993", '{"whole": 9007199254740992}', False),
        ("whole", "<", 1.5, '{"whole": 1}', True),
        ("whole", "=", 5, '{"whole": "5"}', False),  # no integer: null, as in the table
        ("whole", "!=", 5, '{"whole": "7"}', False),
        ("whole", "is null", None, '{"whole": "7"}', True),
        ("big", ">", "12345678901234567890.1", '{"big": "12345678901234567890.2"}', True),
        ("text", "=", "5", '{"text": 5.0}', True),  # as the column of texts has it
        ("text", "<", "Z", '{"text": "a"}', False),
        ("text", "=", "\U0001f600", '{"text": "\\ud83d\\ude00"}', True),
        ("flag", "!=", True, '{"flag": false}', True),
        ("flag", "in", [True, False], '{"flag": null}', False),
        ("day", "<=", "2026-01-31", '{"day": "2026-01-31T00:00:00Z"}', True),
        ("time", "=", "2026-01-01T00:00:00Z", '{"time": "2026-01-01T01:00:00+01:00"}', True),
        ("time", ">", "2026-01-01", '{"time": "2025-12-31T23:30:00-01:00"}', True),
        ("time", "not in", ["2026-01-01T00:00:00Z"], '{"time": "2026-01-01"}', False),
        ("part.x", "=", 1, '{"part": {"x": 1}}', True),
        ("part.x", "is null", None, '{"part": null}', True),
        ("part.x", "is null", None, '{"part": "text"}', True),
        (["part", "a.b"], "=", "y", '{"part": {"a.b": "y"}}', True),
        ("text", "=", "a", '{"TEXT": "a"}', True),  # the case of a name does not matter
        ("list", "is not null", None, '{"list": []}', True),
        ("any", "is not null", None, '{"any": 0}', True),
        ("clock", "is null", None, '{"clock": "10:00"}', False),
    ],
)
def test_a_condition_compares_what_the_table_would_have(
    field: Any, operator: str, value: Any, data: str, is_stored: bool
) -> None:
    condition = {"field": field, "operator": operator}
    condition |= {} if value is None else {"value": value}
    assert keeps(data, condition) is is_stored


WHOLES = st.none() | st.integers(-3, 3)
TEXTS = st.none() | st.sampled_from(["", "a", "B", "b"])
TIMES = st.none() | st.datetimes(
    dt.datetime(2026, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    dt.datetime(2026, 1, 2),  # noqa: DTZ001
    timezones=st.sampled_from(
        [dt.timezone.utc, dt.timezone(dt.timedelta(hours=2))]
    )
)  # fmt: skip
VALUES = {"whole": WHOLES, "number": WHOLES.map(lambda n: n and Decimal(n) / 10), "text": TEXTS,
          "time": TIMES}  # fmt: skip
OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null"]


@st.composite
def conditions(draw: st.DrawFn) -> dict[str, Any]:
    field, operator = draw(st.sampled_from(list(VALUES))), draw(st.sampled_from(OPERATORS))
    condition: dict[str, Any] = {"field": field, "operator": operator}
    value = VALUES[field].filter(lambda value: value is not None)
    if operator in ("in", "not in"):
        condition["value"] = draw(st.lists(value, min_size=1, max_size=3))
    elif "null" not in operator:
        condition["value"] = draw(value)
    return condition


def write(value: Any) -> Any:
    """Return a value as JSON and YAML have it."""
    if isinstance(value, list):
        return [write(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, dt.datetime) else value


def holds(value: Any, operator: str, other: Any) -> bool | None:
    """Model of SQL: None stands for unknown."""
    if operator in ("is null", "is not null"):
        return (value is None) is (operator == "is null")
    if value is None:
        return None
    if operator in ("in", "not in"):
        return (value in other) is (operator == "in")
    if operator in ("=", "!="):
        return (value == other) is (operator == "=")
    is_less, is_equal = bool(value < other), bool(value == other)
    met = {"<": is_less, "<=": is_less or is_equal, ">=": not is_less}
    return met.get(operator, not is_less and not is_equal)


@settings(max_examples=examples(500), deadline=None)
@given(st.fixed_dictionaries(VALUES), st.lists(conditions(), min_size=1, max_size=3))
def test_the_kept_records_are_those_that_sql_would_select(
    record: dict[str, Any], chosen: list[dict[str, Any]]
) -> None:
    selected = all(
        holds(record[part["field"]], part["operator"], part.get("value")) for part in chosen
    )
    data = json.dumps({name: write(value) for name, value in record.items()})
    in_yaml = [{name: write(value) for name, value in part.items()} for part in chosen]
    assert keeps(data, *in_yaml) is selected


def test_a_delete_meets_every_condition_where_deletes_are_applied() -> None:
    condition = {"field": "text", "operator": "=", "value": "a"}
    data = json.dumps({DELETED_AT: "2026-01-01"})
    assert keeps(data, condition, deletes=True)
    assert not keeps(data, condition)
    assert not keeps(json.dumps({DELETED_AT: None}), condition, deletes=True)


@pytest.mark.parametrize(
    ("field", "operator", "value", "message"),
    [
        ("whole", "=", "many", "the value 'many' is not a number"),
        ("whole", "=", True, "the value True is not a number"),
        ("number", "=", float("nan"), "the value nan is not a number"),
        ("number", "=", 0.12345678901234567, "YAML may not keep all digits of 0.1234567890123456"),
        ("text", "=", 5, "the value 5 is not a text in quotes"),
        ("flag", "=", "true", "the value 'true' is not true or false"),
        ("flag", "<", True, "true and false have no order"),
        ("day", "=", "31.01.2026", "the value '31.01.2026' is not a date"),
        ("day", "<", "2026-01-01T10:00:00", "is not a date"),
        ("time", "in", ["2026-01-01T00:00:00.1234567Z"], "is not a time to the microsecond"),
        ("clock", "=", "10:00", "values of its type cannot be compared"),
        ("any", "=", "x", "values of its type cannot be compared"),
        ("part", "=", "x", "values of its type cannot be compared"),
        ("list.x", "=", "x", "'list.x' is no field of an object"),
        ("list.x", "is null", None, "'list.x' is no field of an object"),
    ],
)
def test_a_condition_that_does_not_fit_its_field_is_refused(
    field: str, operator: str, value: Any, message: str
) -> None:
    text = refusal(field, operator, *([] if value is None else [value]))
    assert text.startswith(f"stream 'things': filter: '{field}'") and message in text
