"""The tables that sources copy, as SQL of their servers."""

from __future__ import annotations

WIDE_COLUMNS = 60
WIDE_KINDS = (
    ("int", "g % 1000000"),
    ("numeric(12,2)", "g * 31 % 100000000 / 100.0"),
    ("double precision", "sqrt(g)"),
    ("text", "md5(g::text)"),
    ("timestamptz", "timestamptz '2020-01-01 00:00:00+00' + g * interval '11.123456 seconds'"),
    ("date", "date '2015-01-01' + (g % 4000)::int"),
)
"""Types and values of the columns of the wide table, which come again and again."""
_POSTGRES_TABLE = """
CREATE TABLE {name} (id bigint PRIMARY KEY, i int, amount numeric(12,2), d double precision, t text,
  customer varchar(32), at timestamptz, day date, flag boolean, j jsonb);
{insert};
VACUUM (FREEZE, ANALYZE) {name};
"""
_POSTGRES_ROWS = """
INSERT INTO {name} SELECT g, nullif(g * 7919 % 1000000, 0), g * 31 % 100000000 / 100.0, sqrt(g),
  substr(md5(g::text) || md5((g + 1)::text), 1, 20 + (g % 21)::int), 'customer-' || (g % 50000),
  timestamptz '2020-01-01 00:00:00+00' + g * interval '11.123456 seconds',
  date '2015-01-01' + (g % 4000)::int,
  g % 2 = 0, jsonb_build_object('a', g, 'tag', 'x' || (g % 100), 'ok', g % 2 = 0)
  FROM generate_series({first}::bigint, {last}::bigint) g
"""
LARGE_VALUES = """
CREATE TABLE {name} (id bigint PRIMARY KEY, n int, body text);
ALTER TABLE {name} ALTER body SET STORAGE EXTERNAL;
INSERT INTO {name} SELECT g, g, repeat(md5(g::text), 100) FROM generate_series(1, {rows}::bigint) g;
VACUUM (FREEZE, ANALYZE) {name};
"""
"""A table with values that are stored out of line."""
VALUE_BYTES = 10_000_000
HUGE_VALUES = f"""
CREATE TABLE {{name}} (id bigint PRIMARY KEY, body text);
INSERT INTO {{name}} SELECT g, repeat(md5(g::text), {VALUE_BYTES // 32})
  FROM generate_series(1, {{rows}}::bigint) g;
VACUUM (FREEZE, ANALYZE) {{name}};
"""
"""A table with values of `VALUE_BYTES`."""
MYSQL_TABLE = """
CREATE TABLE {name} (id bigint PRIMARY KEY, i int, amount decimal(12,2), d double, t varchar(64),
  customer varchar(32), at datetime(6), day date, flag int, j text);
INSERT INTO {name} SELECT seq, seq * 7919 % 1000000, seq * 31 % 100000000 / 100, SQRT(seq),
  SUBSTR(CONCAT(MD5(seq), MD5(seq + 1)), 1, 20 + seq % 21), CONCAT('customer-', seq % 50000),
  '2020-01-01' + INTERVAL seq SECOND, '2015-01-01' + INTERVAL seq % 4000 DAY, seq % 2,
  CONCAT('{{"a": ', seq, ', "tag": "x', seq % 100, '"}}') FROM seq_1_to_{rows};
ANALYZE TABLE {name};
"""


def create_table(name: str, rows: int) -> str:
    """Return the SQL that makes a table of PostgreSQL with ten columns."""
    return _POSTGRES_TABLE.format(name=name, insert=insert_rows(name, 1, rows))


def insert_rows(name: str, first: int, last: int) -> str:
    """Return the SQL that inserts the rows of some keys into such a table."""
    return _POSTGRES_ROWS.format(name=name, first=first, last=last)


def create_wide_table(name: str, rows: int) -> str:
    """Return the SQL that makes a table of PostgreSQL with a key and many other columns."""
    kinds = [WIDE_KINDS[n % len(WIDE_KINDS)] for n in range(WIDE_COLUMNS - 1)]
    columns = ", ".join(f"c{n} {kind}" for n, (kind, _) in enumerate(kinds))
    values = ", ".join(value for _, value in kinds)
    return (
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, {columns});\n"
        f"INSERT INTO {name} SELECT g, {values} FROM generate_series(1, {rows}::bigint) g;\n"
        f"VACUUM (FREEZE, ANALYZE) {name};"
    )
