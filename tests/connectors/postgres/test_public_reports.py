"""Inputs of public bug reports about sources of this kind, as far as no other test has them."""

from __future__ import annotations

from datetime import date

import pytest

from connectors.postgres.position import build_new_rows_condition
from connectors.postgres.snapshot import Snapshot
from tests.connectors.postgres.support import FULL, Database, use_cursor

pytestmark = pytest.mark.external


def test_types_of_extensions_and_arrays_of_any_type(database: Database) -> None:
    """dlt-hub/dlt#3623: hstore is no known type. slingdata-io/sling-cli#179: arrays of uuid."""
    database.execute(
        "CREATE EXTENSION IF NOT EXISTS hstore WITH SCHEMA public;"
        "CREATE EXTENSION IF NOT EXISTS citext WITH SCHEMA public;"
        "CREATE TABLE t (h hstore, c citext, u uuid[]); INSERT INTO t VALUES ('a=>1', 'Ab', "
        "'{123e4567-e89b-12d3-a456-426614174000}')"
    )
    (row,) = database.reader("t", FULL).read()
    assert (row["h"], row["c"]) == ('"a"=>"1"', "Ab")
    assert bytes(row["u"]) == b'["123e4567-e89b-12d3-a456-426614174000"]'


def test_a_read_without_new_rows_keeps_the_state(database: Database) -> None:
    """airbytehq/airbyte#72936: the cursor is reset, so that the next read has all rows again."""
    database.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    for cursor, config in (("id", {}), (None, {"incremental": "xmin"})):
        reader = database.reader("t", use_cursor(cursor), **config)
        assert [len(reader.read()) for _ in range(4)] == [1, 0, 0, 0]


def test_rows_of_the_same_day_that_come_after_a_read(database: Database) -> None:
    """airbytehq/airbyte#44450: the lower bound must be included, and #80152, #85918: rows at the boundary."""
    database.execute(
        "CREATE TABLE t (id int, day date DEFAULT '2024-05-06'); INSERT INTO t VALUES (1)"
    )
    reader = database.reader("t", use_cursor("day"))
    assert [row["day"] for row in reader.read()] == [str(date(2024, 5, 6))]
    database.execute("INSERT INTO t VALUES (2), (3)")
    assert sorted(row["id"] for row in reader.read()) == [2, 3]
    assert reader.read() == []


def test_microseconds_of_a_cursor(database: Database) -> None:
    """confluentinc/kafka-connect-jdbc#70: the last row comes again, since milliseconds are compared."""
    database.execute(
        "CREATE TABLE t (at timestamp); INSERT INTO t VALUES ('2016-03-19 05:00:02.856665')"
    )
    database.execute("CREATE VIEW seen AS SELECT * FROM t")
    assert [len(database.reader("t", use_cursor("at")).read()) for _ in range(2)] == [1, 1]
    reader = database.reader("seen", use_cursor("at"))
    assert reader.read() == reader.read()  # a view has the last value again, and no more
    database.execute("INSERT INTO t VALUES ('2016-03-19 05:00:02.856664')")
    assert len(reader.read()) == 1


@pytest.mark.parametrize(
    ("least", "end", "new", "old"),
    [
        (100, 200, [100, 199], [99, 200, 3]),
        (2**32 - 10, 2**32 + 10, [2**32 - 10, 2**32 - 1, 3, 9], [10, 2**32 - 11, 2**31]),
        (5 * 2**32 + 7, 5 * 2**32 + 7, [], [7, 6, 8, 2**32 - 1]),
        (50, 50 + 2**32, [3, 100, 2**32 - 1], []),
    ],
)
def test_the_numbers_of_transactions_wrap_around(
    database: Database, least: int, end: int, new: list[int], old: list[int]
) -> None:
    """airbytehq/airbyte#38849, #36907: after a wraparound of xmin, each read has all rows."""
    snapshot = Snapshot("", end, end, "", 0, 0.0, 150000, 8192, "")
    condition = build_new_rows_condition(least, snapshot)
    values = ", ".join(f"('{number}'::xid)" for number in new + old)
    query = f"SELECT xmin FROM (VALUES {values}) v (xmin) WHERE {condition}"
    assert sorted(map(int, database.lines(query))) == sorted(new)
