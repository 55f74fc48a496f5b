"""Values of all types, compared with the server's own text: equal, or a recorded change."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from connectors.sdk.items import Page
from tests.connectors.postgres.support import FULL, Database
from tests.connectors.postgres.values import COLUMNS, TYPES, VALUES, make_table

pytestmark = pytest.mark.external

NULLED = [
    ("numeric(12,2)", "'NaN'"),
    ("numeric(18)", "'NaN'"),
    ("float8", "'NaN'"),
    ("float8", "'-Infinity'"),
    ("real", "'Infinity'"),
    ("timestamptz", "'infinity'"),
    ("timestamptz", "'-infinity'"),
    ("timestamptz", "'0044-03-15 12:00:00+00 BC'"),
    ("timestamptz", "'290000-01-01 00:00:00+00'"),
    ("timestamptz", "'10000-01-01 00:00:00+00'"),
    ("timestamp", "'-infinity'"),
    ("timestamp", "'294276-12-31 23:59:59.999999'"),
    ("date", "'infinity'"),
    ("date", "'-infinity'"),
    ("date", "'0001-01-01 BC'"),
    ("date", "'5874897-12-31'"),
]
"""The values that become null, and are recorded. All others are the server's."""


def parse_json(text: str) -> Any:
    return json.loads(text, parse_float=str, parse_int=str, object_pairs_hook=list)


def parse_time(text: str) -> datetime:
    text = text.replace(" ", "T").replace("Z", "+00:00")
    text = text + ":00" if text.endswith("+00") else text
    seconds, dot, rest = text.partition(".")
    digits = rest.partition("+")[0] if dot else ""
    zone = "+00:00" if text.endswith("+00:00") else ""
    seconds = seconds.removesuffix("+00:00")
    return datetime.fromisoformat(f"{seconds}.{digits:0<6}{zone}")


def is_same(schema: dict[str, Any], value: Any, text: str) -> bool:
    """Whether a value is what the server's text says. `text`: of to_json for arrays and composites."""
    if "type" not in schema:
        return bool(parse_json(_raw(value)) == parse_json(text))
    kinds: dict[str, Callable[[], bool]] = {
        "integer": lambda: str(int(value)) == text and Decimal(value) == int(value),
        "number": lambda: (
            Decimal(text) == value if isinstance(value, Decimal) else float(text) == value
        ),
        "boolean": lambda: {"t": True, "f": False}[text] is value,
        "array": lambda: parse_json(_raw(value)) == parse_json(text),
        "object": lambda: parse_json(_raw(value)) == parse_json(text),
        "string": lambda: _is_same_string(schema, value, text),
    }
    return kinds[schema["type"][0]]()


def _is_same_string(schema: dict[str, Any], value: str, text: str) -> bool:
    if "contentEncoding" in schema:
        return "\\x" + base64.b64decode(value).hex() == text
    if schema.get("format") == "date":
        return date.fromisoformat(value) == date.fromisoformat(text)
    if schema.get("format") == "date-time":
        has_zone = schema["airbyte_type"] == "timestamp_with_timezone"
        return parse_time(value) == parse_time(text) and (value[-1] == "Z") is has_zone
    return value == text


def _raw(value: Any) -> str:
    """The JSON text of a value, which the SDK passes on as it stands."""
    return bytes(value).decode() if not isinstance(value, str) else value


@pytest.mark.parametrize("way", ["slices", "records"])
def test_each_value_is_the_servers_or_recorded(database: Database, way: str) -> None:
    assert len(VALUES) >= 105
    database.execute(TYPES + make_table("t"))
    reader = database.reader("t", FULL)
    if way == "slices":
        rows = reader.read()
        recorded = {change["field"] for change in reader.changes}
        assert len(reader.changes) == len(recorded)
    else:
        pages = [p for p in reader.stream.read(reader.configured, None) if isinstance(p, Page)]
        rows = [row for page in pages for row in page.records]
        recorded = {c["field"] for page in pages for cs in page.changes.values() for c in cs}
    row, *others = sorted(rows, key=lambda row: row["id"] != 2)
    properties = reader.stream.json_schema["properties"]
    expressions = []
    for name in COLUMNS:
        is_nested = properties[name].get("type", [""])[0] in ("array", "object")
        text = f"to_json({name})::text" if is_nested else f"format('%s', {name})"
        expressions.append(f"{text} AS {name}")
    database.execute("SET timezone = 'UTC'")
    query = f"SELECT row_to_json(x) FROM (SELECT {', '.join(expressions)} FROM t WHERE id = 2) x"
    texts = json.loads(database.execute(f"SET timezone = 'UTC'; {query}"))
    nulled = {name for name, case in zip(COLUMNS, VALUES, strict=True) if case in NULLED}
    assert recorded == nulled
    wrong = [
        (case, row.get(name, "missing"), texts[name])
        for name, case in zip(COLUMNS, VALUES, strict=True)
        if (name in nulled and row[name] is not None)
        or (name not in nulled and not is_same(properties[name], row[name], texts[name]))
    ]
    assert not wrong
    for other in others:
        assert {n for n, v in other.items() if v is not None} == {"id", _name_of("deeper")}


def _name_of(kind: str) -> str:
    return next(
        name for name, (type_name, _) in zip(COLUMNS, VALUES, strict=True) if type_name == kind
    )


def test_settings_of_the_role_do_not_change_values(database: Database) -> None:
    """Texts of values depend on a dozen settings."""
    user = f"{database.schema}_user"
    database.execute(
        "CREATE VIEW t AS SELECT '1 day 02:03:04'::interval AS i, "
        "'2024-05-06 07:08:09+00'::timestamptz AS t, array['2024-05-06 07:08:09+00'::timestamptz] AS a, "
        "0.1::float8 + 0.2 AS f, '[1.5,2)'::numrange AS r, pg_sleep(0.6)::text AS s;"
        f"CREATE ROLE {user} LOGIN; GRANT SELECT ON t TO {user};"
        f"GRANT USAGE ON SCHEMA {database.schema} TO {user};"
    )
    settings = {"intervalstyle": "sql_standard", "timezone": "Asia/Tokyo", "datestyle": "German"}
    settings |= {"extra_float_digits": "-5", "statement_timeout": "500"}
    settings |= {"standard_conforming_strings": "off"}
    for name, value in settings.items():
        database.execute(f"ALTER ROLE {user} SET {name} = '{value}'")
    expected = database.reader("t", FULL).read()
    assert database.reader("t", FULL, user=user).read() == expected
    assert expected[0]["i"] == "1 day 02:03:04"
    database.execute(f"DROP OWNED BY {user}; DROP ROLE {user}")


def test_another_encoding_of_the_database(database: Database) -> None:
    server = database.server
    server.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    server.execute("CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    server.execute(
        f"CREATE SCHEMA {database.schema}; CREATE TABLE {database.schema}.t AS SELECT U&'\\00e9' AS t",
        "latin",
    )
    assert database.reader("t", FULL, database="latin").read() == [{"t": "é"}]
    with pytest.raises(Exception, match="SQL_ASCII"):
        database.streams(database="ascii")
