"""Values of all types: name, type, literal."""

from __future__ import annotations

import os

TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s, "fine"');
CREATE TYPE pair AS (a int, b text, "c d" numeric);
CREATE DOMAIN posint AS int CHECK (VALUE > 0);
CREATE DOMAIN money2 AS numeric(14,2);
CREATE DOMAIN deeper AS money2 NOT NULL DEFAULT 0;
CREATE DOMAIN words AS text[];
CREATE TYPE floatrange2 AS RANGE (subtype = float8);
"""
_VALUES: list[tuple[str, str]] = [
    ("numeric(12,2)", "'9999999999.99'"),
    ("numeric(12,2)", "'-0.01'"),
    ("numeric(12,2)", "'NaN'"),
    ("numeric", "'123456789012345678901234567890.123456789'"),
    ("numeric", "'0.0000000000000000001'"),
    ("numeric", "'NaN'"),
    ("numeric", "'-Infinity'"),
    ("numeric", "'1.500'"),
    ("numeric", "'1e131071'"),
    ("numeric(60,20)", "'1234567890123456789012345678901234567890.12345678901234567890'"),
    ("numeric(38,10)", "'1234567890123456789012345678.0123456789'"),
    ("numeric(38,9)", "'-99999999999999999999999999999.999999999'"),
    ("numeric(18,0)", "'999999999999999999'"),
    ("numeric(18)", "'NaN'"),
    ("numeric(19,0)", "'-9999999999999999999'"),
    ("numeric(38,0)", "'99999999999999999999999999999999999999'"),
    ("numeric(39,0)", "'999999999999999999999999999999999999999'"),
    ("numeric(3,-2)", "'12345'"),
    ("numeric(2,4)", "'0.0012'"),
    ("float8", "'NaN'"),
    ("float8", "'-Infinity'"),
    ("float8", "'0.1'::float8 + 0.2"),
    ("float8", "'5e-324'"),
    ("float8", "'1.7976931348623157e308'"),
    ("float8", "'-0'"),
    ("real", "'0.1'"),
    ("real", "'3.4028235e38'"),
    ("real", "'1e-45'"),
    ("real", "'Infinity'"),
    ("timestamptz", "'2024-02-29 23:59:59.999999+02'"),
    ("timestamptz", "'infinity'"),
    ("timestamptz", "'-infinity'"),
    ("timestamptz", "'0044-03-15 12:00:00+00 BC'"),
    ("timestamptz", "'290000-01-01 00:00:00+00'"),
    ("timestamptz", "'0001-01-01 00:00:00+00'"),
    ("timestamptz", "'9999-12-31 23:59:59.999999+00'"),
    ("timestamptz", "'10000-01-01 00:00:00+00'"),
    ("timestamp", "'2024-01-01 00:00:00.123456'"),
    ("timestamp", "'1582-10-10 01:02:03'"),
    ("timestamp", "'-infinity'"),
    ("timestamp", "'294276-12-31 23:59:59.999999'"),
    ("timestamp(0)", "'2024-01-01 00:00:00.6'"),
    ("date", "'1582-10-10'"),
    ("date", "'0001-01-01'"),
    ("date", "'9999-12-31'"),
    ("date", "'infinity'"),
    ("date", "'-infinity'"),
    ("date", "'0001-01-01 BC'"),
    ("date", "'5874897-12-31'"),
    ("time", "'24:00:00'"),
    ("time", "'12:34:56.789012'"),
    ("timetz", "'12:34:56.789+05:30'"),
    ("interval", "'1 year 2 mons 3 days 04:05:06.789'"),
    ("interval", "'-178000000 years'"),
    ("jsonb", """'{"a":1.10,"b":12345678901234567890,"u":"\\u00e9"}'"""),
    ("jsonb", "'[1, null, {}]'"),
    ("jsonb", "'\"text\"'"),
    ("json", """'{"a":1,  "b":\n2}'"""),
    ("json", "'12'"),
    ("text", "''"),
    ("text", "E'a\\nb\\r\\n\"q\",\\\\N \\t'"),
    ("text", "'\\N'"),
    ("text", "'\\.'"),
    ("text", "'😀'"),
    ("text", "repeat('x', 3000000)"),
    ("text", "E'\\u2028\\u0001'"),
    ("varchar(5)", "'ab  '"),
    ("char(10)", "'ab'"),
    ('"char"', "'c'"),
    ("name", "'nm'"),
    ("bytea", "'\\x00ff0a'"),
    ("bytea", "''"),
    ("uuid", "'123e4567-e89b-12d3-a456-426614174000'"),
    ("boolean", "true"),
    ("boolean", "false"),
    ("smallint", "-32768"),
    ("integer", "2147483647"),
    ("bigint", "-9223372036854775808"),
    ("bigint", "9223372036854775807"),
    ("oid", "4294967295"),
    ("xid", "'4294967295'"),
    ("regclass", "'pg_class'"),
    ("money", "'-$1,234.56'"),
    ("int[]", "'{1,NULL,3}'"),
    ("text[]", """'{"a,b",NULL,"NULL",""}'"""),
    ("int[][]", "'{{1,2},{3,4}}'"),
    ("numeric[]", "'{1.50,2}'"),
    ("int[]", "'{}'"),
    ("int[]", "'[5:6]={1,2}'"),
    ("jsonb[]", """array['{"a":1}'::jsonb]"""),
    ("timestamptz[]", "array['2024-01-01 00:00+00'::timestamptz]"),
    ("bytea[]", "array['\\x00ff'::bytea]"),
    ("mood[]", "array['sad'::mood]"),
    ("pair[]", "array[ROW(1,'x',2.50)::pair]"),
    ("words", "array['a']"),
    ("int2vector", "'1 2'"),
    ("oidvector", "'1 2'"),
    ("int4range", "'[1,5)'"),
    ("tstzrange", "'[2020-01-01 00:00+00,infinity)'"),
    ("numrange", "'empty'"),
    ("floatrange2", "'[1.5,2.5]'"),
    ("int4multirange", "'{[1,3),[5,8)}'"),
    ("mood", "'it''s, \"fine\"'"),
    ("bit(5)", "B'10110'"),
    ("varbit", "B'101'"),
    ("inet", "'10.0.0.1/8'"),
    ("inet", "'::1'"),
    ("cidr", "'10.0.0.0/8'"),
    ("macaddr", "'08:00:2b:01:02:03'"),
    ("macaddr8", "'08:00:2b:01:02:03:04:05'"),
    ("point", "'(1.5,2)'"),
    ("polygon", "'((0,0),(1,1),(1,0))'"),
    ("circle", "'<(1,2),3>'"),
    ("xml", "'<a/>'"),
    ("xml", """'<?xml version="1.0" encoding="UTF-8"?><a>é</a>'"""),
    ("xml", "'<?xml version=\"1.1\"?><a/>'"),
    ("xml[]", """array['<?xml version="1.0" encoding="UTF-8"?><a/>'::xml]"""),
    ("cidr", "'10.1.2.3/32'"),
    ("inet", "'10.0.0.1/32'"),
    ("oid[]", "'{4294967295,1}'"),
    ("refcursor", "'c'"),
    ("regtype", "'int[]'"),
    ("tsvector", "'fat cat'"),
    ("tsquery", "'fat & cat'"),
    ("pair", "ROW(1,'x',2.50)"),
    ("posint", "5"),
    ("money2", "12.30"),
    ("deeper", "-0.05"),
    ("pg_lsn", "'0/16'"),
    ("jsonpath", "'$.a'"),
    ("txid_snapshot", "'10:20:10,14,15'"),
]
_NEEDS = {
    ("numeric", "'-Infinity'"): 14,
    ("int4multirange", "'{[1,3),[5,8)}'"): 14,
    ("numeric(3,-2)", "'12345'"): 15,
    ("numeric(2,4)", "'0.0012'"): 15,
}
"""The first version of the server that has a value."""
VERSION = int(os.environ.get("POSTGRES_VERSION", "15"))
VALUES = [case for case in _VALUES if _NEEDS.get(case, 0) <= VERSION]
COLUMNS = [f"c{number}" for number in range(len(VALUES))]


def make_table(name: str) -> str:
    """SQL that makes a table with a column for each value: a row with them, and two rows without."""
    definitions = ", ".join(f"{c} {t}" for c, (t, _) in zip(COLUMNS, VALUES, strict=True))
    literals = ", ".join(f"({value})::{kind}" for kind, value in VALUES)
    nulls = ", ".join("0" if kind == "deeper" else "NULL" for kind, _ in VALUES)
    return (
        f"CREATE TABLE {name} (id int PRIMARY KEY, {definitions});"
        f"INSERT INTO {name} VALUES (2, {literals}), (1, {nulls}), (3, {nulls});"
    )
